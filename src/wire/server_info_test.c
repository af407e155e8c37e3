#include <math.h>

#include "wire/table_info.h"
#include "wire/testing.h"

/* KeyDistributionOptions as protobuf writes them, behind the header of field 1. */
static void selectors_have_the_bytes_that_protobuf_writes(void **state)
{
  (void)state;
  static const struct {
    rv_selector_config selector;
    const char *bytes;
    size_t size;
  } cases[] = {
      {{.kind = RV_SELECTOR_FIFO}, "\x0A\x04\x08\x01\x38\x01", 6},
      {{.kind = RV_SELECTOR_LIFO}, "\x0A\x04\x30\x01\x38\x01", 6},
      {{.kind = RV_SELECTOR_UNIFORM}, "\x0A\x02\x10\x01", 4},
      {{.kind = RV_SELECTOR_MAX_HEAP}, "\x0A\x04\x22\x00\x38\x01", 6},
      {{.kind = RV_SELECTOR_MIN_HEAP}, "\x0A\x06\x22\x02\x08\x01\x38\x01", 8},
      {{.kind = RV_SELECTOR_PRIORITIZED}, "\x0A\x02\x1A\x00", 4},
      {{.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 2}, "\x0A\x0B\x1A\x09\x09\0\0\0\0\0\0\0\x40", 13},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    rv_selector_put(&out, 1, &cases[i].selector);
    rv_buf *buf = written(&out);
    assert_bytes(buf, cases[i].bytes, cases[i].size);
    rv_selector_config back = {0};
    assert_int_equal(rv_selector_parse((rv_span){buf->data + 2, buf->size - 2}, &back, NULL), RV_OK);
    assert_int_equal(back.kind, cases[i].selector.kind);
    assert_true(back.priority_exponent == cases[i].selector.priority_exponent);
    rv_buf_unref(buf);
  }
}

static rv_table_info full_info(rv_waiting_caller *waiting, const rv_spec *specs)
{
  rv_table_info info = {.size = sizeof info,
                        .name = (char *)(uintptr_t) "replay",
                        .sampler = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6},
                        .remover = {.kind = RV_SELECTOR_CUSTOM, .name = "mine", .options = "a=b"},
                        .max_size = 1000,
                        .max_times_sampled = -1,
                        .rate_limiter = {.samples_per_insert = 2, .min_size_to_sample = 5, .min_diff = -3, .max_diff = 1e308},
                        .signature = {.specs = specs, .num_specs = 1},
                        .current_size = 17,
                        .num_episodes = 2,
                        .num_deleted_episodes = 3,
                        .num_unique_samples = 4,
                        .inserts = 18,
                        .samples = 36,
                        .deletes = 1,
                        .updates = 9,
                        .inserts_per_second = 1.5,
                        .samples_per_second = 3,
                        .memory_bytes = 123456,
                        .running_ns = 5000001,
                        .waiting_for_inserts_ns = 999,
                        .waiting = waiting,
                        .num_waiting = 3,
                        .num_waiting_inserts = 1,
                        .num_waiting_samples = 300,
                        .min_priority = 0,
                        .max_priority = 8,
                        .extensions = (char *)(uintptr_t) "statistics: inserts=18\n"};
  return info;
}

static void table_info_comes_back_whole(void **state)
{
  (void)state;
  rv_waiting_caller waiting[] = {{.id = 4,
                                  .is_insert = true,
                                  .reason = RV_WAIT_TOO_MANY_INSERTS,
                                  .waiting_ns = 99,
                                  .remaining_ns = INT64_MAX,
                                  .wanted = 1,
                                  .peer = "ipv4:127.0.0.1:4711"},
                                 {.id = 6, .is_change = true, .reason = RV_WAIT_JOURNAL, .remaining_ns = INT64_MAX, .wanted = 1},
                                 {.id = 5, .reason = RV_WAIT_MIN_SIZE, .waiting_ns = 1, .remaining_ns = 0, .wanted = 256}};
  const int64_t shape[] = {-1, 4};
  const rv_spec spec = {"obs", RV_FLOAT32, 2, shape};
  rv_table_info tables[2] = {full_info(waiting, &spec),
                             {.name = (char *)(uintptr_t) "empty", .min_priority = NAN, .max_priority = NAN}};
  const rv_server_info info = {.state_id = {1, UINT64_MAX},
                               .tables = tables,
                               .num_tables = 2,
                               .memory = {.spilled_bytes = 9, .spill_fault = "No space left on device"},
                               .journal_lag_ns = 12,
                               .journal_fault = "cannot write /j: No space left on device"};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_server_info_serialize(&out, &info);
  rv_buf *buf = written(&out);
  rv_server_info *back = NULL;
  rv_error err;
  if (rv_server_info_parse(span_of(buf), &back, &err) != RV_OK) fail_msg("%s", err.message);
  rv_buf_unref(buf);
  assert_true(back->state_id[0] == 1 && back->state_id[1] == UINT64_MAX && back->num_tables == 2);
  assert_int_equal(back->journal_lag_ns, 12);
  assert_string_equal(back->journal_fault, info.journal_fault);
  assert_memory_equal(&back->memory, &info.memory, sizeof info.memory);
  const rv_table_info *a = &tables[0], *b = &back->tables[0];
  assert_string_equal(b->name, "replay");
  assert_true(b->sampler.kind == RV_SELECTOR_PRIORITIZED && b->sampler.priority_exponent == 0.6);
  assert_int_equal(b->remover.kind, RV_SELECTOR_CUSTOM);
  assert_string_equal(b->remover.name, "mine");
  assert_string_equal(b->remover.options, "a=b");
  assert_true(b->max_size == 1000 && b->max_times_sampled == -1 && b->current_size == 17);
  assert_memory_equal(&b->rate_limiter, &a->rate_limiter, sizeof a->rate_limiter);
  assert_true(b->num_episodes == 2 && b->num_deleted_episodes == 3 && b->num_unique_samples == 4);
  assert_true(b->inserts == 18 && b->samples == 36 && b->deletes == 1 && b->updates == 9);
  assert_true(b->inserts_per_second == 1.5 && b->samples_per_second == 3 && b->memory_bytes == 123456);
  assert_true(b->running_ns == 5000001 && b->sampling_ns == 0 && b->waiting_for_inserts_ns == 999);
  assert_int_equal(b->num_waiting, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(b->waiting[i].is_change, waiting[i].is_change);
    assert_true(b->waiting[i].id == waiting[i].id && b->waiting[i].is_insert == waiting[i].is_insert);
    assert_true(b->waiting[i].reason == waiting[i].reason && b->waiting[i].waiting_ns == waiting[i].waiting_ns);
    assert_true(b->waiting[i].remaining_ns == waiting[i].remaining_ns && b->waiting[i].wanted == waiting[i].wanted);
    assert_string_equal(b->waiting[i].peer, waiting[i].peer);
  }
  assert_true(b->num_waiting_inserts == 1 && b->num_waiting_samples == 300 && b->min_priority == 0 && b->max_priority == 8);
  assert_string_equal(b->extensions, "statistics: inserts=18\n");
  assert_int_equal(b->signature.num_specs, 1);
  assert_string_equal(b->signature.specs[0].name, "obs");
  assert_true(b->signature.structure.size > 0);
  const rv_table_info *empty = &back->tables[1];
  assert_true(isnan(empty->min_priority) && isnan(empty->max_priority) && empty->signature.num_specs == 0);
  assert_string_equal(empty->extensions, "");
  rv_server_info_free(back);
}

static void both_statistics_of_a_limiter_are_always_present(void **state)
{
  (void)state;
  const rv_rate_limiter_config limiter = {.samples_per_insert = 1, .min_size_to_sample = 1};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_rate_limiter_put(&out, 5, &limiter, 0, 0);
  rv_buf *buf = written(&out);
  static const uint8_t expected[] = {0x2A, 0x0F, 0x09, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 0x20, 0x01, 0x2A, 0x00, 0x32, 0x00};
  assert_bytes(buf, expected, sizeof expected);
  rv_buf_unref(buf);
}

static rv_code parse_code(rv_span message)
{
  rv_buf *buf = buf_of(message);
  rv_server_info *info = NULL;
  rv_error err = {0};
  rv_code code = rv_server_info_parse(span_of(buf), &info, &err);
  if (code == RV_OK)
    rv_server_info_free(info);
  else
    assert_true(err.code == code);
  rv_buf_unref(buf);
  return code;
}

static void malformed_server_info_is_refused(void **state)
{
  (void)state;
  assert_int_equal(parse_code(SPAN("")), RV_OK);
  assert_int_equal(parse_code(SPAN("\x12\x00")), RV_OK);
  assert_int_equal(parse_code(SPAN("\x0A\x01\x08")), RV_INVALID_ARGUMENT);
  assert_int_equal(parse_code(SPAN("\x12\x03\x42\x01\xFF")), RV_INVALID_ARGUMENT);     /* the name */
  assert_int_equal(parse_code(SPAN("\x12\x04\x42\x01\x61\x42")), RV_INVALID_ARGUMENT); /* cut off behind the name */
  assert_int_equal(parse_code(SPAN("\x12\x02\x32\x00")), RV_INVALID_ARGUMENT);         /* a signature that is nothing */
  assert_int_equal(parse_code(SPAN("\x12\x04\x0A\x02\x1A\x05")), RV_INVALID_ARGUMENT); /* a selector cut off */
  assert_int_equal(parse_code(SPAN("\x12\x08\xEA\x3E\x05\x3A\x03\xFF\xFF\xFF")), RV_INVALID_ARGUMENT); /* a caller's peer */
  /* texts and signatures that come twice: the last one counts and nothing leaks */
  assert_int_equal(
      parse_code(
          SPAN("\x12\x18\x42\x01\x61\x42\x01\x62\x32\x07\x8A\x02\x04\x12\x00\x18\x01\x32\x07\x8A\x02\x04\x12\x00\x18\x02")),
      RV_OK);
}

static void tables_that_are_empty_take_no_memory(void **state)
{
  (void)state;
  enum { N = 1 << 20 };
  uint8_t *bytes = malloc(2 * N);
  for (size_t i = 0; i < N; i++) {
    bytes[2 * i] = 0x12;
    bytes[2 * i + 1] = 0;
  }
  assert_int_equal(parse_code((rv_span){bytes, 2 * N}), RV_INVALID_ARGUMENT);
  free(bytes);
}

static void long_peers_are_cut_between_characters(void **state)
{
  (void)state;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  size_t table = rv_put_open(&out, 2), caller = rv_put_open(&out, 1005);
  char peer[101];
  memset(peer, 'a', 62);
  for (size_t i = 62; i < 100; i += 2) memcpy(peer + i, "\xC3\xA9", 2);
  peer[100] = '\0';
  rv_put_string(&out, 7, peer);
  rv_put_close(&out, caller);
  rv_put_close(&out, table);
  rv_buf *buf = written(&out);
  rv_server_info *info = NULL;
  assert_int_equal(rv_server_info_parse(span_of(buf), &info, NULL), RV_OK);
  assert_int_equal(strlen(info->tables[0].waiting[0].peer), 62);
  rv_server_info_free(info);
  rv_buf_unref(buf);
}

static void faults_are_cut_between_characters(void **state)
{
  (void)state;
  char fault[400];
  for (size_t i = 0; i < 398; i += 2) memcpy(fault + i, "\xC3\xA9", 2);
  fault[398] = '\0';
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_put_string(&out, 1006, fault);
  rv_put_string(&out, 1007, fault + 2);
  rv_buf *buf = written(&out);
  rv_server_info *info = NULL;
  assert_int_equal(rv_server_info_parse(span_of(buf), &info, NULL), RV_OK);
  assert_int_equal(strlen(info->journal_fault), (sizeof info->journal_fault - 1) / 2 * 2);
  assert_int_equal(strlen(info->memory.spill_fault), (sizeof info->memory.spill_fault - 1) / 2 * 2);
  rv_server_info_free(info);
  rv_buf_unref(buf);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(selectors_have_the_bytes_that_protobuf_writes),
      cmocka_unit_test(table_info_comes_back_whole),
      cmocka_unit_test(both_statistics_of_a_limiter_are_always_present),
      cmocka_unit_test(malformed_server_info_is_refused),
      cmocka_unit_test(tables_that_are_empty_take_no_memory),
      cmocka_unit_test(long_peers_are_cut_between_characters),
      cmocka_unit_test(faults_are_cut_between_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
