/* rv_table_info as a dict, which reverie.table_info makes a TableInfo of. */
#include "types.h"

static PyObject *text(const char *utf8)
{
  return PyUnicode_DecodeUTF8(utf8 == NULL ? "" : utf8, utf8 == NULL ? 0 : (Py_ssize_t)strlen(utf8), "replace");
}

static PyObject *shape_tuple(const rv_spec *spec)
{
  if (spec->rank < 0) Py_RETURN_NONE;
  PyObject *out = PyTuple_New(spec->rank);
  for (int32_t i = 0; out != NULL && i < spec->rank; i++) {
    PyObject *size = PyLong_FromLongLong(spec->shape[i]);
    if (size == NULL || PyTuple_SetItem(out, i, size) < 0) Py_CLEAR(out);
  }
  return out;
}

static PyObject *specs_list(const rv_signature *signature)
{
  PyObject *out = PyList_New(0);
  for (size_t i = 0; out != NULL && i < signature->num_specs; i++) {
    const rv_spec *spec = &signature->specs[i];
    PyObject *entry = Py_BuildValue("(NiN)", text(spec->name), (int)spec->dtype, shape_tuple(spec));
    if (entry == NULL || PyList_Append(out, entry) < 0) Py_CLEAR(out);
    Py_XDECREF(entry);
  }
  return out;
}

static PyObject *waiting_list(const rv_table_info *info)
{
  PyObject *out = PyList_New(0);
  for (size_t i = 0; out != NULL && i < info->num_waiting; i++) {
    const rv_waiting_caller *caller = &info->waiting[i];
    double remaining = caller->remaining_ns == INT64_MAX ? Py_HUGE_VAL : (double)caller->remaining_ns / 1e9;
    PyObject *entry = Py_BuildValue("(NiiLLd)", text(caller->peer),
                                    caller->is_insert   ? 0
                                    : caller->is_change ? 2
                                                        : 1,
                                    (int)caller->reason, (long long)caller->wanted, (long long)caller->waiting_ns, remaining);
    if (entry == NULL || PyList_Append(out, entry) < 0) Py_CLEAR(out);
    Py_XDECREF(entry);
  }
  return out;
}

PyObject *table_info_to_dict(const rv_table_info *info)
{
  const rv_rate_limiter_config *limiter = &info->rate_limiter;
  return Py_BuildValue("{s:N,s:(id),s:(id),s:L,s:i,s:(dddL),s:y#,s:N,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:d,s:d,s:L,s:(LLLLLL),s:N,"
                       "s:L,s:L,s:d,s:d,s:N,s:L,s:L}",
                       "name", text(info->name),                                                                                //
                       "sampler", (int)info->sampler.kind, info->sampler.priority_exponent,                                     //
                       "remover", (int)info->remover.kind, info->remover.priority_exponent,                                     //
                       "max_size", (long long)info->max_size, "max_times_sampled", (int)info->max_times_sampled,                //
                       "rate_limiter", limiter->samples_per_insert, limiter->min_diff, limiter->max_diff,                       //
                       (long long)limiter->min_size_to_sample,                                                                  //
                       "structure", info->signature.structure.data == NULL ? "" : (const char *)info->signature.structure.data, //
                       (Py_ssize_t)info->signature.structure.size,                                                              //
                       "specs", specs_list(&info->signature), "current_size", (long long)info->current_size,                    //
                       "num_episodes", (long long)info->num_episodes,                                                           //
                       "num_deleted_episodes", (long long)info->num_deleted_episodes,                                           //
                       "num_unique_samples", (long long)info->num_unique_samples,                                               //
                       "inserts", (long long)info->inserts, "samples", (long long)info->samples,                                //
                       "deletes", (long long)info->deletes, "updates", (long long)info->updates,                                //
                       "inserts_per_second", info->inserts_per_second, "samples_per_second", info->samples_per_second,          //
                       "memory_bytes", (long long)info->memory_bytes,                                                           //
                       "times_ns", (long long)info->running_ns, (long long)info->sampling_ns, (long long)info->inserting_ns,    //
                       (long long)info->sleeping_ns, (long long)info->waiting_for_sampling_ns,
                       (long long)info->waiting_for_inserts_ns,                                                         //
                       "waiting", waiting_list(info), "num_waiting_inserts", (long long)info->num_waiting_inserts,      //
                       "num_waiting_samples", (long long)info->num_waiting_samples, "min_priority", info->min_priority, //
                       "max_priority", info->max_priority, "extensions", text(info->extensions), "max_bytes",
                       (long long)info->max_bytes, "item_bytes", (long long)info->item_bytes);
}
