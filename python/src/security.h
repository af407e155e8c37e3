/* TLS and identities as reverie.security hands them over. Texts stay those of the Python objects, for the length of a call. */
#ifndef RV_PYTHON_SECURITY_H
#define RV_PYTHON_SECURITY_H

#include "core.h"
#include "scratch.h"

/* (certificate, key, authority, server_name, revocation_list). false: an error is set. */
bool security_tls(PyObject *tuple, rv_tls_config *out);
/* [(name, token, certificate_name, [(table, rights)])]. false: an error is set. */
bool security_identities(scratch *s, PyObject *list, const rv_identity **out, size_t *num_out);

#endif
