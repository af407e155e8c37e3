/* Decoded columns in the order of their last use, the oldest leaving first. Whoever reads one holds a reference of its own, so
 * that leaving the cache frees nothing under a reader. A child that was forked, perhaps while another thread had the lock, has no cache. */
#include <stdlib.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/maker.h"
#include "store/chunk_parts.h"

enum { FREED_AT_ONCE = 16 };

struct rv_decode_cache {
  atomic_size_t refs;
  size_t max_bytes;
  rv_maker maker; /* whose it is */
  rv_mutex mutex; /* what follows, and every entry */
  size_t bytes;
  rv_link entries;
};

static size_t cost(const rv_buf *buf)
{
  return sizeof *buf + buf->capacity;
}

rv_code rv_decode_cache_new(size_t max_bytes, rv_decode_cache **out, rv_error *err)
{
  rv_decode_cache *cache = malloc(sizeof *cache);
  if (cache == NULL) return rv_fail_memory(err, sizeof *cache);
  atomic_init(&cache->refs, 1);
  cache->max_bytes = max_bytes;
  cache->bytes = 0;
  rv_maker_init(&cache->maker);
  rv_mutex_init(&cache->mutex, RV_RANK_CHUNK, "decode cache");
  rv_list_init(&cache->entries);
  *out = cache;
  return RV_OK;
}

rv_decode_cache *rv_decode_cache_ref(rv_decode_cache *cache)
{
  atomic_fetch_add_explicit(&cache->refs, 1, memory_order_relaxed);
  return cache;
}

void rv_decode_cache_unref(rv_decode_cache *cache)
{
  if (cache == NULL || atomic_fetch_sub_explicit(&cache->refs, 1, memory_order_acq_rel) != 1) return;
  rv_mutex_fini(&cache->mutex); /* every chunk in it held a reference, so it is empty */
  rv_maker_fini(&cache->maker);
  free(cache);
}

rv_buf *rv_decode_cache_get(rv_decode_cache *cache, rv_decoded *entry)
{
  if (!rv_maker_is_this_process(&cache->maker)) return NULL;
  rv_mutex_lock(&cache->mutex);
  rv_buf *buf = entry->buf;
  if (buf != NULL) {
    rv_buf_ref(buf);
    rv_list_remove(&entry->link);
    rv_list_push_back(&cache->entries, &entry->link);
  }
  rv_mutex_unlock(&cache->mutex);
  return buf;
}

static rv_buf *take_out(rv_decode_cache *cache, rv_decoded *entry)
{
  rv_buf *buf = entry->buf;
  entry->buf = NULL;
  rv_list_remove(&entry->link);
  cache->bytes -= cost(buf);
  return buf;
}

/* Makes room, a few at a time so that freeing stays outside the lock. */
static void make_room(rv_decode_cache *cache, size_t bytes)
{
  rv_buf *freed[FREED_AT_ONCE];
  size_t n;
  do {
    n = 0;
    while (n < FREED_AT_ONCE && cache->bytes > cache->max_bytes - bytes && !rv_list_empty(&cache->entries))
      freed[n++] = take_out(cache, RV_CONTAINER(cache->entries.next, rv_decoded, link));
    if (n == 0) return;
    rv_mutex_unlock(&cache->mutex);
    for (size_t i = 0; i < n; i++) rv_buf_unref(freed[i]);
    rv_mutex_lock(&cache->mutex);
  } while (n == FREED_AT_ONCE);
}

rv_buf *rv_decode_cache_put(rv_decode_cache *cache, rv_decoded *entry, rv_buf *owned_buf)
{
  size_t bytes = cost(owned_buf);
  if (bytes > cache->max_bytes || !rv_maker_is_this_process(&cache->maker)) return owned_buf;
  rv_buf *use = owned_buf;
  rv_mutex_lock(&cache->mutex);
  make_room(cache, bytes);
  if (entry->buf != NULL) {
    use = rv_buf_ref(entry->buf);
  } else if (cache->bytes <= cache->max_bytes - bytes) {
    entry->buf = rv_buf_ref(owned_buf);
    entry->joined = true;
    rv_list_push_back(&cache->entries, &entry->link);
    cache->bytes += bytes;
  }
  rv_mutex_unlock(&cache->mutex);
  if (use != owned_buf) rv_buf_unref(owned_buf);
  return use;
}

void rv_decode_cache_forget(rv_decode_cache *cache, rv_decoded *entry)
{
  if (!entry->joined || !rv_maker_is_this_process(&cache->maker)) return;
  rv_mutex_lock(&cache->mutex);
  rv_buf *buf = entry->buf == NULL ? NULL : take_out(cache, entry);
  rv_mutex_unlock(&cache->mutex);
  rv_buf_unref(buf);
}

size_t rv_decode_cache_bytes(rv_decode_cache *cache)
{
  rv_mutex_lock(&cache->mutex);
  size_t bytes = cache->bytes;
  rv_mutex_unlock(&cache->mutex);
  return bytes;
}
