/* Rings whose writer puts rows into blocks of the reader's: they are read where they are, or copied like others, and what the writer
 * has taken back, or never had, is not believed. */
#include "net/ring.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* No round of blocks is gone meanwhile. */
static int64_t standing_clock(void *context)
{
  (void)context;
  return 0;
}

enum { ROW = 40000, HEAD = 90, TAIL = 130, ALL = HEAD + ROW + TAIL };

/* A client that writes to a server; each has an arena. */
typedef struct ends {
  rv_rings client, server;
  int memory, sockets[2];
  rv_arena *arena, *clients_arena;
  rv_spares *spares;
  rv_env env;
  rv_landing_round round;
  rv_landing_host host;
  rv_landing *landing; /* the client's */
  rv_arena_maps *maps;
  uint8_t head[HEAD], tail[TAIL], got[ALL], after[100];
} ends;

static rv_arena *new_arena(void)
{
  rv_arena *arena;
  rv_error err;
  if (rv_arena_new(16 << 20, &arena, &err) != RV_OK) fail_msg("%s", err.message);
  return arena;
}

static int set_up(void **state)
{
  ends *e = calloc(1, sizeof *e);
  assert_non_null(e);
  int shared;
  e->memory = rv_rings_make(&e->server);
  assert_true(e->memory >= 0 && rv_rings_join(e->memory, &e->client));
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, e->sockets), 0);
  e->client.out.bell = e->client.in.bell = e->sockets[0];
  e->server.out.bell = e->server.in.bell = e->sockets[1];
  e->arena = new_arena();
  e->clients_arena = new_arena();
  e->spares = rv_spares_new(0);
  rv_spares_use_arena(e->spares, e->arena);
  e->maps = rv_arena_maps_new(1 << 20);
  rv_env_default(&e->env);
  e->env.monotonic_ns = standing_clock;
  rv_landing_round_init(&e->round, &e->env, e->spares);
  rv_landing_host_init(&e->host);
  rv_landing_host_use(&e->host, e->arena, NULL, NULL);
  rv_rings_lend(&e->client, e->clients_arena);
  rv_rings_borrow(&e->server, e->maps, rv_arena_file(e->clients_arena), SIZE_MAX);
  rv_landing_end *blocks = rv_landing_end_new(&e->host, &e->round, e->sockets[1], &shared);
  assert_non_null(blocks);
  rv_rings_give(&e->server, blocks);
  e->landing = rv_landing_join(shared, rv_arena_file_to_write(e->arena), e->maps);
  assert_non_null(e->landing);
  rv_rings_fill(&e->client, rv_landing_ref(e->landing));
  close(shared);
  memset(e->head, 'h', HEAD);
  memset(e->tail, 't', TAIL);
  *state = e;
  return 0;
}

static int tear_down(void **state)
{
  ends *e = *state;
  size_t used, idle;
  rv_rings_unmap(&e->client);
  rv_rings_unmap(&e->server);
  rv_landing_unref(e->landing);
  rv_arena_usage(e->arena, &used, &idle);
  assert_int_equal(used, 0);
  rv_landing_host_fini(&e->host);
  rv_arena_maps_unref(e->maps);
  rv_spares_close(e->spares);
  rv_arena_unref(e->arena);
  rv_arena_unref(e->clients_arena);
  close(e->memory);
  close(e->sockets[0]);
  close(e->sockets[1]);
  free(e);
  return 0;
}

static rv_buf *put_row(ends *e)
{
  rv_buf *row = rv_landing_take(e->landing, ROW);
  if (row == NULL) {
    assert_true(rv_landing_end_serve(e->server.in.blocks));
    row = rv_landing_take(e->landing, ROW);
  }
  assert_non_null(row);
  for (size_t i = 0; i < ROW; i++) row->data[i] = (uint8_t)(i * 31);
  return row;
}

/* Head, row and tail; the row in pieces of so many bytes, as frames cut it. */
static void send_message(ends *e, const rv_buf *row, size_t piece)
{
  struct iovec vec[8] = {{.iov_base = e->head, .iov_len = HEAD}};
  int count = 1;
  for (size_t at = 0; at < ROW; at += piece)
    vec[count++] = (struct iovec){.iov_base = row->data + at, .iov_len = ROW - at < piece ? ROW - at : piece};
  vec[count++] = (struct iovec){.iov_base = e->tail, .iov_len = TAIL};
  assert_int_equal(rv_ring_write(&e->client.out, vec, count), ALL);
}

/* What is parsed at once comes behind what is received in place. */
static ssize_t read_in_two(ends *e, uint8_t *first, size_t n, uint8_t *second, size_t m)
{
  struct iovec vec[2] = {{.iov_base = first, .iov_len = n}, {.iov_base = second, .iov_len = m}};
  return rv_ring_read(&e->server.in, vec, 2);
}

static void read_head(ends *e)
{
  assert_int_equal(rv_ring_read(&e->server.in, &(struct iovec){e->got, sizeof e->got}, 1), HEAD);
}

/* All of the message from `done` on. */
static void read_rest(ends *e, uint8_t *message, size_t done)
{
  while (done < ALL) {
    ssize_t n = read_in_two(e, message + done, ALL - done, e->after, sizeof e->after);
    assert_in_range(n, 1, ALL - done);
    done += (size_t)n;
  }
}

static void expect_all(const ends *e, const uint8_t *got)
{
  assert_memory_equal(got, e->head, HEAD);
  for (size_t i = 0; i < ROW; i++) assert_int_equal(got[HEAD + i], (uint8_t)(i * 31));
  assert_memory_equal(got + HEAD + ROW, e->tail, TAIL);
}

static void read_where_it_is(ends *e, size_t piece)
{
  rv_buf *row = put_row(e);
  send_message(e, row, piece);
  rv_buf_unref(row);
  read_head(e);
  rv_buf *message = rv_ring_land(&e->server.in, HEAD, ROW + TAIL);
  assert_non_null(message);
  assert_null(rv_ring_land(&e->server.in, HEAD, ROW + TAIL)); /* once */
  memcpy(message->data, e->got, HEAD);
  read_rest(e, message->data, HEAD);
  expect_all(e, message->data);
  assert_true(rv_ring_settle(&e->client.out));
  assert_true(rv_landing_end_serve(e->server.in.blocks));
  expect_all(e, message->data);
  rv_buf_unref(message);
}

static void a_row_is_read_where_it_is(void **state)
{
  for (int i = 0; i < 300; i++) read_where_it_is(*state, ROW);
  for (int i = 0; i < 300; i++)
    read_where_it_is(*state, 10000); /* the last piece is as long as one that is lent must be, or shorter: */
  for (int i = 0; i < 300; i++) read_where_it_is(*state, 17000);
}

static void a_row_is_copied_where_it_is_wanted_elsewhere(void **state)
{
  ends *e = *state;
  for (int i = 0; i < 300; i++) {
    rv_buf *row = put_row(e);
    send_message(e, row, i % 2 == 0 ? ROW : 17000);
    rv_buf_unref(row);
    for (size_t done = 0, n = (size_t)(i * 997) % 15000 + 1; done < ALL;) {
      ssize_t got = read_in_two(e, e->got + done, n < ALL - done ? n : ALL - done, NULL, 0);
      assert_true(got > 0);
      done += (size_t)got;
    }
    expect_all(e, e->got);
    assert_true(rv_ring_settle(&e->client.out));
  }
}

static void a_row_of_another_connection_is_copied(void **state)
{
  ends *e = *state;
  rv_buf *row = put_row(e);
  rv_landing *own = e->client.out.landing;
  e->client.out.landing = NULL;
  send_message(e, row, ROW);
  e->client.out.landing = own;
  assert_int_equal(read_in_two(e, e->got, ALL, NULL, 0), ALL);
  expect_all(e, e->got);
  rv_buf_unref(row);
}

static void a_row_that_was_taken_back_is_not_handed_on(void **state)
{
  ends *e = *state;
  rv_buf *row = put_row(e);
  send_message(e, row, ROW);
  rv_buf_unref(row);
  read_head(e);
  rv_buf *message = rv_ring_land(&e->server.in, HEAD, ROW + TAIL);
  assert_non_null(message);
  rv_rings_unmap(&e->client);
  assert_int_equal(read_in_two(e, message->data + HEAD, ROW + TAIL, e->got, 100), -ECONNRESET);
  rv_buf_unref(message);
  assert_null(rv_landing_take(e->landing, ROW));
}

/* As it was let go of, another row has it by now: a writer's that had taken it before the connection was given up. */
static void a_row_that_was_taken_back_lands_nowhere(void **state)
{
  ends *e = *state;
  rv_buf *row = put_row(e), *other = NULL, *more[16];
  send_message(e, row, 17000);
  rv_buf_unref(row);
  read_head(e);
  rv_buf *message = rv_ring_land(&e->server.in, HEAD, ROW + TAIL);
  assert_non_null(message);
  assert_int_equal(read_in_two(e, message->data + HEAD, 17000, e->got, 100), 17000);
  rv_landing *late = rv_landing_ref(e->landing); /* who does not know that it is closed */
  e->client.out.landing = NULL;
  rv_rings_unmap(&e->client);
  size_t count = 0;
  for (int tries = 0; tries < 100 && count < 16; tries++) {
    other = rv_landing_take(late, ROW);
    if (other != NULL) memset(other->data, 'o', ROW);
    if (other != NULL) more[count++] = other;
    assert_true(rv_landing_end_serve(e->server.in.blocks));
  }
  assert_null(rv_ring_land(&e->server.in, HEAD + 17000, ROW - 17000 + TAIL));
  assert_int_equal(read_in_two(e, e->got, ROW, NULL, 0), -ECONNRESET);
  for (size_t i = 0; i < count; i++) {
    for (size_t at = 0; at < ROW; at++) assert_int_equal(more[i]->data[at], 'o');
    rv_buf_unref(more[i]);
  }
  rv_buf_unref(message);
  rv_landing_unref(late);
  rv_landing_unref(e->landing); /* the ring's */
}

/* What has come of the row before is put where it is already. */
static void a_row_lands_with_its_second_piece(void **state)
{
  ends *e = *state;
  for (size_t first = 1000; first < 30000; first += 7000) {
    rv_buf *row = put_row(e);
    struct iovec vec[4] = {{.iov_base = e->head, .iov_len = HEAD},
                           {.iov_base = row->data, .iov_len = first},
                           {.iov_base = row->data + first, .iov_len = ROW - first},
                           {.iov_base = e->tail, .iov_len = TAIL}};
    assert_int_equal(rv_ring_write(&e->client.out, vec, 4), ALL);
    rv_buf_unref(row);
    for (size_t done = 0; done < HEAD + first;) {
      ssize_t n = read_in_two(e, e->got + done, HEAD + first - done, NULL, 0);
      assert_true(n > 0);
      done += (size_t)n;
    }
    rv_buf *message = rv_ring_land(&e->server.in, HEAD + first, ROW - first + TAIL);
    assert_non_null(message);
    memcpy(message->data, e->got, HEAD + first);
    assert_int_equal(read_in_two(e, message->data + HEAD + first, ROW - first + TAIL, e->got, 100), ROW - first + TAIL);
    expect_all(e, message->data);
    rv_buf_unref(message);
    assert_true(rv_ring_settle(&e->client.out));
  }
}

/* Where a frame begins with a row nobody knows its place before the first of it has been read. */
static void a_row_lands_once_its_first_bytes_were_read(void **state)
{
  enum { LINE = 64 };
  ends *e = *state;
  for (int i = 0; i < 300; i++) {
    rv_buf *row = put_row(e);
    send_message(e, row, i % 2 == 0 ? ROW : 17000);
    rv_buf_unref(row);
    read_head(e);
    assert_int_equal(rv_ring_read(&e->server.in, &(struct iovec){e->got + HEAD, 20000}, 1), LINE);
    rv_buf *message = rv_ring_land(&e->server.in, HEAD + LINE, ROW - LINE + TAIL);
    assert_non_null(message);
    memcpy(message->data, e->got, HEAD + LINE);
    read_rest(e, message->data, HEAD + LINE);
    expect_all(e, message->data);
    rv_buf_unref(message);
    assert_true(rv_ring_settle(&e->client.out));
  }
}

static void blocks_that_are_not_out_are_a_lie(void **state)
{
  static const rv_ring_loan lies[] = {{.at = 0, .offset = 0, .size = ROW, .block = RV_LANDING_SLOTS + 1},
                                      {.at = 0, .offset = 0, .size = ROW, .block = UINT64_MAX},
                                      {.at = 0, .offset = 0, .size = ROW, .block = RV_LANDING_SLOTS},
                                      {.at = 0, .offset = 1 << 20, .size = ROW, .block = 1},
                                      {.at = 0, .offset = 4096, .size = UINT64_MAX, .block = 1}};
  ends *e = *state;
  rv_buf_unref(put_row(e));
  atomic_store(&e->client.out.head->lent, 1);
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
    e->client.out.loan[0] = lies[i];
    assert_null(rv_ring_land(&e->server.in, 0, ROW));
    assert_int_equal(read_in_two(e, e->got, ALL, NULL, 0), -EPROTO);
  }
  e->client.out.loan[0] = (rv_ring_loan){.at = 0, .offset = UINT64_MAX - 10, .size = ROW, .block = 1};
  e->server.in.loan_taken = 64; /* so many of it were read, before the other end said otherwise */
  assert_null(rv_ring_land(&e->server.in, 64, ROW));
  assert_int_equal(read_in_two(e, e->got, ALL, NULL, 0), -EPROTO);
  atomic_store(&e->client.out.head->lent, 0);
}

int main(void)
{
#define RING_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      RING_TEST(a_row_is_read_where_it_is),
      RING_TEST(a_row_is_copied_where_it_is_wanted_elsewhere),
      RING_TEST(a_row_of_another_connection_is_copied),
      RING_TEST(a_row_that_was_taken_back_is_not_handed_on),
      RING_TEST(a_row_that_was_taken_back_lands_nowhere),
      RING_TEST(a_row_lands_with_its_second_piece),
      RING_TEST(a_row_lands_once_its_first_bytes_were_read),
      RING_TEST(blocks_that_are_not_out_are_a_lie),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
