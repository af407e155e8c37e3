#include "writer_calls.h"

int writer_check_made(PyObject *object)
{
  if (((writer_base *)object)->stream != NULL) return 0;
  PyErr_SetString(PyExc_RuntimeError,
                  "the writer was not initialised; writers are made by Client.trajectory_writer and Client.structured_writer");
  return -1;
}

int writer_enter(PyObject *object)
{
  return writer_check_made(object) < 0 ? -1 : stream_enter(((writer_base *)object)->stream);
}

PyObject *writer_flush(PyObject *object, PyObject *args)
{
  writer_base *self = (writer_base *)object;
  unsigned keep;
  PyObject *timeout;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "IO:_flush", &keep, &timeout) || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  return writer_check_made(object) < 0 ? NULL : stream_flush(self->stream, keep, timeout_ms);
}

PyObject *writer_settle(PyObject *object, PyObject *timeout)
{
  writer_base *self = (writer_base *)object;
  int64_t timeout_ms;
  if (core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0 || writer_check_made(object) < 0) return NULL;
  return stream_settle(self->stream, timeout_ms);
}

PyObject *writer_take_failure(PyObject *object, PyObject *none)
{
  (void)none;
  writer_base *self = (writer_base *)object;
  if (self->stream == NULL) Py_RETURN_NONE;
  return stream_take_failure(self->stream);
}

PyObject *writer_end_episode(PyObject *object, PyObject *args)
{
  writer_base *self = (writer_base *)object;
  int clear_buffers;
  PyObject *timeout;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "pO:_end_episode", &clear_buffers, &timeout)) return NULL;
  if (core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0 || writer_check_made(object) < 0) return NULL;
  return stream_end_episode(self->stream, clear_buffers != 0, timeout_ms);
}

PyObject *writer_close(PyObject *object, PyObject *none)
{
  (void)none;
  writer_base *self = (writer_base *)object;
  if (self->stream == NULL) Py_RETURN_NONE;
  return stream_close(self->stream);
}

PyObject *writer_abandon(PyObject *object, PyObject *none)
{
  (void)none;
  writer_base *self = (writer_base *)object;
  return self->stream == NULL ? PyLong_FromLong(0) : stream_abandon(self->stream);
}

PyObject *writer_status(PyObject *object, PyObject *none)
{
  (void)none;
  writer_base *self = (writer_base *)object;
  return writer_check_made(object) < 0 ? NULL : stream_status(self->stream);
}

PyObject *writer_discard(PyObject *object, PyObject *none)
{
  (void)none;
  writer_base *self = (writer_base *)object;
  if (writer_enter(object) < 0) return NULL;
  size_t n = rv_writer_discard_failed(self->stream->writer);
  stream_leave(self->stream);
  return PyLong_FromSize_t(n);
}
