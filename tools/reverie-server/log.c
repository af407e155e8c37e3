#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/thread.h"

enum { MAX_BYTES = 4 << 20, MAX_LINE = 8192, END_SECONDS = 1, SLOW_END_SECONDS = 10, SECOND_NS = 1000000000 };

typedef struct waiting_line {
  struct waiting_line *next;
  uint64_t left_out; /* before it */
  size_t size;
  char text[];
} waiting_line;

struct server_log {
  rv_mutex lock; /* RV_RANK_LOG: nothing is waited for under it, and whoever logs may hold any other */
  rv_cond more, done;
  pthread_t thread;
  bool threaded; /* false: it could not be started, and lines are written by whoever has them */
  rv_log_level level;
  waiting_line *first, **last;
  size_t bytes;      /* of the lines that wait, with the one that is being written */
  uint64_t left_out; /* after the last of them */
  bool ending, ended;
};

/* ---- stderr ---- */

/* false: it takes nothing any more. */
static bool put(const char *text, size_t size)
{
  while (size > 0) {
    ssize_t wrote = write(STDERR_FILENO, text, size);
    if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
      if (poll(&writable, 1, -1) < 0 && errno != EINTR) return false;
    } else if (wrote < 0 && errno != EINTR) {
      return false;
    } else if (wrote > 0) {
      text += wrote;
      size -= (size_t)wrote;
    }
  }
  return true;
}

static size_t format_line(char *out, size_t size, rv_log_level level, const char *line)
{
  static const char *const names[] = {"debug", "info", "warning", "error"};
  struct timespec now;
  struct tm utc;
  char stamp[32] = "";
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  int length = snprintf(out, size, "%s.%03dZ %s: %s", stamp, (int)(now.tv_nsec / 1000000), names[level], line);
  size_t end = length < 0 ? 0 : (size_t)length < size - 1 ? (size_t)length : size - 2;
  out[end] = '\n';
  return end + 1;
}

static bool put_left_out(uint64_t lines)
{
  char line[80], text[160];
  snprintf(line, sizeof line, "%" PRIu64 " line%s left out here: stderr took no more", lines, lines == 1 ? " was" : "s were");
  return put(text, format_line(text, sizeof text, RV_LOG_WARNING, line));
}

/* ---- the thread ---- */

/* Under the lock, which it lets go of meanwhile. `lost`: lines that stderr refused; what was left out is told once it takes some again. */
static void write_next(server_log *log, uint64_t *lost)
{
  waiting_line *next = log->first;
  uint64_t left_out = *lost;
  if (next != NULL) {
    left_out += next->left_out;
    log->first = next->next;
    if (log->first == NULL) log->last = &log->first;
  } else {
    left_out += log->left_out;
    log->left_out = 0;
  }
  rv_mutex_unlock(&log->lock);
  *lost = left_out > 0 && !put_left_out(left_out) ? left_out : 0;
  if (next != NULL && !put(next->text, next->size)) ++*lost;
  rv_mutex_lock(&log->lock);
  if (next != NULL) log->bytes -= next->size;
  free(next);
}

static void *run(void *argument)
{
  server_log *log = argument;
  uint64_t lost = 0;
  rv_mutex_lock(&log->lock);
  while (log->first != NULL || log->left_out > 0 || !log->ending) {
    if (log->first != NULL || log->left_out > 0)
      write_next(log, &lost);
    else
      rv_cond_wait(&log->more, &log->lock);
  }
  log->ended = true;
  rv_cond_signal(&log->done);
  rv_mutex_unlock(&log->lock);
  return NULL;
}

/* ---- life ---- */

server_log *log_begin(void)
{
  server_log *log = calloc(1, sizeof *log);
  if (log == NULL) return NULL;
  rv_mutex_init(&log->lock, RV_RANK_LOG, "log");
  rv_cond_init(&log->more);
  rv_cond_init(&log->done);
  log->last = &log->first;
  log->threaded = rv_thread_start(&log->thread, "rv-log", run, log) == 0;
  return log;
}

static bool takes_something(void)
{
  struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
  return poll(&writable, 1, 0) != 0;
}

/* Where stderr does take lines, and only the thread has not had its turn on a busy machine, it gets more time. */
static bool wait_for_end(server_log *log)
{
  for (int second = 0; !log->ended && (second < END_SECONDS || (second < SLOW_END_SECONDS && takes_something())); second++)
    while (!log->ended && rv_cond_wait_for(&log->done, &log->lock, SECOND_NS)) continue;
  return log->ended;
}

void log_end(server_log *log)
{
  if (log == NULL) return;
  rv_mutex_lock(&log->lock);
  log->ending = true;
  rv_cond_signal(&log->more);
  bool ended = !log->threaded || wait_for_end(log);
  rv_mutex_unlock(&log->lock);
  if (!ended) return; /* its thread is in a write that nobody can end but the process */
  if (log->threaded) pthread_join(log->thread, NULL);
  rv_cond_fini(&log->more);
  rv_cond_fini(&log->done);
  rv_mutex_fini(&log->lock);
  free(log);
}

/* ---- lines ---- */

void log_set_level(server_log *log, rv_log_level level)
{
  log->level = level;
}

static void queue_line(server_log *log, const char *text, size_t size)
{
  waiting_line *one = malloc(sizeof *one + size);
  if (one != NULL) memcpy(one->text, text, size);
  rv_mutex_lock(&log->lock);
  if (one == NULL || log->bytes + size > MAX_BYTES) {
    log->left_out++;
    free(one);
  } else {
    one->next = NULL;
    one->left_out = log->left_out;
    one->size = size;
    log->left_out = 0;
    log->bytes += size;
    *log->last = one;
    log->last = &one->next;
  }
  rv_cond_signal(&log->more);
  rv_mutex_unlock(&log->lock);
}

void log_line(void *context, rv_log_level level, const char *line)
{
  server_log *log = context;
  if (level < log->level) return;
  char text[MAX_LINE + 64];
  size_t size = format_line(text, sizeof text, level, line);
  if (log->threaded)
    queue_line(log, text, size);
  else
    put(text, size);
}

void log_say(server_log *log, rv_log_level level, const char *format, ...)
{
  char line[MAX_LINE];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  log_line(log, level, line);
}
