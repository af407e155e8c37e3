#include "client/untold.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct rv_untold {
  rv_untold *next;
  rv_error failure;
  char table[];
};

static rv_untold **find(rv_client *client, const char *table)
{
  rv_untold **at = &client->untold;
  while (*at != NULL && strcmp((*at)->table, table) != 0) at = &(*at)->next;
  return at;
}

/* false: there is one of that table. */
static bool keep(rv_client *client, rv_untold *untold)
{
  rv_mutex_lock(&client->mutex);
  rv_untold **at = find(client, untold->table);
  bool kept = *at == NULL;
  if (kept) *at = untold;
  rv_mutex_unlock(&client->mutex);
  return kept;
}

static void log_failure(const rv_client *client, const rv_error *failure)
{
  rv_log(&client->env, RV_LOG_WARNING, "no call has told of this: %s", failure->message);
}

void rv_untold_note(rv_client *client, const char *table, size_t drawn, size_t wanted, const rv_error *failure)
{
  rv_error said;
  rv_fail(&said, failure->code,
          "the batch before this call, from table \"%s\", came with %zu of %zu items, because this failed: %s", table, drawn,
          wanted, failure->message);
  size_t size = strlen(table) + 1;
  rv_untold *untold = malloc(sizeof *untold + size);
  if (untold == NULL) {
    log_failure(client, &said);
    return;
  }
  untold->next = NULL;
  untold->failure = said;
  memcpy(untold->table, table, size);
  if (!keep(client, untold)) free(untold);
}

rv_untold *rv_untold_take(rv_client *client, const char *table)
{
  rv_untold **at = find(client, table), *found = *at;
  if (found != NULL) *at = found->next;
  return found;
}

rv_code rv_untold_tell(rv_untold *owned, rv_error *err)
{
  rv_code code = rv_error_copy(err, &owned->failure);
  free(owned);
  return code;
}

void rv_untold_fini(rv_client *client)
{
  while (client->untold != NULL) {
    rv_untold *untold = client->untold;
    client->untold = untold->next;
    log_failure(client, &untold->failure);
    free(untold);
  }
}
