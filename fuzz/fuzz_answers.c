/* A server's bytes, to a client: whatever they are, each call gets its end, and every message that it gets before is whole. Inputs are
 * as frames.h says; the client has calls open on the streams 1, 3 and 5. */
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/lock.h"
#include "frames.h"
#include "net/net.h"

enum { CALLS = 3, PATIENCE_MS = 20000, HEARD_BYTES = 1 << 16 };

static struct {
  rv_loop *loop;
  int listener;
  struct sockaddr_un address;
  rv_mutex lock;
  rv_cond changed;
  int open; /* calls without an end */
} one;

static void say_nothing(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level, (void)line;
}

static void remove_socket(void)
{
  unlink(one.address.sun_path);
}

static const rv_env quiet = {.size = sizeof quiet, .log = say_nothing, .log_level = RV_LOG_ERROR};

static void start(void)
{
  rv_error err;
  rv_env env;
  rv_env_fill(&env, &quiet);
  RV_FUZZ_CHECK(rv_loop_new(&env, "fuzz", &one.loop, &err) == RV_OK);
  rv_mutex_init(&one.lock, RV_RANK_WAIT, "fuzz");
  rv_cond_init(&one.changed);
  one.address.sun_family = AF_UNIX;
  snprintf(one.address.sun_path, sizeof one.address.sun_path, "/tmp/rv_fuzz.%ld", (long)getpid());
  one.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  RV_FUZZ_CHECK(one.listener >= 0 && bind(one.listener, (const struct sockaddr *)&one.address, sizeof one.address) == 0);
  RV_FUZZ_CHECK(listen(one.listener, 8) == 0);
  atexit(remove_socket);
}

/* ---- calls ---- */

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  volatile uint8_t sum = 0;
  (void)call, (void)user;
  RV_FUZZ_CHECK(data >= buf->data && data + size <= buf->data + buf->size);
  for (size_t i = 0; i < size; i++) sum = (uint8_t)(sum + data[i]);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call, (void)user;
  RV_FUZZ_CHECK(code == RV_OK || message[0] != '\0');
  rv_mutex_lock(&one.lock);
  one.open--;
  rv_cond_broadcast(&one.changed);
  rv_mutex_unlock(&one.lock);
}

static const rv_call_events events = {.on_message = on_message, .on_close = on_close};

static void call_all(void *argument)
{
  const rv_call_config config = {.path = "/a.B/C", .deadline_ns = INT64_MAX};
  for (int i = 0; i < CALLS; i++) RV_FUZZ_CHECK(rv_channel_call(argument, &config, &events, NULL) != NULL);
}

/* ---- the server ---- */

static void answer(const frames *said)
{
  static uint8_t heard[HEARD_BYTES];
  RV_FUZZ_CHECK(frames_wait(one.listener, POLLIN));
  int fd = accept(one.listener, NULL, NULL);
  RV_FUZZ_CHECK(fd >= 0);
  if (frames_wait(fd, POLLIN)) (void)!recv(fd, heard, sizeof heard, 0); /* its greeting */
  for (size_t sent = 0; sent < said->size;) {
    ssize_t n = send(fd, said->bytes + sent, said->size - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += (size_t)n;
  }
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static uint8_t room[FRAMES_MOST];
  static const uint8_t settings[9] = {0, 0, 0, 4};
  static const char *const methods[] = {"/a.B/C"};
  if (one.loop == NULL) start();
  frames said = {.bytes = room, .in = data, .left = size};
  frames_put(&said, settings, sizeof settings);
  while (frames_next(&said, methods, 1)) {
  }
  char address[140];
  rv_error err;
  rv_channel *channel;
  snprintf(address, sizeof address, "unix:%s", one.address.sun_path);
  const rv_channel_config config = {.env = &quiet, .loop = one.loop, .address = address, .max_message_bytes = 1 << 16};
  RV_FUZZ_CHECK(rv_channel_new(&config, &channel, &err) == RV_OK);
  one.open = CALLS;
  rv_loop_call(one.loop, call_all, channel);
  answer(&said);
  rv_mutex_lock(&one.lock);
  while (one.open > 0) RV_FUZZ_CHECK(rv_cond_wait_for(&one.changed, &one.lock, (int64_t)PATIENCE_MS * 1000000));
  rv_mutex_unlock(&one.lock);
  rv_channel_free(channel);
  return 0;
}
