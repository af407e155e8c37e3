#include <string.h>

#include "base/error.h"
#include "settings.h"

const char flags_help[] =
    "usage: reverie-server [--config FILE] [--table FIELDS]... [--port N] [--listen ADDRESS]... [FLAGS]\n"
    "\n"
    "Serves tables of experience over gRPC (Reverb's protocol and Reverie's extensions).\n"
    "\n"
    "  --config FILE        read settings and tables from a YAML file; flags that follow it win\n"
    "  --table FIELDS       add a table: name=NAME[,FIELD=VALUE]... with the fields\n"
    "                         sampler, remover    uniform, fifo, lifo, max_heap, min_heap, prioritized:EXPONENT\n"
    "                         max_size            items (default 1000000)\n"
    "                         max_bytes           of items and their chunks: 4GiB (default 0: no bound)\n"
    "                         max_times_sampled   samples after which an item goes (default 0: never)\n"
    "                         rate_limiter        min_size:N, sample_to_insert_ratio:RATIO:MIN_SIZE:ERROR_BUFFER, queue:N, "
    "stack:N,\n"
    "                                             general:SAMPLES_PER_INSERT:MIN_SIZE:MIN_DIFF:MAX_DIFF (default min_size:1)\n"
    "                         preset              queue:SIZE or stack:SIZE\n"
    "                         extension           statistics, diffusion:steps=N:decay=F\n"
    "  --listen ADDRESS     HOST:PORT, [IPV6]:PORT or unix:/PATH; may be repeated\n"
    "  --host HOST          where to listen (default 127.0.0.1; 0.0.0.0 or :: for other machines too)\n"
    "  --port N             (default 8000; 0: any free port)\n"
    "  --threads N          I/O threads (default 0: one for two cores, at most 8)\n"
    "  --memory-limit BYTES of all tables and streams, such as 16GiB: near it inserts wait (default 0: no limit)\n"
    "  --spill DIR          near the memory limit cold chunks go to a file in DIR instead; --set spill_max_bytes=BYTES\n"
    "  --drain SECONDS      how long calls in progress may take after SIGTERM (default 10)\n"
    "  --checkpoints DIR    restore the newest checkpoint in DIR at start, and save there when a client asks "
    "(docs/checkpoints.md);\n"
    "                         --set checkpoint_every_seconds=N, checkpoint_every_inserts=N, checkpoint_keep=N,\n"
    "                         checkpoint_fallback=DIR, checkpoint_level=0..9, checkpoint_incremental=1,\n"
    "                         checkpoint_required=1\n"
    "  --journal DIR        write every change to a journal in DIR, so that nothing confirmed is lost (docs/journal.md); with "
    "--checkpoints;\n"
    "                         --set journal_mode=always|periodic, journal_period_seconds=N, journal_max_queued_bytes=N,\n"
    "                         journal_checkpoint_bytes=N, journal_salvage=1\n"
    "  --tls-certificate FILE, --tls-key FILE, --tls-authority FILE, --tls-revocation-list FILE\n"
    "                       speak TLS; with an authority clients must show a certificate that it signed (docs/security.md). "
    "SIGHUP\n"
    "                         reads the files, and the file's identities, again\n"
    "  --seed N             the same calls draw and remove the same items (docs/server.md); for experiments\n"
    "  --log LEVEL          debug, info, warning or error (default info)\n"
    "  --set NAME=VALUE     any setting of the file: max_message_bytes, max_connections, ...\n"
    "  --check              say whether the configuration is right, and exit\n"
    "  --version, --help\n";

static bool set_pair(settings *all, const char *flag, const char *pair, rv_error *err)
{
  const char *value = strchr(pair, '=');
  if (value == NULL) {
    rv_fail(err, RV_INVALID_ARGUMENT, "expected NAME=VALUE, got \"%s\"", pair);
    return false;
  }
  const char *name = arena_copy(&all->memory, pair, (size_t)(value - pair));
  bool done = settings_set(all, name, value + 1, flag, err);
  if (!done && settings_has(name)) rv_error_prefix(err, "%s", name);
  return done;
}

/* Flags, and the settings that they set. */
static const char *const plain[][2] = {{"--listen", "listen"},
                                       {"--host", "host"},
                                       {"--port", "port"},
                                       {"--threads", "threads"},
                                       {"--drain", "drain_seconds"},
                                       {"--log", "log"},
                                       {"--seed", "seed"},
                                       {"--memory-limit", "memory_limit"},
                                       {"--spill", "spill_path"},
                                       {"--checkpoints", "checkpoint_path"},
                                       {"--journal", "journal_path"},
                                       {"--tls-certificate", "tls_certificate"},
                                       {"--tls-key", "tls_key"},
                                       {"--tls-authority", "tls_authority"},
                                       {"--tls-revocation-list", "tls_revocation_list"}};

static const char *setting_of(const char *flag)
{
  for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
    if (strcmp(flag, plain[i][0]) == 0) return plain[i][1];
  return NULL;
}

static bool apply(settings *all, const char *flag, const char *value, rv_error *err)
{
  bool listen = strcmp(flag, "--listen") == 0;
  if (!all->listen_by_flag && (listen || strcmp(flag, "--host") == 0 || strcmp(flag, "--port") == 0)) all->num_addresses = 0;
  if (!all->listen_by_flag && listen) {
    all->listen_by_flag = true;
    all->host = NULL;
    all->port = -1;
  }
  const char *setting = setting_of(flag);
  if (setting != NULL) return settings_set(all, setting, value, flag, err);
  if (strcmp(flag, "--table") == 0) return settings_add_table_text(all, value, flag, err);
  return set_pair(all, flag, value, err);
}

static bool takes_value(const char *flag)
{
  return setting_of(flag) != NULL || strcmp(flag, "--config") == 0 || strcmp(flag, "--table") == 0 || strcmp(flag, "--set") == 0;
}

bool read_flags(settings *all, int argc, char **argv, flags_action *action, rv_error *err)
{
  *action = FLAGS_RUN;
  for (int i = 1; i < argc; i++) {
    const char *equals = strchr(argv[i], '='), *flag = argv[i], *value = NULL;
    if (strncmp(flag, "--", 2) == 0 && equals != NULL) {
      flag = arena_copy(&all->memory, argv[i], (size_t)(equals - argv[i]));
      value = equals + 1;
    }
    if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0) {
      *action = FLAGS_HELP;
      return true;
    }
    if (strcmp(flag, "--version") == 0) {
      *action = FLAGS_VERSION;
      return true;
    }
    if (strcmp(flag, "--check") == 0 && value == NULL) {
      *action = FLAGS_CHECK;
      continue;
    }
    if (!takes_value(flag)) {
      rv_fail(err, RV_INVALID_ARGUMENT, "no flag \"%s\"; see --help", argv[i]);
      return false;
    }
    if (value == NULL && i + 1 == argc) {
      rv_fail(err, RV_INVALID_ARGUMENT, "%s needs a value; see --help", flag);
      return false;
    }
    if (value == NULL) value = argv[++i];
    if (strcmp(flag, "--config") == 0) {
      if (!read_config_file(all, value, err)) return false;
    } else if (!apply(all, flag, value, err)) {
      rv_error_prefix(err, "%s", flag);
      return false;
    }
  }
  return true;
}
