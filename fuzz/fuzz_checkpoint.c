/* A checkpoint's files: what is read must be whole or refused with a sentence, in little memory, and what was restored can be used.
 *
 * The input is three files, one behind the other, each after its size in four bytes; five where bit 1 of the first byte says that the
 * checkpoint is an incremental one. Where bit 0 is set they are records without compression whose frames are made here, so that what is in
 * them is reached past the checksums: a record is then its size in two bytes and its contents. */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/env.h"
#include "persist/checkpoint_files.h"
#include "persist/frame.h"
#include "store/store.h"
#include "store/table.h"

typedef struct input {
  const uint8_t *at, *end;
} input;

static rv_span take(input *in, size_t header)
{
  size_t size = 0, left = (size_t)(in->end - in->at);
  for (size_t i = 0; i < header && i < left; i++) size |= (size_t)in->at[i] << 8 * i;
  in->at += header < left ? header : left;
  left = (size_t)(in->end - in->at);
  if (size > left) size = left;
  rv_span out = {in->at, size};
  in->at += size;
  return out;
}

static void write_file(const char *dir, const char *name, rv_span bytes, bool framed)
{
  char path[200];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  RV_FUZZ_CHECK(file >= 0);
  input records = {bytes.data, bytes.data + bytes.size};
  while (framed && records.at != records.end) {
    rv_span record = take(&records, 2);
    uint8_t frame[RV_FRAME_HEADER];
    rv_frame_put64(frame, record.size);
    rv_frame_put32(frame + 8, rv_frame_mask(rv_crc32c(0, frame, 8)));
    RV_FUZZ_CHECK(write(file, frame, sizeof frame) == (ssize_t)sizeof frame);
    RV_FUZZ_CHECK(write(file, record.data, record.size) == (ssize_t)record.size);
    rv_frame_put32(frame, rv_frame_mask(rv_crc32c(0, record.data, record.size)));
    RV_FUZZ_CHECK(write(file, frame, RV_FRAME_FOOTER) == RV_FRAME_FOOTER);
  }
  if (!framed) RV_FUZZ_CHECK(write(file, bytes.data, bytes.size) == (ssize_t)bytes.size);
  close(file);
}

static void say_nothing(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level, (void)line;
}

/* Samples and looks at all there is. */
static void use(rv_store *store)
{
  rv_table *table = rv_store_table(store, 0);
  rv_table_info info;
  rv_error err;
  RV_FUZZ_CHECK(rv_table_get_info(table, &info, &err) == RV_OK);
  RV_FUZZ_CHECK(info.inserts - info.deletes == info.current_size && info.samples >= 0);
  rv_table_info_fini(&info);
  rv_draw draw;
  rv_sampling sampling = {.want = 1, .draws = &draw};
  sampling.waiter.deadline_ns = INT64_MAX;
  if (rv_table_sample(table, &sampling) == RV_SUBMIT_PENDING) rv_waiter_cancel(&sampling.waiter);
  if (sampling.count == 0) return;
  for (uint32_t c = 0; c < draw.trajectory->num_columns; c++) {
    rv_trajectory_column column = draw.trajectory->columns[c];
    size_t bytes;
    if (__builtin_mul_overflow((size_t)column.length, column.spec->row_bytes, &bytes) || bytes > 1 << 20) continue;
    void *copy = malloc(bytes + 1);
    rv_code code = rv_draw_copy_column(&draw, c, copy, &err);
    rv_fuzz_check_failure(code, &err);
    free(copy);
  }
  rv_draw_release(&draw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char *const whole[] = {"tables.tfrecord", "items.tfrecord", "chunks.tfrecord"};
  static const char *const incremental[] = {"tables.tfrecord", "items.tfrecord", "CHUNKS", "chunks-0000000000000001.tfrecord",
                                            "chunks-0000000000000002.tfrecord"};
  if (size < 1) return 0;
  const char *const *names = data[0] & 2U ? incremental : whole;
  size_t count = data[0] & 2U ? 5 : 3;
  char dir[] = "/tmp/rv_fuzz.XXXXXX";
  RV_FUZZ_CHECK(mkdtemp(dir) != NULL);
  input in = {data + 1, data + size};
  for (size_t i = 0; i < count; i++) write_file(dir, names[i], take(&in, 4), data[0] & 1U);
  rv_env env;
  const rv_env quiet = {.size = sizeof quiet, .log = say_nothing, .log_level = RV_LOG_ERROR};
  rv_env_fill(&env, &quiet);
  rv_table_config table = rv_table_config_default("t", 100);
  rv_store_config config = {.size = sizeof config, .env = &env, .tables = &table, .num_tables = 1};
  const rv_checkpoint_source source = {.dir = dir, .config = &config, .env = &env};
  rv_store *store = NULL;
  bool damaged;
  rv_error err = {.message = ""};
  rv_code code = rv_checkpoint_read(&source, &store, &damaged, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) use(store);
  rv_store_unref(store);
  for (size_t i = 0; i < count; i++) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    unlink(path);
  }
  rmdir(dir);
  return 0;
}
