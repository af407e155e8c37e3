/* For tests of landing: a server's end and a client's in one process. */
#ifndef RV_NET_LANDING_TESTING_H
#define RV_NET_LANDING_TESTING_H

#include "net/landing.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROW = 40000, BEFORE = 100, BEHIND = 60, MEMORY = 64 << 20 };
#define SECOND INT64_C(1000000000)

/* A server, and clients of it in the same process, which the system cannot tell from others. */
typedef struct setting {
  rv_arena *arena;
  rv_spares *spares;
  int64_t now_ns; /* stands still but where a test puts it forward */
  rv_env env;
  rv_landing_round round;
  rv_landing_host host;
  size_t memory_limit;
  rv_arena_maps *maps;
} setting;

static inline size_t limit_of(void *context)
{
  return ((const setting *)context)->memory_limit;
}

static inline int64_t standing_clock(void *context)
{
  return *(int64_t *)context;
}

typedef struct pair {
  int sockets[2];
  rv_landing_end *end;
  rv_landing *client;
} pair;

static inline int set_up(void **state)
{
  setting *s = calloc(1, sizeof *s);
  assert_non_null(s);
  rv_error err;
  if (rv_arena_new(MEMORY, &s->arena, &err) != RV_OK) fail_msg("%s", err.message);
  s->spares = rv_spares_new(0); /* nothing lies idle there, so that what comes back is seen */
  rv_spares_use_arena(s->spares, s->arena);
  const rv_env env = {.size = sizeof env, .context = &s->now_ns, .monotonic_ns = standing_clock};
  rv_env_fill(&s->env, &env);
  rv_landing_round_init(&s->round, &s->env, s->spares);
  rv_landing_host_init(&s->host);
  s->memory_limit = 16 * (size_t)(MEMORY / 2);
  rv_landing_host_use(&s->host, s->arena, limit_of, s);
  s->maps = rv_arena_maps_new(1 << 20);
  *state = s;
  return 0;
}

static inline int tear_down(void **state)
{
  setting *s = *state;
  if (s->host.arena != NULL) rv_landing_host_fini(&s->host);
  rv_arena_maps_unref(s->maps);
  rv_spares_close(s->spares);
  rv_arena_unref(s->arena);
  free(s);
  return 0;
}

static inline pair connect_pair(setting *s)
{
  pair p;
  int shared;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p.sockets), 0);
  p.end = rv_landing_end_new(&s->host, &s->round, p.sockets[0], &shared);
  assert_non_null(p.end);
  p.client = rv_landing_join(shared, rv_arena_file_to_write(s->arena), s->maps);
  assert_non_null(p.client);
  close(shared);
  return p;
}

static inline void hang_up(pair *p)
{
  rv_landing_close(p->client);
  rv_landing_unref(p->client);
  close(p->sockets[1]);
  rv_landing_end_leave(p->end);
  close(p->sockets[0]);
}

static inline void drop_idle(rv_arena *arena)
{
  static int64_t now_ns;
  while (rv_arena_trim(arena, now_ns += SECOND)) continue;
}

static inline size_t bytes_used(const setting *s)
{
  size_t used, idle;
  rv_arena_usage(s->arena, &used, &idle);
  return used;
}

/* A block for rows of that size, which the server first has to hear of. */
static inline rv_buf *take_row(const pair *p, size_t size)
{
  rv_buf *row = rv_landing_take(p->client, size);
  if (row != NULL) return row;
  assert_true(rv_landing_end_serve(p->end));
  return rv_landing_take(p->client, size);
}

static inline rv_buf *put_row(const pair *p, size_t size, int fill)
{
  rv_buf *row = take_row(p, size);
  assert_non_null(row);
  memset(row->data, fill, size);
  row->size = size;
  return row;
}

/* What the server makes of it: the message, with something before the row and behind it. */
static inline rv_buf *land(const pair *p, const rv_buf *row)
{
  rv_landing_place at;
  assert_ptr_equal(rv_landing_find(p->client, row->data, row->size, &at), row);
  assert_true(rv_landing_end_has(p->end, &at));
  rv_buf *message = rv_landing_end_land(p->end, at.slot, at.offset, BEFORE, row->size + BEHIND);
  assert_non_null(message);
  memset(message->data, 'b', BEFORE);
  memset(message->data + BEFORE + row->size, 'e', BEHIND);
  message->size = BEFORE + row->size + BEHIND;
  return message;
}

static inline rv_landing_shared *map_shared(int fd)
{
  void *memory = mmap(NULL, RV_LANDING_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_true(memory != MAP_FAILED);
  return memory;
}

static inline size_t take_all(const pair *p, size_t size, rv_buf **rows, size_t most)
{
  size_t count = 0;
  for (int misses = 0; count < most && misses < 20;) {
    rows[count] = rv_landing_take(p->client, size);
    misses = rows[count] == NULL ? misses + 1 : 0;
    count += rows[count] != NULL;
    assert_true(rv_landing_end_serve(p->end));
  }
  return count;
}

static inline void drop_all(rv_buf **rows, size_t count)
{
  for (size_t i = 0; i < count; i++) rv_buf_unref(rows[i]);
}

#endif
