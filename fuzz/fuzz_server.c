/* A client's bytes, to a whole server: whatever they are, the connection ends when the client goes, the table's counts are right, and
 * what waited for the client is gone. One server has all inputs, one after another. Inputs are as frames.h says. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "frames.h"
#include "reverie/reverie.h"
#include "store/store.h"

#define REVERB "/deepmind.reverb.ReverbService/"

static const char *const methods[] = {REVERB "InsertStream",
                                      REVERB "SampleStream",
                                      REVERB "MutatePriorities",
                                      REVERB "ServerInfo",
                                      REVERB "InitializeConnection",
                                      REVERB "Reset",
                                      REVERB "Checkpoint",
                                      "/reverie.Reverie/Items",
                                      "/reverie.Reverie/Get",
                                      "/reverie.Reverie/SetRateLimiter",
                                      "/grpc.health.v1.Health/Check",
                                      "/grpc.health.v1.Health/Watch"};

static struct {
  rv_store *store;
  rv_server *server;
  struct sockaddr_un address;
} one;

static void say_nothing(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level, (void)line;
}

static void remove_socket(void)
{
  unlink(one.address.sun_path);
}

static void start(void)
{
  rv_error err;
  const rv_env env = {.size = sizeof env, .log = say_nothing, .log_level = RV_LOG_ERROR};
  rv_table_config tables[2] = {rv_table_config_default("t", 100), rv_table_config_default("queue", 3)};
  tables[1].rate_limiter = rv_rate_limiter_queue(3);
  tables[1].sampler.kind = tables[1].remover.kind = RV_SELECTOR_FIFO;
  tables[1].max_times_sampled = 1;
  rv_store_config store = {.size = sizeof store, .env = &env, .tables = tables, .num_tables = 2};
  RV_FUZZ_CHECK(rv_store_new(&store, &one.store, &err) == RV_OK);
  char address[140];
  one.address.sun_family = AF_UNIX;
  snprintf(one.address.sun_path, sizeof one.address.sun_path, "/tmp/rv_fuzz.%ld", (long)getpid());
  snprintf(address, sizeof address, "unix:%s", one.address.sun_path);
  const char *const addresses[] = {address};
  rv_server_config server = {.size = sizeof server,
                             .store = one.store,
                             .addresses = addresses,
                             .num_addresses = 1,
                             .io_threads = 1,
                             .max_message_bytes = 1 << 20,
                             .max_stream_chunk_bytes = 1 << 20,
                             .max_orphan_bytes = 1 << 20,
                             .max_writer_sessions = 100};
  RV_FUZZ_CHECK(rv_server_new(&server, &one.server, &err) == RV_OK);
  atexit(remove_socket);
}

/* Sends all of it, reads and forgets what comes, says that no more will follow, and reads to the end, which must come. */
static void exchange(const frames *said)
{
  static uint8_t heard[1 << 16];
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  RV_FUZZ_CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&one.address, sizeof one.address) == 0);
  for (size_t sent = 0; sent < said->size;) {
    RV_FUZZ_CHECK(frames_wait(fd, POLLIN | POLLOUT));
    ssize_t n = recv(fd, heard, sizeof heard, 0);
    if (n == 0) break;
    n = send(fd, said->bytes + sent, said->size - sent, MSG_NOSIGNAL);
    if (n > 0)
      sent += (size_t)n;
    else if (errno != EAGAIN)
      break; /* the server has seen enough */
  }
  shutdown(fd, SHUT_WR);
  for (;;) {
    RV_FUZZ_CHECK(frames_wait(fd, POLLIN));
    ssize_t n = recv(fd, heard, sizeof heard, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) break;
  }
  close(fd);
}

static rv_table_info look(size_t number)
{
  rv_error err;
  rv_table_info info;
  RV_FUZZ_CHECK(rv_table_get_info(rv_store_table(one.store, number), &info, &err) == RV_OK);
  RV_FUZZ_CHECK(info.current_size <= info.max_size && info.inserts - info.deletes == info.current_size);
  return info;
}

/* Samples do not wait for a client that has gone; its end may reach them a little after its connection's. */
static void check_table(size_t number)
{
  for (int64_t tries = 0;; tries++) {
    rv_table_info info = look(number);
    int64_t waiting = info.num_waiting_samples;
    rv_table_info_fini(&info);
    if (waiting == 0) return;
    RV_FUZZ_CHECK(tries < 20000);
    usleep(1000);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static uint8_t room[FRAMES_MOST];
  static const uint8_t settings[9] = {0, 0, 0, 4};
  if (one.server == NULL) start();
  frames said = {.bytes = room, .in = data, .left = size};
  frames_put(&said, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
  frames_put(&said, settings, sizeof settings);
  while (frames_next(&said, methods, sizeof methods / sizeof methods[0])) {
  }
  exchange(&said);
  rv_error err;
  rv_table *queue = rv_store_table(one.store, 1);
  check_table(0);
  check_table(1);
  RV_FUZZ_CHECK(rv_table_reset(queue, &err) == RV_OK); /* inserts of a client of Reverb's wait on although it has gone */
  return 0;
}
