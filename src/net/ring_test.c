/* Rings: what one end writes the other reads, whoever sleeps is woken, and nothing that a peer writes into the shared memory harms. */
#include "net/ring.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/spares.h"

/* ---- a client's and a server's rings, and the socket between them ---- */

typedef struct ends {
  rv_rings client, server;
  int memory, sockets[2];
  rv_arena *arena; /* the server's, who lends; NULL: he does not */
  rv_spares *spares;
  rv_arena_maps *maps;
} ends;

static int set_up(void **state)
{
  ends *both = calloc(1, sizeof *both);
  both->memory = rv_rings_make(&both->server);
  assert_true(both->memory >= 0);
  assert_true(rv_rings_join(both->memory, &both->client));
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both->sockets), 0);
  both->client.out.bell = both->client.in.bell = both->sockets[0];
  both->server.out.bell = both->server.in.bell = both->sockets[1];
  *state = both;
  return 0;
}

static int set_up_lending(void **state)
{
  set_up(state);
  ends *both = *state;
  rv_error error;
  if (rv_arena_new(64 << 20, &both->arena, &error) != RV_OK) fail_msg("%s", error.message);
  both->spares = rv_spares_new(0);
  assert_non_null(both->spares);
  rv_spares_use_arena(both->spares, both->arena);
  rv_rings_lend(&both->server, both->arena);
  both->maps = rv_arena_maps_new(1 << 30);
  assert_non_null(both->maps);
  rv_rings_borrow(&both->client, both->maps, rv_arena_file(both->arena), SIZE_MAX);
  assert_non_null(both->client.in.writers_arena);
  return 0;
}

static int tear_down(void **state)
{
  ends *both = *state;
  rv_rings_unmap(&both->client);
  rv_rings_unmap(&both->server);
  rv_spares_close(both->spares);
  rv_arena_unref(both->arena);
  rv_arena_maps_unref(both->maps);
  close(both->memory);
  close(both->sockets[0]);
  close(both->sockets[1]);
  free(both);
  return 0;
}

static size_t some_size(rv_random *random, uint32_t bits)
{
  return (size_t)rv_random_below(random, (uint32_t)1 << rv_random_below(random, bits)) + 1;
}

/* The byte at a position of a stream. */
static uint8_t byte_at(uint64_t position)
{
  return (uint8_t)(position * 131 + (position >> 11));
}

static ssize_t write_some(rv_ring *ring, uint64_t *at, size_t size, rv_random *random)
{
  uint8_t *data = malloc(size + 1);
  for (size_t i = 0; i < size; i++) data[i] = byte_at(*at + i);
  size_t cut = (size_t)rv_random_below(random, (uint32_t)size + 1);
  struct iovec vec[3] = {{.iov_base = data, .iov_len = cut}, {0}, {.iov_base = data + cut, .iov_len = size - cut}};
  ssize_t n = rv_ring_write(ring, vec, 3);
  if (n > 0) *at += (uint64_t)n;
  free(data);
  return n;
}

static ssize_t read_some(rv_ring *ring, uint64_t *at, size_t size, rv_random *random)
{
  uint8_t *data = malloc(size + 1);
  size_t cut = (size_t)rv_random_below(random, (uint32_t)size + 1);
  struct iovec vec[3] = {{.iov_base = data, .iov_len = cut}, {0}, {.iov_base = data + cut, .iov_len = size - cut}};
  ssize_t n = rv_ring_read(ring, vec, 3);
  for (ssize_t i = 0; i < n; i++)
    if (data[i] != byte_at(*at + (uint64_t)i)) fail_msg("byte %" PRIu64 " is another", *at + (uint64_t)i);
  if (n > 0) *at += (uint64_t)n;
  free(data);
  return n;
}

/* ---- what is read is what was written ---- */

static void pieces_of_all_sizes_arrive(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 7);
  uint64_t written = 0, taken = 0;
  for (int round = 0; round < 400; round++) {
    ssize_t n = write_some(&both->client.out, &written, some_size(&random, 22), &random);
    if (n == 0) assert_int_equal(written - taken, RV_RING_BYTES);
    if (rv_random_below(&random, 3) > 0) read_some(&both->server.in, &taken, some_size(&random, 22), &random);
    assert_true(written - taken <= RV_RING_BYTES);
  }
  while (read_some(&both->server.in, &taken, 100000, &random) > 0) continue;
  assert_int_equal(written, taken);
  assert_true(written > 10 * (uint64_t)RV_RING_BYTES);
}

static void the_directions_do_not_meet(void **state)
{
  ends *both = *state;
  uint8_t asked[] = "asked", answered[] = "answered", got[16];
  rv_ring_write(&both->client.out, &(struct iovec){asked, sizeof asked}, 1);
  rv_ring_write(&both->server.out, &(struct iovec){answered, sizeof answered}, 1);
  assert_int_equal(rv_ring_read(&both->server.in, &(struct iovec){got, sizeof got}, 1), sizeof asked);
  assert_string_equal((char *)got, "asked");
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), sizeof answered);
  assert_string_equal((char *)got, "answered");
}

/* ---- what is lent ---- */

static rv_buf *new_message(ends *both, uint64_t at, size_t size)
{
  rv_buf *buf = rv_spares_take_lendable(both->spares, size);
  assert_non_null(buf);
  for (size_t i = 0; i < size; i++) buf->data[i] = byte_at(at + i);
  buf->size = size;
  return buf;
}

static size_t used_bytes(const ends *both)
{
  size_t used, idle;
  rv_arena_usage(both->arena, &used, &idle);
  return used;
}

/* The end of a message that lies in the arena, with other bytes around it, of a stream. */
static ssize_t write_message(ends *both, uint64_t *at, size_t size, rv_random *random)
{
  uint8_t few[300];
  size_t before = (size_t)rv_random_below(random, sizeof few), behind = (size_t)rv_random_below(random, sizeof few);
  rv_buf *buf = new_message(both, *at + before, size);
  uint8_t *own = malloc(before + behind + 1);
  for (size_t i = 0; i < before; i++) own[i] = byte_at(*at + i);
  for (size_t i = 0; i < behind; i++) own[before + i] = byte_at(*at + before + size + i);
  struct iovec vec[4] = {{own, before}, {buf->data, size}, {0}, {own + before, behind}};
  ssize_t n = rv_ring_write(&both->server.out, vec, 4);
  if (n > 0) *at += (uint64_t)n;
  rv_buf_unref(buf); /* what is lent is held */
  free(own);
  return n;
}

static void what_is_lent_arrives_in_its_place(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 19);
  uint64_t written = 0, taken = 0;
  size_t most = 0;
  for (int round = 0; round < 600; round++) {
    if (rv_random_below(&random, 4) > 0)
      write_message(both, &written, some_size(&random, 20), &random);
    else
      write_some(&both->server.out, &written, some_size(&random, 18), &random);
    if (written - taken > most) most = written - taken;
    if (rv_random_below(&random, 3) > 0) read_some(&both->client.in, &taken, some_size(&random, 22), &random);
  }
  while (read_some(&both->client.in, &taken, 100000, &random) > 0) continue;
  assert_int_equal(written, taken);
  assert_true(most > RV_RING_BYTES); /* more than the ring has room for */
  rv_ring_settle(&both->server.out);
  assert_int_equal(used_bytes(both), 0);
}

/* A server copies rows past the caches, and parses what is around them. */
static void a_client_lends_as_well(void **state)
{
  ends *both = *state;
  enum { SIZE = 100000, LAST = 1000 };
  assert_true(rv_rings_lend(&both->client, both->arena));
  rv_rings_borrow(&both->server, both->maps, rv_arena_file(both->arena), SIZE_MAX);
  uint8_t *got = malloc(SIZE);
  for (uint64_t at = 0; at < UINT64_C(50) * SIZE; at += SIZE) {
    rv_buf *buf = new_message(both, at, SIZE);
    assert_int_equal(rv_ring_write(&both->client.out, &(struct iovec){buf->data, SIZE}, 1), SIZE);
    assert_int_equal(atomic_load(&buf->refs), 2);
    struct iovec vec[2] = {{got, SIZE - LAST}, {got + SIZE - LAST, LAST}};
    assert_int_equal(rv_ring_read(&both->server.in, vec, 2), SIZE);
    assert_memory_equal(got, buf->data, SIZE);
    assert_true(rv_ring_settle(&both->client.out));
    rv_buf_unref(buf);
  }
  free(got);
  assert_int_equal(atomic_load(&both->client.out.head->written), 0); /* nothing went through the ring */
  assert_int_equal(used_bytes(both), 0);
}

static void what_is_lent_is_held_until_it_was_taken(void **state)
{
  ends *both = *state;
  rv_buf *buf = new_message(both, 0, 500000); /* all of it, although what is lent is a part */
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, 40000}, 1), 40000);
  assert_int_equal(atomic_load(&buf->refs), 2);
  assert_int_equal(both->server.out.held_bytes, buf->capacity);
  assert_int_equal(atomic_load(&both->server.out.head->written), 0); /* nothing lies in the ring */
  assert_false(rv_ring_await_bytes(&both->client.in));
  uint8_t got[40000];
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, 39999}, 1), 39999);
  rv_ring_settle(&both->server.out);
  assert_int_equal(atomic_load(&buf->refs), 2);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got + 39999, 10}, 1), 1);
  assert_memory_equal(got, buf->data, 40000);
  rv_ring_settle(&both->server.out);
  assert_int_equal(atomic_load(&buf->refs), 1);
  assert_true(rv_ring_await_bytes(&both->client.in));
  rv_buf_unref(buf);
}

static void of_many_some_are_copied(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 23);
  uint64_t written = 0, taken = 0;
  for (int i = 0; i < 2 * RV_RING_LOANS; i++) write_message(both, &written, 20000, &random);
  assert_true(written > RV_RING_LOANS * UINT64_C(20000) && written < 2 * RV_RING_LOANS * UINT64_C(20000));
  assert_true(rv_ring_await_room(&both->server.out));
  while (read_some(&both->client.in, &taken, 1000000, &random) > 0) continue;
  assert_int_equal(written, taken);
  assert_false(rv_ring_await_room(&both->server.out));
}

static void more_bytes_than_may_be_held_are_copied(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 41);
  uint64_t written = 0, taken = 0;
  for (int i = 0; i < 50; i++) write_message(both, &written, 900000, &random);
  assert_true(both->server.out.held_bytes >= RV_RING_HELD && both->server.out.held_bytes < RV_RING_HELD + 1000000);
  assert_true(written > (uint64_t)RV_RING_HELD / 10 * 9 && written < RV_RING_HELD + 900000 + 2 * (uint64_t)RV_RING_BYTES);
  while (read_some(&both->client.in, &taken, 1000000, &random) > 0) continue;
  assert_int_equal(written, taken);
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(both->server.out.held_bytes, 0);
}

static void who_has_no_arena_gets_copies(void **state)
{
  ends *both = *state;
  atomic_store(&both->client.in.head->borrows, 0);
  rv_buf *buf = new_message(both, 0, 40000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, buf->size}, 1), 40000);
  assert_int_equal(atomic_load(&both->server.out.head->written), 40000);
  assert_int_equal(atomic_load(&buf->refs), 1);
  rv_buf_unref(buf);
}

static void what_was_taken_back_is_not_read(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 29);
  uint64_t written = 0, taken = 0;
  for (int i = 0; i < 3; i++) write_message(both, &written, 30000, &random);
  uint8_t got[50000];
  read_some(&both->client.in, &taken, 40000, &random);
  rv_rings_unmap(&both->server); /* it closes the connection */
  assert_int_equal(used_bytes(both), 0);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), -ECONNRESET);
}

/* ---- what is left where it is lent ---- */

/* A few reads, of which the first piece may have gaps, and then what they left out. */
static ssize_t read_gapped(rv_ring *ring, uint64_t *at, rv_random *random)
{
  enum { MOST = 3 << 20, BEHIND = 1000 };
  static rv_gaps gaps;
  uint8_t *data = malloc(MOST + BEHIND);
  size_t total = 0;
  ssize_t n = 1;
  gaps.count = 0;
  ring->gaps = &gaps;
  for (uint32_t i = 0, reads = 1 + rv_random_below(random, 4); i < reads && n > 0; i++) {
    size_t room = some_size(random, 20);
    if (room > MOST - total) break;
    struct iovec vec[2] = {{data + total, room}, {data + total + room, rv_random_below(random, BEHIND)}};
    n = rv_ring_read(ring, vec, 2);
    if (n > 0) total += (size_t)n;
  }
  rv_gaps_fill(&gaps);
  assert_true(rv_ring_give_back(ring));
  ring->gaps = NULL;
  for (size_t i = 0; i < total; i++)
    if (data[i] != byte_at(*at + i)) fail_msg("byte %" PRIu64 " is another", *at + i);
  *at += total;
  free(data);
  return (ssize_t)total;
}

static void what_is_left_where_it_is_lent_is_in_its_place(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 47);
  uint64_t written = 0, taken = 0;
  for (int round = 0; round < 400; round++) {
    if (rv_random_below(&random, 4) > 0)
      write_message(both, &written, some_size(&random, 20), &random);
    else
      write_some(&both->server.out, &written, some_size(&random, 18), &random);
    uint32_t how = rv_random_below(&random, 4);
    if (how > 1) read_gapped(&both->client.in, &taken, &random);
    if (how == 1) read_some(&both->client.in, &taken, some_size(&random, 22), &random);
  }
  while (taken < written) read_gapped(&both->client.in, &taken, &random);
  assert_int_equal(written, taken);
  rv_ring_settle(&both->server.out);
  assert_int_equal(used_bytes(both), 0);
}

static void what_has_gaps_is_held_until_it_is_given_back(void **state)
{
  ends *both = *state;
  rv_gaps gaps = {.count = 0};
  uint8_t *got = calloc(1, 90000), last[100];
  rv_buf *buf = new_message(both, 0, 90000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, 40000}, 1), 40000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data + 40000, 50000}, 1), 50000);
  both->client.in.gaps = &gaps;
  struct iovec vec[2] = {{got, 89990}, {last, sizeof last}};
  assert_int_equal(rv_ring_read(&both->client.in, vec, 2), 90000); /* of the second a part belongs elsewhere: it is copied */
  assert_int_equal(gaps.count, 1);
  assert_ptr_equal(gaps.gap[0].to, got);
  assert_int_equal(got[100], 0);
  assert_memory_equal(got + 40000, buf->data + 40000, 49990);
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(both->server.out.settled, 0); /* nor is the other given back before */
  rv_gaps_fill(&gaps);
  assert_memory_equal(got, buf->data, 40000);
  assert_true(rv_ring_give_back(&both->client.in));
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(atomic_load(&buf->refs), 1);
  rv_buf_unref(buf);
  free(got);
}

static void what_was_taken_back_meanwhile_is_told_as_it_is_given_back(void **state)
{
  ends *both = *state;
  rv_gaps gaps = {.count = 0};
  uint8_t *got = malloc(40000), last[10];
  rv_buf *buf = new_message(both, 0, 40000);
  rv_ring_write(&both->server.out, &(struct iovec){buf->data, 40000}, 1);
  rv_buf_unref(buf);
  both->client.in.gaps = &gaps;
  struct iovec vec[2] = {{got, 40000}, {last, sizeof last}};
  assert_int_equal(rv_ring_read(&both->client.in, vec, 2), 40000);
  rv_rings_unmap(&both->server);
  assert_false(rv_ring_give_back(&both->client.in));
  free(got);
}

/* Whoever reads them learns where what is lent behind them belongs. */
static void what_is_parsed_at_once_is_read_before_what_is_lent(void **state)
{
  ends *both = *state;
  uint8_t *got = malloc(40000);
  rv_buf *buf = new_message(both, 3, 40000);
  struct iovec vec[2] = {{"abc", 3}, {buf->data, 40000}};
  assert_int_equal(rv_ring_write(&both->server.out, vec, 2), 40003);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, 40000}, 1), 3);
  assert_false(rv_ring_await_bytes(&both->client.in));
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, 40000}, 1), 40000);
  assert_memory_equal(got, buf->data, 40000);
  rv_buf_unref(buf);
  free(got);
}

static void without_addresses_what_is_lent_is_read_from_the_file(void **state)
{
  ends *both = *state;
  static uint8_t got[600000];
  rv_random random;
  rv_random_init(&random, 43);
  uint64_t written = 0;
  for (int i = 0; i < 5; i++) write_message(both, &written, 100000, &random);
  struct rlimit before, none;
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  none = (struct rlimit){.rlim_cur = 4096, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
  size_t total = 0;
  for (ssize_t n = 1; n > 0 && total<sizeof got; total += n> 0 ? (size_t)n : 0) {
    size_t most = total < 70000 ? 70000 - total : sizeof got - total; /* a part of one */
    n = rv_ring_read(&both->client.in, &(struct iovec){got + total, most}, 1);
  }
  assert_null(rv_arena_map_at(both->client.in.writers_arena, 0, 1));
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  assert_int_equal(total, written);
  for (uint64_t i = 0; i < written; i++)
    if (got[i] != byte_at(i)) fail_msg("byte %" PRIu64 " is another", i);
}

/* Whoever could not be woken may sleep for ever: that is told at once, behind what was read. */
static void a_bell_that_fails_is_told(void **state)
{
  ends *both = *state;
  uint8_t data[1000] = {1}, got[1000];
  rv_ring_write(&both->server.out, &(struct iovec){data, sizeof data}, 1);
  both->client.in.bell = -1;
  atomic_store(&both->client.in.head->writer_sleeps, 1);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), sizeof got);
  assert_memory_equal(got, data, sizeof data);
  assert_false(rv_ring_await_bytes(&both->client.in));
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), -EBADF);
}

static void loans_that_cannot_be_are_refused(void **state)
{
  ends *both = *state;
  uint8_t got[100];
  struct iovec vec = {got, sizeof got};
  const rv_ring_loan wrong[] = {
      {.at = 0, .offset = UINT64_C(64) << 20, .size = 1}, {.at = 0, .offset = 0, .size = (UINT64_C(64) << 20) + 1},
      {.at = 0, .offset = UINT64_MAX, .size = 2},         {.at = RV_RING_BYTES + 1, .offset = 0, .size = 1},
      {.at = UINT64_MAX, .offset = 0, .size = 1},         {.at = 0, .offset = 0, .size = 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    both->client.in.loan[0] = wrong[i];
    atomic_store(&both->client.in.head->lent, 1);
    assert_int_equal(rv_ring_read(&both->client.in, &vec, 1), -EPROTO);
    assert_false(rv_ring_await_bytes(&both->client.in)); /* reading tells */
  }
  atomic_store(&both->client.in.head->lent, RV_RING_LOANS + 1);
  assert_int_equal(rv_ring_read(&both->client.in, &vec, 1), -EPROTO);
  assert_false(rv_ring_await_bytes(&both->client.in));
}

/* Whoever publishes a loan publishes the bytes before it right after: they are waited for like others. */
static void a_loan_behind_bytes_that_have_not_come_is_waited_for(void **state)
{
  ends *both = *state;
  uint8_t got[100];
  both->client.in.loan[0] = (rv_ring_loan){.at = 1, .offset = 4096, .size = 1};
  atomic_store(&both->client.in.head->lent, 1);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), 0);
  assert_true(rv_ring_await_bytes(&both->client.in));
  atomic_store(&both->client.in.head->written, 1);
  assert_false(rv_ring_await_bytes(&both->client.in));
}

static void returns_that_cannot_be_let_nothing_go(void **state)
{
  ends *both = *state;
  rv_buf *buf = new_message(both, 0, 40000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, buf->size}, 1), 40000);
  const uint32_t wrong[] = {2, 1000, UINT32_MAX, UINT32_C(1) << 31};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    atomic_store(&both->server.out.head->returned, wrong[i]);
    assert_false(rv_ring_settle(&both->server.out));
    assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){"x", 1}, 1), -EPROTO);
    assert_int_equal(atomic_load(&buf->refs), 2);
  }
  atomic_store(&both->server.out.head->returned, 1);
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(atomic_load(&buf->refs), 1);
  atomic_store(&both->server.out.head->returned, 0); /* nobody looks */
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, buf->size}, 1), 40000);
  assert_false(rv_ring_settle(&both->server.out)); /* and back */
  assert_int_equal(atomic_load(&buf->refs), 2);
  rv_buf_unref(buf);
}

/* ---- sleeping and waking ---- */

enum { STREAMED = 48 << 20 };

static void wait_for_bell(int socket)
{
  struct pollfd at = {.fd = socket, .events = POLLIN};
  assert_int_equal(poll(&at, 1, 60000), 1); /* a lost wake-up would stay lost */
  char calls[64];
  assert_true(recv(socket, calls, sizeof calls, 0) > 0);
}

static void *stream_out(void *argument)
{
  ends *both = argument;
  rv_random random;
  rv_random_init(&random, 11);
  for (uint64_t written = 0; written < STREAMED;) {
    if (write_some(&both->client.out, &written, some_size(&random, 22), &random) == 0 && rv_ring_await_room(&both->client.out))
      wait_for_bell(both->sockets[0]);
  }
  return NULL;
}

static void whoever_sleeps_is_woken(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 13);
  pthread_t writer;
  assert_int_equal(pthread_create(&writer, NULL, stream_out, both), 0);
  for (uint64_t taken = 0; taken < STREAMED;) {
    if (read_some(&both->server.in, &taken, some_size(&random, 20), &random) == 0 && rv_ring_await_bytes(&both->server.in))
      wait_for_bell(both->sockets[1]);
  }
  pthread_join(writer, NULL);
}

static void *lend_out(void *argument)
{
  ends *both = argument;
  rv_random random;
  rv_random_init(&random, 31);
  for (uint64_t written = 0; written < STREAMED;) {
    bool lends = rv_random_below(&random, 3) > 0;
    ssize_t n = lends ? write_message(both, &written, some_size(&random, 18), &random)
                      : write_some(&both->server.out, &written, some_size(&random, 18), &random);
    assert_true(n >= 0);
    if (n == 0 && rv_ring_await_room(&both->server.out)) wait_for_bell(both->sockets[1]);
  }
  return NULL;
}

static void whoever_sleeps_is_woken_by_loans(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 37);
  pthread_t writer;
  assert_int_equal(pthread_create(&writer, NULL, lend_out, both), 0);
  for (uint64_t taken = 0; taken < STREAMED;) {
    if (read_some(&both->client.in, &taken, some_size(&random, 20), &random) == 0 && rv_ring_await_bytes(&both->client.in))
      wait_for_bell(both->sockets[0]);
  }
  pthread_join(writer, NULL);
}

static void nobody_awake_is_called(void **state)
{
  ends *both = *state;
  uint8_t byte = 1, got[8];
  char calls[8];
  struct iovec vec = {&byte, 1};
  rv_ring *in = &both->server.in;
  rv_ring_write(&both->client.out, &vec, 1); /* both wait from the beginning */
  assert_int_equal(recv(both->sockets[1], calls, sizeof calls, 0), 1);
  rv_ring_write(&both->client.out, &vec, 1);
  assert_int_equal(recv(both->sockets[1], calls, sizeof calls, 0), -1);
  assert_false(rv_ring_await_bytes(in)); /* there are */
  assert_int_equal(rv_ring_read(in, &(struct iovec){got, 8}, 1), 2);
  assert_true(rv_ring_await_bytes(in));
  rv_ring_write(&both->client.out, &vec, 1);
  rv_ring_write(&both->client.out, &vec, 1);
  assert_int_equal(recv(both->sockets[1], calls, sizeof calls, 0), 1); /* once */
}

/* ---- memory ---- */

static blkcnt_t pages_of(const ends *both)
{
  struct stat info;
  assert_int_equal(fstat(both->memory, &info), 0);
  return info.st_blocks / 8;
}

static void small_messages_touch_few_pages(void **state)
{
  ends *both = *state;
  uint8_t data[1000] = {0};
  for (int i = 0; i < 10000; i++) {
    rv_ring_write(&both->client.out, &(struct iovec){data, sizeof data}, 1);
    assert_int_equal(rv_ring_read(&both->server.in, &(struct iovec){data, sizeof data}, 1), sizeof data);
  }
  assert_true(both->client.out.touched < 4096);
}

static void a_quiet_ring_gives_its_memory_back(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 17);
  uint64_t written = 0, taken = 0;
  for (int round = 0; round < 3; round++) {
    while (write_some(&both->client.out, &written, 300000, &random) > 0) continue;
    assert_true(pages_of(both) >= RV_RING_BYTES / 4096);
    rv_ring_trim(&both->client.out); /* it is full: all is still to be read */
    while (read_some(&both->server.in, &taken, 300000, &random) > 0) continue;
    rv_ring_trim(&both->client.out);
    assert_true(pages_of(both) < 16);
  }
  assert_int_equal(written, taken);
}

/* ---- a peer that means harm ---- */

static void positions_that_cannot_be_are_refused(void **state)
{
  ends *both = *state;
  uint8_t data[64];
  struct iovec vec = {data, sizeof data};
  rv_ring_head *in = both->server.in.head, *out = both->server.out.head;
  const uint64_t wrong[] = {RV_RING_BYTES + 1, 2 * RV_RING_BYTES, UINT64_C(1) << 63};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    atomic_store(&in->written, wrong[i]);
    assert_int_equal(rv_ring_read(&both->server.in, &vec, 1), -EPROTO);
    assert_false(rv_ring_await_bytes(&both->server.in)); /* reading tells */
    atomic_store(&out->taken, wrong[i]);
    assert_int_equal(rv_ring_write(&both->server.out, &vec, 1), -EPROTO);
    assert_false(rv_ring_await_room(&both->server.out));
    rv_ring_trim(&both->server.out);
  }
  for (uint64_t origin = 1; origin != 0; origin <<= 3) { /* nonsense is read then, but from the ring */
    atomic_store(&in->written, 64);
    atomic_store(&in->origin, origin - 30);
    both->server.in.at = 0;
    assert_int_equal(rv_ring_read(&both->server.in, &vec, 1), 64);
  }
}

static int memory_of(size_t size, int seals)
{
  int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, (off_t)size), 0);
  assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

static void only_memory_that_cannot_shrink_is_mapped(void **state)
{
  ends *both = *state;
  struct stat info;
  assert_int_equal(fstat(both->memory, &info), 0);
  const int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  int wrong[] = {memory_of((size_t)info.st_size, F_SEAL_GROW | F_SEAL_SEAL), memory_of((size_t)info.st_size - 1, sealed),
                 memory_of(0, sealed), open("/dev/null", O_RDWR | O_CLOEXEC), dup(both->sockets[0])};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    rv_rings rings;
    assert_false(rv_rings_join(wrong[i], &rings));
    close(wrong[i]);
  }
  assert_int_equal(ftruncate(both->memory, 0), -1); /* ours cannot either */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define LENDING(name) cmocka_unit_test_setup_teardown(name, set_up_lending, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(pieces_of_all_sizes_arrive),
      TEST(the_directions_do_not_meet),
      LENDING(what_is_lent_arrives_in_its_place),
      LENDING(a_client_lends_as_well),
      LENDING(what_is_lent_is_held_until_it_was_taken),
      LENDING(of_many_some_are_copied),
      LENDING(who_has_no_arena_gets_copies),
      LENDING(what_was_taken_back_is_not_read),
      LENDING(what_is_left_where_it_is_lent_is_in_its_place),
      LENDING(what_has_gaps_is_held_until_it_is_given_back),
      LENDING(what_was_taken_back_meanwhile_is_told_as_it_is_given_back),
      LENDING(what_is_parsed_at_once_is_read_before_what_is_lent),
      LENDING(without_addresses_what_is_lent_is_read_from_the_file),
      TEST(a_bell_that_fails_is_told),
      LENDING(loans_that_cannot_be_are_refused),
      LENDING(a_loan_behind_bytes_that_have_not_come_is_waited_for),
      LENDING(returns_that_cannot_be_let_nothing_go),
      LENDING(more_bytes_than_may_be_held_are_copied),
      TEST(whoever_sleeps_is_woken),
      LENDING(whoever_sleeps_is_woken_by_loans),
      TEST(nobody_awake_is_called),
      TEST(small_messages_touch_few_pages),
      TEST(a_quiet_ring_gives_its_memory_back),
      TEST(positions_that_cannot_be_are_refused),
      TEST(only_memory_that_cannot_shrink_is_mapped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
