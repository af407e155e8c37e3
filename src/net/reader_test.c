/* Messages through the send queue and the output into the reader, cut anywhere. */
#include "net/echo_testing.h"

#include <errno.h>

#include "base/random.h"
#include "net/reader.h"
#include "net/sendq.h"

enum { LIMIT = 8 << 20 };

static void add_prefix(uint8_t *to, size_t size)
{
  to[0] = 0;
  to[1] = (uint8_t)(size >> 24);
  to[2] = (uint8_t)(size >> 16);
  to[3] = (uint8_t)(size >> 8);
  to[4] = (uint8_t)size;
}

static void messages_arrive_whole_however_they_are_cut(void **state)
{
  (void)state;
  static const size_t sizes[] = {0, 1, 4, 5, 400, 0, 70000, (3 << 20) + 17, 2};
  enum { COUNT = sizeof sizes / sizeof sizes[0] };
  size_t total = 0;
  for (size_t i = 0; i < COUNT; i++) total += RV_MESSAGE_PREFIX + sizes[i];
  uint8_t *stream = malloc(total);
  for (size_t i = 0, at = 0; i < COUNT; i++) {
    add_prefix(stream + at, sizes[i]);
    memset(stream + at + RV_MESSAGE_PREFIX, (int)i + 1, sizes[i]);
    at += RV_MESSAGE_PREFIX + sizes[i];
  }
  for (uint64_t seed = 1; seed <= 20; seed++) {
    rv_random random;
    rv_random_init(&random, seed);
    rv_message_reader reader;
    rv_message_reader_init(&reader);
    size_t at = 0, seen = 0;
    while (at < total) {
      uint8_t *room_at = NULL;
      size_t room = (seed & 1) != 0 ? rv_message_reader_room(&reader, &room_at) : 0;
      size_t n = rv_random_below(&random, (seed & 2) != 0 ? 9 : 300000) + 1;
      if (n > total - at) n = total - at;
      const uint8_t *data = stream + at;
      if (room > 0) { /* received in place */
        if (n > room) n = room;
        memcpy(room_at, data, n);
        data = room_at;
      }
      at += n;
      size_t left = n;
      rv_buf *message = NULL;
      rv_message_reader_result result;
      while ((result = rv_message_reader_take(&reader, &data, &left, LIMIT, &message)) == RV_READER_MESSAGE) {
        assert_int_equal(message->size, sizes[seen]);
        assert_int_equal(message->capacity, sizes[seen]); /* nothing more is pinned by keeping it */
        for (size_t k = 0; k < message->size; k += 997) assert_int_equal(message->data[k], seen + 1);
        rv_buf_unref(message);
        seen++;
      }
      assert_int_equal(result, RV_READER_MORE);
      assert_int_equal(left, 0);
      if ((seed & 2) != 0 && at > 100000) { /* byte by byte is slow: the rest at once */
        break;
      }
    }
    if ((seed & 2) == 0) assert_int_equal(seen, COUNT);
    rv_message_reader_fini(&reader);
  }
  free(stream);
}

static void an_announced_length_alone_costs_little(void **state)
{
  (void)state;
  rv_message_reader reader;
  rv_message_reader_init(&reader);
  uint8_t prefix[RV_MESSAGE_PREFIX];
  add_prefix(prefix, 1U << 31);
  const uint8_t *data = prefix;
  size_t size = sizeof prefix;
  rv_buf *message = NULL;
  assert_int_equal(rv_message_reader_take(&reader, &data, &size, SIZE_MAX, &message), RV_READER_MORE);
  assert_true(reader.buf->capacity <= 1 << 20);
  assert_int_equal(rv_message_reader_missing(&reader), 1U << 31);
  rv_message_reader_fini(&reader);
}

static rv_message_reader_result take_prefix(uint8_t flag, size_t announced)
{
  rv_message_reader reader;
  rv_message_reader_init(&reader);
  uint8_t prefix[RV_MESSAGE_PREFIX];
  add_prefix(prefix, announced);
  prefix[0] = flag;
  const uint8_t *data = prefix;
  size_t size = sizeof prefix;
  rv_buf *message = NULL;
  rv_message_reader_result result = rv_message_reader_take(&reader, &data, &size, LIMIT, &message);
  rv_buf_unref(message);
  rv_message_reader_fini(&reader);
  return result;
}

static void broken_prefixes_are_told_apart(void **state)
{
  (void)state;
  assert_int_equal(take_prefix(0, LIMIT), RV_READER_MORE);
  assert_int_equal(take_prefix(0, LIMIT + 1), RV_READER_TOO_LARGE);
  assert_int_equal(take_prefix(1, 5), RV_READER_COMPRESSED);
  assert_int_equal(take_prefix(2, 5), RV_READER_BAD_FLAG);
}

typedef struct sink {
  rv_transport transport;
  uint8_t *data;
  size_t size;
  rv_random random;
} sink;

static ssize_t sink_write(rv_transport *transport, const struct iovec *vec, int count)
{
  sink *to = (sink *)(void *)transport;
  size_t most = rv_random_below(&to->random, 100000), taken = 0;
  if (most < 1000) return -EAGAIN;
  for (int i = 0; i < count && taken < most; i++) {
    size_t n = vec[i].iov_len < most - taken ? vec[i].iov_len : most - taken;
    memcpy(to->data + to->size, vec[i].iov_base, n);
    to->size += n;
    taken += n;
  }
  return (ssize_t)taken;
}

static void the_send_queue_becomes_the_same_bytes(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 10; seed++) {
    static const rv_transport_ops ops = {.write = sink_write};
    sink to = {.transport = {.ops = &ops}, .data = malloc(4 << 20)};
    rv_random_init(&to.random, seed);
    uint8_t *expected = malloc(4 << 20);
    size_t size = 0;
    rv_sendq queue;
    rv_sendq_init(&queue);
    rv_buf *spare = NULL;
    rv_output output;
    rv_output_init(&output, &spare);
    for (int i = 0; i < 40; i++) {
      rv_pieces pieces;
      rv_pieces_init(&pieces);
      size_t start = size;
      size += RV_MESSAGE_PREFIX;
      for (uint32_t k = rv_random_below(&to.random, 5); k > 0; k--) {
        size_t n = rv_random_below(&to.random, (k & 1) != 0 ? 500 : 20000);
        rv_buf *buf = rv_buf_new(n);
        memset(buf->data, (int)(seed + k), n);
        buf->size = n;
        if ((k & 1) != 0)
          rv_pieces_copy(&pieces, buf->data, n);
        else
          rv_pieces_share(&pieces, buf, buf->data, n);
        rv_buf_unref(buf);
        memset(expected + size, (int)(seed + k), n);
        size += n;
      }
      add_prefix(expected + start, size - start - RV_MESSAGE_PREFIX);
      assert_true(rv_sendq_push(&queue, &pieces));
      assert_int_equal(pieces.count, 0);
      while (queue.bytes > 0 && rv_random_below(&to.random, 3) > 0) {
        size_t n = rv_random_below(&to.random, 16384) + 1;
        assert_true(rv_output_copy(&output, "", 0));
        assert_true(rv_sendq_move(&queue, n < queue.bytes ? n : queue.bytes, &output));
      }
      if (output.bytes > 0) rv_output_write(&output, &to.transport);
    }
    assert_true(rv_sendq_move(&queue, queue.bytes, &output));
    while (output.bytes > 0) rv_output_write(&output, &to.transport);
    assert_int_equal(to.size, size);
    assert_memory_equal(to.data, expected, size);
    rv_sendq_fini(&queue);
    rv_output_fini(&output);
    rv_buf_unref(spare);
    free(to.data);
    free(expected);
  }
}

/* What is copied between shared ranges does not take a block each. */
static void small_bytes_between_shared_ones_lie_together(void **state)
{
  (void)state;
  rv_buf *spare = NULL, *large = rv_buf_new(RV_OUTPUT_SHARE);
  large->size = RV_OUTPUT_SHARE;
  rv_output output;
  rv_output_init(&output, &spare);
  for (int i = 0; i < 5; i++) {
    assert_true(rv_output_copy(&output, "head", 4));
    assert_true(rv_output_share(&output, large, large->data, large->size));
  }
  assert_int_equal(output.count, 10);
  for (size_t i = 2; i < 10; i += 2) {
    assert_ptr_equal(output.part[i].owner, output.part[0].owner);
    assert_ptr_equal(output.part[i].data, output.part[0].data + 2 * i);
    assert_memory_equal(output.part[i].data, "head", 4);
  }
  rv_output_fini(&output);
  rv_buf_unref(large);
  rv_buf_unref(spare);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_arrive_whole_however_they_are_cut),
      cmocka_unit_test(an_announced_length_alone_costs_little),
      cmocka_unit_test(broken_prefixes_are_told_apart),
      cmocka_unit_test(the_send_queue_becomes_the_same_bytes),
      cmocka_unit_test(small_bytes_between_shared_ones_lie_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
