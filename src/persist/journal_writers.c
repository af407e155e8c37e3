#include "persist/journal_writers.h"

#include <stdlib.h>

enum { FIRST_BUCKETS = 64 };

void rv_journal_writers_init(rv_journal_writers *writers, uint64_t seed)
{
  *writers = (rv_journal_writers){.seed = seed};
  atomic_init(&writers->runs, 0);
}

static void free_writer(rv_journal_writer *writer)
{
  rv_done_set_fini(&writer->done);
  free(writer);
}

void rv_journal_writers_fini(rv_journal_writers *writers)
{
  for (size_t i = 0; i < writers->num_buckets; i++) {
    while (writers->buckets[i] != NULL) {
      rv_journal_writer *next = writers->buckets[i]->next;
      free_writer(writers->buckets[i]);
      writers->buckets[i] = next;
    }
  }
  free(writers->buckets);
  rv_journal_writers_init(writers, writers->seed);
}

void rv_journal_writers_move(rv_journal_writers *to, rv_journal_writers *from)
{
  rv_journal_writers_init(to, from->seed);
  to->buckets = from->buckets;
  to->num_buckets = from->num_buckets;
  to->count = from->count;
  atomic_init(&to->runs, atomic_load_explicit(&from->runs, memory_order_relaxed));
  for (size_t i = 0; i < to->num_buckets; i++)
    for (rv_journal_writer *writer = to->buckets[i]; writer != NULL; writer = writer->next)
      rv_done_set_move_account(&writer->done, &to->runs);
  rv_journal_writers_init(from, from->seed);
}

static size_t bucket_of(const rv_journal_writers *writers, const uint64_t id[2], size_t num_buckets)
{
  uint64_t hash = (id[0] ^ writers->seed) * UINT64_C(0x9E3779B97F4A7C15);
  hash = (hash ^ (hash >> 32) ^ id[1]) * UINT64_C(0xBF58476D1CE4E5B9);
  return (size_t)(hash ^ (hash >> 32)) & (num_buckets - 1);
}

/* Without memory the buckets stay as they are, only slower; there must be some. */
static bool grow(rv_journal_writers *writers)
{
  size_t num_buckets = writers->num_buckets == 0 ? FIRST_BUCKETS : 2 * writers->num_buckets;
  rv_journal_writer **grown = calloc(num_buckets, sizeof *grown);
  if (grown == NULL) return writers->num_buckets > 0;
  for (size_t i = 0; i < writers->num_buckets; i++) {
    for (rv_journal_writer *writer = writers->buckets[i], *next; writer != NULL; writer = next) {
      next = writer->next;
      rv_journal_writer **bucket = &grown[bucket_of(writers, writer->id, num_buckets)];
      writer->next = *bucket;
      *bucket = writer;
    }
  }
  free(writers->buckets);
  writers->buckets = grown;
  writers->num_buckets = num_buckets;
  return true;
}

rv_journal_writer *rv_journal_writers_get(rv_journal_writers *writers, const uint64_t id[2])
{
  if (writers->count >= writers->num_buckets && !grow(writers)) return NULL;
  rv_journal_writer **bucket = &writers->buckets[bucket_of(writers, id, writers->num_buckets)];
  for (rv_journal_writer *writer = *bucket; writer != NULL; writer = writer->next)
    if (writer->id[0] == id[0] && writer->id[1] == id[1]) return writer;
  rv_journal_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return NULL;
  writer->id[0] = id[0];
  writer->id[1] = id[1];
  rv_done_set_init(&writer->done, &writers->runs);
  writer->next = *bucket;
  *bucket = writer;
  writers->count++;
  return writer;
}

void rv_journal_writer_lose(rv_journal_writer *writer, bool over)
{
  rv_done_set_fini(&writer->done);
  writer->lost = true;
  writer->over |= over;
}

void rv_journal_writers_drop_over(rv_journal_writers *writers)
{
  for (size_t i = 0; i < writers->num_buckets; i++) {
    for (rv_journal_writer **at = &writers->buckets[i]; *at != NULL;) {
      rv_journal_writer *writer = *at;
      if (!writer->over) {
        at = &writer->next;
        continue;
      }
      *at = writer->next;
      free_writer(writer);
      writers->count--;
    }
  }
}

rv_journal_writer *rv_journal_writers_next(const rv_journal_writers *writers, const rv_journal_writer *after)
{
  if (after != NULL && after->next != NULL) return after->next;
  size_t i = after == NULL ? 0 : bucket_of(writers, after->id, writers->num_buckets) + 1;
  for (; i < writers->num_buckets; i++)
    if (writers->buckets[i] != NULL) return writers->buckets[i];
  return NULL;
}
