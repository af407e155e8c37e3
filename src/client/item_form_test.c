/* An item that is made a message when it must be one: its bytes, and what the form that it shares is kept for. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "client/insert_stream_parts.h"

static const char table[] = "replay";
static uint32_t num_slices[] = {2, 1};
static bool squeeze[] = {false, true};
static const uint8_t in_order[] = {0, 1, 2};

/* Two columns over three chunks; `shift` rows further on. */
static rv_wire_item item_of(uint64_t key, const uint64_t *chunk_keys, int32_t shift, rv_wire_slice slices[3])
{
  for (int32_t i = 0; i < 3; i++)
    slices[i] = (rv_wire_slice){.chunk_key = chunk_keys[i], .offset = i + shift, .length = i < 2 ? 3 : 1, .index = i};
  return (rv_wire_item){.key = key,
                        .table = {(const uint8_t *)table, strlen(table)},
                        .priority = (double)key / 3,
                        .naming = 77,
                        .slices = slices,
                        .num_slices = num_slices,
                        .squeeze = squeeze,
                        .num_columns = 2,
                        .total_slices = 3};
}

/* The item that is made of its form, and what it would be as a message of its own; lets the chunks go. */
static void expect_same_message(rv_item_form *form, const rv_wire_item *wire, rv_stream_chunk *const *chunks, uint32_t num_chunks,
                                uint64_t sequence)
{
  rv_stream_item whole, like;
  assert_int_equal(rv_stream_item_init(&whole, wire, chunks, num_chunks, NULL), RV_OK);
  like = whole;
  like.body = NULL;
  like.like = form;
  like.priority = wire->priority;
  whole.sequence = like.sequence = sequence;
  rv_writer_buf a, b;
  rv_writer_buf_init(&a);
  rv_writer_buf_init(&b);
  rv_stream_item_put(&a, 2, &whole);
  rv_stream_item_put(&b, 2, &like);
  assert_false(a.failed || b.failed);
  assert_int_equal(a.size, b.size);
  assert_memory_equal(a.data, b.data, a.size);
  rv_writer_buf_fini(&a);
  rv_writer_buf_fini(&b);
  rv_stream_item_fini(&whole);
  for (uint32_t i = 0; i < num_chunks; i++) rv_stream_chunk_unref(chunks[i]);
}

static void an_item_made_of_its_form_is_the_message_that_it_would_have_been(void **state)
{
  (void)state;
  rv_wire_slice slices[3];
  rv_wire_item first = item_of(1, (const uint64_t[]){1, 2, 3}, 5, slices);
  rv_item_form *form = rv_item_form_new();
  assert_non_null(form);
  assert_false(rv_item_form_fits(form, &first, in_order)); /* it says nothing yet */
  rv_item_form_set(form, 1, &first, in_order);
  for (uint64_t key = 2; key < 60; key++) {
    const uint64_t chunk_keys[] = {key << key, UINT64_MAX - key, key * 1000};
    rv_stream_chunk *chunks[3];
    for (int i = 0; i < 3; i++) assert_int_equal(rv_stream_chunk_new_flat(chunk_keys[i], 1, 1, NULL, &chunks[i], NULL), RV_OK);
    rv_wire_item wire = item_of(key, chunk_keys, 5, slices);
    assert_true(rv_item_form_fits(form, &wire, in_order));
    expect_same_message(form, &wire, chunks, 3, key * key);
  }
  rv_item_form_unref(form);
}

static void what_differs_in_more_than_key_priority_and_chunks_is_of_another_form(void **state)
{
  (void)state;
  const uint64_t keys[] = {1, 2, 3};
  static const char other_table[] = "replay";
  rv_wire_slice slices[3];
  rv_wire_item item = item_of(1, keys, 0, slices);
  rv_item_form *form = rv_item_form_new();
  assert_non_null(form);
  rv_item_form_set(form, 1, &item, in_order);
  assert_true(rv_item_form_fits(form, &item, in_order));
  rv_wire_item other = item;
  other.naming++;
  assert_false(rv_item_form_fits(form, &other, in_order));
  other = item;
  other.table.data = (const uint8_t *)other_table; /* another place, another table */
  assert_false(rv_item_form_fits(form, &other, in_order));
  other = item;
  other.num_columns = 1;
  assert_false(rv_item_form_fits(form, &other, in_order));
  other = item;
  other.num_slices = (uint32_t[]){1, 2};
  assert_false(rv_item_form_fits(form, &other, in_order));
  other = item;
  other.squeeze = (bool[]){false, false};
  assert_false(rv_item_form_fits(form, &other, in_order));
  for (int i = 0; i < 3; i++) {
    item = item_of(2, keys, 0, slices);
    assert_true(rv_item_form_fits(form, &item, in_order));
    *(i == 0 ? &slices[2].offset : i == 1 ? &slices[1].length : &slices[0].index) += 1;
    assert_false(rv_item_form_fits(form, &item, in_order));
  }
  item = item_of(2, keys, 0, slices);
  assert_false(rv_item_form_fits(form, &item, (const uint8_t[]){0, 1, 1})); /* two slices of one chunk */
  rv_item_form_unref(form);
}

/* Columns that share chunks: slices of one, in no order. */
static void slices_find_their_chunks_by_the_form(void **state)
{
  (void)state;
  static const uint8_t chunk_of[] = {1, 0, 1};
  rv_wire_slice slices[3];
  const uint64_t keys[] = {20, 10, 20};
  rv_wire_item wire = item_of(4, keys, 1, slices);
  rv_item_form *form = rv_item_form_new();
  assert_non_null(form);
  rv_item_form_set(form, 1, &wire, chunk_of);
  rv_stream_chunk *chunks[2];
  for (uint64_t i = 0; i < 2; i++) assert_int_equal(rv_stream_chunk_new_flat(10 + 10 * i, 1, 5, NULL, &chunks[i], NULL), RV_OK);
  expect_same_message(form, &wire, chunks, 2, 9);
  rv_item_form_unref(form);
}

static void a_form_lives_as_long_as_somebody_shares_it(void **state)
{
  (void)state;
  rv_item_form *form = rv_item_form_new(), *other = rv_item_form_new(), *a = NULL, *b = NULL;
  assert_true(form != NULL && other != NULL);
  assert_false(rv_item_form_is_shared(form));
  rv_item_form_share(&a, form);
  rv_item_form_share(&a, form); /* once is enough */
  rv_item_form_share(&b, form);
  assert_true(rv_item_form_is_shared(form));
  rv_item_form_share(&a, other);
  rv_item_form_unref(b);
  assert_false(rv_item_form_is_shared(form));
  assert_true(rv_item_form_is_shared(other));
  rv_item_form_unref(other);
  rv_item_form_unref(form);
  rv_item_form_unref(a);
  rv_item_form_unref(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_item_made_of_its_form_is_the_message_that_it_would_have_been),
      cmocka_unit_test(what_differs_in_more_than_key_priority_and_chunks_is_of_another_form),
      cmocka_unit_test(slices_find_their_chunks_by_the_form),
      cmocka_unit_test(a_form_lives_as_long_as_somebody_shares_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
