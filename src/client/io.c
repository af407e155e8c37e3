#include "client/io.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lock.h"

enum { LOOPS_MAX = 4, CORES_A_LOOP = 2 };

struct rv_io {
  atomic_uint refs;
  rv_mutex mutex; /* RV_RANK_IO: what follows */
  size_t num_loops;
  struct {
    rv_loop *loop; /* NULL: nobody uses it */
    size_t users;
  } loops[LOOPS_MAX];
};

rv_code rv_io_new(rv_io **out, rv_error *err)
{
  rv_io *io = calloc(1, sizeof *io);
  if (io == NULL) return rv_fail_memory(err, sizeof *io);
  atomic_init(&io->refs, 1);
  rv_mutex_init(&io->mutex, RV_RANK_IO, "client threads");
  long cores = sysconf(_SC_NPROCESSORS_ONLN) / CORES_A_LOOP;
  io->num_loops = cores < 1 ? 1 : cores > LOOPS_MAX ? LOOPS_MAX : (size_t)cores;
  *out = io;
  return RV_OK;
}

rv_io *rv_io_ref(rv_io *io)
{
  atomic_fetch_add_explicit(&io->refs, 1, memory_order_relaxed);
  return io;
}

void rv_io_unref(rv_io *io)
{
  if (io == NULL || atomic_fetch_sub_explicit(&io->refs, 1, memory_order_acq_rel) != 1) return;
  rv_mutex_fini(&io->mutex);
  free(io);
}

rv_code rv_io_take_loop(rv_io *io, rv_loop **out, rv_error *err)
{
  rv_code code = RV_OK;
  rv_mutex_lock(&io->mutex);
  size_t best = 0;
  for (size_t i = 1; i < io->num_loops; i++)
    if (io->loops[i].users < io->loops[best].users) best = i;
  if (io->loops[best].loop == NULL) code = rv_loop_new(NULL, "reverie-client", &io->loops[best].loop, err);
  if (code == RV_OK) {
    io->loops[best].users++;
    *out = io->loops[best].loop;
  }
  rv_mutex_unlock(&io->mutex);
  return code;
}

void rv_io_give_loop(rv_io *io, rv_loop *loop)
{
  bool last = false;
  rv_mutex_lock(&io->mutex);
  for (size_t i = 0; i < io->num_loops; i++) {
    if (io->loops[i].loop != loop) continue;
    last = --io->loops[i].users == 0;
    if (last) io->loops[i].loop = NULL;
  }
  rv_mutex_unlock(&io->mutex);
  if (last) rv_loop_free(loop);
}
