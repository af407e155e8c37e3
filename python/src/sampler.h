/* The iterator behind Client.sample, and behind the datasets. */
#ifndef RV_PYTHON_SAMPLER_H
#define RV_PYTHON_SAMPLER_H

#include "client.h"

typedef struct sampler_object {
  PyObject_HEAD
  core_state *state;
  client_object *client;
  PyObject *table;
  structure_object *structure; /* NULL: flat lists */
  rv_sampler *sampler;         /* made at the first next */
  PyThread_type_lock lock;
  int64_t max_samples;
  int64_t timeout_ms; /* for each sample */
  struct {            /* as in rv_sampler_config */
    unsigned max_in_flight, streams;
    long long samples_per_stream, limiter_timeout_ms;
  } ahead;
  bool emit_timesteps, unpack, copy, ended, endless_allowed;
  rv_sample **held; /* by sampler_block: drawn, and given first by its next call; in order */
  size_t num_held, held_capacity;
} sampler_object;

/* Makes the library's sampler, if that was not done. -1 with an exception. */
int sampler_open(sampler_object *self);
/* block(least, most, timeout): many samples in one array a column. */
PyObject *sampler_block(PyObject *self, PyObject *args);
/* Lets go of what sampler_block holds. */
void sampler_drop_held(sampler_object *self);

#endif
