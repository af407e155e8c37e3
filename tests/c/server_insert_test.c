#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/memory.h"
#include "support/place.h"
#include "support/rig.h"

static const rv_metadata as_reverie[] = {{"reverie-writer", "000102030405060708090a0b0c0d0e0f"}};

static test_rig rig;
static test_peer peer;

/* Tables: "t" of anything; "q", a queue of 2; "p", prioritized; "s", whose items must be one float column. */
static int set_up(void **state)
{
  (void)state;
  const int64_t shape[] = {1};
  const rv_spec spec = {.name = "obs", .dtype = RV_FLOAT32, .rank = 1, .shape = shape};
  const rv_signature signature = {.specs = &spec, .num_specs = 1};
  rv_table_config tables[] = {rig_table("t"), place_queue("q", 2), rig_table("p"), rig_table("s")};
  tables[2].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  tables[3].signature = &signature;
  rig_start_with(&rig, tables, 4, (rv_server_config){.max_stream_chunk_bytes = 8 << 20});
  peer_open(&peer, rig.address);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  peer_close(&peer);
  rig_stop(&rig);
  return 0;
}

static void each_item_is_confirmed_once(void **state)
{
  (void)state;
  enum { N = 100 };
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, N, 0);
  for (uint64_t key = 0; key < N; key++)
    put_item(&body, key, (item_options){.table = "t", .priority = 1, .chunk = 1, .offset = (int32_t)key});
  stream_send(call, &body);
  uint64_t keys[N];
  expect_keys(call, keys, N);
  for (uint64_t key = 0; key < N; key++) assert_int_equal(keys[key], key);
  stream_half_close(call);
  assert_null(stream_next(call));
  assert_int_equal(stream_end(call, NULL), RV_OK);
  assert_int_equal(rig_size(&rig, "t"), N);
  stream_free(call);
}

static void more_items_than_answers_may_wait_are_all_confirmed(void **state)
{
  (void)state;
  enum { N = 70000 };
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 1, 0);
  for (uint64_t key = 0; key < N; key++) put_item(&body, key, (item_options){.table = "t", .priority = 1, .chunk = 1});
  stream_send(call, &body);
  uint64_t *keys = malloc(N * sizeof *keys);
  expect_keys(call, keys, N);
  for (uint64_t key = 0; key < N; key++) assert_int_equal(keys[key], key);
  free(keys);
  stream_free(call);
}

/* A client's bound may be as low as RV_LEAST_MAX_MESSAGE: what does not fit would be sent to it again for ever. */
static void answers_come_in_messages_that_every_client_takes(void **state)
{
  (void)state;
  enum { N = 2000, EVERY = 4 };
  char unknown[400];
  memset(unknown, 'x', sizeof unknown - 1);
  unknown[sizeof unknown - 1] = '\0';
  test_stream *call = stream_open(&peer, INSERT, as_reverie, 1);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 1, 0);
  for (uint64_t i = 0; i < N; i++)
    put_item(&body, UINT64_MAX - i,
             (item_options){.table = i % EVERY == 0 ? unknown : "t", .priority = 1, .chunk = 1, .sequence = i + 1});
  stream_send(call, &body);
  size_t keys = 0, failures = 0;
  while (keys + failures < N) {
    rv_buf *message = stream_next(call);
    if (message == NULL) fail_msg("the call ended after %zu keys and %zu failures", keys, failures);
    assert_true(message->size <= RV_LEAST_MAX_MESSAGE);
    rv_insert_response response;
    assert_int_equal(rv_insert_response_parse((rv_span){message->data, message->size}, &response, NULL), RV_OK);
    for (size_t i = 0; i < response.num_keys; i++, keys++) /* each of the others once, in order */
      assert_int_equal(response.keys[i], UINT64_MAX - EVERY * (keys / (EVERY - 1)) - 1 - keys % (EVERY - 1));
    for (size_t i = 0; i < response.num_failures; i++)
      assert_int_equal(response.failures[i].key, UINT64_MAX - EVERY * (failures + i));
    failures += response.num_failures;
    rv_insert_response_fini(&response);
    rv_buf_unref(message);
  }
  assert_int_equal(failures, N / EVERY);
  assert_int_equal(keys, N - N / EVERY);
  stream_free(call);
}

/* ---- errors, and which comes first ---- */

typedef struct bad_request {
  const char *name;
  item_options item;
  double priority;
  uint64_t keep[2];
  size_t num_keep;
  rv_code code;
  const char *text; /* in the sentence */
} bad_request;

static void send_bad_request(test_stream *call, const bad_request *bad)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 4, 0);
  item_options item = bad->item;
  item.priority = bad->priority;
  if (item.table == NULL) item.table = "t";
  if (item.chunk == 0) item.chunk = 1;
  put_item(&body, 77, item);
  put_keep(&body, bad->keep, bad->num_keep);
  stream_send(call, &body);
}

static void a_bad_request_ends_the_stream_with_the_right_code(void **state)
{
  (void)state;
  const bad_request bad[] = {
      {.name = "unknown chunk", .item = {.chunk = 9}, .code = RV_INTERNAL},
      {.name = "unknown table", .item = {.table = "x"}, .code = RV_NOT_FOUND, .text = "was not found"},
      {.name = "unknown chunk and table", .item = {.chunk = 9, .table = "x"}, .code = RV_INTERNAL},
      {.name = "no columns", .item = {.no_columns = true}, .code = RV_INVALID_ARGUMENT},
      {.name = "no columns, unknown table", .item = {.no_columns = true, .table = "x"}, .code = RV_NOT_FOUND},
      {.name = "no slices", .item = {.no_slices = true}, .code = RV_INVALID_ARGUMENT},
      {.name = "offset over the end", .item = {.offset = 4}, .code = RV_INVALID_ARGUMENT},
      {.name = "negative offset", .item = {.offset = -1}, .code = RV_INVALID_ARGUMENT},
      {.name = "length over the end", .item = {.length = 5}, .code = RV_INVALID_ARGUMENT},
      {.name = "negative length", .item = {.length = -1}, .code = RV_INVALID_ARGUMENT},
      {.name = "offset and length overflow", .item = {.offset = INT32_MAX, .length = INT32_MAX}, .code = RV_INVALID_ARGUMENT},
      {.name = "no such tensor", .item = {.index = 1}, .code = RV_INVALID_ARGUMENT},
      {.name = "squeeze of two", .item = {.length = 2, .squeeze = true}, .code = RV_INVALID_ARGUMENT},
      {.name = "NaN", .priority = NAN, .code = RV_INVALID_ARGUMENT},
      {.name = "negative", .item = {.table = "p"}, .priority = -1, .code = RV_INVALID_ARGUMENT},
      {.name = "infinite", .item = {.table = "p"}, .priority = INFINITY, .code = RV_INVALID_ARGUMENT},
      {.name = "signature", .item = {.table = "s"}, .code = RV_INVALID_ARGUMENT, .text = "obs"},
      {.name = "unknown keep key", .keep = {9}, .num_keep = 1, .code = RV_FAILED_PRECONDITION},
      {.name = "keep key twice", .keep = {1, 1}, .num_keep = 2, .code = RV_FAILED_PRECONDITION},
      {.name = "bad item before bad keep", .item = {.table = "x"}, .keep = {9}, .num_keep = 1, .code = RV_NOT_FOUND},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    test_stream *call = stream_open(&peer, INSERT, NULL, 0);
    send_bad_request(call, &bad[i]);
    char text[RV_ERROR_MESSAGE_MAX];
    rv_code code = stream_end(call, text);
    if (code != bad[i].code)
      fail_msg("%s: %s (%s), expected %s", bad[i].name, rv_code_name(code), text, rv_code_name(bad[i].code));
    if (bad[i].text != NULL && strstr(text, bad[i].text) == NULL)
      fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].name, text, bad[i].text);
    stream_free(call);
  }
}

static void a_request_without_chunks_and_items_is_refused(void **state)
{
  (void)state;
  for (int with_keep = 0; with_keep < 2; with_keep++) {
    test_stream *call = stream_open(&peer, INSERT, NULL, 0);
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    if (with_keep) put_keep(&body, (const uint64_t[]){1}, 1);
    stream_send(call, &body);
    assert_int_equal(stream_end(call, NULL), RV_INVALID_ARGUMENT);
    stream_free(call);
  }
}

static void a_closed_table_ends_the_stream_with_cancelled(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  insert_one(call, "t", 1, 1);
  expect_keys(call, &key, 1);
  rv_store_close(rig.store);
  insert_one(call, "t", 2, 1);
  assert_int_equal(stream_end(call, NULL), RV_CANCELLED);
  stream_free(call);
}

static void items_before_a_bad_one_are_inserted(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 1, 0);
  put_item(&body, 5, (item_options){.table = "t", .chunk = 1});
  put_item(&body, 6, (item_options){.table = "x", .chunk = 1});
  put_item(&body, 7, (item_options){.table = "t", .chunk = 1});
  stream_send(call, &body);
  assert_int_equal(stream_end(call, NULL), RV_NOT_FOUND);
  assert_int_equal(rig_size(&rig, "t"), 1);
  stream_free(call);
}

/* ---- chunks ---- */

static void chunks_stay_until_an_item_comes_without_keeping_them(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  uint64_t key;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 1, 0);
  put_chunk(&body, 2, 0, 1, 0);
  put_keep(&body, (const uint64_t[]){99}, 1); /* not read: no items */
  stream_send(call, &body);
  rv_writer_buf_init(&body);
  put_item(&body, 1, (item_options){.table = "t", .chunk = 1});
  put_keep(&body, (const uint64_t[]){2}, 1);
  stream_send(call, &body);
  expect_keys(call, &key, 1);
  rv_writer_buf_init(&body);
  put_item(&body, 2, (item_options){.table = "t", .chunk = 2});
  put_keep(&body, (const uint64_t[]){2}, 1);
  stream_send(call, &body);
  expect_keys(call, &key, 1);
  rv_writer_buf_init(&body);
  put_item(&body, 3, (item_options){.table = "t", .chunk = 1});
  stream_send(call, &body);
  assert_int_equal(stream_end(call, NULL), RV_INTERNAL);
  stream_free(call);
}

static void a_second_chunk_with_the_same_key_is_dropped(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  uint64_t key;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 10, 3, 0);
  put_chunk(&body, 1, 20, 1, 0);
  put_item(&body, 1, (item_options){.table = "t", .chunk = 1, .offset = 2}); /* the second chunk has no row 2 */
  stream_send(call, &body);
  expect_keys(call, &key, 1);
  stream_free(call);
}

static void chunks_without_end_are_bounded(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  for (uint64_t key = 1; key <= 20; key++) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    put_chunk(&body, key, 0, 256, 1024);
    stream_send(call, &body);
  }
  char text[RV_ERROR_MESSAGE_MAX];
  assert_int_equal(stream_end(call, text), RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(text, "max_stream_chunk_bytes"));
  stream_free(call);
}

static void an_item_whose_key_is_present_updates_its_priority(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  insert_one(call, "t", 1, 1);
  expect_keys(call, &key, 1);
  insert_one(call, "t", 1, 5);
  expect_keys(call, &key, 1);
  assert_int_equal(rig_size(&rig, "t"), 1);
  rv_item_info item;
  uint64_t cursor = 0;
  size_t count;
  assert_int_equal(rv_table_items(rig_find(&rig, "t"), &cursor, &item, 1, &count, NULL), RV_OK);
  assert_int_equal(count, 1);
  assert_float_equal(item.priority, 5, 0);
  stream_free(call);
}

/* ---- waiting ---- */

/* Fills "q" and puts `more` inserts into its queue. */
static test_stream *block(const rv_metadata *metadata, size_t num_metadata, uint64_t more)
{
  test_stream *call = stream_open(&peer, INSERT, metadata, num_metadata);
  uint64_t keys[2];
  for (uint64_t i = 1; i <= 2 + more; i++) insert_numbered(call, "q", i, num_metadata > 0 ? i : 0);
  expect_keys(call, keys, 2);
  assert_int_equal(keys[0], 1);
  assert_int_equal(keys[1], 2);
  rig_wait_for_waiting(&rig, "q", (int64_t)more, 0);
  return call;
}

static void sample_from_queue(size_t n)
{
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  uint64_t keys[16];
  ask_samples(call, "q", (int64_t)n, -1);
  assert_int_equal(read_samples(call, keys, n), n);
  for (size_t i = 0; i < n; i++) assert_int_equal(keys[i], i + 1);
  stream_free(call);
}

static void a_half_close_waits_for_blocked_inserts(void **state)
{
  (void)state;
  test_stream *call = block(NULL, 0, 3);
  stream_half_close(call);
  sample_from_queue(3);
  uint64_t keys[3];
  expect_keys(call, keys, 3);
  assert_int_equal(keys[0], 3);
  assert_int_equal(keys[2], 5);
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
}

static void blocked_inserts_of_a_reverb_client_that_has_gone_still_happen(void **state)
{
  (void)state;
  test_stream *call = block(NULL, 0, 3);
  stream_free(call);
  sample_from_queue(5);
}

static void blocked_inserts_of_a_reverie_writer_that_has_gone_are_cancelled(void **state)
{
  (void)state;
  test_stream *call = block(as_reverie, 1, 3);
  stream_free(call);
  rig_wait_for_waiting(&rig, "q", 0, 0);
  assert_int_equal(rig_size(&rig, "q"), 2);
}

static void inserts_without_a_client_are_bounded_too(void **state)
{
  (void)state;
  test_rig small;
  test_peer own;
  rv_table_config table = place_queue("q", 1);
  rig_start_with(&small, &table, 1, (rv_server_config){.max_orphan_bytes = 100});
  peer_open(&own, small.address);
  test_stream *call = stream_open(&own, INSERT, NULL, 0);
  uint64_t key;
  insert_one(call, "q", 1, 1);
  expect_keys(call, &key, 1);
  for (key = 2; key < 20; key++) insert_one(call, "q", key, 1);
  rig_wait_for_waiting(&small, "q", 18, 0);
  stream_free(call);
  rig_wait_for_waiting(&small, "q", 0, 0);
  assert_int_equal(rig_size(&small, "q"), 1);
  peer_close(&own);
  rig_stop(&small);
}

static int64_t noon(void *context)
{
  (void)context;
  return INT64_C(43200000000000);
}

static void count_dropped(void *context, rv_log_level level, const char *line)
{
  (void)level;
  if (strstr(line, "which has gone, are dropped") != NULL) atomic_fetch_add((atomic_int *)context, 1);
}

static void a_client_that_goes_again_and_again_does_not_fill_the_log(void **state)
{
  (void)state;
  enum { TIMES = 30 };
  test_rig small;
  test_peer own;
  atomic_int lines = 0;
  rv_env env;
  rv_env_default(&env);
  env.log = count_dropped;
  env.monotonic_ns = noon;
  env.context = &lines;
  rv_table_config table = place_queue("q", 1);
  rig_start_with(&small, &table, 1, (rv_server_config){.max_orphan_bytes = 1, .env = &env});
  peer_open(&own, small.address);
  test_stream *call = stream_open(&own, INSERT, NULL, 0);
  uint64_t key;
  insert_one(call, "q", 1, 1);
  expect_keys(call, &key, 1);
  stream_free(call);
  for (key = 2; key < 2 + TIMES; key++) {
    call = stream_open(&own, INSERT, NULL, 0);
    insert_one(call, "q", key, 1);
    rig_wait_for_waiting(&small, "q", 1, 0);
    stream_free(call);
    rig_wait_for_waiting(&small, "q", 0, 0);
  }
  assert_int_equal(atomic_load(&lines), 10);
  peer_close(&own);
  rig_stop(&small);
}

enum { KEPT_ROWS = 1 << 18 }; /* a chunk of 1 MiB */

/* Inserts an item over a large chunk, which goes again, and is kept for more; then one over `chunk`, which waits. */
static test_stream *keep_and_wait(test_rig *at, test_peer *with, uint64_t chunk)
{
  test_stream *call = stream_open(with, INSERT, NULL, 0);
  rv_writer_buf body;
  const uint64_t kept[] = {1, 2};
  uint64_t key;
  size_t unknown;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, KEPT_ROWS, 0);
  put_item(&body, 1, (item_options){.table = "q", .chunk = 1});
  put_keep(&body, kept, 1);
  stream_send(call, &body);
  expect_keys(call, &key, 1);
  rv_writer_buf_init(&body);
  put_chunk(&body, 2, 0, 1, 0);
  put_item(&body, 2, (item_options){.table = "q", .chunk = 2});
  put_item(&body, 3, (item_options){.table = "q", .chunk = chunk});
  put_keep(&body, kept, 2);
  stream_send(call, &body);
  expect_keys(call, &key, 1);
  rig_wait_for_waiting(at, "q", 1, 0);
  assert_int_equal(rv_table_mutate(rig_find(at, "q"), NULL, 0, &(uint64_t){1}, 1, NULL, &unknown, NULL), RV_OK);
  assert_int_equal(unknown, 0);
  return call;
}

static void what_a_client_that_has_gone_kept_for_items_to_come_goes_with_it(void **state)
{
  (void)state;
  const rv_memory *memory = rv_store_memory(rig.store);
  size_t before = rv_memory_used(memory);
  rv_buf *response = NULL;
  test_stream *call = keep_and_wait(&rig, &peer, 2);
  assert_true(rv_memory_used(memory) >= before + KEPT_ROWS * sizeof(int32_t));
  stream_free(call);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  assert_int_equal(unary(&peer, SERVER_INFO, &body, &response, NULL), RV_OK); /* which the server has heard after that */
  rv_buf_unref(response);
  assert_true(rv_memory_used(memory) < before + KEPT_ROWS * sizeof(int32_t));
  rig_wait_for_waiting(&rig, "q", 1, 0); /* while its item waits on */
}

static void inserts_without_a_client_count_with_the_chunks_that_they_hold(void **state)
{
  (void)state;
  test_rig small;
  test_peer own;
  rv_table_config table = place_queue("q", 2);
  rig_start_with(&small, &table, 1, (rv_server_config){.max_orphan_bytes = KEPT_ROWS});
  peer_open(&own, small.address);
  stream_free(keep_and_wait(&small, &own, 1));
  rig_wait_for_waiting(&small, "q", 0, 0);
  assert_int_equal(rig_size(&small, "q"), 1);
  peer_close(&own);
  rig_stop(&small);
}

static void the_rest_of_a_message_goes_in_after_its_client_has_gone(void **state)
{
  (void)state;
  enum { N = 3000 };
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 1, 0);
  for (uint64_t key = 1; key <= N; key++) put_item(&body, key, (item_options){.table = "q", .chunk = 1});
  stream_send(call, &body);
  rig_wait_for_waiting(&rig, "q", 256, 0);
  stream_free(call);
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  uint64_t *keys = malloc(N * sizeof *keys);
  ask_samples(sampler, "q", N, -1);
  assert_int_equal(read_samples(sampler, keys, N), N);
  for (uint64_t key = 1; key <= N; key++) assert_int_equal(keys[key - 1], key);
  free(keys);
  stream_free(sampler);
}

static void what_waits_of_one_stream_is_bounded(void **state)
{
  (void)state;
  enum { N = 2000 };
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 1, 0);
  for (uint64_t key = 1; key <= N; key++) put_item(&body, key, (item_options){.table = "q", .chunk = 1});
  stream_send(call, &body);
  rig_wait_for_waiting(&rig, "q", 256, 0);
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  uint64_t *keys = malloc(N * sizeof *keys);
  ask_samples(sampler, "q", N, -1);
  assert_int_equal(read_samples(sampler, keys, N), N);
  for (uint64_t key = 1; key <= N; key++) assert_int_equal(keys[key - 1], key);
  expect_keys(call, keys, N);
  free(keys);
  stream_free(call);
  stream_free(sampler);
}

/* ---- between Reverie's own ends ---- */

static void a_refused_item_of_a_reverie_writer_does_not_end_the_stream(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, as_reverie, 1);
  rv_writer_buf body;
  uint64_t key = 0;
  char text[RV_ERROR_MESSAGE_MAX];
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 1, 0);
  put_item(&body, 1, (item_options){.table = "t", .chunk = 1, .sequence = 1, .priority = NAN});
  put_keep(&body, (const uint64_t[]){1}, 1);
  stream_send(call, &body);
  assert_int_equal(expect_failure(call, &key, text), RV_INVALID_ARGUMENT);
  assert_int_equal(key, 1);
  assert_string_not_equal(text, "");
  rv_writer_buf_init(&body);
  put_item(&body, 2, (item_options){.table = "t", .chunk = 1, .sequence = 2});
  put_item(&body, 3, (item_options){.table = "nowhere", .chunk = 1, .sequence = 3});
  stream_send(call, &body);
  assert_int_equal(expect_failure(call, &key, text), RV_NOT_FOUND);
  assert_int_equal(key, 3);
  assert_int_equal(rig_size(&rig, "t"), 1);
  stream_half_close(call);
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(each_item_is_confirmed_once),
      TEST(more_items_than_answers_may_wait_are_all_confirmed),
      TEST(answers_come_in_messages_that_every_client_takes),
      TEST(a_bad_request_ends_the_stream_with_the_right_code),
      TEST(a_request_without_chunks_and_items_is_refused),
      TEST(a_closed_table_ends_the_stream_with_cancelled),
      TEST(items_before_a_bad_one_are_inserted),
      TEST(chunks_stay_until_an_item_comes_without_keeping_them),
      TEST(a_second_chunk_with_the_same_key_is_dropped),
      TEST(chunks_without_end_are_bounded),
      TEST(an_item_whose_key_is_present_updates_its_priority),
      TEST(a_half_close_waits_for_blocked_inserts),
      TEST(blocked_inserts_of_a_reverb_client_that_has_gone_still_happen),
      TEST(blocked_inserts_of_a_reverie_writer_that_has_gone_are_cancelled),
      TEST(inserts_without_a_client_are_bounded_too),
      TEST(a_client_that_goes_again_and_again_does_not_fill_the_log),
      TEST(what_a_client_that_has_gone_kept_for_items_to_come_goes_with_it),
      cmocka_unit_test(inserts_without_a_client_count_with_the_chunks_that_they_hold),
      TEST(the_rest_of_a_message_goes_in_after_its_client_has_gone),
      TEST(what_waits_of_one_stream_is_bounded),
      TEST(a_refused_item_of_a_reverie_writer_does_not_end_the_stream),
  };
  return cmocka_run_group_tests_name("server insert", tests, NULL, NULL);
}
