/* What columns are called: the naming that comes with what is sampled, in process and remote. */
#include "client_fixture.h"

#include "reverie/step_writer.h"

enum { B = 40 };
static const uint64_t ONE = UINT64_C(0x0123456789ABCDEF);
static const uint64_t OTHER = UINT64_C(0xFEDCBA9876543210);

static void add(fixture *f, const char *table, uint64_t naming, uint64_t *key)
{
  rv_error err;
  float value = 1;
  rv_tensor column = {.dtype = RV_FLOAT32, .data = &value};
  assert_ok(rv_client_add_named(f->client, table, naming, &column, 1, 1.0, key, &long_enough, &err));
}

static void add_many(fixture *f, const char *table, uint64_t naming, size_t n)
{
  rv_error err;
  float values[1000] = {0};
  int64_t shape = (int64_t)n;
  rv_tensor column = {.dtype = RV_FLOAT32, .rank = 1, .shape = &shape, .data = values};
  assert_ok(rv_client_add_batch_named(f->client, table, naming, &column, 1, n, NULL, NULL, NULL, &long_enough, &err));
}

static uint64_t naming_of_a_batch(fixture *f, const char *table, size_t n)
{
  rv_error err;
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, table, n, RV_UNEQUAL_LIST, &long_enough, &batch, &err));
  uint64_t naming = rv_batch_naming(batch);
  rv_sample *sample = rv_batch_sample(batch, 0);
  assert_true(rv_sample_naming(sample) == naming);
  rv_sample_unref(sample);
  rv_batch_free(batch);
  return naming;
}

static uint64_t naming_of_arrays(fixture *f, const char *table)
{
  rv_error err;
  float values[2 * B];
  void *columns[] = {values};
  rv_batch_arrays arrays = {.size = sizeof arrays};
  assert_code(rv_client_sample_into(f->client, table, B, &arrays, &long_enough, &err), RV_FAILED_PRECONDITION);
  uint64_t drawn = arrays.drawn != NULL ? rv_batch_naming(arrays.drawn) : 0;
  bool remote = arrays.drawn != NULL;
  rv_batch_free(arrays.drawn);
  rv_layout *layout = arrays.found;
  arrays.layout = layout;
  arrays.columns = columns;
  assert_ok(rv_client_sample_into(f->client, table, B, &arrays, &long_enough, &err));
  assert_int_equal(arrays.count, B);
  if (remote) assert_true(drawn == arrays.naming);
  rv_layout_unref(layout);
  return arrays.naming;
}

static uint64_t naming_of_a_sampler(fixture *f, const char *table)
{
  rv_error err;
  rv_sampler_config config = {.size = sizeof config, .table = table, .max_samples = 1, .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  rv_sample *sample;
  assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  uint64_t naming = rv_sample_naming(sample);
  rv_sample_unref(sample);
  rv_sampler_free(sampler);
  return naming;
}

static uint64_t naming_of_an_item(fixture *f, const char *table, uint64_t key)
{
  rv_error err;
  rv_sample *sample;
  assert_ok(rv_client_get(f->client, table, key, &long_enough, &sample, &err));
  uint64_t naming = rv_sample_naming(sample);
  rv_sample_unref(sample);
  return naming;
}

TEST(what_is_sampled_has_the_naming_that_it_was_added_with)
{
  uint64_t key;
  add(f, "fifo", ONE, &key);
  add_many(f, "fifo", ONE, 100);
  assert_true(naming_of_a_batch(f, "fifo", B) == ONE);
  assert_true(naming_of_arrays(f, "fifo") == ONE);
  assert_true(naming_of_a_sampler(f, "fifo") == ONE);
  assert_true(naming_of_an_item(f, "fifo", key) == ONE);
}

TEST(items_that_nobody_named_have_no_naming)
{
  rv_error err;
  assert_ok(add_value(f->client, "fifo", 1, 1.0, NULL, &long_enough, &err));
  assert_true(naming_of_a_batch(f, "fifo", 1) == 0);
  assert_true(naming_of_a_sampler(f, "fifo") == 0);
  assert_true(naming_of_arrays(f, "fifo") == 0);
}

TEST(where_items_differ_in_their_naming_nothing_sampled_has_one)
{
  const uint64_t others[] = {OTHER, 0};
  for (int i = 0; i < 2; i++) {
    rv_error err;
    uint64_t key, other;
    assert_ok(rv_client_reset(f->client, "fifo", &long_enough, &err));
    add(f, "fifo", ONE, &key);
    assert_true(naming_of_a_batch(f, "fifo", 1) == ONE);
    add(f, "fifo", others[i], &other);
    assert_true(naming_of_a_batch(f, "fifo", 1) == 0); /* also of the first alone */
    assert_true(naming_of_arrays(f, "fifo") == 0);
    assert_true(naming_of_a_sampler(f, "fifo") == 0);
    assert_true(naming_of_an_item(f, "fifo", key) == 0);
    add(f, "fifo", ONE, NULL);
    assert_true(naming_of_a_batch(f, "fifo", 3) == 0);
  }
}

TEST(after_a_reset_the_new_naming_counts)
{
  rv_error err;
  add(f, "fifo", ONE, NULL);
  assert_ok(rv_client_reset(f->client, "fifo", &long_enough, &err));
  add(f, "fifo", OTHER, NULL);
  assert_true(naming_of_a_batch(f, "fifo", 1) == OTHER);
  assert_true(naming_of_arrays(f, "fifo") == OTHER);
}

TEST(when_the_last_item_of_another_naming_has_gone_the_rest_has_one_again)
{
  rv_error err;
  uint64_t key;
  add(f, "fifo", ONE, &key);
  add(f, "fifo", OTHER, NULL);
  add(f, "fifo", OTHER, NULL);
  assert_true(naming_of_a_batch(f, "fifo", 2) == 0);
  assert_ok(rv_client_mutate(f->client, "fifo", NULL, 0, &key, 1, NULL, NULL, &long_enough, &err));
  assert_true(naming_of_a_batch(f, "fifo", 2) == OTHER);
}

TEST(a_full_table_takes_on_the_naming_of_the_rows_that_replace_its_own)
{
  add_many(f, "fifo", ONE, 1000);
  add_many(f, "fifo", OTHER, 999);
  assert_true(naming_of_a_batch(f, "fifo", 1) == 0);
  add(f, "fifo", OTHER, NULL);
  assert_true(naming_of_a_batch(f, "fifo", 1) == OTHER);
  assert_true(naming_of_arrays(f, "fifo") == OTHER);
  add_many(f, "fifo", 0, 1); /* one at a time, which a full table takes in at once */
  assert_true(naming_of_arrays(f, "fifo") == 0);
}

TEST(a_drained_queue_takes_another_naming)
{
  add(f, "queue", ONE, NULL);
  assert_true(naming_of_a_batch(f, "queue", 1) == ONE);
  add(f, "queue", OTHER, NULL);
  assert_true(naming_of_a_batch(f, "queue", 1) == OTHER);
}

TEST(the_naming_of_an_item_whose_priority_is_updated_stays)
{
  rv_error err;
  uint64_t key;
  add(f, "fifo", ONE, &key);
  double priority = 2.0;
  assert_ok(rv_client_update_priorities(f->client, "fifo", &key, &priority, 1, NULL, NULL, &long_enough, &err));
  assert_true(naming_of_a_batch(f, "fifo", 1) == ONE);
}

static void create(fixture *f, rv_writer *writer, int64_t value)
{
  (void)f;
  rv_error err;
  rv_cell cell = {.column = 0, .value = {.dtype = RV_INT64, .data = &value}};
  assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
  rv_run run = {.column = 0, .count = 1, .first = value, .stride = 1};
  rv_item_column column = {.runs = &run, .num_runs = 1};
  assert_ok(rv_writer_create_item(writer, "fifo", 1.0, &column, 1, NULL, &err));
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
}

TEST(a_writers_items_have_the_naming_that_was_set_before_them)
{
  rv_error err;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 4};
  rv_writer *writer;
  assert_ok(rv_writer_new(f->client, &config, &writer, &err));
  create(f, writer, 0);
  assert_true(naming_of_a_batch(f, "fifo", 1) == 0);
  assert_ok(rv_client_reset(f->client, "fifo", &long_enough, &err));
  rv_writer_set_naming(writer, ONE);
  create(f, writer, 1);
  create(f, writer, 2);
  assert_true(naming_of_a_batch(f, "fifo", 2) == ONE);
  assert_true(naming_of_a_sampler(f, "fifo") == ONE);
  rv_writer_set_naming(writer, OTHER);
  create(f, writer, 3);
  assert_true(naming_of_a_batch(f, "fifo", 1) == 0);
  rv_writer_free(writer);
}

TEST(a_step_writers_items_have_the_naming_that_was_set_before_them)
{
  rv_error err;
  rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 2};
  rv_step_writer *writer;
  assert_ok(rv_step_writer_new(f->client, &config, &writer, &err));
  rv_step_writer_set_naming(writer, OTHER);
  int64_t value = 1;
  rv_tensor column = {.dtype = RV_INT64, .data = &value};
  assert_ok(rv_step_writer_append(writer, &column, 1, &long_enough, &err));
  assert_ok(rv_step_writer_create_item(writer, "fifo", 1, 1.0, &long_enough, NULL, &err));
  assert_ok(rv_step_writer_close(writer, true, &long_enough, &err));
  rv_step_writer_free(writer);
  assert_true(naming_of_a_batch(f, "fifo", 1) == OTHER);
}

int main(void)
{
  const struct CMUnitTest tests[] = {EVERY_WAY(what_is_sampled_has_the_naming_that_it_was_added_with),
                                     EVERY_WAY(items_that_nobody_named_have_no_naming),
                                     EVERY_WAY(where_items_differ_in_their_naming_nothing_sampled_has_one),
                                     EVERY_WAY(after_a_reset_the_new_naming_counts),
                                     EVERY_WAY(when_the_last_item_of_another_naming_has_gone_the_rest_has_one_again),
                                     EVERY_WAY(a_full_table_takes_on_the_naming_of_the_rows_that_replace_its_own),
                                     EVERY_WAY(a_drained_queue_takes_another_naming),
                                     EVERY_WAY(the_naming_of_an_item_whose_priority_is_updated_stays),
                                     EVERY_WAY(a_writers_items_have_the_naming_that_was_set_before_them),
                                     EVERY_WAY(a_step_writers_items_have_the_naming_that_was_set_before_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
