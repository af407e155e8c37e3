#include "warnings.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "net/address.h"
#include "persist/checkpoint_dir.h"

enum { NAMES_SHOWN = 8, LITTLE_MEMORY = 1 << 20, LITTLE_TABLE = 1 << 16 };

static void warn(server_log *log, const char *place, const char *format, ...) RV_PRINTF(3, 4);
static void warn(server_log *log, const char *place, const char *format, ...)
{
  char text[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  log_say(log, RV_LOG_WARNING, "%s%s%s", place != NULL ? place : "", place != NULL ? ": " : "", text);
}

static bool has_table(const settings *served, const char *name)
{
  for (size_t i = 0; i < served->num_tables; i++)
    if (strcmp(served->tables[i].name, name) == 0) return true;
  return false;
}

/* "replay", "queue" and 3 more */
static void name_tables(const settings *served, char *out, size_t size)
{
  size_t length = 0, shown = served->num_tables < NAMES_SHOWN ? served->num_tables : NAMES_SHOWN;
  for (size_t i = 0; i < shown; i++)
    length += (size_t)snprintf(out + length, size - length, "%s\"%.64s\"", i == 0 ? "" : ", ", served->tables[i].name);
  if (shown < served->num_tables) snprintf(out + length, size - length, " and %zu more", served->num_tables - shown);
}

void warn_of_rights(server_log *log, const settings *given, const settings *served)
{
  char tables[NAMES_SHOWN * 70 + 40];
  name_tables(served, tables, sizeof tables);
  if (given->asks && given->num_identities == 0)
    warn(log, places_find(&given->places, PLACE_IDENTITIES, 0, 0),
         "the list of identities is empty, so that every call is refused; add some, or leave identities out where everybody may "
         "call");
  for (size_t i = 0; i < given->num_identities; i++) {
    const rv_identity *identity = &given->identities[i];
    if (identity->num_grants == 0)
      warn(log, places_find(&given->places, PLACE_IDENTITY, i, 0),
           "identity \"%.100s\" has no rights: it may ask for the server's info, and nothing else; give it some, as in rights: "
           "{%.64s: insert}",
           identity->name, served->tables[0].name);
    if (identity->certificate_name != NULL && served->tls_authority == NULL)
      warn(log, places_find(&given->places, PLACE_IDENTITY, i, 0),
           "identity \"%.100s\" is known by its certificate, and nobody is asked for one; give who signs them by "
           "--tls-authority FILE, or authority in the file's tls",
           identity->name);
    for (size_t k = 0; k < identity->num_grants; k++) {
      const char *table = identity->grants[k].table;
      if (table == NULL || has_table(served, table)) continue;
      warn(log, places_find(&given->places, PLACE_GRANT, i, k),
           "there is no table \"%.100s\", so identity \"%.100s\" may do nothing by this; the tables are %s", table,
           identity->name, tables);
    }
  }
}

/* Only this machine reaches it, as far as its text says. */
static bool stays_here(const char *text)
{
  rv_address address;
  struct in_addr v4;
  struct in6_addr v6;
  if (rv_address_parse(text, &address, NULL) != RV_OK || address.is_unix || strcmp(address.host, "localhost") == 0) return true;
  if (inet_pton(AF_INET, address.host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, address.host, &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

void warn_of_open_addresses(server_log *log, const settings *served)
{
  bool encrypted = has_tls(served), asks = served->asks || served->tls_authority != NULL;
  const char *lacks = encrypted ? "passwords" : asks ? "encryption" : "encryption or passwords";
  const char *remedy = encrypted ? "identities" : asks ? "a TLS certificate" : "a TLS certificate and identities";
  for (size_t i = 0; i < served->num_addresses; i++)
    if ((!encrypted || !asks) && !stays_here(served->addresses[i]))
      warn(log, places_find(&served->places, PLACE_ADDRESS, i, 0),
           "%s is open to everybody who reaches this machine by it, without %s; give it %s (docs/security.md), or listen on "
           "127.0.0.1 "
           "to keep it to this machine",
           served->addresses[i], lacks, remedy);
}

/* Tables that are full go on at the limit; those that grow wait below it, which they would do for good if their items stayed: of the limit
 * they have three quarters, less the sixteenth below which they wait, and go beyond their bounds by as much as a chunk. */
static void warn_of_bounds(server_log *log, const settings *served)
{
  double all = 0, most = (double)served->memory_limit / 3 * 2;
  for (size_t i = 0; i < served->num_tables; i++) all += (double)served->tables[i].max_bytes;
  if (served->memory_limit == 0 || served->spill_path != NULL || all <= most) return;
  warn(log, settings_place(served, "memory_limit"),
       "the max_bytes of all tables are %.0f MiB together, more than two thirds of it (%.0f MiB): their inserts may come to "
       "wait for memory before the bounds are reached at which old items go; lower max_bytes, or raise it",
       all / (1 << 20), most / (1 << 20));
}

static void warn_of_little_tables(server_log *log, const settings *served)
{
  for (size_t i = 0; i < served->num_tables; i++) {
    const rv_table_config *table = &served->tables[i];
    if (table->max_bytes > 0 && table->max_bytes < LITTLE_TABLE)
      warn(log, places_find(&served->places, PLACE_TABLE, i, 0),
           "the max_bytes of table \"%.64s\" are %" PRId64
           ": they have room for hardly any items, and larger ones are refused; is a unit missing, as in 4GiB?",
           table->name, table->max_bytes);
  }
}

void warn_of_timeouts(server_log *log, const settings *served)
{
  const char *place = settings_place(served, "peer_timeout_seconds");
  if (place != NULL && served->peer_timeout_ms == 0)
    warn(log, place,
         "0 is the default, 10 s, and not no timeout: a connection without a sign of life of its other end is lost after "
         "that; give the seconds that you mean");
}

void warn_of_fallback(server_log *log, const settings *served)
{
  if (served->checkpoint_fallback == NULL || rv_checkpoint_is_done(served->checkpoint_fallback)) return;
  warn(log, settings_place(served, "checkpoint_fallback"),
       "%s is no checkpoint, or is not there: where the checkpoints' own directory has none, the server would begin empty; give "
       "the "
       "directory of one checkpoint, which has a file " RV_DONE_FILE,
       served->checkpoint_fallback);
}

void warn_of_memory(server_log *log, const settings *served)
{
  warn_of_bounds(log, served);
  warn_of_little_tables(log, served);
  int64_t limit = served->memory_limit, pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const char *place = settings_place(served, "memory_limit");
  if (limit > 0 && limit < LITTLE_MEMORY)
    warn(log, place,
         "%" PRId64 " bytes are hardly enough for one item, and nearly all inserts are refused; is a unit missing, as in 16GiB?",
         limit);
  if (pages > 0 && page > 0 && limit / page > pages)
    warn(log, place,
         "it is %" PRId64 " MiB, and this machine has %" PRId64
         ": the system may end the server before inserts wait; leave a tenth of the memory free",
         limit >> 20, pages * (page >> 10) >> 10);
}
