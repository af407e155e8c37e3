/* The iterator behind Client.sample, and of what the datasets draw from. */
#ifndef RV_PYTHON_SAMPLER_H
#define RV_PYTHON_SAMPLER_H

#include "client.h"

typedef struct sampler_object {
  PyObject_HEAD
  core_state *state;
  client_object *client;
  PyObject *table;
  structure_object *structure; /* NULL: flat lists */
  bool named;                  /* the structure is the signature's, if there is one, of the connection of `losses` */
  uint64_t losses;
  rv_sample *held;     /* the next, which could not be named in time; NULL: none */
  rv_sampler *sampler; /* made at the first next */
  core_mutex mutex;
  rv_cancel *cancel; /* fired by close, for what waits before there is a sampler */
  int64_t max_samples;
  int64_t timeout_ms; /* for each sample */
  struct {            /* as in rv_sampler_config */
    unsigned max_in_flight, streams;
    long long samples_per_stream, limiter_timeout_ms;
  } ahead;
  bool emit_timesteps, unpack, copy, ended;
  bool of_dataset; /* may be endless; a column without a time dimension is one step, as Reverb's dataset has it */
} sampler_object;

/* Makes the library's sampler, if that was not done. -1 with an exception. */
int sampler_open(sampler_object *self);
PyObject *sampler_close(PyObject *self, PyObject *none);

#endif
