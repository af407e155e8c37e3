/* What clients do in process and through a server on loopback, with every allocation failing in turn, the server's, nghttp2's and libuv's
 * among them: the call that found no memory says so, is made again, and everything is then as if nothing had happened. Clients and servers
 * are made whole or not at all. */
#include "support/lives.h"

#include "base/error.h"
#include "net/certificates_testing.h"
#include "support/failing_libraries.h"

enum { ROWS = 30, STEPS = 12 };

/* ---- one life after another, an allocation later each time ---- */

static void each_failure(void (*live)(test_place *place))
{
  lives_begin(remote ? 10 : 1);
  do {
    rv_table_config tables[2] = {place_queue_like("t", 1000), rv_table_config_default("u", 1000)};
    test_place place;
    place_open(&place, remote, tables, 2);
    lives_fail();
    live(&place);
    lives_end();
    place_close(&place);
  } while (lives_go_on());
}

#define LIFE(name)                                                                                                               \
  static void name##_life(test_place *place);                                                                                    \
  static void name(void **state)                                                                                                 \
  {                                                                                                                              \
    remote = *state != NULL;                                                                                                     \
    each_failure(name##_life);                                                                                                   \
  }                                                                                                                              \
  static void name##_life(test_place *place)

/* ---- looking at what is there ---- */

/* The items of a table, oldest first. */
static size_t keys_of(test_place *place, const char *table, uint64_t *keys, size_t capacity)
{
  rv_item_info page[256];
  size_t count = 0;
  uint64_t cursor = 0;
  TRY((cursor = 0, rv_client_items(place->client, table, &cursor, page, 256, &count, &patient, error)));
  assert_true(cursor == 0 && count <= capacity);
  for (size_t i = 0; i < count; i++) keys[i] = page[i].key;
  return count;
}

static void column_of(test_place *place, const char *table, uint64_t key, size_t column, void *out, size_t size)
{
  rv_sample *sample = NULL;
  TRY(rv_client_get(place->client, table, key, &patient, &sample, error));
  TRY(rv_sample_copy(sample, column, out, size, error));
  rv_sample_unref(sample);
}

/* ---- rows ---- */

LIFE(rows_are_added_and_sampled)
{
  uint64_t keys[ROWS + 1], there[8 * ROWS], unknown[4];
  int64_t value = 0, values[5];
  add_numbers(place->client, "t", 0, ROWS, keys);
  rv_tensor row = {.dtype = RV_INT64, .data = &value};
  value = ROWS;
  TRY(rv_client_add(place->client, "t", &row, 1, 1, &keys[ROWS], &patient, error));
  size_t count = keys_of(place, "t", there, 8 * ROWS);
  assert_int_equal(count, ROWS + 1);
  for (int64_t i = 0; i <= ROWS; i += 6) {
    column_of(place, "t", keys[i], 0, &value, sizeof value);
    assert_int_equal(value, i);
  }
  /* batches, and what is made of them */
  rv_batch *batch = NULL;
  rv_sample_column column;
  int64_t lengths[5];
  void *outs[] = {values};
  const size_t sizes[] = {sizeof values};
  TRY(rv_client_sample_batch(place->client, "t", 5, RV_UNEQUAL_ERROR, &patient, &batch, error));
  assert_int_equal(rv_batch_size(batch), 5);
  TRY(rv_batch_column(batch, 0, &column, error));
  TRY(rv_batch_lengths(batch, 0, lengths, error));
  TRY(rv_batch_gather(batch, 0, values, sizeof values, error));
  TRY(rv_batch_gather_all(batch, outs, sizes, 1, error));
  assert_true(values[0] >= 0 && values[0] <= ROWS);
  rv_sample *sample = rv_batch_sample(batch, 2);
  if (sample == NULL) sample = rv_batch_sample(batch, 2);
  assert_non_null(sample);
  rv_sample_unref(sample);
  rv_layout *layout = rv_layout_ref(rv_batch_layout(batch));
  rv_batch_free(batch);
  rv_batch_arrays arrays = {.size = sizeof arrays, .layout = layout, .columns = outs};
  TRY(rv_client_sample_into(place->client, "t", 5, &arrays, &patient, error));
  assert_int_equal(arrays.count, 5);
  rv_layout_unref(layout);
  /* a sequence */
  rv_sampler *sampler = NULL;
  const rv_sampler_config config = {
      .size = sizeof config, .table = "t", .max_samples = 4, .rate_limiter_timeout_ms = RV_FOREVER, .max_in_flight_samples = 2};
  TRY(rv_sampler_new(place->client, &config, &sampler, error));
  for (int i = 0; i < 3; i++) {
    rv_error err;
    rv_code code = rv_sampler_next(sampler, &patient, &sample, &err);
    if (remote && found_no_memory(code)) { /* an error ends a sequence from elsewhere: the next one is another */
      rv_sampler_free(sampler);
      TRY(rv_sampler_new(place->client, &config, &sampler, error));
      TRY(rv_sampler_next(sampler, &patient, &sample, error));
    } else if (code != RV_OK) {
      TRY(code == RV_RESOURCE_EXHAUSTED ? rv_sampler_next(sampler, &patient, &sample, error) : rv_error_copy(error, &err));
    }
    TRY(rv_sample_copy(sample, 0, &value, sizeof value, error));
    assert_true(value >= 0 && value <= ROWS);
    rv_sample_unref(sample);
  }
  rv_sampler_free(sampler);
  /* changes */
  size_t num_unknown = 0;
  const rv_key_priority updates[] = {{keys[1], 7}, {keys[2], 8}};
  const uint64_t deletes[] = {keys[3], keys[4]};
  const double priorities[] = {3, 4};
  TRY(rv_client_mutate(place->client, "t", updates, 2, deletes, 2, unknown, &num_unknown, &patient, error));
  TRY(rv_client_update_priorities(place->client, "t", keys, priorities, 2, unknown, &num_unknown, &patient, error));
  assert_int_equal(num_unknown, 0);
  assert_int_equal(keys_of(place, "t", there, 8 * ROWS), count - 2);
  const rv_rate_limiter_config limiter = rv_rate_limiter_min_size(2);
  TRY(rv_client_set_rate_limiter(place->client, "t", &limiter, &patient, error));
  rv_server_info *info = NULL;
  TRY(rv_client_server_info(place->client, &patient, &info, error));
  assert_true(info->num_tables == 2 && info->tables[0].rate_limiter.min_size_to_sample == 2 && info->tables[0].max_priority == 8);
  rv_server_info_free(info);
  TRY(rv_client_reset(place->client, "t", &patient, error));
  assert_int_equal(keys_of(place, "t", there, 8 * ROWS), 0);
}

/* ---- the writers ---- */

static rv_cell number_cell(uint32_t column, const int64_t *number)
{
  return (rv_cell){.column = column, .value = {.dtype = RV_INT64, .data = number}};
}

enum { SOME = -1 };

/* Item i has steps i and i + 1, and the text of step i. So many are there, or some, where some were said not to be made; none is twice. */
static void check_items(test_place *place, int64_t number, bool texts)
{
  uint64_t keys[256];
  size_t count = keys_of(place, "t", keys, 256);
  assert_true(number == SOME ? count < STEPS : (int64_t)count == number);
  int64_t before = -1;
  for (size_t i = 0; i < count; i++) {
    int64_t numbers[2];
    rv_bytes text = {NULL, 0};
    column_of(place, "t", keys[i], 0, numbers, sizeof numbers);
    assert_true(numbers[0] > before && numbers[0] < STEPS - 1);
    assert_int_equal(numbers[1], numbers[0] + 1);
    before = numbers[0];
    if (!texts) continue;
    rv_sample *sample = NULL;
    TRY(rv_client_get(place->client, "t", keys[i], &patient, &sample, error));
    TRY(rv_sample_copy(sample, 1, &text, sizeof text, error));
    assert_int_equal(text.size, numbers[0]);
    rv_sample_unref(sample);
  }
}

LIFE(a_writer_writes)
{
  rv_writer *writer = NULL;
  int64_t created = 0;
  const rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 6, .chunk_length = 3};
  TRY(rv_writer_new(place->client, &config, &writer, error));
  TRY(rv_writer_wait_ready(writer, &patient, error));
  TRY(rv_writer_name_column(writer, 0, "('number',)", error));
  TRY(rv_writer_configure_column(writer, 1, 4, 2, error));
  for (int64_t i = 0; i < STEPS; i++) {
    const rv_bytes text = {"some text of some length", (size_t)i};
    const rv_cell cells[] = {number_cell(0, &i), {.column = 1, .value = {.dtype = RV_STRING, .data = &text}}};
    if (i % 3 == 0) {
      TRY_ITEMS(rv_writer_append(writer, &cells[0], 1, true, error));
      TRY_ITEMS(rv_writer_append(writer, &cells[1], 1, false, error));
    } else {
      TRY_ITEMS(rv_writer_append(writer, cells, 2, false, error));
    }
    if (i == 0) continue;
    const rv_run runs[] = {{.column = 0, .count = 2, .first = i - 1, .stride = 1}, {.column = 1, .count = 1, .first = i - 1}};
    const rv_item_column columns[] = {{.runs = &runs[0], .num_runs = 1, .name = "number"},
                                      {.runs = &runs[1], .num_runs = 1, .squeeze = true}};
    uint64_t key;
    TRY_ITEMS(rv_writer_create_item(writer, "t", 1, columns, 2, &key, error));
    created++;
    rv_tensor row;
    TRY(rv_writer_row(writer, 1, i, &row, error));
    assert_int_equal(((const rv_bytes *)row.data)->size, i);
    if (i % 5 == 0) TRY_ITEMS(rv_writer_flush(writer, 1, &patient, error));
  }
  TRY_ITEMS(rv_writer_end_episode(writer, true, &patient, error));
  assert_int_equal(rv_writer_num_rows(writer), 0);
  rv_writer_free(writer);
  check_items(place, STEPS - 1, true);
  return;
said:
  do {
    size_t failed = rv_writer_discard_failed(writer);
    assert_true(failed > 0);
    created -= (int64_t)failed;
  } while (rv_writer_flush(writer, 0, &patient, NULL) == RV_RESOURCE_EXHAUSTED); /* one after another is told */
  rv_writer_free(writer);
  check_items(place, created, true); /* of none that is in it was said that it is not */
}

LIFE(a_step_writer_writes)
{
  rv_step_writer *writer = NULL;
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 4, .chunk_length = 2};
  TRY(rv_step_writer_new(place->client, &config, &writer, error));
  TRY(rv_step_writer_wait_ready(writer, &patient, error));
  for (int64_t i = 0; i < STEPS; i++) {
    const rv_tensor column = {.dtype = RV_INT64, .data = &i};
    TRY_ITEMS(rv_step_writer_append(writer, &column, 1, &patient, error));
    if (i > 0) TRY_ITEMS(rv_step_writer_create_item(writer, "t", 2, 1, &patient, NULL, error));
  }
  TRY_ITEMS(rv_step_writer_flush(writer, &patient, error));
  TRY_ITEMS(rv_step_writer_flush(writer, &patient, error));
  rv_step_writer_free(writer);
  check_items(place, STEPS - 1, false);
  return;
said:
  rv_step_writer_free(writer);
  check_items(place, SOME, false);
}

/* Pairs of steps: the pair that begins with step i has rows of 1 + i % 3 numbers, and a second column if i is odd. A step that failed is made again. */
LIFE(a_step_writer_whose_columns_change_writes)
{
  enum { PAIRS = STEPS / 2 };
  rv_step_writer *writer = NULL;
  uint64_t keys[PAIRS] = {0};
  bool all = false;
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 4, .chunk_length = 2};
  TRY(rv_step_writer_new(place->client, &config, &writer, error));
  TRY(rv_step_writer_wait_ready(writer, &patient, error));
  for (int64_t i = 0; i < PAIRS; i++) {
    const int64_t numbers[3] = {i, i, i}, shape[1] = {1 + i % 3};
    const rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = shape, .data = numbers}, step[2] = {column, column};
    for (int k = 0; k < 2; k++) TRY_ITEMS(rv_step_writer_append(writer, step, 1 + (size_t)(i % 2), &patient, error));
    TRY_ITEMS(rv_step_writer_create_item(writer, "t", 2, 1, &patient, &keys[i], error));
  }
  TRY_ITEMS(rv_step_writer_flush(writer, &patient, error));
  TRY_ITEMS(rv_step_writer_flush(writer, &patient, error));
  all = true;
said:
  rv_step_writer_free(writer);
  for (int64_t i = 0; i < PAIRS; i++) {
    rv_sample *sample = NULL;
    rv_code code = keys[i] == 0 ? RV_NOT_FOUND : rv_client_get(place->client, "t", keys[i], &patient, &sample, NULL);
    if (found_no_memory(code)) code = rv_client_get(place->client, "t", keys[i], &patient, &sample, NULL);
    if (code == RV_NOT_FOUND && !all) continue;
    assert_int_equal(code, RV_OK);
    int64_t numbers[6];
    const size_t size = 2 * (1 + (size_t)(i % 3)) * sizeof *numbers;
    assert_int_equal(rv_sample_num_columns(sample), 1 + i % 2);
    TRY(rv_sample_copy(sample, 0, numbers, size, error));
    for (size_t k = 0; k < size / sizeof *numbers; k++) assert_int_equal(numbers[k], i);
    rv_sample_unref(sample);
  }
}

LIFE(a_structured_writer_writes)
{
  rv_structured_writer *writer = NULL;
  const rv_pattern_node node = rv_pattern_rows(0, -2, 0, 1);
  const rv_pattern_config pattern = {.size = sizeof pattern,
                                     .table = "t",
                                     .nodes = &node,
                                     .num_nodes = 1,
                                     .priority = {.kind = RV_PRIORITY_CONSTANT, .constant = 1}};
  const rv_structured_writer_config config = {.size = sizeof config, .patterns = &pattern, .num_patterns = 1};
  TRY(rv_structured_writer_new(place->client, &config, &writer, error));
  TRY(rv_structured_writer_set_num_columns(writer, 2, error));
  TRY(rv_structured_writer_name_column(writer, 0, "('number',)", error));
  for (int64_t i = 0; i < STEPS; i++) {
    const rv_cell cells[] = {number_cell(0, &i), number_cell(1, &i)};
    rv_error err;
    rv_code code = rv_structured_writer_append(writer, cells, 2, false, &err);
    /* the step is in where the sentence begins with a config, whose item was not made */
    if (code != RV_OK) assert_true(found_no_memory(code));
    if (code != RV_OK && rv_structured_writer_episode_steps(writer) == i)
      TRY_ITEMS(rv_structured_writer_append(writer, cells, 2, false, error));
    else if (code != RV_OK)
      goto said;
  }
  TRY_ITEMS(rv_structured_writer_flush(writer, 0, &patient, error));
  TRY_ITEMS(rv_structured_writer_end_episode(writer, true, &patient, error));
  rv_structured_writer_free(writer);
  check_items(place, STEPS - 1, false);
  return;
said:
  rv_structured_writer_free(writer);
  check_items(place, SOME, false);
}

/* ---- transitions ---- */

enum { ENVS = 2, STACK = 3, FRAME = 4 };

static void frames_of(int64_t step, uint8_t out[ENVS][STACK][FRAME])
{
  for (int64_t env = 0; env < ENVS; env++)
    for (int64_t i = 0; i < STACK; i++) memset(out[env][i], (int)(16 * env + (step - STACK + 1 + i) % 16), FRAME);
}

/* Transition i is of step i / ENVS. Each is there, or, where some were said not to be, not; none is twice. */
static void check_transitions(test_place *place, bool all)
{
  uint64_t keys[256];
  size_t count = keys_of(place, "t", keys, 256);
  assert_true(all ? count == STEPS * ENVS : count <= STEPS * ENVS);
  int64_t before = -1;
  for (size_t i = 0; i < count; i++) {
    uint8_t now[ENVS][STACK][FRAME], got[STACK][FRAME];
    int64_t number;
    column_of(place, "t", keys[i], 2, &number, sizeof number);
    assert_true(number > before && number < STEPS * ENVS);
    before = number;
    for (int64_t next = 0; next < 2; next++) {
      frames_of(number / ENVS + next, now);
      column_of(place, "t", keys[i], (size_t)next, got, sizeof got);
      assert_memory_equal(got, now[number % ENVS], sizeof got);
    }
  }
}

LIFE(transitions_are_added)
{
  rv_transitions *transitions = NULL;
  const rv_transitions_column columns[] = {
      {.name = "obs", .stack = STACK}, {.name = "next", .is_next = true, .of = 0}, {.name = "n"}};
  const rv_transitions_config config = {
      .size = sizeof config, .table = "t", .num_envs = ENVS, .columns = columns, .num_columns = 3};
  TRY(rv_transitions_new(place->client, &config, &transitions, error));
  const int64_t shapes[] = {ENVS, STACK, FRAME};
  for (int64_t step = 0; step < STEPS; step++) {
    uint8_t now[ENVS][STACK][FRAME], next[ENVS][STACK][FRAME];
    int64_t numbers[ENVS] = {2 * step, 2 * step + 1};
    frames_of(step, now);
    frames_of(step + 1, next);
    const rv_tensor values[] = {{.dtype = RV_UINT8, .rank = 3, .shape = shapes, .data = now},
                                {.dtype = RV_UINT8, .rank = 3, .shape = shapes, .data = next},
                                {.dtype = RV_INT64, .rank = 1, .shape = shapes, .data = numbers}};
    size_t added = 0;
    rv_error err;
    rv_code code = rv_transitions_add(transitions, values, 3, NULL, &added, &patient, &err);
    if (code == RV_OK) assert_int_equal(added, ENVS);
    if (code == RV_OK) continue;
    assert_true(found_no_memory(code));
    if (added == 0)
      TRY_ITEMS(rv_transitions_add(transitions, values, 3, NULL, &added, &patient, error));
    else /* some rows are in, and others are not: it is for the caller to say whether that is a step */
      goto said;
  }
  TRY_ITEMS(rv_transitions_flush(transitions, &patient, error));
  rv_transitions_free(transitions);
  check_transitions(place, true);
  return;
said:
  rv_transitions_free(transitions);
  check_transitions(place, false);
}

/* ---- what is made ---- */

static rv_code make_a_client(void *context)
{
  test_place *place = context;
  rv_client *client = NULL;
  rv_io *io = NULL;
  rv_cancel *cancel = NULL;
  rv_error err;
  rv_code code = rv_io_new(&io, &err);
  if (code != RV_OK) return code;
  rv_client_config config = {.size = sizeof config, .store = place->store};
  const rv_client_config elsewhere = {.size = sizeof config, .address = "localhost:1", .io = io, .token = "secret"};
  code = rv_client_new(&config, &client, &err);
  if (code == RV_OK) {
    rv_client_free(client);
    code = rv_client_new(&elsewhere, &client, &err);
    if (code == RV_OK) rv_client_free(client);
  }
  rv_io_unref(io);
  if (code == RV_OK) code = rv_cancel_new(&cancel, &err);
  if (code == RV_OK) rv_cancel_free(cancel);
  return code;
}

static void clients_are_made_whole_or_not_at_all(void **state)
{
  (void)state;
  rv_table_config table = place_queue_like("t", 10);
  test_place place;
  place_open(&place, false, &table, 1);
  assert_true(with_each_failure(make_a_client, &place) > 4);
  place_close(&place);
}

static rv_code make_a_server(void *context)
{
  test_place *place = context;
  rv_server *server = NULL;
  rv_error err;
  const char *addresses[] = {"127.0.0.1:0"};
  const rv_grant grants[] = {{.table = "t", .rights = RV_RIGHT_READ}};
  const rv_identity identities[] = {{.name = "actor",
                                     .token = "0123456789abcdef0123456789abcdef",
                                     .certificate_name = "actor",
                                     .grants = grants,
                                     .num_grants = 1}};
  rv_server_config config = {.size = sizeof config,
                             .store = place->store,
                             .addresses = addresses,
                             .num_addresses = 1,
                             .io_threads = 2,
                             .identities = identities,
                             .num_identities = 1};
  rv_code code = rv_server_new(&config, &server, &err);
  rv_server_free(code == RV_OK ? server : NULL);
  return code;
}

static void servers_are_made_whole_or_not_at_all(void **state)
{
  (void)state;
  rv_table_config table = place_queue_like("t", 10);
  test_place place;
  place_open(&place, false, &table, 1);
  assert_true(with_each_failure(make_a_server, &place) > 10);
  place_close(&place);
}

/* ---- TLS ---- */

static void serve_in_tls(test_place *place, const rv_tls_config *tls, char address[32])
{
  const char *addresses[] = {"127.0.0.1:0"};
  const rv_grant grant = {.rights = RV_RIGHT_INSERT | RV_RIGHT_READ};
  const rv_identity actor = {.name = "actor", .certificate_name = "actor", .grants = &grant, .num_grants = 1};
  rv_server_config config = {.size = sizeof config,
                             .store = place->store,
                             .addresses = addresses,
                             .num_addresses = 1,
                             .io_threads = 1,
                             .tls = tls,
                             .identities = &actor,
                             .num_identities = 1};
  OK(rv_server_new(&config, &place->server, error));
  snprintf(address, 32, "127.0.0.1:%u", (unsigned)rv_server_port(place->server, 0));
}

/* Connecting is tried again until it is done. */
static void a_row_is_added_in_tls(void **state)
{
  (void)state;
  remote = true;
  char ours[] = "/tmp/reverie-ca-XXXXXX", certificate[] = "/tmp/reverie-cert-XXXXXX", own[] = "/tmp/reverie-own-XXXXXX";
  close(mkstemp(ours));
  close(mkstemp(certificate));
  close(mkstemp(own));
  test_authority authority;
  authority_init(&authority, "test authority");
  authority_write(&authority, ours);
  authority_issue(&authority, certificate, "server", "IP:127.0.0.1", 86400);
  authority_issue(&authority, own, NULL, "DNS:actor", 86400); /* who it is, the server knows by it */
  authority_fini(&authority);
  const rv_tls_config of_server = {.size = sizeof of_server, .certificate_file = certificate, .authority_file = ours};
  const rv_tls_config of_client = {.size = sizeof of_client, .certificate_file = own, .authority_file = ours};
  lives_begin(80);
  do {
    rv_table_config table = place_queue_like("t", 10);
    test_place place;
    char address[32];
    place_open(&place, false, &table, 1);
    serve_in_tls(&place, &of_server, address);
    rv_client *client = NULL;
    rv_client_config config = {.size = sizeof config, .address = address, .tls = &of_client};
    OK(rv_client_new(&config, &client, error));
    lives_fail();
    const int64_t value = 1;
    const rv_tensor row = {.dtype = RV_INT64, .data = &value};
    TRY(rv_client_add(client, "t", &row, 1, 1, NULL, &patient, error));
    lives_end();
    assert_int_equal(place_size(&place, "t"), 1);
    rv_client_free(client);
    place_close(&place);
  } while (lives_go_on());
  unlink(ours);
  unlink(certificate);
  unlink(own);
}

#define IN_PROCESS_AND_REMOTE(name)                                                                                              \
  {#name "_in_process", name, NULL, lives_tell, NULL},                                                                           \
  {                                                                                                                              \
#name "_through_a_server", name, NULL, lives_tell, &remote                                                                   \
  }

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clients_are_made_whole_or_not_at_all),
      cmocka_unit_test(servers_are_made_whole_or_not_at_all),
      IN_PROCESS_AND_REMOTE(rows_are_added_and_sampled),
      IN_PROCESS_AND_REMOTE(a_writer_writes),
      IN_PROCESS_AND_REMOTE(a_step_writer_writes),
      IN_PROCESS_AND_REMOTE(a_step_writer_whose_columns_change_writes),
      IN_PROCESS_AND_REMOTE(a_structured_writer_writes),
      IN_PROCESS_AND_REMOTE(transitions_are_added),
      cmocka_unit_test_teardown(a_row_is_added_in_tls, lives_tell),
  };
  fail_libraries();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
