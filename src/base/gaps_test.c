/* Gaps: whatever part of a message is copied, it is as if all of it were there. */
#include "base/gaps.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

#include "base/random.h"

enum { SIZE = 200 << 10 };

typedef struct message {
  uint8_t whole[SIZE], lent[SIZE], gapped[SIZE];
  rv_gaps gaps;
} message;

/* Every second of the pieces between random places is lent; where it belongs there is something else. */
static void make(message *one, rv_random *random, uint32_t longest)
{
  one->gaps.count = 0;
  for (size_t i = 0; i < SIZE; i++) one->whole[i] = (uint8_t)(i * 7 + i / 251);
  memcpy(one->gapped, one->whole, SIZE);
  for (size_t at = rv_random_below(random, longest); at < SIZE && one->gaps.count < RV_MOST_GAPS;) {
    size_t size = 1 + rv_random_below(random, longest);
    if (size > SIZE - at) size = SIZE - at;
    memcpy(one->lent + at, one->whole + at, size);
    memset(one->gapped + at, 0xee, size);
    one->gaps.gap[one->gaps.count++] = (rv_gap){.to = one->gapped + at, .from = one->lent + at, .size = size};
    at += size + rv_random_below(random, longest); /* 0: two beside each other */
  }
}

static void any_part_is_copied_as_if_all_were_there(void **state)
{
  (void)state;
  static message one;
  static uint8_t out[SIZE + 1];
  rv_crew *crew;
  rv_random random;
  rv_random_init(&random, 11);
  assert_int_equal(rv_crew_new(2, &crew, NULL), RV_OK);
  for (int round = 0; round < 300; round++) {
    make(&one, &random, 1 + rv_random_below(&random, 35000));
    size_t from = rv_random_below(&random, SIZE), size = rv_random_below(&random, (uint32_t)(SIZE - from) + 1);
    out[size] = 0x55;
    rv_gaps_copy_together(round % 3 == 0 ? NULL : crew, &one.gaps, round % 2 == 0, out, one.gapped + from, size);
    assert_memory_equal(out, one.whole + from, size);
    assert_int_equal(out[size], 0x55);
    rv_gaps_fill(&one.gaps);
    assert_memory_equal(one.gapped, one.whole, SIZE);
  }
  rv_crew_free(crew);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_part_is_copied_as_if_all_were_there)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
