/* What a configuration that was read again has otherwise than the one that is served, where only a restart brings it. */
#ifndef RV_TOOL_DIFFERENCES_H
#define RV_TOOL_DIFFERENCES_H

#include "settings.h"

/* Puts their names into `out`: `port, tls_key, table "replay"`, as many as it has room for, and how many more there are. false: there
 * is none. Identities are not looked at: they are taken without a restart. Both were finished. */
bool differences_name(const settings *served, const settings *again, char *out, size_t size);

#endif
