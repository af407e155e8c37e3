#include "settings.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "net/address.h"
#include "net/net.h"

enum { DEFAULT_DRAIN_MS = 10000, DEFAULT_MAX_SIZE = 1000000, MAX_TIMES = 0x7fffffff };

void settings_init(settings *all)
{
  *all =
      (settings){.port = -1, .shared_memory = 1, .checkpoint_level = -1, .drain_ms = DEFAULT_DRAIN_MS, .log_level = RV_LOG_INFO};
}

void settings_free(settings *all)
{
  arena_free(&all->memory);
}

void settings_add_address(settings *all, const char *address, const char *place)
{
  places_add(&all->places, &all->memory, PLACE_ADDRESS, all->num_addresses, 0, place);
  all->addresses = arena_append(&all->memory, all->addresses, all->num_addresses, sizeof *all->addresses);
  all->addresses[all->num_addresses++] = arena_copy(&all->memory, address, strlen(address));
}

/* ---- the whole ---- */

typedef enum value_kind {
  VALUE_INT,
  VALUE_BYTES,
  VALUE_SECONDS,
  VALUE_SEED,
  VALUE_TEXT,
  VALUE_PATH,
  VALUE_LEVEL,
  VALUE_ADDRESS,
  VALUE_JOURNAL_MODE
} value_kind;

static const struct field {
  const char *name;
  value_kind kind;
  bool is_limit;
  size_t offset;
  int64_t min, max;
} fields[] = {
    {"listen", VALUE_ADDRESS, false, 0, 0, 0},
    {"host", VALUE_TEXT, false, offsetof(settings, host), 0, 0},
    {"port", VALUE_INT, false, offsetof(settings, port), 0, 65535},
    {"shared_memory", VALUE_INT, false, offsetof(settings, shared_memory), 0, 1},
    {"threads", VALUE_INT, false, offsetof(settings, threads), 0, 256},
    {"drain_seconds", VALUE_SECONDS, false, offsetof(settings, drain_ms), 0, 0},
    {"seed", VALUE_SEED, false, offsetof(settings, seed), 0, 0},
    {"log", VALUE_LEVEL, false, 0, 0, 0},
    {"max_message_bytes", VALUE_BYTES, true, offsetof(settings, max_message_bytes), RV_LEAST_MAX_MESSAGE, 0},
    {"max_connections", VALUE_INT, true, offsetof(settings, max_connections), 1, 10000000},
    {"max_connections_per_address", VALUE_INT, true, offsetof(settings, max_connections_per_address), 1, 10000000},
    {"max_streams_per_connection", VALUE_INT, true, offsetof(settings, max_streams_per_connection), 1, 10000000},
    {"max_streams_per_identity", VALUE_INT, true, offsetof(settings, max_streams_per_identity), 1, 1000000000},
    {"max_bytes_per_identity", VALUE_BYTES, true, offsetof(settings, max_bytes_per_identity), 1, 0},
    {"max_writer_sessions", VALUE_INT, true, offsetof(settings, max_writer_sessions), 1, 100000000},
    {"writer_session_ttl_seconds", VALUE_SECONDS, true, offsetof(settings, writer_session_ttl_ms), 0, 0},
    {"peer_timeout_seconds", VALUE_SECONDS, true, offsetof(settings, peer_timeout_ms), 0, 0},
    {"max_stream_chunk_bytes", VALUE_BYTES, true, offsetof(settings, max_stream_chunk_bytes), 1, 0},
    {"max_orphan_bytes", VALUE_BYTES, true, offsetof(settings, max_orphan_bytes), 1, 0},
    {"max_decode_cache_bytes", VALUE_BYTES, true, offsetof(settings, max_decode_cache_bytes), 1, 0},
    {"memory_limit", VALUE_BYTES, true, offsetof(settings, memory_limit), 0, 0},
    {"checkpoint_path", VALUE_PATH, false, offsetof(settings, checkpoint_path), 0, 0},
    {"checkpoint_fallback", VALUE_PATH, false, offsetof(settings, checkpoint_fallback), 0, 0},
    {"checkpoint_every_seconds", VALUE_SECONDS, false, offsetof(settings, checkpoint_every_ms), 0, 0},
    {"checkpoint_every_inserts", VALUE_INT, false, offsetof(settings, checkpoint_every_inserts), 0, INT64_MAX},
    {"checkpoint_keep", VALUE_INT, false, offsetof(settings, checkpoint_keep), 1, 1000000},
    {"checkpoint_level", VALUE_INT, false, offsetof(settings, checkpoint_level), 0, 9},
    {"checkpoint_incremental", VALUE_INT, false, offsetof(settings, checkpoint_incremental), 0, 1},
    {"checkpoint_required", VALUE_INT, false, offsetof(settings, checkpoint_required), 0, 1},
    {"tls_certificate", VALUE_PATH, false, offsetof(settings, tls_certificate), 0, 0},
    {"tls_key", VALUE_PATH, false, offsetof(settings, tls_key), 0, 0},
    {"tls_authority", VALUE_PATH, false, offsetof(settings, tls_authority), 0, 0},
    {"tls_revocation_list", VALUE_PATH, false, offsetof(settings, tls_revocation_list), 0, 0},
    {"spill_path", VALUE_PATH, false, offsetof(settings, spill_path), 0, 0},
    {"spill_max_bytes", VALUE_BYTES, false, offsetof(settings, spill_max_bytes), 0, 0},
    {"journal_path", VALUE_PATH, false, offsetof(settings, journal_path), 0, 0},
    {"journal_mode", VALUE_JOURNAL_MODE, false, offsetof(settings, journal_mode), 0, 0},
    {"journal_period_seconds", VALUE_SECONDS, false, offsetof(settings, journal_period_ms), 0, 0},
    {"journal_max_queued_bytes", VALUE_BYTES, false, offsetof(settings, journal_max_queued_bytes), 1, 0},
    {"journal_checkpoint_bytes", VALUE_BYTES, false, offsetof(settings, journal_checkpoint_bytes), 1, 0},
    {"journal_salvage", VALUE_INT, false, offsetof(settings, journal_salvage), 0, 1},
};
enum { NUM_FIELDS = sizeof fields / sizeof fields[0] };

static const struct field *find_field(const char *name)
{
  for (size_t i = 0; i < NUM_FIELDS; i++)
    if (strcmp(fields[i].name, name) == 0) return &fields[i];
  return NULL;
}

bool settings_has(const char *name)
{
  return find_field(name) != NULL;
}

bool settings_is_limit(const char *name)
{
  const struct field *field = find_field(name);
  return field != NULL && field->is_limit;
}

bool settings_is_of(const char *mapping, const char *name)
{
  char whole[64];
  snprintf(whole, sizeof whole, "%s_%s", mapping, name);
  return settings_has(whole);
}

static bool parse_journal_mode(const char *text, int64_t *out, rv_error *err)
{
  bool always = strcmp(text, "always") == 0, periodic = strcmp(text, "periodic") == 0;
  if (!always && !periodic) rv_fail(err, RV_INVALID_ARGUMENT, "expected always or periodic, got \"%s\"", text);
  *out = always ? RV_JOURNAL_ALWAYS : RV_JOURNAL_PERIODIC;
  return always || periodic;
}

static bool parse_level(const char *text, rv_log_level *out, rv_error *err)
{
  static const char *const names[] = {"debug", "info", "warning", "error"};
  for (int i = 0; i < 4; i++)
    if (strcmp(names[i], text) == 0) {
      *out = (rv_log_level)i;
      return true;
    }
  rv_fail(err, RV_INVALID_ARGUMENT, "expected debug, info, warning or error, got \"%s\"", text);
  return false;
}

static size_t least_of(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* How many letters must be put in, taken out, changed or swapped with the next to make one of the other; a name of more than 63 is far
 * from all. */
static size_t distance(const char *a, const char *b)
{
  enum { MOST = 64 };
  size_t rows[3][MOST], *before = rows[0], *last = rows[1], *row = rows[2], size = strlen(b);
  if (size >= MOST) return SIZE_MAX;
  for (size_t k = 0; k <= size; k++) row[k] = k;
  for (size_t i = 0; a[i] != '\0'; i++) {
    size_t *unused = before;
    before = last;
    last = row;
    row = unused;
    row[0] = i + 1;
    for (size_t k = 0; k < size; k++) {
      row[k + 1] = least_of(last[k] + (a[i] != b[k]), least_of(last[k + 1], row[k]) + 1);
      if (i > 0 && k > 0 && a[i] == b[k - 1] && a[i - 1] == b[k]) row[k + 1] = least_of(row[k + 1], before[k - 1] + 1);
    }
  }
  return row[size];
}

/* One letter of a short name may be wrong, and one in three of a long one; or only its beginning is there, as "cert" is. */
static void see_near(const char *name, const char *known, size_t *least, const char **nearest)
{
  size_t size = strlen(name), far = distance(known, name), most = size < 2 ? 0 : size < 6 ? 1 : size / 3;
  if (far == 0) return;
  bool begins = size > 0 && strncmp(known, name, size) == 0 && (known[size] == '_' || size > 2);
  if (begins) far = 1;
  if ((far > most && !begins) || far >= *least) return;
  *least = far;
  *nearest = known;
}

const char *settings_near_limit(const char *name)
{
  const char *nearest = NULL;
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < NUM_FIELDS; i++)
    if (fields[i].is_limit) see_near(name, fields[i].name, &least, &nearest);
  return nearest;
}

const char *settings_near_of(const char *mapping, const char *name)
{
  const char *nearest = NULL;
  size_t least = SIZE_MAX, size = strlen(mapping);
  for (size_t i = 0; i < NUM_FIELDS; i++)
    if (strncmp(fields[i].name, mapping, size) == 0 && fields[i].name[size] == '_')
      see_near(name, fields[i].name + size + 1, &least, &nearest);
  return nearest;
}

bool settings_unknown(const char *name, bool in_file, rv_error *err)
{
  static const char *const mappings[] = {"tables", "limits", "checkpoints", "journal", "spill", "tls", "identities"};
  const char *nearest = NULL;
  size_t least = SIZE_MAX;
  for (size_t i = 0; in_file && i < sizeof mappings / sizeof mappings[0]; i++) see_near(name, mappings[i], &least, &nearest);
  for (size_t i = 0; i < NUM_FIELDS; i++) see_near(name, fields[i].name, &least, &nearest);
  rv_fail(err, RV_INVALID_ARGUMENT, "no setting \"%.64s\"%s%s; docs/server.md lists them", name,
          nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest);
  return false;
}

static bool set_address(settings *all, const char *text, const char *place, rv_error *err)
{
  rv_address address;
  if (rv_address_parse(text, &address, err) != RV_OK) return false;
  settings_add_address(all, text, place);
  return true;
}

bool settings_set(settings *all, const char *name, const char *text, const char *place, rv_error *err)
{
  const struct field *field = find_field(name);
  if (field == NULL) return settings_unknown(name, false, err);
  places_add(&all->places, &all->memory, PLACE_SETTING, (size_t)(field - fields), 0, place);
  char *to = (char *)all + field->offset;
  switch (field->kind) {
  case VALUE_INT: return parse_int(text, field->min, field->max, (int64_t *)(void *)to, err);
  case VALUE_BYTES: return parse_bytes(text, field->min, (int64_t *)(void *)to, err);
  case VALUE_SECONDS: return parse_seconds(text, (int64_t *)(void *)to, err);
  case VALUE_SEED: return parse_seed(&all->memory, text, (const uint64_t **)(void *)to, err);
  case VALUE_TEXT: *(const char **)(void *)to = arena_copy(&all->memory, text, strlen(text)); return true;
  case VALUE_PATH: return parse_path(&all->memory, text, (const char **)(void *)to, err);
  case VALUE_LEVEL: return parse_level(text, &all->log_level, err);
  case VALUE_ADDRESS: return set_address(all, text, place, err);
  case VALUE_JOURNAL_MODE: return parse_journal_mode(text, (int64_t *)(void *)to, err);
  }
  return false;
}

const char *settings_place(const settings *all, const char *name)
{
  const char *place = NULL;
  for (size_t i = 0; i < NUM_FIELDS && place == NULL; i++)
    if (strncmp(fields[i].name, name, strlen(name)) == 0) place = places_find(&all->places, PLACE_SETTING, i, 0);
  return place;
}

bool settings_fail_at(const settings *all, const char *name, rv_error *err)
{
  const char *place = settings_place(all, name);
  if (place != NULL) rv_error_prefix(err, "%s", place);
  return false;
}

/* ---- two of them ---- */

static bool same_text(const char *a, const char *b)
{
  return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_seed(const uint64_t *a, const uint64_t *b)
{
  return a == b || (a != NULL && b != NULL && *a == *b);
}

static bool same_addresses(const settings *a, const settings *b)
{
  bool same = a->num_addresses == b->num_addresses;
  for (size_t i = 0; i < a->num_addresses && same; i++) same = strcmp(a->addresses[i], b->addresses[i]) == 0;
  return same;
}

/* Addresses follow from host and port where these are given, by flags or by default. */
static bool same_place(const struct field *field, const settings *a, const settings *b)
{
  bool same_host = same_text(a->host, b->host), same_port = a->port == b->port;
  if (same_addresses(a, b)) return true;
  if (field->kind == VALUE_ADDRESS) return !same_host || !same_port;
  return field->kind == VALUE_TEXT ? same_host : same_port;
}

static bool is_place(const struct field *field)
{
  return field->kind == VALUE_ADDRESS || field->offset == offsetof(settings, host) || field->offset == offsetof(settings, port);
}

static bool same_value(const struct field *field, const settings *a, const settings *b)
{
  const char *left = (const char *)a + field->offset, *right = (const char *)b + field->offset;
  if (field->kind == VALUE_LEVEL) return a->log_level == b->log_level;
  if (field->kind == VALUE_SEED) return same_seed(a->seed, b->seed);
  if (is_place(field)) return same_place(field, a, b);
  if (field->kind == VALUE_PATH)
    return same_text(*(const char *const *)(const void *)left, *(const char *const *)(const void *)right);
  return memcmp(left, right, sizeof(int64_t)) == 0;
}

const char *settings_next_difference(const settings *a, const settings *b, size_t *at)
{
  while (*at < NUM_FIELDS) {
    const struct field *field = &fields[(*at)++];
    if (!same_value(field, a, b)) return field->name;
  }
  return NULL;
}

/* ---- identities ---- */

rv_identity *settings_add_identity(settings *all, const char *place)
{
  places_add(&all->places, &all->memory, PLACE_IDENTITY, all->num_identities, 0, place);
  all->identities = arena_append(&all->memory, all->identities, all->num_identities, sizeof *all->identities);
  return &all->identities[all->num_identities++];
}

rv_grant *identity_add_grant(arena *memory, rv_identity *identity)
{
  /* The array is ours, made by arena_append: only its public type is const. */
  rv_grant *grants = (rv_grant *)(void *)(uintptr_t)identity->grants;
  grants = arena_append(memory, grants, identity->num_grants, sizeof *grants);
  identity->grants = grants;
  return &grants[identity->num_grants++];
}

/* ---- tables ---- */

rv_table_config *settings_add_table(settings *all, const char *place)
{
  places_add(&all->places, &all->memory, PLACE_TABLE, all->num_tables, 0, place);
  all->tables = arena_append(&all->memory, all->tables, all->num_tables, sizeof *all->tables);
  rv_table_config *table = &all->tables[all->num_tables++];
  *table = rv_table_config_default(NULL, DEFAULT_MAX_SIZE);
  return table;
}

void table_add_extension(arena *memory, rv_table_config *table, const char *name, const char *options)
{
  /* The array is ours, made by arena_append: only its public type is const. */
  rv_extension_config *list = (rv_extension_config *)(void *)(uintptr_t)table->extensions;
  list = arena_append(memory, list, table->num_extensions, sizeof *list);
  list[table->num_extensions++] = (rv_extension_config){.name = name, .options = options};
  table->extensions = list;
}

/* "diffusion:steps=3:decay=0.5" */
static bool set_extension(arena *memory, rv_table_config *table, const char *text)
{
  size_t length = strcspn(text, ":");
  char *options = NULL;
  if (text[length] == ':') {
    options = arena_copy(memory, text + length + 1, strlen(text + length + 1));
    for (char *at = options; *at != '\0'; at++)
      if (*at == ':') *at = ',';
  }
  table_add_extension(memory, table, arena_copy(memory, text, length), options);
  return true;
}

/* What Reverb's Table.queue and Table.stack make. */
static bool set_preset(rv_table_config *table, const char *text, rv_error *err)
{
  bool queue = strncmp(text, "queue:", 6) == 0, stack = strncmp(text, "stack:", 6) == 0;
  if (!queue && !stack) {
    rv_fail(err, RV_INVALID_ARGUMENT, "\"%s\" is no preset; there are queue:SIZE and stack:SIZE", text);
    return false;
  }
  int64_t size;
  if (!parse_int(text + 6, 1, MAX_TIMES, &size, err)) return false;
  table->sampler = table->remover = (rv_selector_config){.kind = queue ? RV_SELECTOR_FIFO : RV_SELECTOR_LIFO};
  table->max_size = size;
  table->max_times_sampled = 1;
  table->rate_limiter = queue ? rv_rate_limiter_queue(size) : rv_rate_limiter_stack(size);
  return true;
}

bool table_set(arena *memory, rv_table_config *table, const char *name, const char *text, rv_error *err)
{
  if (strcmp(name, "name") == 0) {
    if (*text == '\0') {
      rv_fail(err, RV_INVALID_ARGUMENT, "a table's name must not be empty");
      return false;
    }
    table->name = arena_copy(memory, text, strlen(text));
    return true;
  }
  if (strcmp(name, "sampler") == 0) return parse_selector(memory, text, &table->sampler, err);
  if (strcmp(name, "remover") == 0) return parse_selector(memory, text, &table->remover, err);
  if (strcmp(name, "rate_limiter") == 0) return parse_rate_limiter(text, &table->rate_limiter, err);
  if (strcmp(name, "max_size") == 0) return parse_int(text, 1, MAX_TIMES, &table->max_size, err);
  if (strcmp(name, "max_times_sampled") == 0) {
    int64_t times;
    if (!parse_int(text, 0, MAX_TIMES, &times, err)) return false;
    table->max_times_sampled = (int32_t)times;
    return true;
  }
  if (strcmp(name, "max_bytes") == 0) return parse_bytes(text, 0, &table->max_bytes, err);
  if (strcmp(name, "preset") == 0) return set_preset(table, text, err);
  if (strcmp(name, "extension") == 0) return set_extension(memory, table, text);
  rv_fail(err, RV_INVALID_ARGUMENT,
          "a table has no field \"%.64s\"; it has name, preset, sampler, remover, max_size, max_bytes, max_times_sampled, "
          "rate_limiter, extension, and in a file signature and extensions",
          name);
  return false;
}

bool settings_add_table_text(settings *all, const char *text, const char *place, rv_error *err)
{
  rv_table_config *table = settings_add_table(all, place);
  char *rest = arena_copy(&all->memory, text, strlen(text)), *pair;
  const char **given = NULL;
  size_t num_given = 0;
  while ((pair = strsep(&rest, ",")) != NULL) {
    char *value = strchr(pair, '=');
    if (value == NULL) {
      rv_fail(err, RV_INVALID_ARGUMENT, "expected FIELD=VALUE, got \"%s\"", pair);
      return false;
    }
    *value++ = '\0';
    for (size_t i = 0; i < num_given && strcmp(pair, "extension") != 0; i++)
      if (strcmp(given[i], pair) == 0) {
        rv_fail(err, RV_INVALID_ARGUMENT, "\"%.64s\" stands twice", pair);
        return false;
      }
    given = arena_append(&all->memory, given, num_given, sizeof *given);
    given[num_given++] = pair;
    if (!table_set(&all->memory, table, pair, value, err)) {
      rv_error_prefix(err, "%s", pair);
      return false;
    }
  }
  if (table->name == NULL) rv_fail(err, RV_INVALID_ARGUMENT, "the table has no name; add name=NAME");
  return table->name != NULL;
}
