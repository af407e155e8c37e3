#include "net/resolver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

struct rv_lookup {
  atomic_uint refs; /* its thread's and the loop's */
  rv_loop *loop;
  void (*done)(void *user, struct addrinfo *owned_list, const char *why);
  void *user;
  rv_task task;   /* tells the loop */
  rv_mutex lock;  /* guards the rest */
  bool cancelled; /* from here on the loop may be gone */
  bool posted;    /* the task is on its way */
  int status, error;
  struct addrinfo *list;
  char host[];
};

static void unref(rv_lookup *lookup)
{
  if (atomic_fetch_sub_explicit(&lookup->refs, 1, memory_order_acq_rel) != 1) return;
  if (lookup->list != NULL) freeaddrinfo(lookup->list);
  rv_mutex_fini(&lookup->lock);
  free(lookup);
}

static void *look_up(void *argument)
{
  rv_lookup *lookup = argument;
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
#ifdef AI_IDN
  hints.ai_flags = AI_IDN; /* for names that are not of ASCII */
#endif
  int status = getaddrinfo(lookup->host, NULL, &hints, &list), error = errno;
  rv_mutex_lock(&lookup->lock);
  lookup->status = status;
  lookup->error = error;
  lookup->list = status == 0 ? list : NULL;
  lookup->posted = !lookup->cancelled;
  if (lookup->posted) rv_loop_post(lookup->loop, &lookup->task);
  rv_mutex_unlock(&lookup->lock);
  unref(lookup);
  return NULL;
}

static const char *problem_of(const rv_lookup *lookup)
{
  if (lookup->status == 0) return lookup->list == NULL ? "it has no address" : NULL;
  return lookup->status == EAI_SYSTEM ? strerror(lookup->error) : gai_strerror(lookup->status);
}

static void tell(rv_task *task)
{
  rv_lookup *lookup = RV_CONTAINER(task, rv_lookup, task);
  /* Its thread holds this while it posts: the loop, which may end after this, is not touched any more. */
  rv_mutex_lock(&lookup->lock);
  bool wanted = !lookup->cancelled;
  rv_mutex_unlock(&lookup->lock);
  if (wanted) {
    struct addrinfo *list = lookup->list;
    lookup->list = NULL;
    lookup->done(lookup->user, list, list == NULL ? problem_of(lookup) : NULL);
  }
  unref(lookup);
}

/* Nobody waits for it to end. */
static bool start_thread(rv_lookup *lookup)
{
  pthread_t thread;
  if (rv_thread_start(&thread, "rv-resolve", look_up, lookup) != 0) return false;
  pthread_detach(thread);
  return true;
}

rv_lookup *rv_lookup_start(rv_loop *loop, const char *host,
                           void (*done)(void *user, struct addrinfo *owned_list, const char *why), void *user)
{
  RV_LOOP_CHECK(loop);
  size_t size = strlen(host) + 1;
  rv_lookup *lookup = calloc(1, sizeof *lookup + size);
  if (lookup == NULL) return NULL;
  memcpy(lookup->host, host, size);
  atomic_init(&lookup->refs, 2);
  lookup->loop = loop;
  lookup->done = done;
  lookup->user = user;
  rv_task_init(&lookup->task, tell);
  rv_mutex_init(&lookup->lock, RV_RANK_LOOKUP, "lookup");
  if (start_thread(lookup)) return lookup;
  rv_mutex_fini(&lookup->lock);
  free(lookup);
  return NULL;
}

void rv_lookup_cancel(rv_lookup *lookup)
{
  RV_LOOP_CHECK(lookup->loop);
  rv_mutex_lock(&lookup->lock);
  lookup->cancelled = true;
  bool posted = lookup->posted;
  rv_mutex_unlock(&lookup->lock);
  if (!posted) unref(lookup); /* else the task does */
}
