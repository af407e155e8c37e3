#include "client/explain.h"

#include <stdio.h>
#include <string.h>

#include "store/memory.h"
#include "store/rate_limiter.h"

/* For the answer: so long, no longer. */
#define ASK_SERVER_MS 80

/* An insert waits for room in what the journal has yet to write, or is in the table and waits for the disk: which of both the server does not say. */
static const char *journal_reason(const rv_server_info *server, bool insert, char *out, size_t capacity)
{
  bool fault = server->journal_fault[0] != '\0';
  snprintf(out, capacity, "waits for the server's journal%s%s%s", insert ? ", and may be in the table already" : "",
           fault ? ": " : "", server->journal_fault);
  return out;
}

static const char *memory_reason(const rv_memory_info *memory, char *out, size_t capacity)
{
  char used[32], limit[32], spilled[32], there[80] = "", fault[120] = "";
  if (memory->limit_bytes == 0) return "waits for the server's memory (memory_limit)"; /* it was changed, or not told */
  rv_memory_format((size_t)memory->used_bytes, used, sizeof used);
  rv_memory_format((size_t)memory->limit_bytes, limit, sizeof limit);
  rv_memory_format((size_t)memory->spilled_bytes, spilled, sizeof spilled);
  if (memory->spilled_bytes > 0) snprintf(there, sizeof there, ", and %s are in its spill file", spilled);
  if (memory->spill_fault[0] != '\0') snprintf(fault, sizeof fault, ", which takes no more: %s", memory->spill_fault);
  if (fault[0] != '\0' && there[0] == '\0') snprintf(there, sizeof there, ", and nothing is in its spill file");
  snprintf(out, capacity, "waits for the server's memory (memory_limit): %s of %s are used%s%s", used, limit, there, fault);
  return out;
}

/* What those wait for whom the limiter would let through; NULL: nothing that the server says. */
static const char *other_reason(const rv_server_info *server, const rv_table_info *info, bool insert, char *out, size_t capacity)
{
  for (size_t i = 0; i < info->num_waiting; i++) {
    if (info->waiting[i].is_insert != insert || info->waiting[i].is_change) continue;
    if (info->waiting[i].reason == RV_WAIT_JOURNAL) return journal_reason(server, insert, out, capacity);
    if (info->waiting[i].reason == RV_WAIT_MEMORY) return memory_reason(&server->memory, out, capacity);
  }
  return insert && server->journal_fault[0] != '\0' ? journal_reason(server, insert, out, capacity) : NULL;
}

static bool explain(const rv_server_info *server, const rv_table_info *info, bool insert, char *out, size_t capacity)
{
  char sentence[384];
  const rv_rate_limiter limiter = {.config = info->rate_limiter,
                                   .inserts = info->inserts,
                                   .samples = info->samples,
                                   .deletes = info->inserts - info->current_size};
  const char *what = sentence;
  if (rv_rate_limiter_explain(&limiter, insert, sentence, sizeof sentence) == RV_WAIT_NONE)
    what = !insert && info->current_size == 0 ? "waits for an item, has none"
                                              : other_reason(server, info, insert, sentence, sizeof sentence);
  if (what == NULL) return false;
  snprintf(out, capacity, "table \"%s\": %s %s", info->name, insert ? "inserting" : "sampling", what);
  return true;
}

bool rv_explain_journal(rv_client *client, char *out, size_t capacity)
{
  const rv_wait wait = {.timeout_ms = ASK_SERVER_MS};
  rv_server_info *info;
  rv_error err;
  out[0] = '\0';
  if (rv_client_server_info(client, &wait, &info, &err) != RV_OK) return false;
  snprintf(out, capacity, "%s", info->journal_fault);
  rv_server_info_free(info);
  return out[0] != '\0';
}

bool rv_explain_table(rv_client *client, const char *table, bool insert, char *out, size_t capacity)
{
  const rv_wait wait = {.timeout_ms = ASK_SERVER_MS};
  rv_server_info *info;
  rv_error err;
  bool explained = false;
  out[0] = '\0';
  if (rv_client_server_info(client, &wait, &info, &err) != RV_OK) return false;
  for (size_t i = 0; i < info->num_tables && !explained; i++)
    if (strcmp(info->tables[i].name, table) == 0) explained = explain(info, &info->tables[i], insert, out, capacity);
  rv_server_info_free(info);
  return explained;
}

void rv_explain_unknown(const char *path, const char *said, char *out, size_t capacity)
{
  const char *name = strrchr(path, '/');
  bool says = said != NULL && said[0] != '\0';
  snprintf(out, capacity, "the server does not know %s%s%.100s%s; is it a Reverie or Reverb server?",
           name != NULL ? name + 1 : path, says ? " (" : "", says ? said : "", says ? ")" : "");
}
