/* What reverie-server is told by its flags and its configuration file, and how the texts of single values are read.
 *
 * Both ways set the same fields through the same functions here, so that a value is spelled alike in both. Functions that can
 * fail return false and fill the rv_error with what is wrong and what would be right; where it stands (file and line, flag) is
 * put before it by whoever knows. */
#ifndef RV_TOOL_SETTINGS_H
#define RV_TOOL_SETTINGS_H

#include "arena.h"
#include "places.h"
#include "reverie/reverie.h"

typedef struct settings {
  arena memory; /* of everything below */
  bool again;   /* read by a server that runs */
  const char **addresses;
  size_t num_addresses;
  bool listen_by_flag; /* the file's addresses were dropped */
  const char *host;    /* with `port`, when no addresses are given */
  int64_t port;        /* -1: not given */
  int64_t threads;
  int64_t shared_memory;
  int64_t max_message_bytes, max_connections, max_streams_per_connection, max_writer_sessions, writer_session_ttl_ms,
      peer_timeout_ms;
  int64_t max_connections_per_address, max_streams_per_identity, max_bytes_per_identity;
  int64_t max_stream_chunk_bytes, max_orphan_bytes, max_decode_cache_bytes, memory_limit;
  int64_t drain_ms;
  const uint64_t *seed;                              /* NULL: none */
  const char *checkpoint_path, *checkpoint_fallback; /* NULL: none */
  int64_t checkpoint_every_ms, checkpoint_every_inserts, checkpoint_keep;
  int64_t checkpoint_level; /* -1: not given */
  int64_t checkpoint_incremental, checkpoint_required;
  const char *journal_path; /* NULL: none */
  int64_t journal_mode;     /* rv_journal_mode; 0: not given */
  int64_t journal_period_ms, journal_max_queued_bytes, journal_checkpoint_bytes;
  int64_t journal_salvage;
  const char *spill_path; /* NULL: none */
  int64_t spill_max_bytes;
  const char *tls_certificate, *tls_key, *tls_authority, *tls_revocation_list; /* NULL: none */
  rv_identity *identities;
  size_t num_identities;
  bool asks; /* identities were given, if only an empty list */
  rv_log_level log_level;
  rv_table_config *tables; /* `name` NULL until it is set */
  size_t num_tables;
  places places; /* where these were given */
} settings;

void settings_init(settings *all);
void settings_free(settings *all);
/* After everything was read: there are tables and they have names; addresses are filled in from host and port. */
bool settings_finish(settings *all, rv_error *err);

/* Sets a field of the whole ("port", "max_message_bytes"), given at `place` (places.h), which an error does not say. Unknown names are
 * told as by settings_unknown. */
bool settings_set(settings *all, const char *name, const char *text, const char *place, rv_error *err);
/* Where that setting was given; "journal_": the first that was of those. NULL: none was. */
const char *settings_place(const settings *all, const char *name);
/* Puts that before an error. Always false. */
bool settings_fail_at(const settings *all, const char *name, rv_error *err);
bool settings_has(const char *name);
/* Says that there is none of this name, and which one is near; a file's mappings count where it was read there. Always false. */
bool settings_unknown(const char *name, bool in_file, rv_error *err);
bool settings_is_limit(const char *name);
/* The limit whose name is near that one; NULL: none is. */
const char *settings_near_limit(const char *name);
/* Fields of the file's mapping of that name: "path" of "checkpoint" is the setting "checkpoint_path". */
bool settings_is_of(const char *mapping, const char *name);
/* The field of that mapping whose name is near that one; NULL: none is. */
const char *settings_near_of(const char *mapping, const char *name);
/* The name of the next setting of the whole, from *at on (0: the first), that is not the same in both, which were finished; NULL: there is
 * none more. Where it listens is `port` or `host` where these are given, else `listen`. */
const char *settings_next_difference(const settings *a, const settings *b, size_t *at);
void settings_add_address(settings *all, const char *address, const char *place);

/* An empty one, and its next grant. Valid until the next is added. */
rv_identity *settings_add_identity(settings *all, const char *place);
rv_grant *identity_add_grant(arena *memory, rv_identity *identity);
/* A table with the defaults, to be set. Valid until the next is added. */
rv_table_config *settings_add_table(settings *all, const char *place);
/* Sets a field of a table: name, sampler, remover, max_size, max_bytes, max_times_sampled, rate_limiter, preset, extension. */
bool table_set(arena *memory, rv_table_config *table, const char *name, const char *text, rv_error *err);
void table_add_extension(arena *memory, rv_table_config *table, const char *name, const char *options);
/* "name=replay,sampler=prioritized:0.6,..." */
bool settings_add_table_text(settings *all, const char *text, const char *place, rv_error *err);

/* ---- values ---- */

bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out, rv_error *err);
bool parse_double(const char *text, double *out, rv_error *err);
/* "65536", "64KiB", "1GiB"; min: 0 where that is no bound, or 1. */
bool parse_bytes(const char *text, int64_t min, int64_t *out, rv_error *err);
bool parse_right(const char *text, unsigned *rights, rv_error *err); /* "read"; added to *rights */
bool parse_seconds(const char *text, int64_t *out_ms, rv_error *err);
bool parse_seed(arena *memory, const char *text, const uint64_t **out, rv_error *err);
/* Absolute: what is relative is so to the directory that the program was started in, which an error must show. */
bool parse_path(arena *memory, const char *text, const char **out, rv_error *err);
/* "uniform", "prioritized:0.6"; selectors of one's own are for programs of one's own, which register them. */
bool parse_selector(arena *memory, const char *text, rv_selector_config *out, rv_error *err);
/* "min_size:100", "sample_to_insert_ratio:4:1000:4000", "queue:100", "stack:100", "general:1:1:0:100" */
bool parse_rate_limiter(const char *text, rv_rate_limiter_config *out, rv_error *err);
/* By kind and numbers; names[i] names the i-th number. false: no such kind. */
bool selector_kind_from_name(const char *name, rv_selector_kind *out);
typedef struct limiter_kind {
  const char *name;
  const char *numbers[5]; /* NULL-terminated */
  rv_rate_limiter_config (*make)(const double *numbers);
} limiter_kind;
const limiter_kind *limiter_kinds(void); /* ends with a NULL name */
const limiter_kind *limiter_kind_find(const char *name);

/* ---- the two ways ---- */

/* Reads a YAML file. On failure err's sentence begins with FILE:LINE. */
bool read_config_file(settings *all, const char *path, rv_error *err);

typedef enum flags_action { FLAGS_RUN, FLAGS_CHECK, FLAGS_HELP, FLAGS_VERSION } flags_action;
bool read_flags(settings *all, int argc, char **argv, flags_action *action, rv_error *err);
extern const char flags_help[];

#endif
