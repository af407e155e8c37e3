#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"
#include "tensor/codec.h"

/* Field numbers are docs/protocol.md's. */

static void put_tensor(rv_writer_buf *out, int32_t first, int64_t rows, int64_t width)
{
  size_t elements = (size_t)(rows * (width == 0 ? 1 : width));
  int32_t *values = malloc(elements * sizeof *values + 1);
  assert_non_null(values);
  for (size_t i = 0; i < elements; i++) values[i] = first + (int32_t)i;
  rv_pieces content;
  rv_pieces_init(&content);
  size_t row_bytes = sizeof(int32_t) * (size_t)(width == 0 ? 1 : width);
  assert_int_equal(rv_encode(&content, RV_INT32, width == 0 ? 0 : 1, &width, values, row_bytes, (size_t)rows, false, false, NULL),
                   RV_OK);
  size_t tensor = rv_put_open(out, 1);
  rv_put_varint(out, 1, RV_INT32);
  size_t shape = rv_put_open(out, 2);
  for (int i = 0; i < (width == 0 ? 1 : 2); i++) {
    size_t dim = rv_put_open(out, 2);
    rv_put_varint(out, 1, (uint64_t)(i == 0 ? rows : width));
    rv_put_close(out, dim);
  }
  rv_put_close(out, shape);
  uint8_t *flat = malloc(content.bytes);
  assert_non_null(flat);
  for (size_t i = 0, at = 0; i < content.count; at += content.piece[i].size, i++)
    memcpy(flat + at, content.piece[i].data, content.piece[i].size);
  rv_put_bytes_always(out, 4, flat, content.bytes);
  rv_put_close(out, tensor);
  rv_pieces_fini(&content);
  free(flat);
  free(values);
}

void put_chunk(rv_writer_buf *out, uint64_t key, int32_t first, int64_t rows, int64_t width)
{
  size_t chunk = rv_put_open(out, 1);
  rv_put_varint(out, 1, key);
  size_t range = rv_put_open(out, 2);
  rv_put_varint(out, 1, 7);
  rv_put_varint(out, 3, (uint64_t)(rows - 1));
  rv_put_close(out, range);
  size_t data = rv_put_open(out, 5);
  put_tensor(out, first, rows, width);
  rv_put_close(out, data);
  rv_put_varint(out, 6, 1);
  rv_put_close(out, chunk);
}

void put_item(rv_writer_buf *out, uint64_t key, item_options options)
{
  size_t item = rv_put_open(out, 2);
  rv_put_varint(out, 1, key);
  rv_put_string(out, 2, options.table);
  rv_put_double(out, 5, options.priority);
  size_t trajectory = rv_put_open(out, 8);
  if (!options.no_columns) {
    size_t column = rv_put_open(out, 1);
    if (!options.no_slices) {
      size_t slice = rv_put_open(out, 1);
      rv_put_varint(out, 1, options.chunk);
      rv_put_varint(out, 2, (uint64_t)(int64_t)options.offset);
      rv_put_varint(out, 3, (uint64_t)(int64_t)(options.length == 0 ? 1 : options.length));
      rv_put_varint(out, 4, (uint64_t)(int64_t)options.index);
      rv_put_close(out, slice);
    }
    if (options.squeeze) rv_put_varint(out, 2, 1);
    rv_put_close(out, column);
  }
  rv_put_close(out, trajectory);
  rv_put_varint(out, 1000, options.sequence);
  rv_put_close(out, item);
}

void put_keep(rv_writer_buf *out, const uint64_t *keys, size_t n)
{
  rv_put_packed(out, 3, keys, n);
}

void insert_one(test_stream *stream, const char *table, uint64_t key, double priority)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, key, (int32_t)key, 1, 0);
  put_item(&body, key, (item_options){.table = table, .priority = priority, .chunk = key});
  stream_send(stream, &body);
}

void insert_numbered(test_stream *stream, const char *table, uint64_t key, uint64_t sequence)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, key, (int32_t)key, 1, 0);
  put_item(&body, key, (item_options){.table = table, .priority = 1, .chunk = key, .sequence = sequence});
  stream_send(stream, &body);
}

static int by_value(const void *a, const void *b)
{
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

size_t read_keys(test_stream *stream, uint64_t *keys, size_t n)
{
  size_t count = 0;
  while (count < n) {
    rv_buf *message = stream_next(stream);
    if (message == NULL) return count;
    rv_insert_response response;
    assert_int_equal(rv_insert_response_parse((rv_span){message->data, message->size}, &response, NULL), RV_OK);
    assert_int_equal(response.num_failures, 0);
    assert_true(response.num_keys <= n - count);
    for (size_t i = 0; i < response.num_keys; i++) keys[count++] = response.keys[i];
    rv_insert_response_fini(&response);
    rv_buf_unref(message);
  }
  return count;
}

void expect_keys(test_stream *stream, uint64_t *keys, size_t n)
{
  size_t count = read_keys(stream, keys, n);
  if (count < n) {
    char text[RV_ERROR_MESSAGE_MAX];
    rv_code code = stream_end(stream, text);
    fail_msg("the call ended with %s (%s) after %zu of %zu keys", rv_code_name(code), text, count, n);
  }
  qsort(keys, n, sizeof *keys, by_value);
}

rv_code expect_failure(test_stream *stream, uint64_t *key, char message[RV_ERROR_MESSAGE_MAX])
{
  for (;;) {
    rv_buf *bytes = stream_next(stream);
    if (bytes == NULL) {
      fail_msg("the call ended without a failure");
      return RV_UNKNOWN;
    }
    rv_insert_response response;
    assert_int_equal(rv_insert_response_parse((rv_span){bytes->data, bytes->size}, &response, NULL), RV_OK);
    rv_code code = RV_OK;
    if (response.num_failures > 0) {
      code = response.failures[0].code;
      *key = response.failures[0].key;
      size_t size = response.failures[0].message.size;
      if (size >= RV_ERROR_MESSAGE_MAX) size = RV_ERROR_MESSAGE_MAX - 1;
      memcpy(message, response.failures[0].message.data, size);
      message[size] = '\0';
    }
    rv_insert_response_fini(&response);
    rv_buf_unref(bytes);
    if (code != RV_OK) return code;
  }
}

void ask_samples(test_stream *stream, const char *table, int64_t n, int64_t timeout_ms)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_put_string(&body, 1, table);
  rv_put_varint(&body, 2, (uint64_t)n);
  size_t timeout = rv_put_open(&body, 3);
  rv_put_varint(&body, 1, (uint64_t)timeout_ms);
  rv_put_close(&body, timeout);
  stream_send(stream, &body);
}

static void keep_key(sampled_keys *sampled, uint64_t key)
{
  sampled->keys = realloc(sampled->keys, (sampled->count + 1) * sizeof *sampled->keys);
  assert_non_null(sampled->keys);
  sampled->keys[sampled->count++] = key;
}

static void read_response(sampled_keys *sampled, const rv_buf *message)
{
  rv_sample_response response;
  assert_int_equal(rv_sample_response_parse((rv_span){message->data, message->size}, &response, NULL), RV_OK);
  for (size_t i = 0; i < response.num_entries; i++) {
    if (response.entries[i].has_info) sampled->current = response.entries[i].info.item.key;
    if (response.entries[i].end_of_sequence) keep_key(sampled, sampled->current);
  }
  rv_sample_response_fini(&response);
}

size_t read_samples(test_stream *stream, uint64_t *keys, size_t n)
{
  sampled_keys *sampled = stream_sampled(stream);
  for (size_t complete = 0; complete < n;) {
    if (sampled->next < sampled->count) {
      keys[complete++] = sampled->keys[sampled->next++];
      continue;
    }
    sampled->count = sampled->next = 0;
    rv_buf *message = stream_next(stream);
    if (message == NULL) return complete;
    read_response(sampled, message);
    rv_buf_unref(message);
  }
  return n;
}
