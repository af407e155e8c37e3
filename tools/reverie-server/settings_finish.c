#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "net/address.h"
#include "persist/checkpoint_dir.h"
#include "settings.h"

enum { DEFAULT_PORT = 8000 };

static bool wrong(const settings *all, const char *setting, rv_error *err, const char *sentence)
{
  rv_fail(err, RV_INVALID_ARGUMENT, "%s", sentence);
  return settings_fail_at(all, setting, err);
}

static bool finish_disk(const settings *all, rv_error *err)
{
  if (all->checkpoint_path == NULL &&
      (all->checkpoint_fallback != NULL || all->checkpoint_every_ms > 0 || all->checkpoint_every_inserts > 0 ||
       all->checkpoint_keep > 0 || all->checkpoint_level >= 0 || all->checkpoint_incremental != 0 ||
       all->checkpoint_required != 0))
    return wrong(all, "checkpoint_", err,
                 "checkpoints have no path; give one by --checkpoints DIRECTORY, or path in the file's checkpoints");
  if (all->journal_path == NULL && (all->journal_mode != 0 || all->journal_period_ms > 0 || all->journal_max_queued_bytes > 0 ||
                                    all->journal_checkpoint_bytes > 0 || all->journal_salvage != 0))
    return wrong(all, "journal_", err, "the journal has no path; give one by --journal DIRECTORY, or path in the file's journal");
  if (all->spill_path != NULL && all->memory_limit == 0)
    return wrong(all, "spill_path", err,
                 "a spill needs a memory_limit, near which chunks go there: give one by --memory-limit BYTES, or memory_limit in "
                 "the file's limits");
  if (all->spill_path == NULL && all->spill_max_bytes > 0)
    return wrong(all, "spill_", err, "the spill has no path; give one by --spill DIRECTORY, or path in the file's spill");
  if (all->journal_path != NULL && all->checkpoint_path == NULL)
    return wrong(all, "journal_path", err,
                 "a journal goes on from checkpoints; give those a path, too: --checkpoints DIRECTORY, or path in the file's "
                 "checkpoints");
  if (all->journal_path != NULL && rv_is_same_directory(all->journal_path, all->checkpoint_path)) {
    rv_fail(err, RV_INVALID_ARGUMENT, "the journal and the checkpoints have one directory, %s; give each its own",
            all->journal_path);
    return settings_fail_at(all, "journal_path", err);
  }
  return true;
}

static bool finish_tls(const settings *all, rv_error *err)
{
  if (all->tls_certificate == NULL && (all->tls_key != NULL || all->tls_authority != NULL || all->tls_revocation_list != NULL))
    return wrong(all, "tls_", err,
                 "TLS has no certificate of the server; give one by --tls-certificate FILE, or certificate in the file's tls");
  if (all->tls_authority == NULL && all->tls_revocation_list != NULL)
    return wrong(all, "tls_revocation_list", err,
                 "nobody's certificates are asked for that could be revoked; give who signs them by --tls-authority FILE, or "
                 "authority in the file's tls");
  return true;
}

static bool is_same_address(const char *left, const char *right)
{
  rv_address a, b;
  if (rv_address_parse(left, &a, NULL) != RV_OK || rv_address_parse(right, &b, NULL) != RV_OK || a.is_unix != b.is_unix)
    return false;
  if (a.is_unix) return strcmp(a.path, b.path) == 0;
  return a.port != 0 && a.port == b.port && strcmp(a.host, b.host) == 0; /* 0 is another port each time */
}

/* Which could not be listened on twice, but would be told as in use, as if by somebody else. */
static bool has_no_address_twice(const settings *all, rv_error *err)
{
  for (size_t i = 1; i < all->num_addresses; i++)
    for (size_t k = 0; k < i; k++) {
      if (!is_same_address(all->addresses[k], all->addresses[i])) continue;
      const char *place = places_find(&all->places, PLACE_ADDRESS, i, 0);
      rv_fail(err, RV_INVALID_ARGUMENT, "the address %.300s stands twice; take one out", all->addresses[i]);
      if (place != NULL) rv_error_prefix(err, "%s", place);
      return false;
    }
  return true;
}

/* "127.0.0.1:8000", "[::1]:8000", but not "::1". */
static bool has_port(const char *host)
{
  const char *colon = strchr(host, ':');
  if (host[0] == '[') return strstr(host, "]:") != NULL;
  return colon != NULL && strchr(colon + 1, ':') == NULL;
}

static bool finish_addresses(settings *all, rv_error *err)
{
  const char *given = all->host != NULL ? "host" : "port";
  if (all->num_addresses > 0)
    return ((all->host == NULL && all->port < 0) ||
            wrong(all, given, err, "both listen and host or port are given; give listen alone, as HOST:PORT")) &&
           has_no_address_twice(all, err);
  char text[300];
  rv_address address;
  const char *host = all->host != NULL ? all->host : "127.0.0.1";
  if (has_port(host)) {
    rv_fail(err, RV_INVALID_ARGUMENT,
            "\"%.200s\" is a host with a port; give the port by itself, by --port N or the file's port, or both by listen", host);
    return settings_fail_at(all, given, err);
  }
  bool bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
  int length = snprintf(text, sizeof text, bare_ipv6 ? "[%s]:%d" : "%s:%d", host, all->port < 0 ? DEFAULT_PORT : (int)all->port);
  if (length < 0 || (size_t)length >= sizeof text) return wrong(all, given, err, "the host's name is too long");
  if (rv_address_parse(text, &address, err) != RV_OK) return settings_fail_at(all, given, err);
  settings_add_address(all, text, settings_place(all, given));
  return true;
}

bool settings_finish(settings *all, rv_error *err)
{
  if (all->num_tables == 0) {
    rv_fail(err, RV_INVALID_ARGUMENT, "no tables: give --table name=NAME, or a file with tables by --config FILE");
    return false;
  }
  return finish_disk(all, err) && finish_tls(all, err) && finish_addresses(all, err);
}
