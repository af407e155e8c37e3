#include "security.h"

bool security_tls(PyObject *tuple, rv_tls_config *out)
{
  PyObject *certificate, *key, *authority, *revocation;
  *out = (rv_tls_config){.size = sizeof *out};
  return PyArg_ParseTuple(tuple, "OOOzO:tls", &certificate, &key, &authority, &out->server_name, &revocation) != 0 &&
         core_path(certificate, "certificate", &out->certificate_file) && core_path(key, "key", &out->key_file) &&
         core_path(authority, "authority", &out->authority_file) &&
         core_path(revocation, "revocation_list", &out->revocation_file);
}

static bool read_grants(scratch *s, PyObject *list, rv_identity *identity)
{
  identity->num_grants = (size_t)PyList_Size(list);
  rv_grant *grants = scratch_alloc(s, identity->num_grants, sizeof *grants);
  if (grants == NULL) return false;
  for (size_t i = 0; i < identity->num_grants; i++)
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "zI:grant", &grants[i].table, &grants[i].rights)) return false;
  identity->grants = grants;
  return true;
}

bool security_identities(scratch *s, PyObject *list, const rv_identity **out, size_t *num_out)
{
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "identities must be a list or None");
    return false;
  }
  size_t count = (size_t)PyList_Size(list);
  rv_identity *identities =
      scratch_alloc(s, count + 1, sizeof *identities); /* never NULL: none at all means that nobody may call */
  if (identities == NULL) return false;
  for (size_t i = 0; i < count; i++) {
    PyObject *grants;
    rv_identity *identity = &identities[i];
    *identity = (rv_identity){0};
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "szzO!:identity", &identity->name, &identity->token,
                          &identity->certificate_name, &PyList_Type, &grants) ||
        !read_grants(s, grants, identity))
      return false;
  }
  *out = identities;
  *num_out = count;
  return true;
}
