/* A journal's bytes: what is read must be made again or refused with a sentence, and leave a table that can be used.
 *
 * With the first byte 0 the rest is a segment, header, groups and checksums and all. With 1 it is the records of groups, each after its
 * size in two bytes, so that what is in them is reached past the checksums; with 2 likewise, as if groups before were missing. */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/env.h"
#include "persist/journal_read.h"
#include "persist/journal_replay.h"
#include "store/table.h"

static void say_nothing(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level, (void)line;
}

/* ---- a segment ---- */

static void replay_segment(rv_journal_replay *replay, const uint8_t *data, size_t size)
{
  char dir[] = "/tmp/rv_fuzz.XXXXXX", path[100], name[RV_JOURNAL_NAME_MAX];
  RV_FUZZ_CHECK(mkdtemp(dir) != NULL);
  rv_segment_name(1, name);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  RV_FUZZ_CHECK(file >= 0 && write(file, data, size) == (ssize_t)size);
  close(file);
  rv_error err = {.message = ""};
  rv_segment_list list;
  rv_journal_reader *reader;
  RV_FUZZ_CHECK(rv_segment_list_read(dir, &list, &err) == RV_OK);
  RV_FUZZ_CHECK(rv_journal_reader_new(dir, &list, 0, &reader, &err) == RV_OK);
  for (bool gaps = false;;) {
    rv_journal_found found;
    rv_group_header group;
    rv_span records;
    rv_journal_gap gap;
    RV_FUZZ_CHECK(rv_journal_reader_next(reader, &found, &group, &records, &gap, &err) == RV_OK);
    if (found == RV_FOUND_END) break;
    gaps |= found == RV_FOUND_GAP;
    if (found == RV_FOUND_GAP) continue;
    rv_code code = rv_journal_replay_group(replay, records, gaps, &err);
    rv_fuzz_check_failure(code, &err);
    if (code != RV_OK) break;
  }
  rv_journal_reader_free(reader);
  rv_segment_list_fini(&list);
  unlink(path);
  rmdir(dir);
}

/* ---- records ---- */

static void replay_records(rv_journal_replay *replay, const uint8_t *data, size_t size, bool lossy)
{
  while (size >= 2) {
    size_t bytes = (size_t)data[0] | (size_t)data[1] << 8;
    data += 2;
    size -= 2;
    if (bytes > size) bytes = size;
    rv_error err = {.message = ""};
    rv_code code = rv_journal_replay_group(replay, (rv_span){data, bytes}, lossy, &err);
    rv_fuzz_check_failure(code, &err);
    if (code != RV_OK) return;
    data += bytes;
    size -= bytes;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 1) return 0;
  rv_env env;
  rv_error err;
  const rv_env quiet = {.size = sizeof quiet, .log = say_nothing, .log_level = RV_LOG_ERROR};
  rv_env_fill(&env, &quiet);
  rv_table_config table = rv_table_config_default("t", 100);
  rv_store_config config = {.size = sizeof config, .env = &env, .tables = &table, .num_tables = 1};
  rv_store *store;
  rv_journal_replay *replay;
  rv_journal_writers writers;
  rv_journal_writers_init(&writers, 1);
  RV_FUZZ_CHECK(rv_store_new(&config, &store, &err) == RV_OK);
  RV_FUZZ_CHECK(rv_journal_replay_new(store, 0, NULL, &writers, &replay, &err) == RV_OK);
  if (data[0] == 0)
    replay_segment(replay, data + 1, size - 1);
  else
    replay_records(replay, data + 1, size - 1, data[0] == 2);
  RV_FUZZ_CHECK(rv_journal_replay_end(replay, true, &err) == RV_OK);
  rv_table_info info;
  RV_FUZZ_CHECK(rv_table_get_info(rv_store_table(store, 0), &info, &err) == RV_OK);
  RV_FUZZ_CHECK(info.current_size <= info.max_size && info.inserts - info.deletes == info.current_size);
  rv_table_info_fini(&info);
  rv_journal_replay_free(replay);
  rv_journal_writers_fini(&writers);
  rv_store_unref(store);
  return 0;
}
