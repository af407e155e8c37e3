/* What can be read off a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "store/forms.h"
#include "store/signature.h"
#include "store/table_parts.h"

enum { SHOWN_WAITING = RV_WAITING_SHOWN, SLICE = 512, DESCRIPTION = 1024, FAULTS = 256 };

/* ---- who waits ---- */

static const rv_waiter *oldest_of(const rv_waiting_group *group)
{
  return RV_CONTAINER(group->waiters.next, rv_waiter, of_group);
}

static void show_caller(const rv_table *table, const rv_waiting_group *group, bool first, int64_t now_ns, rv_waiting_caller *out)
{
  const rv_waiter *waiter = oldest_of(group);
  bool insert = waiter->kind != RV_OPERATION_SAMPLE;
  char unused[8];
  *out = (rv_waiting_caller){.id = waiter->id, .is_insert = insert, .reason = RV_WAIT_TURN};
  if (first) {
    out->reason = rv_rate_limiter_explain(&table->limiter, insert, unused, sizeof unused);
    if (out->reason == RV_WAIT_NONE && !insert && table->books.slab.count == 0) out->reason = RV_WAIT_EMPTY;
    if (out->reason == RV_WAIT_NONE && table->log != NULL && table->log->blocked) out->reason = RV_WAIT_JOURNAL;
    if (out->reason == RV_WAIT_NONE && insert && table->waits_for_memory) out->reason = RV_WAIT_MEMORY;
  }
  out->waiting_ns = now_ns > waiter->since_ns ? now_ns - waiter->since_ns : 0;
  out->remaining_ns = waiter->deadline_ns == INT64_MAX ? INT64_MAX
                      : waiter->deadline_ns > now_ns   ? waiter->deadline_ns - now_ns
                                                       : 0;
  out->wanted = group->count;
  if (waiter->kind == RV_OPERATION_ROWS) {
    const rv_rows *rows = RV_CONTAINER(waiter, rv_rows, waiter);
    out->wanted = (int64_t)(rows->n - rows->done);
  } else if (waiter->kind == RV_OPERATION_SAMPLE) {
    const rv_sampling *sampling = RV_CONTAINER(waiter, rv_sampling, waiter);
    out->wanted = (int64_t)(sampling->want - sampling->count);
  }
  snprintf(out->peer, sizeof out->peer, "%s", waiter->peer == NULL ? "in process" : waiter->peer);
}

/* So many at most, whoever is served next among them, in the order in which the oldest operation of each will be served. */
static size_t find_callers(const rv_link *groups, const rv_link *queue, const rv_waiting_group *out[SHOWN_WAITING])
{
  const rv_waiting_group *next = NULL;
  if (queue->next != queue) {
    rv_waiter *waiter = RV_CONTAINER(queue->next, rv_waiter, link);
    if (waiter->state == RV_WAITER_PENDING) next = rv_waiter_group(waiter);
  }
  size_t n = 0;
  if (next != NULL) out[n++] = next;
  for (const rv_link *link = groups->next; link != groups && n < SHOWN_WAITING; link = link->next) {
    const rv_waiting_group *group = RV_CONTAINER(link, rv_waiting_group, link);
    if (group == next) continue;
    size_t at = n++;
    for (; at > 0 && oldest_of(out[at - 1])->id > oldest_of(group)->id; at--) out[at] = out[at - 1];
    out[at] = group;
  }
  return n;
}

static size_t smaller(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* The queues are served in turns, so they are shown in turns. */
static size_t show_waiting(const rv_table *table, int64_t now_ns, rv_waiting_caller *out)
{
  const rv_link *queues[2] = {&table->inserts, &table->samples}, *groups[2] = {&table->inserters, &table->samplers};
  const rv_waiting_group *callers[2][SHOWN_WAITING];
  size_t found[2], n = 0;
  for (int q = 0; q < 2; q++) found[q] = find_callers(groups[q], queues[q], callers[q]);
  for (size_t i = 0; i < SHOWN_WAITING && n < smaller(found[0] + found[1], SHOWN_WAITING); i++)
    for (int q = 0; q < 2 && n < SHOWN_WAITING; q++) {
      if (i >= found[q]) continue;
      bool first = queues[q]->next == &oldest_of(callers[q][i])->link;
      show_caller(table, callers[q][i], first, now_ns, &out[n++]);
    }
  return n;
}

/* ---- the rest ---- */

/* True: that hold's chunk is of no episode, and has no item. */
static bool is_unused(const rv_hold *hold, size_t *unused)
{
  if (hold == NULL || hold->items > 0 || hold->chunk->meta.episode_id != RV_NO_EPISODE) return false;
  ++*unused;
  return true;
}

/* Rows without an episode count as one. Segments that more of them go into are held without items, too: are there no others? Of very many,
 * all without items, nobody looks at the rest. */
static bool has_only_unused_rows(const rv_table *table)
{
  const rv_books *books = &table->books;
  const uint32_t *all = rv_map_get(&books->episodes, RV_NO_EPISODE);
  size_t unused = 0;
  if (all == NULL) return false;
  for (size_t i = 0; i < RV_MAX_FORMS && table->forms[i] != NULL; i++) {
    if (table->forms[i]->epoch == books->epoch) is_unused(table->forms[i]->hold, &unused);
    if (table->forms[i]->large_epoch == books->epoch) is_unused(table->forms[i]->large, &unused);
  }
  is_unused(table->compact_into, &unused);
  for (size_t size = 0; size < RV_SIZE_CLASSES; size++) {
    const rv_link *list = &books->placed[size];
    if ((books->placed_some[size / 64] >> size % 64 & 1) == 0) continue;
    for (const rv_link *link = list->next; link != list; link = link->next)
      if (!is_unused(RV_CONTAINER(link, rv_hold, placed), &unused) || unused == SLICE) return false;
  }
  return unused == *all;
}

/* Rows of an episode were to move there, and have all gone: has it no others? */
static bool has_only_room_to_move_to(const rv_table *table)
{
  const rv_hold *hold = table->compact_into;
  if (hold == NULL || hold->items > 0 || hold->chunk->meta.episode_id == RV_NO_EPISODE) return false;
  return *rv_map_get(&table->books.episodes, hold->chunk->meta.episode_id) == 1;
}

static int64_t count_episodes(const rv_table *table)
{
  if (table->books.slab.count == 0) return 0;
  const int64_t empty = (has_only_unused_rows(table) ? 1 : 0) + (has_only_room_to_move_to(table) ? 1 : 0);
  return (int64_t)table->books.episodes.count - empty;
}

static void show_counts(const rv_table *table, rv_table_info *out)
{
  const rv_books *books = &table->books;
  out->max_size = table->config.max_size;
  out->max_times_sampled = table->config.max_times_sampled;
  out->max_bytes = table->config.max_bytes;
  out->rate_limiter = table->limiter.config;
  out->current_size = (int64_t)books->slab.count;
  out->num_episodes = count_episodes(table);
  out->num_deleted_episodes = books->episodes_gone;
  out->num_unique_samples = table->num_unique_samples;
  out->inserts = table->limiter.inserts;
  out->samples = table->limiter.samples;
  out->deletes = table->limiter.deletes;
  out->updates = table->updates;
  out->memory_bytes = (int64_t)(sizeof *table + books->chunk_memory + rv_books_memory(books) + rv_pick_memory(&table->sampler) +
                                rv_pick_memory(&table->remover) + rv_spares_memory(table));
  out->item_bytes = (int64_t)rv_books_of_items(books);
  out->num_waiting_inserts = table->pending_inserts;
  out->num_waiting_samples = table->pending_samples;
}

static rv_code copy_text(const char *text, char **out)
{
  if (text == NULL) return RV_OK;
  size_t size = strlen(text) + 1;
  *out = malloc(size);
  if (*out == NULL) return RV_RESOURCE_EXHAUSTED;
  memcpy(*out, text, size);
  return RV_OK;
}

static rv_code copy_selector(const rv_selector_config *from, rv_selector_config *to)
{
  char *name = NULL, *options = NULL;
  rv_code code = copy_text(from->name, &name);
  if (code == RV_OK) code = copy_text(from->options, &options);
  *to = (rv_selector_config){.kind = from->kind, .priority_exponent = from->priority_exponent, .name = name, .options = options};
  return code;
}

static rv_code copy_signature(const rv_signature *from, rv_signature *to)
{
  if (from->num_specs == 0 && from->structure.size == 0) return RV_OK;
  rv_signature *copy = rv_signature_copy(from);
  if (copy == NULL) return RV_RESOURCE_EXHAUSTED;
  *to = *copy; /* the specs stand at copy + 1: rv_table_info_fini goes back from there */
  return RV_OK;
}

static rv_code copy_texts(const rv_table *table, rv_table_info *out)
{
  rv_code code = copy_text(table->name, &out->name);
  if (code == RV_OK) code = copy_selector(&table->config.sampler, &out->sampler);
  if (code == RV_OK) code = copy_selector(&table->config.remover, &out->remover);
  if (code == RV_OK) code = copy_signature(table->signature, &out->signature);
  if (code != RV_OK) return code;
  out->waiting = malloc(SHOWN_WAITING * sizeof *out->waiting);
  out->extensions = malloc(table->num_extensions * DESCRIPTION + FAULTS + 1);
  if (out->waiting == NULL || out->extensions == NULL) return RV_RESOURCE_EXHAUSTED;
  out->extensions[0] = '\0';
  return RV_OK;
}

/* A selector that was registered and misbehaves costs nothing but its own choice; nobody would notice it. */
static void describe_faults(const rv_table *table, char *out)
{
  uint64_t sampler = rv_pick_faults(&table->sampler), remover = rv_pick_faults(&table->remover);
  if (sampler + remover == 0) return;
  snprintf(
      out, FAULTS,
      "selectors: chance chose instead of the sampler %llu times and of the remover %llu times, as they named an item that is "
      "not there or a probability outside [0, 1]\n",
      (unsigned long long)sampler, (unsigned long long)remover);
}

static void describe_extensions(rv_table *table, char *out)
{
  for (size_t i = 0; i < table->num_extensions; i++) {
    if (rv_extension_describe(&table->extensions[i], out, DESCRIPTION - 1) == 0) continue;
    rv_utf8_repair(out); /* it may be cut, and clients refuse what is no text, with all that is said of the server */
    out += strlen(out);
    *out++ = '\n';
    *out = '\0';
  }
  describe_faults(table, out);
}

rv_code rv_table_get_info(rv_table *table, rv_table_info *out, rv_error *err)
{
  *out = (rv_table_info){.size = sizeof *out};
  rv_code code = copy_texts(table, out);
  if (code != RV_OK) {
    rv_table_info_fini(out);
    return rv_fail_memory(err, SHOWN_WAITING * sizeof *out->waiting);
  }
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_table_find_extremes(&turn, &out->min_priority, &out->max_priority); /* before what must be of one hold, this among it */
  int64_t now = rv_monotonic_ns(table->env); /* with the lock: nothing that is told with it began later */
  rv_table_count_books(table);
  show_counts(table, out);
  rv_rates_report(table, now, out);
  out->num_waiting = show_waiting(table, now, out->waiting);
  if (table->num_events > 0) rv_table_tell(&turn);
  describe_extensions(table, out->extensions);
  rv_turn_end(&turn);
  return RV_OK;
}

static void free_text(const char *text)
{
  free((char *)(uintptr_t)text);
}

void rv_table_info_fini(rv_table_info *info)
{
  free(info->name);
  free_text(info->sampler.name);
  free_text(info->sampler.options);
  free_text(info->remover.name);
  free_text(info->remover.options);
  if (info->signature.specs != NULL) free((rv_signature *)(uintptr_t)info->signature.specs - 1);
  free(info->waiting);
  free(info->extensions);
  *info = (rv_table_info){.size = sizeof *info};
}

bool rv_table_can_sample(rv_table *table, int64_t n)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  bool can = table->books.slab.count > 0 && rv_rate_limiter_can_sample(&table->limiter, n);
  rv_turn_end(&turn);
  return can;
}

bool rv_table_can_insert(rv_table *table, int64_t n)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  bool can = rv_rate_limiter_can_insert(&table->limiter, n);
  rv_turn_end(&turn);
  return can;
}

int64_t rv_table_num_inserts(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  int64_t inserts = table->rates.inserts;
  rv_turn_leave(&turn);
  return inserts;
}
