/* The allocations of nghttp2, libuv and OpenSSL fail with the test's own (base/failing_testing.h, included before). */
#ifndef RV_TEST_FAILING_LIBRARIES_H
#define RV_TEST_FAILING_LIBRARIES_H

#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <uv.h>

static void *http_malloc(size_t size, void *user_data)
{
  (void)user_data;
  return __wrap_malloc(size);
}
static void http_free(void *memory, void *user_data)
{
  (void)user_data;
  free(memory);
}
static void *http_calloc(size_t n, size_t size, void *user_data)
{
  (void)user_data;
  return __wrap_calloc(n, size);
}
static void *http_realloc(void *old, size_t size, void *user_data)
{
  (void)user_data;
  return __wrap_realloc(old, size);
}

static nghttp2_mem http_memory = {.malloc = http_malloc, .free = http_free, .calloc = http_calloc, .realloc = http_realloc};

int __wrap_nghttp2_session_server_new2(nghttp2_session **out, const nghttp2_session_callbacks *callbacks, void *user_data,
                                       const nghttp2_option *option);
int __wrap_nghttp2_session_client_new2(nghttp2_session **out, const nghttp2_session_callbacks *callbacks, void *user_data,
                                       const nghttp2_option *option);

int __wrap_nghttp2_session_server_new2(nghttp2_session **out, const nghttp2_session_callbacks *callbacks, void *user_data,
                                       const nghttp2_option *option)
{
  return nghttp2_session_server_new3(out, callbacks, user_data, option, &http_memory);
}
int __wrap_nghttp2_session_client_new2(nghttp2_session **out, const nghttp2_session_callbacks *callbacks, void *user_data,
                                       const nghttp2_option *option)
{
  return nghttp2_session_client_new3(out, callbacks, user_data, option, &http_memory);
}

static void *crypto_malloc(size_t size, const char *file, int line)
{
  (void)file, (void)line;
  return __wrap_malloc(size);
}
static void *crypto_realloc(void *old, size_t size, const char *file, int line)
{
  (void)file, (void)line;
  return __wrap_realloc(old, size);
}
static void crypto_free(void *memory, const char *file, int line)
{
  (void)file, (void)line;
  free(memory);
}

/* Before anything of theirs is called. libuv's realloc does not fail: libuv ends the process where its table of descriptors cannot grow,
 * which a connection asks for before (rv_loop_can_watch). */
static inline void fail_libraries(void)
{
  assert_int_equal(uv_replace_allocator(__wrap_malloc, __real_realloc, __wrap_calloc, free), 0);
  assert_int_equal(CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free), 1);
}

#endif
