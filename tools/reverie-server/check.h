/* Whether tables, identities and certificates would be taken, without a server. What is wrong with all of them together (two tables of
 * one name) comes of one of them, and the error begins with where that was given. */
#ifndef RV_TOOL_CHECK_H
#define RV_TOOL_CHECK_H

#include "settings.h"

bool has_tls(const settings *all);
rv_tls_config tls_of(const settings *all);

/* Makes the store empty, to free it again. */
rv_code check_tables(const settings *all, const rv_env *env, rv_error *err);
rv_code check_identities(const settings *all, rv_error *err);
rv_code check_tls(const settings *all, rv_error *err);
/* Where the journal, the spill and the files of sockets go, as far as that can be seen without making anything. */
rv_code check_disks(const settings *all, rv_error *err);

#endif
