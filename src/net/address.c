#include "net/address.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "net/net.h"

static rv_code parse_unix(const char *text, rv_address *out, rv_error *err)
{
  const char *path = text + strlen("unix:");
  if (path[0] == '/' && path[1] == '/') path += 2; /* unix:///path, as a URL */
  size_t length = strlen(path);
  if (length == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\" names no socket file; write unix:/path/to/socket", text);
  if (length >= sizeof out->path)
    return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\": a socket's path has at most %zu characters, this one has %zu",
                   text, sizeof out->path - 1, length);
  out->is_unix = true;
  memcpy(out->path, path, length + 1);
  return RV_OK;
}

static rv_code parse_port(const char *text, const char *port, rv_address *out, rv_error *err)
{
  size_t digits = strspn(port, "0123456789");
  long value = 0;
  for (size_t i = 0; i < digits && value < 100000; i++) value = value * 10 + (port[i] - '0');
  if (digits == 0 || port[digits] != '\0' || value > 65535)
    return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\": \"%.50s\" is not a port; write a number from 1 to 65535", text,
                   port);
  out->port = (uint16_t)value;
  return RV_OK;
}

/* What to write depends on who has it: a server chooses where to listen, and a client's server is somewhere. */
static rv_code fail_without_host(const char *text, const char *port, bool for_client, rv_error *err)
{
  if (for_client)
    return rv_fail(
        err, RV_INVALID_ARGUMENT,
        "address \"%.200s\" has no host; write localhost:%.50s for a server on this machine, or HOST:%.50s with the name "
        "of its machine",
        text, port, port);
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "address \"%.200s\" has no host; write localhost:%.50s for this machine, or [::]:%.50s to listen on all its "
                 "networks",
                 text, port, port);
}

/* What stands behind gRPC's words for how a host is looked up, where that is how we do it. A DNS server of the caller's choice, as in
 * dns://8.8.8.8/host:port, is left: we ask this machine's. */
static const char *without_resolver(const char *text)
{
  static const char *const words[] = {"dns:", "ipv4:", "ipv6:"};
  if (strncmp(text, "dns:///", 7) == 0) return text + 7;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    const char *rest = text + strlen(words[i]);
    if (strncmp(text, words[i], strlen(words[i])) == 0 && strchr(rest, ':') != NULL && rest[0] != '/') return rest;
  }
  return text;
}

static rv_code parse(const char *text, bool for_client, rv_address *out, rv_error *err)
{
  memset(out, 0, sizeof *out);
  if (text == NULL || text[0] == '\0')
    return rv_fail(err, RV_INVALID_ARGUMENT, "the address is empty; write host:port, [::1]:port or unix:/path");
  for (const char *at = text; *at != '\0'; at++)
    if ((unsigned char)*at <= ' ' || *at == 0x7f)
      return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\" contains a space or control character; write host:port", text);
  snprintf(out->text, sizeof out->text, "%s", text);
  if (strncmp(text, "unix:", 5) == 0) return parse_unix(text, out, err);
  if (strchr(text, ',') != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "address \"%.200s\" has a comma; each address is given by itself, as host:port, and a client has one", text);
  const char *whole = text;
  text = without_resolver(text);
  const char *scheme = strstr(text, "://");
  if (scheme != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\" is a URL; write only host:port, as in \"%.150s\"", whole,
                   scheme + 3);

  const char *host = text, *host_end, *colon;
  if (text[0] == '[') {
    host = text + 1;
    host_end = strchr(host, ']');
    if (host_end == NULL || (host_end[1] != ':' && host_end[1] != '\0'))
      return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\": an IPv6 host is written as [::1]:8000", text);
    colon = host_end[1] == ':' ? host_end + 1 : NULL;
  } else {
    host_end = colon = strrchr(text, ':');
    if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL)
      return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\": an IPv6 host stands in brackets, as in [::1]:8000", text);
  }
  if (colon == NULL && text[strspn(text, "0123456789")] == '\0') return fail_without_host(text, text, for_client, err);
  if (colon == NULL && strchr(text, '/') != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\" is a path; a socket file is written as unix:%.200s", text, text);
  if (colon == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.200s\" has no port; write %.200s:8000, with the server's port", text,
                   text);
  if (host_end == host) return fail_without_host(text, colon + 1, for_client, err);
  size_t length = (size_t)(host_end - host);
  if (length >= sizeof out->host)
    return rv_fail(err, RV_INVALID_ARGUMENT, "address \"%.100s...\": the host is longer than %zu characters", text,
                   sizeof out->host - 1);
  memcpy(out->host, host, length);
  return parse_port(text, colon + 1, out, err);
}

rv_code rv_address_parse(const char *text, rv_address *out, rv_error *err)
{
  return parse(text, false, out, err);
}

rv_code rv_address_check(const char *address, rv_error *err)
{
  rv_address parsed;
  rv_code code = parse(address, true, &parsed, err);
  if (code == RV_OK && !parsed.is_unix && parsed.port == 0)
    code = rv_fail(err, RV_INVALID_ARGUMENT,
                   "address \"%.200s\": port 0 means any free port and is for servers; write the server's port", address);
  return code;
}

void rv_address_from_root(rv_address *address)
{
  char here[PATH_MAX], whole[PATH_MAX + sizeof address->path];
  if (!address->is_unix || address->path[0] == '/' || address->path[0] == '@' || getcwd(here, sizeof here) == NULL) return;
  int length = snprintf(whole, sizeof whole, "%s/%s", strcmp(here, "/") == 0 ? "" : here, address->path);
  if (length > 0 && (size_t)length < sizeof address->path) memcpy(address->path, whole, (size_t)length + 1);
}
