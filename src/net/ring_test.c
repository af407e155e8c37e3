/* Rings: what one end writes the other reads, whoever sleeps is woken, and nothing that a peer writes into the shared memory harms. */
#include "net/ring.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "net/ring_testing.h"

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

/* ---- sleeping and waking ---- */

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
  read_all_asleep(&both->server.in, &random);
  pthread_join(writer, NULL);
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
  const struct CMUnitTest tests[] = {
      TEST(pieces_of_all_sizes_arrive),
      TEST(the_directions_do_not_meet),
      TEST(a_bell_that_fails_is_told),
      TEST(whoever_sleeps_is_woken),
      TEST(nobody_awake_is_called),
      TEST(small_messages_touch_few_pages),
      TEST(a_quiet_ring_gives_its_memory_back),
      TEST(positions_that_cannot_be_are_refused),
      TEST(only_memory_that_cannot_shrink_is_mapped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
