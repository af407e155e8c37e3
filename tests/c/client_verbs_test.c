/* Every verb of a client that looks or changes, in process and remote. */
#include "client_fixture.h"
#include "reverie/writer.h"

TEST(server_info_lists_the_tables)
{
  rv_error err;
  rv_server_info *info;
  add_values(f->client, "replay", 3);
  assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err));
  assert_int_equal(info->num_tables, 6);
  assert_true(info->state_id[0] != 0 || info->state_id[1] != 0);
  const rv_table_info *replay = NULL, *with_signature = NULL;
  for (size_t i = 0; i < info->num_tables; i++) {
    if (strcmp(info->tables[i].name, "replay") == 0) replay = &info->tables[i];
    if (strcmp(info->tables[i].name, "signed") == 0) with_signature = &info->tables[i];
  }
  assert_non_null(replay);
  assert_int_equal(replay->current_size, 3);
  assert_int_equal(replay->inserts, 3);
  assert_int_equal(replay->sampler.kind, RV_SELECTOR_UNIFORM);
  assert_non_null(with_signature);
  assert_int_equal(with_signature->signature.num_specs, 2);
  assert_int_equal(with_signature->signature.specs[0].dtype, RV_FLOAT32);
  rv_server_info_free(info);
}

TEST(items_come_in_pages_in_order)
{
  rv_error err;
  uint64_t keys[7];
  for (int i = 0; i < 7; i++) assert_ok(add_value(f->client, "replay", (float)i, i, &keys[i], &long_enough, &err));
  rv_item_info page[3];
  uint64_t cursor = 0;
  size_t seen = 0, count;
  do {
    assert_ok(rv_client_items(f->client, "replay", &cursor, page, 3, &count, &long_enough, &err));
    for (size_t i = 0; i < count; i++, seen++) {
      assert_true(page[i].key == keys[seen]);
      assert_true(page[i].priority == (double)seen);
      assert_int_equal(page[i].length, 1);
    }
  } while (cursor != 0);
  assert_int_equal(seen, 7);
}

TEST(get_shows_an_item_and_does_not_count_it)
{
  rv_error err;
  uint64_t key;
  assert_ok(add_value(f->client, "replay", 4, 2.0, &key, &long_enough, &err));
  rv_sample *sample;
  for (int i = 0; i < 2; i++) {
    assert_ok(rv_client_get(f->client, "replay", key, &long_enough, &sample, &err));
    assert_true(sample_value(sample) == 4);
    assert_true(rv_sample_get_info(sample)->key == key);
    assert_true(rv_sample_get_info(sample)->priority == 2.0);
    assert_int_equal(rv_sample_get_info(sample)->times_sampled, 0);
    rv_sample_unref(sample);
  }
  assert_code(rv_client_get(f->client, "replay", key ^ 1, &long_enough, &sample, &err), RV_NOT_FOUND);
}

TEST(mutate_updates_deletes_and_names_the_unknown)
{
  rv_error err;
  uint64_t keys[3];
  for (int i = 0; i < 3; i++) assert_ok(add_value(f->client, "per", (float)i, 1.0, &keys[i], &long_enough, &err));
  uint64_t stranger = keys[0] ^ keys[1] ^ 12345;
  rv_key_priority updates[] = {{keys[0], 7.0}, {stranger, 1.0}};
  uint64_t unknown[3];
  size_t num_unknown;
  assert_ok(rv_client_mutate(f->client, "per", updates, 2, &keys[2], 1, unknown, &num_unknown, &long_enough, &err));
  assert_int_equal(num_unknown, 1);
  assert_true(unknown[0] == stranger);
  rv_sample *sample;
  assert_ok(rv_client_get(f->client, "per", keys[0], &long_enough, &sample, &err));
  assert_true(rv_sample_get_info(sample)->priority == 7.0);
  rv_sample_unref(sample);
  assert_code(rv_client_get(f->client, "per", keys[2], &long_enough, &sample, &err), RV_NOT_FOUND);
  assert_int_equal(table_size(f, "per"), 2);
}

TEST(who_does_not_ask_which_keys_were_unknown_hears_how_many)
{
  rv_error err;
  const rv_key_priority strangers[] = {{.key = 1, .priority = 2.0}, {.key = 2, .priority = 2.0}};
  const uint64_t more = 3;
  size_t num_unknown;
  assert_ok(rv_client_mutate(f->client, "per", strangers, 2, &more, 1, NULL, &num_unknown, &long_enough, &err));
  assert_int_equal(num_unknown, 3);
}

TEST(a_refused_priority_changes_nothing)
{
  rv_error err;
  uint64_t keys[2];
  for (int i = 0; i < 2; i++) assert_ok(add_value(f->client, "per", (float)i, 1.0, &keys[i], &long_enough, &err));
  double priorities[] = {5.0, -1.0};
  assert_code(rv_client_update_priorities(f->client, "per", keys, priorities, 2, NULL, NULL, &long_enough, &err),
              RV_INVALID_ARGUMENT);
  rv_sample *sample;
  assert_ok(rv_client_get(f->client, "per", keys[0], &long_enough, &sample, &err));
  assert_true(rv_sample_get_info(sample)->priority == 1.0);
  rv_sample_unref(sample);
  priorities[1] = 2.0;
  assert_ok(rv_client_update_priorities(f->client, "per", keys, priorities, 2, NULL, NULL, &long_enough, &err));
  assert_ok(rv_client_get(f->client, "per", keys[1], &long_enough, &sample, &err));
  assert_true(rv_sample_get_info(sample)->priority == 2.0);
  rv_sample_unref(sample);
}

TEST(reset_empties_a_table)
{
  rv_error err;
  add_values(f->client, "replay", 5);
  assert_ok(rv_client_reset(f->client, "replay", &long_enough, &err));
  assert_int_equal(table_size(f, "replay"), 0);
}

TEST(set_rate_limiter_lets_others_through)
{
  rv_error err;
  add_values(f->client, "five", 1);
  rv_batch *batch;
  assert_code(rv_client_sample_batch(f->client, "five", 1, RV_UNEQUAL_ERROR, &shortly, &batch, &err), RV_DEADLINE_EXCEEDED);
  rv_rate_limiter_config limiter = rv_rate_limiter_min_size(1);
  assert_ok(rv_client_set_rate_limiter(f->client, "five", &limiter, &long_enough, &err));
  assert_ok(rv_client_sample_batch(f->client, "five", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
  limiter.samples_per_insert = -1;
  assert_code(rv_client_set_rate_limiter(f->client, "five", &limiter, &long_enough, &err), RV_INVALID_ARGUMENT);
}

static rv_code set_bounds(rv_client *client, const char *table, int64_t max_size, int32_t max_times_sampled, rv_error *err)
{
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_size = max_size;
  bounds.max_times_sampled = max_times_sampled;
  return rv_client_set_bounds(client, table, &bounds, &long_enough, err);
}

TEST(set_bounds_changes_a_running_table)
{
  rv_error err;
  for (int i = 0; i < 3; i++) add_values(f->client, "fifo", 1000);
  assert_ok(set_bounds(f->client, "fifo", 7, RV_UNCHANGED, &err));
  assert_int_equal(table_size(f, "fifo"), 7);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "fifo", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  assert_int_equal(rv_batch_info(batch, 0)->table_size, 7); /* the oldest of the newest seven */
  rv_batch_free(batch);
  assert_ok(set_bounds(f->client, "fifo", RV_UNCHANGED, 1, &err));
  assert_ok(rv_client_sample_batch(f->client, "fifo", 7, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
  assert_int_equal(table_size(f, "fifo"), 0);
  assert_ok(set_bounds(f->client, "fifo", 2000, 0, &err));
  add_values(f->client, "fifo", 1500);
  assert_int_equal(table_size(f, "fifo"), 1500);
  assert_code(set_bounds(f->client, "five", 4, RV_UNCHANGED, &err), RV_INVALID_ARGUMENT);
  assert_says("min_size_to_sample is 5");
  assert_code(set_bounds(f->client, "fifo", 0, RV_UNCHANGED, &err), RV_INVALID_ARGUMENT);
}

TEST(set_memory_limit_changes_a_running_server)
{
  rv_error err;
  const size_t limits[] = {(size_t)1 << 30, 0};
  for (size_t i = 0; i < 2; i++) {
    rv_server_info *info;
    assert_ok(rv_client_set_memory_limit(f->client, limits[i], &long_enough, &err));
    assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err));
    assert_int_equal(info->memory.limit_bytes, limits[i]);
    rv_server_info_free(info);
  }
}

TEST(set_bounds_in_bytes_changes_that_alone)
{
  rv_error err;
  for (int i = 0; i < 2; i++) add_values(f->client, "fifo", 1000);
  int64_t most = table_size(f, "fifo");
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_bytes = 1 << 15;
  assert_ok(rv_client_set_bounds(f->client, "fifo", &bounds, &long_enough, &err));
  int64_t left = table_size(f, "fifo");
  assert_true(left > 50 && left < most);
  rv_server_info *info;
  assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err));
  for (size_t i = 0; i < info->num_tables; i++)
    assert_int_equal(info->tables[i].max_bytes, strcmp(info->tables[i].name, "fifo") == 0 ? 1 << 15 : 0);
  rv_server_info_free(info);
  bounds.max_bytes = -2;
  assert_code(rv_client_set_bounds(f->client, "fifo", &bounds, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("max_bytes is -2");
}

TEST(checkpoint_without_a_checkpointer_is_refused)
{
  rv_error err;
  char *path;
  assert_code(rv_client_checkpoint(f->client, &path, &long_enough, &err), RV_INVALID_ARGUMENT);
}

TEST(an_unknown_table_is_not_found_by_any_verb)
{
  rv_error err;
  uint64_t key = 1, cursor = 0;
  double priority = 1;
  rv_sample *sample;
  rv_item_info item;
  size_t count;
  rv_batch *batch;
  rv_rate_limiter_config limiter = rv_rate_limiter_min_size(1);
  assert_code(add_value(f->client, "nowhere", 1, 1, NULL, &long_enough, &err), RV_NOT_FOUND);
  assert_says("nowhere");
  assert_says("replay");
  assert_code(rv_client_get(f->client, "nowhere", key, &long_enough, &sample, &err), RV_NOT_FOUND);
  assert_code(rv_client_items(f->client, "nowhere", &cursor, &item, 1, &count, &long_enough, &err), RV_NOT_FOUND);
  assert_code(rv_client_update_priorities(f->client, "nowhere", &key, &priority, 1, NULL, NULL, &long_enough, &err),
              RV_NOT_FOUND);
  assert_code(rv_client_reset(f->client, "nowhere", &long_enough, &err), RV_NOT_FOUND);
  assert_code(rv_client_set_rate_limiter(f->client, "nowhere", &limiter, &long_enough, &err), RV_NOT_FOUND);
  assert_code(set_bounds(f->client, "nowhere", 5, RV_UNCHANGED, &err), RV_NOT_FOUND);
  assert_code(rv_client_sample_batch(f->client, "nowhere", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err), RV_NOT_FOUND);
  assert_code(rv_client_reset(f->client, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
}

/* A server would refuse the whole message, and what else is in it. */
TEST(a_table_whose_name_is_no_text_is_refused_by_any_verb)
{
  rv_error err;
  uint64_t key = 1, cursor = 0;
  size_t count;
  rv_item_info page[1];
  rv_sample *sample;
  const rv_key_priority update = {.key = 1, .priority = 1};
  const char *name = "caf\xE9 table";
  assert_code(add_value(f->client, name, 1, 1, &key, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("is not valid UTF-8");
  assert_code(rv_client_items(f->client, name, &cursor, page, 1, &count, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("is not valid UTF-8");
  assert_code(rv_client_get(f->client, name, key, &long_enough, &sample, &err), RV_INVALID_ARGUMENT);
  assert_says("is not valid UTF-8");
  assert_code(rv_client_mutate(f->client, name, &update, 1, NULL, 0, NULL, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("is not valid UTF-8");
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 1};
  rv_writer *writer;
  assert_ok(rv_writer_new(f->client, &config, &writer, &err));
  float value = 1;
  const rv_cell cell = {.value = {.dtype = RV_FLOAT32, .data = &value}};
  assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
  const rv_run run = {.count = 1, .stride = 1};
  const rv_item_column column = {.runs = &run, .num_runs = 1};
  assert_code(rv_writer_create_item(writer, name, 1, &column, 1, NULL, &err), RV_INVALID_ARGUMENT);
  assert_says("is not valid UTF-8");
  assert_ok(rv_writer_create_item(writer, "replay", 1, &column, 1, NULL, &err));
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  rv_writer_free(writer);
}

int main(void)
{
  const struct CMUnitTest tests[] = {EVERY_WAY(server_info_lists_the_tables),
                                     EVERY_WAY(items_come_in_pages_in_order),
                                     EVERY_WAY(get_shows_an_item_and_does_not_count_it),
                                     EVERY_WAY(mutate_updates_deletes_and_names_the_unknown),
                                     EVERY_WAY(who_does_not_ask_which_keys_were_unknown_hears_how_many),
                                     EVERY_WAY(a_refused_priority_changes_nothing),
                                     EVERY_WAY(reset_empties_a_table),
                                     EVERY_WAY(set_rate_limiter_lets_others_through),
                                     EVERY_WAY(set_bounds_changes_a_running_table),
                                     EVERY_WAY(set_memory_limit_changes_a_running_server),
                                     EVERY_WAY(set_bounds_in_bytes_changes_that_alone),
                                     EVERY_WAY(checkpoint_without_a_checkpointer_is_refused),
                                     EVERY_WAY(a_table_whose_name_is_no_text_is_refused_by_any_verb),
                                     EVERY_WAY(an_unknown_table_is_not_found_by_any_verb)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
