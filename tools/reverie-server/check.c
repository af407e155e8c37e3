#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "net/address.h"
#include "persist/journal.h"
#include "server/access.h"

/* Tries the first `count` of them. */
typedef rv_code trial(const settings *all, size_t count, const rv_env *env, rv_error *err);

/* `count` of them fail: the one with which that begins is the one that is wrong, by itself or beside one before it. */
static void blame(const settings *all, place_kind kind, size_t count, trial *attempt, const rv_env *env, rv_error *err)
{
  size_t right = 0, wrong = count;
  while (wrong - right > 1) {
    size_t middle = right + (wrong - right) / 2;
    rv_error ignored;
    if (attempt(all, middle, env, &ignored) == RV_OK)
      right = middle;
    else
      wrong = middle;
  }
  const char *place = wrong > 0 ? places_find(&all->places, kind, wrong - 1, 0) : NULL;
  attempt(all, wrong, env, err);
  if (place != NULL) rv_error_prefix(err, "%s", place);
}

static rv_code try_tables(const settings *all, size_t count, const rv_env *env, rv_error *err)
{
  rv_store *store = NULL;
  const rv_store_config config = {.size = sizeof config,
                                  .env = env,
                                  .tables = all->tables,
                                  .num_tables = count,
                                  .max_decode_cache_bytes = (size_t)all->max_decode_cache_bytes,
                                  .memory_limit = (size_t)all->memory_limit};
  rv_code code = rv_store_new(&config, &store, err);
  rv_store_unref(store);
  return code;
}

rv_code check_tables(const settings *all, const rv_env *env, rv_error *err)
{
  rv_code code = try_tables(all, all->num_tables, env, err);
  if (code != RV_OK) blame(all, PLACE_TABLE, all->num_tables, try_tables, env, err);
  return code;
}

static rv_code try_identities(const settings *all, size_t count, const rv_env *env, rv_error *err)
{
  (void)env;
  rv_access *access = NULL;
  rv_code code = rv_access_new(all->identities, count, NULL, &access, err);
  rv_access_unref(access);
  return code;
}

rv_code check_identities(const settings *all, rv_error *err)
{
  rv_code code = try_identities(all, all->num_identities, NULL, err);
  if (code != RV_OK) blame(all, PLACE_IDENTITY, all->num_identities, try_identities, NULL, err);
  return code;
}

bool has_tls(const settings *all)
{
  return all->tls_certificate != NULL || all->tls_key != NULL || all->tls_authority != NULL || all->tls_revocation_list != NULL;
}

rv_tls_config tls_of(const settings *all)
{
  return (rv_tls_config){.size = sizeof(rv_tls_config),
                         .certificate_file = all->tls_certificate,
                         .key_file = all->tls_key,
                         .authority_file = all->tls_authority,
                         .revocation_file = all->tls_revocation_list};
}

/* Which of the files the sentence is about: it names it. */
static const char *tls_setting(const settings *all, const rv_error *err)
{
  const struct {
    const char *setting, *path;
  } files[] = {
      {"tls_key", all->tls_key}, {"tls_authority", all->tls_authority}, {"tls_revocation_list", all->tls_revocation_list}};
  char quoted[PATH_MAX + 2];
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    if (files[i].path == NULL) continue;
    snprintf(quoted, sizeof quoted, "\"%s\"", files[i].path);
    if (strstr(err->message, quoted) != NULL) return files[i].setting;
  }
  return "tls_certificate";
}

rv_code check_tls(const settings *all, rv_error *err)
{
  const rv_tls_config config = tls_of(all);
  rv_tls *tls = NULL;
  rv_code code = has_tls(all) ? rv_tls_new(&config, true, &tls, err) : RV_OK;
  if (code != RV_OK) settings_fail_at(all, tls_setting(all, err), err);
  rv_tls_unref(tls);
  return code;
}

static rv_code check_journal(const settings *all, rv_error *err)
{
  rv_code code = rv_journal_check_tables(all->num_tables, err);
  if (code == RV_OK) code = rv_journal_check_directory(all->journal_path, err);
  if (code != RV_OK) settings_fail_at(all, "journal_path", err);
  return code;
}

/* The directory, or one that it is in: by its path, for it need not be there. */
static bool is_made_with(const char *directory, const char *made)
{
  size_t size = strlen(directory);
  while (size > 0 && directory[size - 1] == '/') size--;
  return made != NULL && strncmp(made, directory, size) == 0 && (made[size] == '/' || made[size] == '\0');
}

/* A start makes the directories of checkpoints and journal before the spill needs its own. */
static rv_code check_spill(const settings *all, rv_error *err)
{
  const rv_spill_config config = {.size = sizeof config, .path = all->spill_path, .max_bytes = (size_t)all->spill_max_bytes};
  rv_code code = rv_spill_check(&config, err);
  if (code == RV_NOT_FOUND &&
      (is_made_with(all->spill_path, all->checkpoint_path) || is_made_with(all->spill_path, all->journal_path)))
    return RV_OK;
  if (code != RV_OK) settings_fail_at(all, "spill_path", err);
  return code;
}

/* Whole, as other paths in errors are, and with a slash at its end, for it is to be a directory. */
static void directory_of(const char *path, char *out, size_t size)
{
  const char *slash = strrchr(path, '/');
  const int length = slash != NULL ? (int)(slash + 1 - path) : 0;
  if (path[0] == '/' || getcwd(out, size) == NULL) snprintf(out, size, "%s", path[0] == '/' ? "" : ".");
  const size_t begun = strlen(out);
  snprintf(out + begun, size - begun, "%s%.*s", path[0] == '/' ? "" : "/", length, path);
}

/* What holds a socket's file: a start makes none but those of checkpoints and journal. */
static rv_code check_socket(const settings *all, size_t index, rv_error *err)
{
  rv_address address;
  rv_code code = rv_address_parse(all->addresses[index], &address, err);
  if (code != RV_OK || !address.is_unix || address.path[0] == '@') return code;
  char directory[PATH_MAX + sizeof address.path + 2];
  directory_of(address.path, directory, sizeof directory);
  if (faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) == 0) return RV_OK;
  const int refused = errno;
  if (refused == ENOENT && (is_made_with(directory, all->checkpoint_path) || is_made_with(directory, all->journal_path)))
    return RV_OK;
  code = rv_fail(err, RV_FAILED_PRECONDITION,
                 "cannot listen on %.200s: its directory %s cannot be used: %s; make it, or give another", address.text,
                 directory, strerror(refused));
  const char *place = places_find(&all->places, PLACE_ADDRESS, index, 0);
  if (place != NULL) rv_error_prefix(err, "%s", place);
  return code;
}

rv_code check_disks(const settings *all, rv_error *err)
{
  rv_code code = all->journal_path != NULL ? check_journal(all, err) : RV_OK;
  if (code == RV_OK && all->spill_path != NULL) code = check_spill(all, err);
  for (size_t i = 0; i < all->num_addresses && code == RV_OK; i++) code = check_socket(all, i, err);
  return code;
}
