#include "client/client.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/utf8.h"
#include "client/add_remote.h"
#include "client/batch.h"
#include "client/batch_remote.h"
#include "client/io.h"
#include "client/untold.h"
#include "net/address.h"

#define DEFAULT_MAX_MESSAGE_BYTES ((size_t)256 << 20)
#define DECODE_CACHE_BYTES ((size_t)64 << 20)
/* What writers have on its way is confirmed, and written anew, many rows at a time; it is theirs to bound (flush). */
#define SPARE_BYTES ((size_t)32 << 20)

rv_code rv_client_fail_gone(const rv_client *client, rv_error *err)
{
  if (rv_client_is_here(client))
    return rv_fail(err, RV_FAILED_PRECONDITION, "the client of %.200s was closed; make a new one",
                   client->address != NULL ? client->address : "a server in this process");
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "the client was made in process %ld and does not work in this one (%ld); make a new client after fork",
                 (long)client->maker.process, (long)getpid());
}

rv_code rv_client_check_name(const char *table, rv_error *err)
{
  if (rv_utf8_is_text(table, strlen(table))) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "the table's name \"%.200s\" is not valid UTF-8; no table is called so", table);
}

rv_code rv_client_check_table(const rv_client *client, const char *table, rv_error *err)
{
  if (table == NULL || table[0] == '\0') return rv_fail(err, RV_INVALID_ARGUMENT, "no table was named");
  rv_code code = rv_client_check(client, err);
  if (code != RV_OK || client->store != NULL) return code; /* there it is looked up at once */
  return rv_client_check_name(table, err);
}

/* ---- new and free ---- */

static rv_code check_config(const rv_client_config *config, rv_error *err)
{
  if (config == NULL || config->size < offsetof(rv_client_config, max_message_bytes))
    return rv_fail(err, RV_INVALID_ARGUMENT, "client config: size must be sizeof(rv_client_config)");
  if ((config->address == NULL) == (config->store == NULL))
    return rv_fail(err, RV_INVALID_ARGUMENT, "client config: give either an address or a store");
  return config->address != NULL ? rv_address_check(config->address, err) : RV_OK;
}

/* A token that could be read on its way would be anybody's. */
static bool stays_here(const rv_address *address)
{
  unsigned char v4[4];
  return address->is_unix || strcmp(address->host, "localhost") == 0 || strcmp(address->host, "::1") == 0 ||
         (inet_pton(AF_INET, address->host, v4) == 1 && v4[0] == 127);
}

static rv_code make_secure(rv_client *client, const rv_client_config *config, rv_error *err)
{
  rv_address address;
  rv_code code = config->tls != NULL ? rv_tls_new(config->tls, false, &client->tls, err) : RV_OK;
  if (code == RV_OK) code = rv_address_parse(config->address, &address, err);
  if (code == RV_OK && address.is_unix && config->tls != NULL)
    code = rv_fail(err, RV_INVALID_ARGUMENT, "%.200s is a unix socket, which needs no TLS; leave it out", address.text);
  if (code != RV_OK || config->token == NULL) return code;
  if (client->tls == NULL && !stays_here(&address))
    return rv_fail(err, RV_INVALID_ARGUMENT, "the token would be sent to %.200s in the clear; use TLS, there and here",
                   address.text);
  size_t size = strlen(config->token) + sizeof "Bearer ";
  client->authorization = malloc(size);
  if (client->authorization == NULL) return rv_fail_memory(err, size);
  snprintf(client->authorization, size, "Bearer %s", config->token);
  if (config->token[0] == '\0') return rv_fail(err, RV_INVALID_ARGUMENT, "the token is empty; give one, or none at all");
  for (const char *at = config->token; *at != '\0'; at++)
    if (*at <= ' ' || *at > '~')
      return rv_fail(
          err, RV_INVALID_ARGUMENT,
          "the token has characters other than visible ASCII; where it was read with the end of its line, take that off");
  return RV_OK;
}

/* Nothing is connected before the first call, and the program may be in another directory by then. */
static char *copy_address(const char *text)
{
  rv_address address;
  rv_address_parse(text, &address, NULL);
  if (!address.is_unix || address.path[0] == '/') return strdup(text);
  rv_address_from_root(&address);
  size_t size = strlen(address.path) + sizeof "unix:";
  char *whole = malloc(size);
  if (whole != NULL) snprintf(whole, size, "unix:%s", address.path);
  return whole;
}

static rv_code set_up(rv_client *client, const rv_client_config *config, rv_error *err)
{
  if (config->store != NULL) {
    client->store = rv_store_ref(config->store);
    client->layouts = rv_layouts_ref(rv_store_layouts(config->store));
    client->decode_cache = rv_decode_cache_ref(rv_store_decode_cache(config->store));
    return RV_OK;
  }
  client->address = copy_address(config->address);
  if (client->address == NULL) return rv_fail_memory(err, strlen(config->address) + 1);
  if (config->io != NULL) client->io = rv_io_ref(config->io);
  rv_code code = make_secure(client, config, err);
  if (code == RV_OK) code = rv_crew_new(config->gather_threads, &client->crew, err);
  if (code == RV_OK) code = rv_layouts_new(&client->layouts, err);
  return code == RV_OK ? rv_decode_cache_new(DECODE_CACHE_BYTES, &client->decode_cache, err) : code;
}

rv_code rv_client_new(const rv_client_config *config, rv_client **out, rv_error *err)
{
  rv_code code = check_config(config, err);
  if (code != RV_OK) return code;
  rv_client_config filled = {0};
  memcpy(&filled, config, config->size < sizeof filled ? config->size : sizeof filled);
  code = rv_check_max_message(filled.max_message_bytes, err);
  if (code != RV_OK) return code;
  rv_client *client = calloc(1, sizeof *client);
  if (client == NULL) return rv_fail_memory(err, sizeof *client);
  const rv_env *env = filled.env == NULL && filled.store != NULL ? rv_store_env(filled.store) : filled.env;
  rv_env_fill(&client->env, env);
  rv_maker_init(&client->maker);
  client->max_message_bytes = filled.max_message_bytes != 0 ? filled.max_message_bytes : DEFAULT_MAX_MESSAGE_BYTES;
  client->peer_timeout_ms = filled.peer_timeout_ms;
  client->no_shared_memory = filled.no_shared_memory;
  rv_mutex_init(&client->mutex, RV_RANK_CLIENT, "client");
  rv_random_init(&client->random, rv_entropy64(&client->env));
  rv_list_init(&client->batch_streams);
  rv_list_init(&client->add_streams);
  code = set_up(client, &filled, err);
  if (code == RV_OK)
    *out = client;
  else
    rv_client_free(client);
  return code;
}

static void nothing(void *argument)
{
  (void)argument;
}

/* What was freed before is still the loop's: that is done first, and may have led to another task. */
static void close_channel(rv_client *client)
{
  rv_loop_call(client->loop, nothing, NULL);
  rv_channel_free(client->channel);
}

void rv_client_free(rv_client *client)
{
  if (client == NULL) return;
  if (!rv_client_is_here(client)) return; /* a forked child: its threads and locks are not ours */
  rv_batch_streams_free(client);
  rv_add_streams_free(client);
  rv_untold_fini(client);
  if (client->channel != NULL) close_channel(client);
  if (client->loop != NULL && client->io != NULL)
    rv_io_give_loop(client->io, client->loop);
  else if (client->loop != NULL)
    rv_loop_free(client->loop);
  rv_io_unref(client->io);
  rv_tables_unref(client->tables);
  rv_batches_free(client->free_batches);
  rv_crew_free(client->crew);
  if (client->decode_cache != NULL) rv_decode_cache_unref(client->decode_cache);
  if (client->layouts != NULL) rv_layouts_unref(client->layouts);
  if (client->store != NULL) rv_store_unref(client->store);
  rv_maker_fini(&client->maker);
  rv_mutex_fini(&client->mutex);
  rv_tls_unref(client->tls);
  free(client->authorization);
  free(client->address);
  free(client);
}

/* ---- the connection ---- */

rv_code rv_client_connect(rv_client *client, rv_error *err)
{
  if (atomic_load_explicit(&client->connected, memory_order_acquire)) return RV_OK;
  rv_code code = RV_OK;
  rv_mutex_lock(&client->mutex);
  if (rv_client_is_closed(client)) code = rv_client_fail_gone(client, err);
  if (code == RV_OK && client->loop == NULL)
    code = client->io != NULL ? rv_io_take_loop(client->io, &client->loop, err)
                              : rv_loop_new(&client->env, "reverie-client", &client->loop, err);
  if (code == RV_OK) rv_spares_set_max(rv_loop_spares(client->loop), SPARE_BYTES);
  if (code == RV_OK && client->channel == NULL) {
    rv_channel_config config = {.env = &client->env,
                                .loop = client->loop,
                                .address = client->address,
                                .max_message_bytes = client->max_message_bytes,
                                .tls = client->tls,
                                .authorization = client->authorization,
                                .peer_timeout_ms = client->peer_timeout_ms,
                                .shares_memory = !client->no_shared_memory};
    code = rv_channel_new(&config, &client->channel, err);
  }
  if (code == RV_OK) atomic_store_explicit(&client->connected, true, memory_order_release);
  rv_mutex_unlock(&client->mutex);
  return code;
}

void rv_client_close(rv_client *client)
{
  if (!rv_client_is_here(client)) return;
  rv_mutex_lock(&client->mutex);
  bool first = !atomic_exchange_explicit(&client->closed, true, memory_order_release);
  rv_channel *channel = first ? client->channel : NULL; /* none comes after this */
  rv_mutex_unlock(&client->mutex);
  if (channel != NULL) rv_channel_close(channel);
}

void rv_client_begin_patience(rv_client *client, rv_patience *patience, const rv_wait *wait,
                              void (*describe)(void *context, char *out, size_t capacity), void *context)
{
  rv_patience_begin(patience, &client->env, wait, describe, context);
  patience->closed = &client->closed;
}

rv_crew *rv_client_loop_crew(rv_client *client)
{
  return rv_crew_max_threads(client->crew) > 1 ? rv_loop_crew(client->loop) : NULL;
}

rv_crew *rv_client_crew(rv_client *client)
{
  return client->store != NULL ? rv_store_crew(client->store) : client->crew;
}

uint64_t rv_client_random(rv_client *client)
{
  rv_mutex_lock(&client->mutex);
  uint64_t value = rv_random_next(&client->random);
  rv_mutex_unlock(&client->mutex);
  return value;
}

void rv_client_state(rv_client *client, char *out, size_t capacity)
{
  if (client->store != NULL)
    snprintf(out, capacity, "in process");
  else if (!atomic_load_explicit(&client->connected, memory_order_acquire))
    snprintf(out, capacity, "not connected to %s yet", client->address);
  else
    rv_channel_state(client->channel, out, capacity);
}
