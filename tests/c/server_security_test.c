/* A server that asks who calls: what each identity may do and what it is told. */
#include "secured_fixture.h"

#include "net/raw_testing.h"
#include "reverie/step_writer.h"
#include "support/rig.h"

static const char actor_token[] = "token-of-the-actors", learner_token[] = "token-of-the-learner",
                  admin_token[] = "token-of-the-admin";

static void open_with_tokens(secured *s)
{
  const rv_grant actor[] = {{"replay", RV_RIGHT_INSERT}, {"per", RV_RIGHT_INSERT | RV_RIGHT_UPDATE}};
  const rv_grant learner[] = {{NULL, RV_RIGHT_READ | RV_RIGHT_UPDATE}}, admin[] = {{NULL, RV_RIGHT_ADMIN}};
  const rv_identity identities[] = {{.name = "actors", .token = actor_token, .grants = actor, .num_grants = 2},
                                    {.name = "learner", .token = learner_token, .grants = learner, .num_grants = 1},
                                    {.name = "admin", .token = admin_token, .grants = admin, .num_grants = 1}};
  open_server(s, NULL, identities, 3);
}

static rv_code update(rv_client *client, const char *table, rv_error *err)
{
  rv_key_priority unknown_key = {.key = 1, .priority = 2.0};
  size_t unknown;
  return rv_client_mutate(client, table, &unknown_key, 1, NULL, 0, NULL, &unknown, &long_enough, err);
}

static void each_may_do_what_it_was_granted(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  rv_client *actor = client_of(&s, actor_token, NULL), *learner = client_of(&s, learner_token, NULL),
            *admin = client_of(&s, admin_token, NULL);
  assert_ok(add_value(actor, "replay", 1, 1.0, NULL, &long_enough, &err));
  assert_ok(sample(learner, "replay", &err));
  assert_ok(update(learner, "replay", &err));
  assert_ok(update(actor, "per", &err));
  assert_ok(rv_client_reset(admin, "replay", &long_enough, &err));
  assert_int_equal(table_size(&s.f, "replay"), 0);
  rv_client_free(actor);
  rv_client_free(learner);
  rv_client_free(admin);
  close_server(&s);
}

static void what_was_not_granted_is_refused_by_name(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  rv_client *actor = client_of(&s, actor_token, NULL), *learner = client_of(&s, learner_token, NULL),
            *admin = client_of(&s, admin_token, NULL);
  assert_code(sample(actor, "replay", &err), RV_PERMISSION_DENIED);
  assert_says("\"actors\" has not the right \"read\" on table \"replay\" (it has: insert)");
  assert_code(update(actor, "replay", &err), RV_PERMISSION_DENIED);
  assert_code(add_value(actor, "fifo", 1, 1.0, NULL, &long_enough, &err), RV_PERMISSION_DENIED);
  assert_says("\"actors\" has not the right \"insert\" on table \"fifo\" (it has: none)");
  assert_code(add_value(learner, "replay", 1, 1.0, NULL, &long_enough, &err), RV_PERMISSION_DENIED);
  assert_code(rv_client_reset(learner, "replay", &long_enough, &err), RV_PERMISSION_DENIED);
  assert_code(add_value(admin, "replay", 1, 1.0, NULL, &long_enough, &err), RV_PERMISSION_DENIED);
  rv_item_info item;
  uint64_t cursor = 0;
  size_t count;
  assert_code(rv_client_items(actor, "replay", &cursor, &item, 1, &count, &long_enough, &err), RV_PERMISSION_DENIED);
  assert_int_equal(table_size(&s.f, "replay"), 0);
  assert_int_equal(table_size(&s.f, "fifo"), 0);
  assert_ok(add_value(actor, "replay", 1, 1.0, NULL, &long_enough, &err)); /* a refusal ends nothing else */
  rv_client_free(actor);
  rv_client_free(learner);
  rv_client_free(admin);
  close_server(&s);
}

static const rv_metadata as_actor = {"authorization", "Bearer token-of-the-actors"},
                         as_learner = {"authorization", "Bearer token-of-the-learner"},
                         as_admin = {"authorization", "Bearer token-of-the-admin"};

static void an_identity_has_so_many_calls_open_and_no_more(void **state)
{
  (void)state;
  secured s;
  test_peer peer, other;
  test_stream *open[MOST_STREAMS];
  char message[RV_ERROR_MESSAGE_MAX];
  open_with_tokens(&s);
  peer_open(&peer, s.f.address);
  peer_open(&other, s.f.address); /* the bound is the identity's, not a connection's */
  for (int i = 0; i < MOST_STREAMS; i++) {
    open[i] = stream_open(i % 2 == 0 ? &peer : &other, SAMPLE, &as_learner, 1);
    ask_samples(open[i], "five", 1, -1);
  }
  wait_for_waiting(&s.f, "five", 0, MOST_STREAMS);
  test_stream *more = stream_open(&peer, SAMPLE, &as_learner, 1);
  assert_int_equal(stream_end(more, message), RV_RESOURCE_EXHAUSTED);
  assert_string_equal(message, "\"learner\" has 20 calls open, and may have no more; end some, or raise the server's "
                               "max_streams_per_identity");
  stream_free(more);
  rv_client *actor = client_of(&s, actor_token, NULL);
  rv_error err;
  assert_ok(add_value(actor, "replay", 1, 1.0, NULL, &long_enough, &err)); /* others have their own */
  stream_free(open[0]);
  wait_for_waiting(&s.f, "five", 0, MOST_STREAMS - 1);
  open[0] = stream_open(&peer, SAMPLE, &as_learner, 1);
  ask_samples(open[0], "five", 1, -1);
  wait_for_waiting(&s.f, "five", 0, MOST_STREAMS);
  for (int i = 0; i < MOST_STREAMS; i++) stream_free(open[i]);
  rv_client_free(actor);
  peer_close(&peer);
  peer_close(&other);
  close_server(&s);
}

/* With the same identities and one more, as a file that is read again has them. */
static void calls_that_are_open_count_on_when_identities_are_set_again(void **state)
{
  (void)state;
  const rv_grant all[] = {{NULL, RV_RIGHT_READ | RV_RIGHT_UPDATE}};
  const rv_identity again[] = {{.name = "new", .token = "token-of-the-new-ones", .grants = all, .num_grants = 1},
                               {.name = "learner", .token = learner_token, .grants = all, .num_grants = 1}};
  secured s;
  test_peer peer;
  test_stream *open[MOST_STREAMS];
  rv_error err;
  open_with_tokens(&s);
  peer_open(&peer, s.f.address);
  for (int i = 0; i < MOST_STREAMS; i++) {
    open[i] = stream_open(&peer, SAMPLE, &as_learner, 1);
    ask_samples(open[i], "five", 1, -1);
  }
  wait_for_waiting(&s.f, "five", 0, MOST_STREAMS);
  for (int i = 0; i < 2; i++) {
    assert_ok(rv_server_set_identities(s.f.server, again, 2, &err));
    test_stream *more = stream_open(&peer, SAMPLE, &as_learner, 1);
    assert_int_equal(stream_end(more, NULL), RV_RESOURCE_EXHAUSTED);
    stream_free(more);
  }
  stream_free(open[0]); /* given back to whom it was taken from */
  wait_for_waiting(&s.f, "five", 0, MOST_STREAMS - 1);
  open[0] = stream_open(&peer, SAMPLE, &as_learner, 1);
  ask_samples(open[0], "five", 1, -1);
  wait_for_waiting(&s.f, "five", 0, MOST_STREAMS);
  for (int i = 0; i < MOST_STREAMS; i++) stream_free(open[i]);
  peer_close(&peer);
  close_server(&s);
}

/* A chunk of about 60 kB that no item refers to. */
static void send_chunk(test_stream *stream)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 15000, 0);
  stream_send(stream, &body);
}

/* One small item; the chunk stays. */
static void insert_and_keep(test_stream *stream, uint64_t key)
{
  const uint64_t kept = 1;
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, key, 0, 1, 0);
  put_item(&body, key, (item_options){.table = "replay", .priority = 1, .chunk = key});
  put_keep(&body, &kept, 1);
  stream_send(stream, &body);
}

static void an_identity_keeps_so_many_bytes_and_no_more(void **state)
{
  (void)state;
  secured s;
  test_peer peer;
  char message[RV_ERROR_MESSAGE_MAX];
  uint64_t key;
  open_with_tokens(&s);
  peer_open(&peer, s.f.address);
  test_stream *first = stream_open(&peer, INSERT, &as_actor, 1), *second = stream_open(&peer, INSERT, &as_actor, 1);
  send_chunk(first);
  insert_and_keep(first, 7); /* when it is confirmed, what came before is in */
  expect_keys(first, &key, 1);
  send_chunk(second);
  assert_int_equal(stream_end(second, message), RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(message, "\"actors\""));
  assert_non_null(strstr(message, "max_bytes_per_identity"));
  stream_free(second);
  stream_half_close(first);
  assert_int_equal(stream_end(first, NULL), RV_OK);
  stream_free(first);
  first = stream_open(&peer, INSERT, &as_actor, 1); /* what it kept went with it */
  send_chunk(first);
  insert_and_keep(first, 8);
  expect_keys(first, &key, 1);
  stream_free(first);
  peer_close(&peer);
  close_server(&s);
}

static void the_right_to_insert_changes_no_priority(void **state)
{
  (void)state;
  secured s;
  test_peer peer;
  char message[RV_ERROR_MESSAGE_MAX];
  uint64_t key;
  open_with_tokens(&s);
  peer_open(&peer, s.f.address);
  test_stream *call = stream_open(&peer, INSERT, &as_actor, 1);
  insert_one(call, "replay", 7, 1.0);
  expect_keys(call, &key, 1);
  insert_one(call, "replay", 7, 1.0); /* as who was cut off sends it again */
  expect_keys(call, &key, 1);
  insert_one(call, "per", 7, 1.0);
  expect_keys(call, &key, 1);
  insert_one(call, "per", 7, 2.0); /* there it may */
  expect_keys(call, &key, 1);
  insert_one(call, "replay", 7, 2.0);
  assert_int_equal(stream_end(call, message), RV_PERMISSION_DENIED);
  assert_non_null(strstr(message, "takes the right \"update\""));
  stream_free(call);
  peer_close(&peer);
  close_server(&s);
}

/* The rest of a message that was begun may never come. */
static void what_cannot_be_answered_is_not_received(void **state)
{
  static const char *const takes_little[] = {SAMPLE,
                                             SERVER_INFO,
                                             RESET,
                                             CHECKPOINT,
                                             INITIALIZE,
                                             "/reverie.Reverie/Items",
                                             "/reverie.Reverie/Get",
                                             "/reverie.Reverie/SetRateLimiter",
                                             "/reverie.Reverie/SetBounds",
                                             "/reverie.Reverie/SetMemoryLimit"};
  static uint8_t large[5000];
  (void)state;
  secured s;
  test_peer peer;
  char message[RV_ERROR_MESSAGE_MAX];
  open_with_tokens(&s);
  peer_open(&peer, s.f.address);
  for (size_t i = 0; i < sizeof takes_little / sizeof takes_little[0]; i++) {
    test_stream *call = stream_open(&peer, takes_little[i], &as_learner, 1);
    stream_send_bytes(call, large, sizeof large);
    assert_int_equal(stream_end(call, message), RV_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(message, "larger than this method takes (4096)"));
    stream_free(call);
  }
  test_stream *call = stream_open(&peer, INSERT, &as_learner, 1);
  assert_int_equal(stream_end(call, message), RV_PERMISSION_DENIED); /* without a message */
  assert_string_equal(message, "\"learner\" has not the right \"insert\" on any table");
  stream_free(call);
  call = stream_open(&peer, MUTATE, &as_admin, 1);
  assert_int_equal(stream_end(call, message), RV_PERMISSION_DENIED);
  assert_string_equal(message, "\"admin\" has not the right \"update\" on any table");
  stream_free(call);
  peer_close(&peer);
  close_server(&s);
}

/* Health answers whoever asks, before anybody is known. */
static void who_is_not_known_uses_up_little_memory(void **state)
{
  enum { MOST = 100 };
  (void)state;
  secured s;
  test_peer peer, other;
  char message[RV_ERROR_MESSAGE_MAX];
  static uint8_t large[1 << 20];
  rv_buf *response = NULL;
  open_with_tokens(&s);
  peer_open(&peer, s.f.address);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_put_bytes(&body, 1, large, sizeof large);
  assert_int_equal(unary(&peer, HEALTH_CHECK, &body, &response, message), RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(message, "larger than this method takes (4096)"));
  test_stream *watches[MOST];
  for (int i = 0; i < MOST; i++) {
    watches[i] = stream_open(&peer, HEALTH_WATCH, NULL, 0);
    stream_send_bytes(watches[i], "", 0);
    rv_buf_unref(stream_next(watches[i]));
  }
  test_stream *more = stream_open(&peer, HEALTH_WATCH, NULL, 0);
  assert_int_equal(stream_end(more, message), RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(message, "100 calls of Health are open on this connection already"));
  stream_free(more);
  peer_open(&other, s.f.address); /* nobody else is in his way */
  rv_writer_buf_init(&body);
  assert_int_equal(unary(&other, HEALTH_CHECK, &body, &response, message), RV_OK);
  rv_buf_unref(response);
  stream_free(watches[0]);
  for (rv_code code = RV_RESOURCE_EXHAUSTED; code != RV_OK;) {
    rv_writer_buf_init(&body);
    code = unary(&peer, HEALTH_CHECK, &body, &response, message);
  }
  rv_buf_unref(response);
  for (int i = 1; i < MOST; i++) stream_free(watches[i]);
  peer_close(&other);
  peer_close(&peer);
  close_server(&s);
}

static void who_is_not_known_gets_nowhere(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  static const char *const tokens[] = {NULL, "another-long-token", "token-of-the-actor"};
  for (size_t i = 0; i < 3; i++) {
    rv_client *client = client_of(&s, tokens[i], NULL);
    rv_server_info *info;
    assert_code(rv_client_server_info(client, &long_enough, &info, &err), RV_UNAUTHENTICATED);
    assert_says(tokens[i] == NULL ? "give the client a token" : "does not know this token");
    assert_code(add_value(client, "replay", 1, 1.0, NULL, &long_enough, &err), RV_UNAUTHENTICATED);
    assert_code(sample(client, "replay", &err), RV_UNAUTHENTICATED);
    rv_client_free(client);
  }
  assert_int_equal(table_size(&s.f, "replay"), 0);
  close_server(&s);
}

/* Of its loop's streams of samples, which share what may be sent in a turn, it was none. */
static void samples_that_are_refused_change_nothing_for_others(void **state)
{
  (void)state;
  secured s;
  test_peer peer; /* its calls are of one loop */
  rv_error err;
  uint64_t key;
  open_with_tokens(&s);
  rv_client *actor = client_of(&s, actor_token, NULL);
  assert_ok(add_value(actor, "replay", 1, 1.0, NULL, &long_enough, &err));
  peer_open(&peer, s.f.address);
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  assert_int_equal(stream_end(call, NULL), RV_UNAUTHENTICATED);
  stream_free(call);
  call = stream_open(&peer, SAMPLE, &as_learner, 1);
  ask_samples(call, "replay", 1, -1);
  assert_int_equal(read_samples(call, &key, 1), 1);
  stream_free(call);
  peer_close(&peer);
  rv_client_free(actor);
  close_server(&s);
}

static void who_is_refused_is_in_the_log_but_cannot_fill_it(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  s.stopped = now_of(&s);
  rv_client *unknown = client_of(&s, "token-of-nobody-at-all", NULL);
  rv_server_info *info;
  for (int i = 0; i < 30; i++) assert_code(rv_client_server_info(unknown, &long_enough, &info, &err), RV_UNAUTHENTICATED);
  assert_int_equal(count_in_log(&s, "was refused: the server does not know this token"), 10);
  s.stopped += 1000000000;
  assert_code(rv_client_server_info(unknown, &long_enough, &info, &err), RV_UNAUTHENTICATED);
  assert_int_equal(count_in_log(&s, "(before it 20 more that are not in the log)"), 1);
  s.stopped = 0;
  rv_client_free(unknown);
  close_server(&s);
}

static void one_who_is_refused_again_and_again_hides_no_other(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  s.stopped = now_of(&s);
  rv_client *learner = client_of(&s, learner_token, NULL), *actor = client_of(&s, actor_token, NULL),
            *admin = client_of(&s, admin_token, NULL);
  for (int i = 0; i < 30; i++) assert_code(rv_client_reset(learner, "per", &long_enough, &err), RV_PERMISSION_DENIED);
  assert_code(rv_client_reset(actor, "per", &long_enough, &err), RV_PERMISSION_DENIED);
  assert_int_equal(count_in_log(&s, "audit: learner from"), 10);
  assert_int_equal(count_in_log(&s, "audit: actors from"), 1);
  for (int i = 0; i < 30; i++)
    assert_code(rv_client_reset(admin, "nowhere", &long_enough, &err), RV_NOT_FOUND); /* nor fills it */
  assert_int_equal(count_in_log(&s, "reset table \"nowhere\": NOT_FOUND"), 10);
  let_pass(&s, 61);
  assert_int_equal(count_in_log(&s, "audit: 20 more failed that are not in the log"), 1);
  s.stopped = 0;
  rv_client_free(learner);
  rv_client_free(actor);
  rv_client_free(admin);
  close_server(&s);
}

static void who_may_not_is_in_the_log_however_many_are_not_known(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  s.stopped = now_of(&s);
  rv_client *unknown = client_of(&s, "token-of-nobody-at-all", NULL), *learner = client_of(&s, learner_token, NULL);
  rv_server_info *info;
  for (int i = 0; i < 30; i++) assert_code(rv_client_server_info(unknown, &long_enough, &info, &err), RV_UNAUTHENTICATED);
  assert_code(rv_client_reset(learner, "per", &long_enough, &err), RV_PERMISSION_DENIED);
  assert_int_equal(count_in_log(&s, "reset table \"per\": PERMISSION_DENIED"), 1);
  for (int i = 0; i < 16; i++) assert_code(rv_client_reset(learner, "per", &long_enough, &err), RV_PERMISSION_DENIED);
  assert_int_equal(count_in_log(&s, "reset table \"per\": PERMISSION_DENIED"), 10);
  assert_int_equal(count_in_log(&s, "not in the log"), 0);
  let_pass(&s, 61); /* nobody comes any more */
  assert_int_equal(count_in_log(&s, "of refused calls 20 more came that are not in the log"), 1);
  assert_int_equal(count_in_log(&s, "audit: 7 more were PERMISSION_DENIED that are not in the log"), 1);
  let_pass(&s, 61);
  assert_int_equal(count_in_log(&s, "not in the log"), 2);
  s.stopped = 0;
  rv_client_free(unknown);
  rv_client_free(learner);
  close_server(&s);
}

static void what_administrators_do_is_in_the_log(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  rv_client *admin, *learner = client_of(&s, learner_token, NULL);
  rv_client_config over_tcp = {.size = sizeof over_tcp, .address = s.f.address, .token = admin_token, .no_shared_memory = true};
  assert_ok(rv_client_new(&over_tcp, &admin, &err));
  assert_ok(rv_client_reset(admin, "replay", &long_enough, &err));
  assert_code(rv_client_reset(learner, "per", &long_enough, &err), RV_PERMISSION_DENIED);
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_size = 5;
  assert_ok(rv_client_set_bounds(admin, "fifo", &bounds, &long_enough, &err));
  assert_code(rv_client_set_bounds(learner, "fifo", &bounds, &long_enough, &err), RV_PERMISSION_DENIED);
  assert_ok(rv_client_set_memory_limit(admin, (size_t)1 << 30, &long_enough, &err));
  assert_code(rv_client_set_memory_limit(learner, 0, &long_enough, &err), RV_PERMISSION_DENIED);
  pthread_mutex_lock(&s.lock);
  assert_non_null(strstr(s.log, "audit: admin from ipv4:127.0.0.1:"));
  assert_non_null(strstr(s.log, "reset table \"replay\": OK"));
  char learner_is[300];
  snprintf(learner_is, sizeof learner_is,
           "audit: learner from unix:process %ld of user %lu to @reverie/ipv4:%s: ", (long)getpid(), (unsigned long)getuid(),
           s.f.address);
  if (strstr(s.log, learner_is) == NULL) /* a server that took a second to answer is spoken to over TCP */
    assert_non_null(strstr(s.log, "audit: learner from ipv4:127.0.0.1:"));
  assert_non_null(strstr(s.log, "reset table \"per\": PERMISSION_DENIED"));
  assert_non_null(strstr(s.log, "changed the bounds of table \"fifo\": OK"));
  assert_non_null(strstr(s.log, "changed the bounds of table \"fifo\": PERMISSION_DENIED"));
  assert_non_null(strstr(s.log, "changed the memory limit: OK"));
  assert_non_null(strstr(s.log, "changed the memory limit: PERMISSION_DENIED"));
  assert_null(strstr(s.log, admin_token));
  pthread_mutex_unlock(&s.lock);
  assert_code(rv_client_reset(learner, "x\nforged", &long_enough, &err), RV_PERMISSION_DENIED);
  pthread_mutex_lock(&s.lock);
  assert_non_null(strstr(s.log, "x?forged"));
  pthread_mutex_unlock(&s.lock);
  rv_client_free(admin);
  rv_client_free(learner);
  close_server(&s);
}

typedef struct waiting_sample {
  rv_client *client;
  rv_code code;
  rv_error err;
} waiting_sample;

static void *wait_for_sample(void *context)
{
  waiting_sample *waiting = context;
  rv_batch *batch;
  waiting->code = rv_client_sample_batch(waiting->client, "fifo", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &waiting->err);
  return NULL;
}

/* In a stream that stays open. */
static void write_step(rv_step_writer *writer, float value)
{
  rv_error err;
  const rv_tensor row = {RV_FLOAT32, 0, NULL, &value};
  assert_ok(rv_step_writer_append(writer, &row, 1, &long_enough, &err));
  assert_ok(rv_step_writer_create_item(writer, "replay", 1, 1.0, &long_enough, NULL, &err));
  assert_ok(rv_step_writer_flush(writer, &long_enough, &err));
}

static void who_is_taken_off_the_list_is_out_at_once_and_others_go_on(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_with_tokens(&s);
  rv_client *actor = client_of(&s, actor_token, NULL), *admin = client_of(&s, admin_token, NULL);
  waiting_sample waiting = {.client = client_of(&s, learner_token, NULL)};
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1, .chunk_length = 1};
  rv_step_writer *writer;
  assert_ok(rv_step_writer_new(actor, &config, &writer, &err));
  write_step(writer, 1);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_sample, &waiting), 0);
  wait_for_waiting(&s.f, "fifo", 0, 1);
  const rv_grant grants[] = {{"replay", RV_RIGHT_INSERT}, {"per", RV_RIGHT_INSERT | RV_RIGHT_UPDATE}};
  const rv_identity now[] = {{.name = "actors", .token = actor_token, .grants = grants, .num_grants = 2},
                             {.name = "new", .token = learner_token, .grants = grants, .num_grants = 1}};
  const rv_identity wrong = {.name = "short", .token = "short"};
  assert_code(rv_server_set_identities(s.f.server, &wrong, 1, &err), RV_INVALID_ARGUMENT);
  assert_code(rv_server_set_identities(s.f.server, NULL, 0, &err), RV_INVALID_ARGUMENT);
  wait_for_waiting(&s.f, "fifo", 0, 1); /* nothing changed */
  assert_ok(rv_server_set_identities(s.f.server, now, 2, &err));
  wait_for_waiting(&s.f, "fifo", 0, 0);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_UNAUTHENTICATED);
  assert_non_null(strstr(waiting.err.message, "identities were changed"));
  write_step(writer, 2);
  assert_code(rv_client_reset(admin, "replay", &long_enough, &err), RV_UNAUTHENTICATED);
  assert_ok(add_value(waiting.client, "replay", 1, 1.0, NULL, &long_enough, &err)); /* the token is somebody else's now */
  assert_int_equal(table_size(&s.f, "replay"), 3);
  assert_non_null(strstr(s.log, "2 identities are in force"));
  rv_step_writer_free(writer);
  rv_client_free(actor);
  rv_client_free(admin);
  rv_client_free(waiting.client);
  rv_server_stop(s.f.server, 0);
  assert_code(rv_server_set_identities(s.f.server, now, 2, &err), RV_FAILED_PRECONDITION);
  close_server(&s);
}

static void without_identities_everybody_may_do_everything(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  open_server(&s, NULL, NULL, 0);
  rv_client *client = client_of(&s, "a-token-nobody-asks-for", NULL);
  assert_ok(add_value(client, "replay", 1, 1.0, NULL, &long_enough, &err));
  assert_ok(rv_client_reset(client, "replay", &long_enough, &err));
  assert_code(rv_server_reload_tls(s.f.server, &err), RV_FAILED_PRECONDITION);
  rv_client_free(client);
  close_server(&s);
}

/* ---- what cannot be ---- */

static void a_token_is_not_sent_in_the_clear_to_another_machine(void **state)
{
  (void)state;
  rv_error err;
  rv_client *client;
  rv_client_config config = {.size = sizeof config, .address = "replay.example:8000", .token = actor_token};
  assert_code(rv_client_new(&config, &client, &err), RV_INVALID_ARGUMENT);
  assert_says("in the clear; use TLS");
  config.address = "127.0.0.1:8000";
  config.token = "";
  assert_code(rv_client_new(&config, &client, &err), RV_INVALID_ARGUMENT);
  assert_says("the token is empty");
  config.token = "two words, as it were";
  assert_code(rv_client_new(&config, &client, &err), RV_INVALID_ARGUMENT);
  config.address = "unix:/tmp/socket";
  config.token = NULL;
  const rv_tls_config tls = {.size = sizeof tls};
  config.tls = &tls;
  assert_code(rv_client_new(&config, &client, &err), RV_INVALID_ARGUMENT);
  assert_says("needs no TLS");
}

static void refuses(fixture *f, const rv_identity *identities, size_t count, const char *why)
{
  rv_error err;
  rv_server *server;
  const char *address = "127.0.0.1:0";
  rv_server_config config = {.size = sizeof config,
                             .store = f->store,
                             .addresses = &address,
                             .num_addresses = 1,
                             .identities = identities,
                             .num_identities = count};
  assert_code(rv_server_new(&config, &server, &err), RV_INVALID_ARGUMENT);
  assert_says(why);
}

static void identities_that_make_no_sense_are_refused(void **state)
{
  (void)state;
  fixture f = {.way = IN_PROCESS};
  new_store(&f);
  refuses(&f, &(rv_identity){.token = actor_token}, 1, "has no name");
  refuses(&f, &(rv_identity){.name = "x"}, 1, "neither a token nor a certificate_name");
  refuses(&f, &(rv_identity){.name = "x", .token = "short"}, 1, "too short");
  refuses(&f, &(rv_identity){.name = "x", .token = "with spaces in the middle"}, 1, "visible ASCII");
  rv_grant grant = {"replay", 0};
  refuses(&f, &(rv_identity){.name = "x", .token = actor_token, .grants = &grant, .num_grants = 1}, 1, "rights");
  const rv_identity twice[] = {{.name = "one", .token = actor_token}, {.name = "other", .token = actor_token}};
  refuses(&f, twice, 2, "\"one\" and \"other\" have the same token");
  rv_store_unref(f.store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_may_do_what_it_was_granted),
      cmocka_unit_test(what_was_not_granted_is_refused_by_name),
      cmocka_unit_test(an_identity_has_so_many_calls_open_and_no_more),
      cmocka_unit_test(calls_that_are_open_count_on_when_identities_are_set_again),
      cmocka_unit_test(an_identity_keeps_so_many_bytes_and_no_more),
      cmocka_unit_test(the_right_to_insert_changes_no_priority),
      cmocka_unit_test(what_cannot_be_answered_is_not_received),
      cmocka_unit_test(who_is_not_known_uses_up_little_memory),
      cmocka_unit_test(who_is_not_known_gets_nowhere),
      cmocka_unit_test(samples_that_are_refused_change_nothing_for_others),
      cmocka_unit_test(who_is_refused_is_in_the_log_but_cannot_fill_it),
      cmocka_unit_test(one_who_is_refused_again_and_again_hides_no_other),
      cmocka_unit_test(who_may_not_is_in_the_log_however_many_are_not_known),
      cmocka_unit_test(what_administrators_do_is_in_the_log),
      cmocka_unit_test(who_is_taken_off_the_list_is_out_at_once_and_others_go_on),
      cmocka_unit_test(without_identities_everybody_may_do_everything),
      cmocka_unit_test(a_token_is_not_sent_in_the_clear_to_another_machine),
      cmocka_unit_test(identities_that_make_no_sense_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
