/* Blocks that a server gives to a client's writers: what is put there arrives without being copied, stays as long as anybody reads it, and
 * comes back once; and what a client says of them harms nobody else. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/machine_memory.h"
#include "net/landing_testing.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static void expect_message(const rv_buf *message, size_t row, int fill)
{
  assert_int_equal(message->size, BEFORE + row + BEHIND);
  for (size_t i = 0; i < message->size; i++) {
    int want = i < BEFORE ? 'b' : i < BEFORE + row ? fill : 'e';
    if (message->data[i] != want) fail_msg("byte %zu is %d instead of %d", i, message->data[i], want);
  }
}

static void expect_row(const rv_buf *row, int fill)
{
  for (size_t i = 0; i < row->size; i++)
    if (row->data[i] != fill) fail_msg("byte %zu is %d instead of %d", i, row->data[i], fill);
}

/* ---- rows ---- */

static void a_row_becomes_its_message_where_it_was_put(void **state)
{
  static const size_t sizes[] = {18944, 20032, 28224, ROW, 40512, 40513, 65536, RV_SPARE_MAX};
  setting *s = *state;
  pair p = connect_pair(s);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    rv_buf *row = put_row(&p, sizes[i], 7), *message = land(&p, row);
    rv_buf_unref(row);
    assert_true(rv_landing_end_serve(p.end));
    expect_message(message, sizes[i], 7);
    rv_buf_unref(message);
    for (int others = 0; others < 100; others++) rv_buf_unref(rv_landing_take(p.client, 30000)); /* the next size has its turn */
    rv_landing_end_rest(p.end);
  }
  rv_landing_end_rest(p.end);
  assert_int_equal(bytes_used(s), 0);
  hang_up(&p);
}

/* The writer may still need it, to send it by another connection. */
static void a_block_comes_back_when_nobody_reads_it_any_more(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 1), *message = land(&p, row);
  rv_landing_end_rest(p.end);
  size_t one = bytes_used(s);
  rv_buf_unref(message);
  assert_true(rv_landing_end_serve(p.end));
  assert_int_equal(bytes_used(s), one);
  expect_row(row, 1);
  rv_buf_unref(row);
  assert_true(rv_landing_end_serve(p.end));
  assert_int_equal(bytes_used(s), 0);

  row = put_row(&p, ROW, 2);
  message = land(&p, row);
  rv_buf_unref(row);
  rv_landing_end_rest(p.end);
  assert_int_equal(bytes_used(s), one);
  expect_message(message, ROW, 2);
  hang_up(&p);
  expect_message(message, ROW, 2);
  rv_buf_unref(message);
  assert_int_equal(bytes_used(s), 0);
}

static void the_next_use_of_a_block_has_all_of_it(void **state)
{
  setting *s = *state;
  rv_spares_set_max(s->spares, MEMORY);
  pair p = connect_pair(s);
  for (int i = 0; i < 1000; i++) {
    rv_buf *row = put_row(&p, ROW, i & 127), *message = land(&p, row);
    rv_buf_unref(row);
    assert_true(rv_landing_end_serve(p.end));
    expect_message(message, ROW, i & 127);
    rv_buf_unref(message);
  }
  assert_true(bytes_used(s) < 100 * ROW);
  hang_up(&p);
}

static void a_row_lands_once_and_is_read_where_it_is_then(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 3), *message = land(&p, row);
  rv_landing_place at;
  assert_non_null(rv_landing_find(p.client, row->data, ROW, &at));
  assert_null(rv_landing_end_land(p.end, at.slot, at.offset, BEFORE, ROW));
  const uint8_t *there = rv_landing_end_at(p.end, at.slot, at.offset, ROW);
  assert_non_null(there);
  assert_memory_equal(there, row->data, ROW);
  assert_non_null(rv_landing_find(p.client, row->data + 30000, 10000, &at)); /* a part */
  assert_int_equal(at.offset, RV_LANDING_BEFORE + 30000);
  uint8_t elsewhere[100];
  assert_null(rv_landing_find(p.client, elsewhere, sizeof elsewhere, &at));
  rv_buf_unref(row);
  rv_buf_unref(message);
  hang_up(&p);
}

/* Whoever still has the name of a place does not find there what came later. */
static void a_slot_is_told_from_what_it_was_before(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_landing_place places[50];
  for (int i = 0; i < 50; i++) {
    rv_buf *row = put_row(&p, ROW, i);
    assert_ptr_equal(rv_landing_find(p.client, row->data, ROW, &places[i]), row);
    assert_true(rv_landing_end_has(p.end, &places[i]));
    for (int before = 0; before < i; before++) assert_false(rv_landing_end_has(p.end, &places[before]));
    rv_buf_unref(row);
    assert_true(rv_landing_end_serve(p.end));
  }
  assert_false(rv_landing_end_has(p.end, &(rv_landing_place){.slot = RV_LANDING_SLOTS}));
  hang_up(&p);
}

static void what_fills_little_of_its_block_is_read(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, 3 * ROW, 4);
  rv_landing_place at;
  assert_non_null(rv_landing_find(p.client, row->data, ROW, &at));
  assert_null(rv_landing_end_land(p.end, at.slot, at.offset, BEFORE, ROW + BEHIND));
  assert_null(rv_landing_end_land(p.end, at.slot, at.offset, BEFORE, 2 * ROW + BEHIND));
  rv_buf *message = rv_landing_end_land(p.end, at.slot, at.offset, BEFORE, 3 * ROW + BEHIND);
  assert_non_null(message);
  rv_buf_unref(message);
  rv_buf_unref(row);
  hang_up(&p);
}

static void what_has_no_room_around_it_is_read(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 4);
  rv_landing_place at;
  assert_non_null(rv_landing_find(p.client, row->data, ROW, &at));
  assert_null(rv_landing_end_land(p.end, at.slot, at.offset, RV_LANDING_BEFORE + 1, ROW));
  assert_null(rv_landing_end_land(p.end, at.slot, at.offset, BEFORE, ROW + 4096));
  rv_buf *message = rv_landing_end_land(p.end, at.slot, at.offset, RV_LANDING_BEFORE, ROW + RV_LANDING_BEHIND);
  assert_non_null(message);
  rv_buf_unref(message);
  rv_buf_unref(row);
  hang_up(&p);
}

/* The server would write what stands around it over what comes before. */
static void a_message_begins_where_its_block_does(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 4);
  rv_landing_place at;
  assert_non_null(rv_landing_find(p.client, row->data + 1000, ROW - 1000, &at));
  assert_null(rv_landing_end_land(p.end, at.slot, at.offset, BEFORE, ROW - 1000 + BEHIND));
  assert_non_null(rv_landing_find(p.client, row->data, ROW, &at));
  rv_buf *message = rv_landing_end_land(p.end, at.slot, at.offset, BEFORE, ROW + BEHIND);
  assert_non_null(message);
  rv_buf_unref(message);
  rv_buf_unref(row);
  hang_up(&p);
}

/* ---- how many there are ---- */

/* Each has a descriptor and a mapping, until its writers let go of what they have. */
static void ends_of_gone_connections_are_bounded(void **state)
{
  setting *s = *state;
  int sockets[2], shared;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  atomic_store(&s->host.num_left, 512);
  assert_null(rv_landing_end_new(&s->host, &s->round, sockets[0], &shared));
  atomic_store(&s->host.num_left, 0);
  close(sockets[0]);
  close(sockets[1]);
  pair p = connect_pair(s);
  hang_up(&p);
}

static void a_writer_has_no_more_than_its_share(void **state)
{
  enum { SMALL = 20032, LARGE = 400000 };
  static rv_buf *rows[2 * RV_LANDING_SLOTS], *others[RV_LANDING_SLOTS];
  setting *s = *state;
  pair p = connect_pair(s), q = connect_pair(s);
  size_t count = take_all(&p, SMALL, rows, 2 * RV_LANDING_SLOTS);
  assert_int_equal(count, RV_LANDING_SLOTS);
  drop_all(rows, count);
  rv_landing_end_rest(p.end);
  count = take_all(&p, LARGE, rows, RV_LANDING_SLOTS); /* one who comes next has as much */
  assert_in_range(count * LARGE, MEMORY / 4 - 3 * LARGE, MEMORY / 4);
  rv_landing_end_rest(p.end); /* what it holds counts while it is quiet, too */
  size_t many = take_all(&q, LARGE, others, RV_LANDING_SLOTS);
  assert_in_range(many * LARGE, MEMORY / 6 - 3 * LARGE, MEMORY / 6);
  assert_true(bytes_used(s) <= MEMORY / 2);
  drop_all(others, many);
  hang_up(&q);
  drop_all(rows, count);
  hang_up(&p);
  assert_int_equal(bytes_used(s), 0);
}

/* What many writers have on their way at once lies in blocks from the second time on, and nobody waits long while they are found. */
static void as_many_are_given_as_rows_found_none_a_part_at_a_time(void **state)
{
  enum { MISSED = 100, AT_ONCE = 52 /* 2 MiB and a block */ };
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *rows[MISSED];
  assert_true(rv_landing_end_serve(p.end));
  assert_false(rv_landing_end_is_due(p.end));
  for (int i = 0; i < MISSED; i++) assert_null(rv_landing_take(p.client, ROW));
  size_t given = 0, at_first = 0;
  for (; rv_landing_end_is_due(p.end) && given < MISSED; at_first = at_first == 0 ? given : at_first) {
    assert_true(rv_landing_end_serve(p.end));
    if (given == 0) assert_true(rv_landing_end_is_due(p.end)); /* though no row has found none since */
    size_t before = given;
    while (given < MISSED && given - before < AT_ONCE && (rows[given] = rv_landing_take(p.client, ROW)) != NULL) given++;
    assert_null(given < MISSED ? rv_landing_take(p.client, ROW) : NULL);
  }
  assert_in_range(at_first, AT_ONCE / 2, AT_ONCE);
  assert_int_equal(given, MISSED);
  drop_all(rows, given);
  hang_up(&p);
}

static void what_nobody_begins_to_fill_goes_back_in_a_quiet_time(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 5);
  assert_true(bytes_used(s) > 45056);
  rv_landing_end_rest(p.end);
  assert_in_range(bytes_used(s), ROW, 45056);
  assert_true(rv_landing_end_serve(p.end)); /* whatever else comes by the connection */
  assert_in_range(bytes_used(s), ROW, 45056);
  rv_buf_unref(row);
  rv_landing_end_rest(p.end);
  assert_int_equal(bytes_used(s), 0);
  rv_buf_unref(put_row(&p, ROW, 6));
  hang_up(&p);
  assert_int_equal(bytes_used(s), 0);
}

static void nothing_lies_idle_when_all_is_quiet(void **state)
{
  enum { ROWS = 300 };
  static rv_buf *messages[ROWS];
  setting *s = *state;
  rv_spares_set_max(s->spares, 1 << 20);
  pair p = connect_pair(s);
  for (size_t i = 0; i < 4 * (size_t)ROWS; i++) { /* as a table that is full */
    rv_buf *row = put_row(&p, ROW, 1);
    rv_buf_unref(messages[i % ROWS]);
    messages[i % ROWS] = land(&p, row);
    rv_buf_unref(row);
    if (i % 8 == 0) assert_true(rv_landing_end_serve(p.end));
  }
  hang_up(&p);
  for (size_t i = 0; i < ROWS / 2; i++) rv_buf_unref(messages[i]);
  for (int64_t now_ns = 0; rv_spares_trim(s->spares, now_ns += SECOND);) continue;
  size_t used, idle;
  rv_arena_usage(s->arena, &used, &idle);
  assert_int_equal(idle, 0);
  assert_int_equal(used, ROWS / 2 * 40960);
  drop_all(messages + ROWS / 2, ROWS / 2);
}

static void rows_of_other_sizes_have_no_block(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  assert_null(take_row(&p, RV_LANDING_LEAST - 1));
  assert_null(take_row(&p, RV_LANDING_LEAST)); /* five pages for a little more than four */
  assert_null(take_row(&p, RV_SPARE_MAX + 1));
  assert_int_equal(bytes_used(s), 0);
  for (size_t i = 0; i < RV_LANDING_SIZES; i++) rv_buf_unref(put_row(&p, ROW + i * 8192, 1));
  assert_null(take_row(&p, ROW + RV_LANDING_SIZES * 8192)); /* all are in use */
  for (int i = 0; i < 100; i++) rv_buf_unref(put_row(&p, ROW, 1));
  rv_buf_unref(put_row(&p, ROW + RV_LANDING_SIZES * 8192, 1));
  hang_up(&p);
  assert_int_equal(bytes_used(s), 0);
}

static void none_are_given_where_the_arena_is_full(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *all = NULL, *last;
  while ((last = rv_spares_take_lendable(s->spares, 200 << 10)) != NULL && rv_buf_is_lendable(last)) {
    last->size = sizeof all;
    memcpy(last->data, &all, sizeof all);
    all = last;
  }
  rv_buf_unref(last);
  assert_null(take_row(&p, 400000));
  while (all != NULL) {
    last = all;
    memcpy(&all, last->data, sizeof all);
    rv_buf_unref(last);
  }
  rv_buf_unref(put_row(&p, 400000, 1));
  hang_up(&p);
}

/* ---- ends ---- */

static void a_row_stays_for_its_writer_when_the_connection_goes(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 8), *message = land(&p, row);
  hang_up(&p);
  rv_buf_unref(message);
  assert_int_equal(atomic_load(&s->host.num_left), 1);
  for (int i = 0; i < 3; i++) {
    pair q = connect_pair(s);
    rv_buf_unref(put_row(&q, ROW, 9));
    expect_row(row, 8);
    hang_up(&q);
  }
  assert_in_range(bytes_used(s), ROW, 45056);
  rv_buf_unref(row);
  rv_landing_host_look(&s->host);
  assert_int_equal(bytes_used(s), 0);
  assert_int_equal(atomic_load(&s->host.num_left), 0);
}

/* Nobody but the system may use the memory again. */
static void a_row_stays_for_its_writer_when_the_server_goes(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 8), *message = land(&p, row), *unsent = put_row(&p, ROW, 9);
  hang_up(&p);
  rv_landing_host_fini(&s->host);
  s->host.arena = NULL;
  drop_idle(s->arena);
  rv_buf *others[64];
  for (size_t i = 0; i < 64; i++) {
    others[i] = rv_spares_take_lendable(s->spares, ROW);
    memset(others[i]->data, 0, ROW);
  }
  expect_row(row, 8);
  expect_row(unsent, 9);
  expect_message(message, ROW, 8);
  drop_all(others, 64);
  rv_buf_unref(message);
  drop_idle(s->arena);
  expect_row(row, 8);
  rv_spares_close(s->spares);
  rv_arena_unref(s->arena); /* and with it all that maps it here but the client */
  s->spares = rv_spares_new(0);
  s->arena = NULL;
  expect_row(row, 8);
  expect_row(unsent, 9);
  rv_buf_unref(row);
  rv_buf_unref(unsent);
}

/* Another process, which has connected and does nothing; *socket is this end. */
static pid_t start_connected(int *socket_here)
{
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr address = {.sa_family = AF_UNIX}; /* a name is found for it */
  struct sockaddr_storage bound;
  socklen_t length = sizeof bound;
  assert_int_equal(bind(listener, &address, sizeof address.sa_family), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&bound, &length), 0);
  assert_int_equal(listen(listener, 1), 0);
  pid_t child = fork();
  if (child == 0) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&bound, length) == 0) pause();
    _exit(1);
  }
  *socket_here = accept(listener, NULL, NULL);
  assert_true(*socket_here >= 0);
  close(listener);
  return child;
}

static void end_process(pid_t process)
{
  kill(process, SIGKILL);
  assert_int_equal(waitpid(process, NULL, 0), process);
}

/* For whoever has connected; what he does is done here, as if it were there. False: he gets no blocks. */
static bool make_pair(setting *s, pair *p)
{
  int shared;
  p->sockets[1] = -1;
  p->end = rv_landing_end_new(&s->host, &s->round, p->sockets[0], &shared);
  if (p->end == NULL) return false;
  p->client = rv_landing_join(shared, rv_arena_file_to_write(s->arena), s->maps);
  assert_non_null(p->client);
  close(shared);
  return true;
}

static void what_a_process_leaves_behind_is_taken_back(void **state)
{
  setting *s = *state;
  pair p;
  pid_t writer = start_connected(&p.sockets[0]);
  assert_true(make_pair(s, &p));
  rv_buf *row = put_row(&p, ROW, 8), *sent = put_row(&p, ROW, 9), *message = land(&p, sent);
  close(p.sockets[0]);
  rv_landing_end_leave(p.end);
  rv_landing_host_look(&s->host);
  assert_int_equal(atomic_load(&s->host.num_left), 1); /* it may send them by another connection */
  end_process(writer);
  rv_landing_host_look(&s->host);
  assert_int_equal(atomic_load(&s->host.num_left), 0);
  expect_message(message, ROW, 9);
  rv_buf_unref(message);
  assert_int_equal(bytes_used(s), 0);
  rv_buf_unref(row); /* of what was that process */
  rv_buf_unref(sent);
  rv_landing_unref(p.client);
}

#ifdef SYS_clone3
/* Another process of that number, which does nothing; -1: this one may not choose numbers. */
static pid_t start_of_number(pid_t number)
{
  struct {
    _Alignas(8) uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size;
  } how = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
  pid_t child = (pid_t)syscall(SYS_clone3, &how, sizeof how);
  while (child == 0) pause();
  return child;
}

static void who_has_the_number_of_a_process_that_has_ended_is_not_taken_for_it(void **state)
{
  int ended;
  socklen_t size = sizeof ended;
  setting *s = *state;
  pair p;
  pid_t writer = start_connected(&p.sockets[0]);
  bool can = getsockopt(p.sockets[0], SOL_SOCKET, SO_PEERPIDFD, &ended, &size) == 0;
  if (can) close(ended);
  end_process(writer);
  pid_t other = can ? start_of_number(writer) : -1;
  unsigned left = 0;
  if (other > 0 && make_pair(s, &p)) { /* systems before Linux 6.16 tell nothing of a process that is no more */
    rv_buf *row = put_row(&p, ROW, 8);
    rv_landing_end_leave(p.end);
    rv_landing_host_look(&s->host);
    left = atomic_load(&s->host.num_left);
    rv_buf_unref(row);
    rv_landing_unref(p.client);
  }
  if (other > 0) end_process(other);
  close(p.sockets[0]);
  assert_int_equal(left, 0);
  assert_int_equal(bytes_used(s), 0);
}
#endif

static void a_forked_child_lets_go_of_nothing(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  rv_buf *row = put_row(&p, ROW, 8);
  pid_t child = fork();
  if (child == 0) {
    rv_buf_unref(row);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_true(rv_landing_end_serve(p.end));
  for (int i = 0; i < 20; i++) rv_buf_unref(put_row(&p, ROW, 1));
  expect_row(row, 8);
  rv_buf_unref(row);
  hang_up(&p);
}

/* ---- lies ---- */

static void nonsense_costs_the_connection_and_nothing_else(void **state)
{
  setting *s = *state;
  for (int lie = 0; lie < 5; lie++) {
    pair p;
    int shared;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p.sockets), 0);
    p.end = rv_landing_end_new(&s->host, &s->round, p.sockets[0], &shared);
    assert_non_null(p.end);
    rv_landing_shared *said = map_shared(shared);
    atomic_store(&said->wanted[0], 11);
    atomic_store(&said->missed[0], 1);
    assert_true(rv_landing_end_serve(p.end));
    if (lie == 0) atomic_store(&said->let_go[3], UINT64_MAX);
    if (lie == 1) atomic_store(&said->wanted[1], UINT32_MAX);
    if (lie == 2) atomic_store(&said->wanted[2], (RV_SPARE_MAX >> 12) + 2);
    if (lie == 3) atomic_store(&said->wanted[3], RV_LANDING_LEAST >> 12); /* no row has so small a block */
    if (lie == 4) {
      atomic_store(&said->given[0][5], 1);
      atomic_store(&said->wanted[0], 12);
    }
    assert_false(rv_landing_end_serve(p.end));
    assert_null(rv_landing_end_at(p.end, RV_LANDING_SLOTS, 0, 1));
    assert_null(rv_landing_end_at(p.end, RV_LANDING_SLOTS - 1, 0, 1));
    assert_null(rv_landing_end_at(p.end, 0, 11 << 12, 1));
    assert_null(rv_landing_end_at(p.end, 0, 1, UINT64_MAX));
    assert_null(rv_landing_end_at(p.end, 0, UINT64_MAX, 2));
    close(p.sockets[0]);
    close(p.sockets[1]);
    munmap(said, RV_LANDING_SHARED);
    close(shared);
    rv_landing_end_leave(p.end);
    assert_int_equal(bytes_used(s), 0);
  }
}

static void a_client_believes_no_file_that_is_another(void **state)
{
  setting *s = *state;
  int other = memfd_create("other", MFD_CLOEXEC), shared, sockets[2];
  assert_int_equal(ftruncate(other, RV_LANDING_SHARED), 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  rv_landing_end *end = rv_landing_end_new(&s->host, &s->round, sockets[0], &shared);
  assert_null(rv_landing_join(other, rv_arena_file_to_write(s->arena), s->maps)); /* it can be shortened */
  assert_null(rv_landing_join(rv_arena_file(s->arena), rv_arena_file_to_write(s->arena), s->maps));
  assert_null(rv_landing_join(shared, other, s->maps));
  assert_null(rv_landing_join(-1, -1, s->maps));
  rv_landing *client = rv_landing_join(shared, shared, s->maps); /* too short for any block */
  rv_landing_shared *said = map_shared(shared);
  atomic_store(&said->slot[0].offset, 4096);
  atomic_store(&said->slot[0].pages, 10);
  atomic_store(&said->given[0][0], 1);
  assert_null(rv_landing_take(client, ROW));
  assert_int_equal(atomic_load(&said->let_go[0]), 1);
  rv_landing_unref(client);
  munmap(said, RV_LANDING_SHARED);
  rv_landing_end_leave(end);
  close(other);
  close(shared);
  close(sockets[0]);
  close(sockets[1]);
}

/* ---- bounds ---- */

static size_t limit_at(void *context)
{
  return *(const size_t *)context;
}

static void a_server_gives_no_more_than_its_share_of_the_memory(void **state)
{
  (void)state;
  rv_landing_host host;
  const size_t share = rv_machine_memory_allowed() / 16, most = (size_t)2 << 30, all = share < most ? share : most;
  const size_t limits[] = {0, 16 << 20, 1, SIZE_MAX}, shares[] = {all, 1 << 20, 0, all};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    size_t limit = limits[i];
    rv_landing_host_init(&host);
    rv_landing_host_use(&host, NULL, limit_at, &limit);
    assert_int_equal(host.most_bytes, shares[i]);
    rv_landing_host_fini(&host);
  }
}

static void a_limit_that_is_changed_is_that_of_the_blocks_that_are_given_from_then_on(void **state)
{
  static rv_buf *rows[RV_LANDING_SLOTS];
  enum { LARGE = 400000 };
  setting *s = *state;
  pair p = connect_pair(s);
  s->memory_limit = MEMORY; /* of which blocks are a 16th, and of those one writer's are half: he finds five */
  size_t count = take_all(&p, LARGE, rows, RV_LANDING_SLOTS);
  assert_in_range(count * LARGE, MEMORY / 32 - 3 * LARGE, MEMORY / 32);
  drop_all(rows, count);
  s->memory_limit = 16 * (size_t)(MEMORY / 2);
  count = take_all(&p, LARGE, rows, RV_LANDING_SLOTS);
  assert_in_range(count * LARGE, MEMORY / 4 - 3 * LARGE, MEMORY / 4);
  drop_all(rows, count);
  hang_up(&p);
}

/* 32 MiB lie idle at most, and half of what blocks may be. */
static void a_limit_that_is_lowered_is_that_of_what_lies_idle(void **state)
{
  enum { PART = 1 << 20, PARTS = 48 };
  setting *s = *state;
  void *parts[PARTS];
  size_t used, idle;
  for (int quiet = 0; quiet < 2; quiet++) { /* it is followed by a server with much to do, and by one that nobody needs */
    s->memory_limit = 16 * (size_t)(MEMORY / 2);
    rv_landing_host_look(&s->host);
    for (size_t round = 0; round < 2; round++) {
      for (size_t i = 0; i < PARTS; i++) {
        parts[i] = rv_arena_take(s->arena, PART, s);
        assert_non_null(parts[i]);
      }
      for (size_t i = 0; i < PARTS; i++) rv_arena_give_back(s->arena, parts[i]);
      rv_arena_usage(s->arena, &used, &idle);
      assert_int_equal(idle, round == 0 ? 48 << 20 : 32 << 20);
      s->memory_limit = 16;
      pair p;
      if (quiet == 0) {
        p = connect_pair(s);
        assert_true(rv_landing_end_serve(p.end));
        hang_up(&p);
      } else {
        rv_landing_host_look(&s->host);
      }
    }
  }
}

int main(void)
{
#define LANDING_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_server_gives_no_more_than_its_share_of_the_memory),
      LANDING_TEST(a_limit_that_is_changed_is_that_of_the_blocks_that_are_given_from_then_on),
      LANDING_TEST(a_limit_that_is_lowered_is_that_of_what_lies_idle),
      LANDING_TEST(a_row_becomes_its_message_where_it_was_put),
      LANDING_TEST(a_block_comes_back_when_nobody_reads_it_any_more),
      LANDING_TEST(the_next_use_of_a_block_has_all_of_it),
      LANDING_TEST(a_row_lands_once_and_is_read_where_it_is_then),
      LANDING_TEST(a_slot_is_told_from_what_it_was_before),
      LANDING_TEST(what_fills_little_of_its_block_is_read),
      LANDING_TEST(what_has_no_room_around_it_is_read),
      LANDING_TEST(a_message_begins_where_its_block_does),
      LANDING_TEST(ends_of_gone_connections_are_bounded),
      LANDING_TEST(a_writer_has_no_more_than_its_share),
      LANDING_TEST(as_many_are_given_as_rows_found_none_a_part_at_a_time),
      LANDING_TEST(what_nobody_begins_to_fill_goes_back_in_a_quiet_time),
      LANDING_TEST(nothing_lies_idle_when_all_is_quiet),
      LANDING_TEST(rows_of_other_sizes_have_no_block),
      LANDING_TEST(none_are_given_where_the_arena_is_full),
      LANDING_TEST(a_row_stays_for_its_writer_when_the_connection_goes),
      LANDING_TEST(a_row_stays_for_its_writer_when_the_server_goes),
      LANDING_TEST(what_a_process_leaves_behind_is_taken_back),
#ifdef SYS_clone3
      LANDING_TEST(who_has_the_number_of_a_process_that_has_ended_is_not_taken_for_it),
#endif
      LANDING_TEST(a_forked_child_lets_go_of_nothing),
      LANDING_TEST(nonsense_costs_the_connection_and_nothing_else),
      LANDING_TEST(a_client_believes_no_file_that_is_another),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
