#include "client/batch_ahead.h"

#include <stdlib.h>
#include <string.h>

#define MILLISECOND INT64_C(1000000)
/* So many batches in a row are a habit; times are means of about so many. */
enum { HABIT = 3, SMOOTHED = 8 };
/* Ahead is what the caller's own work uses up in so long, so that what has come waits for him about as long; of what he himself waits
 * for, the server draws the more at a time the longer it makes him wait, as much as was asked for in ON_ITS_WAY_NS: so much less than
 * AGE_MAX_NS that a pause of his makes little too old. At least one batch, and at first not many more than have been given out: a habit that
 * ends soon has drawn little in vain. */
#define AHEAD_NS (50 * MILLISECOND)
#define AGE_MAX_NS (1000 * MILLISECOND)
#define ON_ITS_WAY_NS (AGE_MAX_NS * 2 / 5)
/* Of who asks more seldom what is drawn ahead would mostly be too old. */
#define INTERVAL_MAX_NS (AGE_MAX_NS / 2)
#define WAIT_MAX_NS (500 * MILLISECOND)
#define BYTES_MAX ((size_t)512 << 10) /* of a batch, and of all that is ahead: with many clients the caches hold no more */
enum { AHEAD_MAX = 1024 };

bool rv_batch_ahead_is_for(const rv_batch_ahead *ahead, const char *table)
{
  return ahead->table != NULL && strcmp(ahead->table, table) == 0;
}

void rv_batch_ahead_stop(rv_batch_ahead *ahead)
{
  rv_sampler_free(ahead->sampler);
  ahead->sampler = NULL;
  ahead->in_a_row = 0;
}

void rv_batch_ahead_fini(rv_batch_ahead *ahead)
{
  rv_batch_ahead_stop(ahead);
  free(ahead->table);
  ahead->table = NULL;
}

static int64_t smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static uint64_t changes_of(rv_client *client)
{
  return atomic_load_explicit(&client->changes, memory_order_acquire);
}

static int64_t within_age(int64_t ns)
{
  return ns < 0 ? 0 : smaller(ns, AGE_MAX_NS);
}

/* A caller begins before he has the stream: another thread may have been given a batch of it since, as may he himself by `fetch`, if less
 * than he wanted. Then he did nothing in between. */
static void note_time(rv_batch_ahead *ahead, int64_t now)
{
  int64_t since = within_age(now - ahead->asked_ns), own = within_age(now - ahead->given_ns);
  if (ahead->timed < SMOOTHED) ahead->timed++;
  ahead->interval_ns += (since - ahead->interval_ns) / ahead->timed;
  ahead->own_ns += (own - ahead->own_ns) / ahead->timed;
  ahead->asked_ns = now;
}

/* Samples to have on their way, at least one batch. */
static int64_t window(const rv_batch_ahead *ahead)
{
  const int64_t want = (int64_t)ahead->want;
  int64_t batches = smaller(AHEAD_NS / (ahead->own_ns + 1) + 1, ON_ITS_WAY_NS / (ahead->interval_ns + 1));
  batches = smaller(batches, 1 + 2 * ahead->handed_out / want);
  const int64_t most = smaller(AHEAD_MAX, (int64_t)(BYTES_MAX / (ahead->item_bytes + 1)));
  return larger(want, smaller(batches * want, most));
}

/* Out of memory: nothing is drawn ahead. */
static void begin(rv_batch_ahead *ahead, rv_client *client)
{
  ahead->losses = rv_client_losses(client);
  rv_sampler common = {.client = client,
                       .table = strdup(ahead->table),
                       .max_samples = INT64_MAX,
                       .num_streams = 1,
                       .max_samples_per_stream = INT64_MAX,
                       .rate_limiter_timeout_ns = INT64_MAX};
  if (common.table == NULL || rv_sampler_new_remote(&common, &ahead->sampler, NULL) != RV_OK) ahead->sampler = NULL;
}

typedef enum visibility { UNKNOWN, VISIBLE, INVISIBLE } visibility;

/* Can anybody see what is drawn ahead, as far as it is known lately? */
static visibility look_at(rv_client *client, const char *table)
{
  rv_tables *tables = rv_client_recent_tables(client);
  if (tables == NULL) return UNKNOWN;
  const rv_table_info *info;
  bool invisible = rv_tables_find(tables, table, &info, NULL) == RV_OK && rv_fetching_ahead_is_invisible(info);
  rv_tables_unref(tables);
  return invisible ? INVISIBLE : VISIBLE;
}

static bool is_of_use(const rv_batch_ahead *ahead, const char *table, size_t want)
{
  return want == ahead->want && rv_batch_ahead_is_for(ahead, table) && changes_of(ahead->sampler->client) == ahead->changes &&
         rv_client_losses(ahead->sampler->client) == ahead->losses;
}

/* What has got too old is dropped, and as much that is new is asked for: by who was kept from asking once, and waits. */
static bool begin_anew(rv_batch_ahead *ahead, const rv_patience *patience)
{
  rv_client *client = ahead->sampler->client;
  rv_batch_ahead_stop(ahead);
  if (ahead->interval_ns <= INTERVAL_MAX_NS && patience->deadline_ns > patience->begun_ns) begin(ahead, client);
  return ahead->sampler != NULL;
}

/* Of one that rests: it does once it is known again that nobody can tell. */
static bool try_to_resume(rv_batch_ahead *ahead)
{
  visibility seen = look_at(ahead->sampler->client, ahead->table);
  if (seen == VISIBLE) rv_batch_ahead_stop(ahead);
  if (seen == INVISIBLE) rv_remote_sampler_resume(ahead->sampler);
  return seen == INVISIBLE;
}

/* false: this batch needs a request of its own. */
static bool make_ready(rv_batch_ahead *ahead, const char *table, size_t want, const rv_patience *patience)
{
  if (ahead->sampler == NULL) return false;
  if (!is_of_use(ahead, table, want)) {
    rv_batch_ahead_stop(ahead);
    return false;
  }
  int64_t asked_ns;
  if (rv_remote_sampler_rests(ahead->sampler, &asked_ns)) return try_to_resume(ahead);
  return asked_ns > patience->begun_ns - AGE_MAX_NS || begin_anew(ahead, patience);
}

size_t rv_batch_ahead_fetch(rv_batch_ahead *ahead, const char *table, size_t want, rv_patience *patience, rv_draw *draws)
{
  int64_t now = patience->begun_ns;
  bool rests;
  if (!make_ready(ahead, table, want, patience)) return 0;
  note_time(ahead, now);
  /* Half of the caller's time is left for a request of its own, which can say what it waits for. */
  int64_t half = patience->deadline_ns == INT64_MAX ? WAIT_MAX_NS : (patience->deadline_ns - now) / 2;
  size_t count =
      rv_remote_sampler_take_many(ahead->sampler, window(ahead), want, draws, patience, now + smaller(half, WAIT_MAX_NS), &rests);
  ahead->handed_out += (int64_t)count;
  ahead->given_ns = rv_monotonic_ns(patience->env);
  if (count < want && !rests) rv_batch_ahead_stop(ahead);
  return count;
}

void rv_batch_ahead_note(rv_batch_ahead *ahead, rv_client *client, const char *table, size_t count, size_t bytes,
                         rv_patience *patience)
{
  uint64_t changes = changes_of(client);
  bool same = rv_batch_ahead_is_for(ahead, table) && ahead->want == count && ahead->changes == changes;
  if (!same) {
    rv_batch_ahead_stop(ahead);
    if (!rv_batch_ahead_is_for(ahead, table)) {
      free(ahead->table);
      ahead->table = strdup(table);
    }
    ahead->want = count;
    ahead->changes = changes;
    ahead->asked_ns = patience->begun_ns;
    ahead->interval_ns = ahead->own_ns = ahead->timed = 0;
    ahead->in_a_row = 1;
    ahead->given_ns = rv_monotonic_ns(patience->env);
    return;
  }
  if (patience->begun_ns != ahead->asked_ns) note_time(ahead, patience->begun_ns); /* else `fetch` did */
  ahead->given_ns = rv_monotonic_ns(patience->env);
  ahead->item_bytes = bytes / count;
  if (bytes > BYTES_MAX || ahead->interval_ns > INTERVAL_MAX_NS) {
    rv_batch_ahead_stop(ahead);
    return;
  }
  if (ahead->sampler != NULL || ++ahead->in_a_row < HABIT) return;
  visibility seen = look_at(client, table);
  if (seen == UNKNOWN) return; /* the next batch looks again */
  ahead->in_a_row = 0;
  ahead->handed_out = 0;
  if (seen == INVISIBLE) begin(ahead, client);
}
