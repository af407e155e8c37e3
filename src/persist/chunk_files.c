#include "persist/chunk_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/record_file.h"
#include "wire/parse.h"

#define NAME_BEGIN "chunks-"
#define NAME_END ".tfrecord"

enum { NAME_DIGITS = 16, FIRST_RECORDS = 1 << 13, INDEX_LEVEL = 1 };

/* ---- names ---- */

void rv_chunk_file_name(const rv_env *env, char out[RV_CHUNK_FILE_NAME])
{
  snprintf(out, RV_CHUNK_FILE_NAME, NAME_BEGIN "%016" PRIx64 NAME_END, rv_entropy64(env));
}

bool rv_chunk_file_is_name(const char *name)
{
  size_t begin = strlen(NAME_BEGIN);
  return strncmp(name, NAME_BEGIN, begin) == 0 && strspn(name + begin, "0123456789abcdef") == NAME_DIGITS &&
         strcmp(name + begin + NAME_DIGITS, NAME_END) == 0;
}

/* ---- in memory ---- */

void rv_chunk_file_fini(rv_chunk_file *file)
{
  free(file->needed);
  *file = (rv_chunk_file){.bytes = 0};
}

void rv_chunk_files_fini(rv_chunk_files *all)
{
  for (uint32_t i = 0; i < all->count; i++) rv_chunk_file_fini(&all->files[i]);
  free(all->files);
  *all = (rv_chunk_files){0};
}

rv_code rv_chunk_files_add(rv_chunk_files *all, const char *name, uint32_t *number, rv_error *err)
{
  uint32_t free_one = 0;
  while (free_one < all->count && all->files[free_one].name[0] != '\0') free_one++;
  if (free_one == all->capacity) {
    uint32_t capacity = all->capacity * 2 + 8;
    rv_chunk_file *grown = realloc(all->files, capacity * sizeof *grown);
    if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
    all->files = grown;
    all->capacity = capacity;
  }
  if (free_one == all->count) all->count++;
  all->files[free_one] = (rv_chunk_file){.bytes = 0};
  snprintf(all->files[free_one].name, RV_CHUNK_FILE_NAME, "%s", name);
  *number = free_one;
  return RV_OK;
}

static rv_code make_room(rv_chunk_file *file, uint32_t records, rv_error *err)
{
  if (records <= file->capacity) return RV_OK;
  uint64_t capacity = (uint64_t)file->capacity * 2;
  if (capacity < records) capacity = records;
  if (capacity < FIRST_RECORDS) capacity = FIRST_RECORDS;
  if (capacity > UINT32_MAX - 7) return rv_fail(err, RV_RESOURCE_EXHAUSTED, "more than 2^32 chunks");
  uint8_t *grown = realloc(file->needed, (size_t)(capacity + 7) / 8);
  if (grown == NULL) return rv_fail_memory(err, (size_t)capacity / 8);
  size_t before = (file->capacity + 7U) / 8;
  memset(grown + before, 0, (size_t)(capacity + 7) / 8 - before);
  file->needed = grown;
  file->capacity = (uint32_t)capacity;
  return RV_OK;
}

rv_code rv_chunk_file_append(rv_chunk_file *file, rv_error *err)
{
  if (file->records == UINT32_MAX - 8) return rv_fail(err, RV_RESOURCE_EXHAUSTED, "more than 2^32 chunks");
  rv_code code = make_room(file, file->records + 1, err);
  if (code == RV_OK) rv_chunk_file_need(file, file->records++);
  return code;
}

uint32_t rv_chunk_file_count(const rv_chunk_file *file)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < file->records; i++) count += rv_chunk_file_needs(file, i);
  return count;
}

/* ---- CHUNKS: a record a file; 1: name, 2: bytes, 3: records, 4: bits ---- */

rv_code rv_chunk_files_write(const rv_chunk_files *all, const char *dir, const rv_files *files, rv_error *err)
{
  char *path = rv_path_join(dir, RV_INDEX_FILE);
  rv_record_writer *writer = NULL;
  rv_writer_buf record;
  rv_writer_buf_init(&record);
  rv_code code = path == NULL ? rv_fail_memory(err, strlen(dir)) : rv_record_writer_new(path, INDEX_LEVEL, files, &writer, err);
  for (uint32_t i = 0; i < all->count && code == RV_OK; i++) {
    const rv_chunk_file *file = &all->files[i];
    if (file->name[0] == '\0' || rv_chunk_file_count(file) == 0) continue;
    record.size = 0;
    rv_put_string(&record, 1, file->name);
    rv_put_varint(&record, 2, file->bytes);
    rv_put_varint(&record, 3, file->records);
    rv_put_bytes(&record, 4, file->needed, (file->records + 7U) / 8);
    code = record.failed ? rv_fail_memory(err, record.size) : rv_record_writer_put(writer, record.data, record.size, err);
  }
  if (code == RV_OK) code = rv_record_writer_finish(writer, err);
  rv_record_writer_free(writer);
  rv_writer_buf_fini(&record);
  free(path);
  return code;
}

static rv_code check_file(const char *dir, const rv_chunk_file *file, rv_error *err)
{
  struct stat info;
  char *path = rv_path_join(dir, file->name);
  if (path == NULL) return rv_fail_memory(err, strlen(dir));
  rv_code code = RV_OK;
  if (stat(path, &info) != 0)
    code = errno == ENOENT ? rv_fail(err, RV_DATA_LOSS, "%s is missing", path) : rv_fail_system(err, errno, "look at", path);
  else if ((uint64_t)info.st_size != file->bytes)
    code = rv_fail(err, RV_DATA_LOSS, "%s has %lld bytes; %llu were written", path, (long long)info.st_size,
                   (unsigned long long)file->bytes);
  free(path);
  return code;
}

static bool name_is_known(const rv_chunk_files *all, const char *name)
{
  for (uint32_t i = 0; i < all->count; i++)
    if (strcmp(all->files[i].name, name) == 0) return true;
  return false;
}

static rv_code parse_file(rv_span message, rv_chunk_files *out, uint32_t *number, rv_error *err)
{
  rv_span name = {0}, bits = {0};
  uint64_t bytes = 0, records = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) name = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) bytes = field.value;
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) records = field.value;
    if (rv_field_is(&field, 4, RV_WIRE_BYTES)) bits = field.bytes;
  }
  char text[RV_CHUNK_FILE_NAME] = "";
  if (name.size > 0 && name.size < sizeof text) memcpy(text, name.data, name.size);
  if (reader.broken || !rv_chunk_file_is_name(text) || strlen(text) != name.size || records == 0 || records > UINT32_MAX - 8 ||
      bits.size != (records + 7) / 8)
    return rv_fail(err, RV_DATA_LOSS, "no record of a file of chunks");
  if (name_is_known(out, text)) return rv_fail(err, RV_DATA_LOSS, "the second record of %s", text);
  rv_code code = rv_chunk_files_add(out, text, number, err);
  if (code == RV_OK) code = make_room(&out->files[*number], (uint32_t)records, err);
  if (code != RV_OK) return code;
  rv_chunk_file *file = &out->files[*number];
  memcpy(file->needed, bits.data, bits.size);
  file->bytes = bytes;
  file->records = (uint32_t)records;
  file->num_needed = rv_chunk_file_count(file);
  return RV_OK;
}

static rv_code read_index(rv_record_reader *reader, const char *dir, rv_chunk_files *out, rv_error *err)
{
  for (;;) {
    rv_buf *record;
    uint32_t number = 0;
    rv_code code = rv_record_reader_next(reader, &record, err);
    if (code != RV_OK || record == NULL) return code;
    code = parse_file((rv_span){record->data, record->size}, out, &number, err);
    rv_buf_unref(record);
    if (code == RV_OK) code = check_file(dir, &out->files[number], err);
    if (code != RV_OK) {
      rv_record_reader_prefix(reader, err);
      return code;
    }
  }
}

rv_code rv_chunk_files_read(const char *dir, rv_chunk_files *out, bool *found, rv_error *err)
{
  *out = (rv_chunk_files){0};
  char *path = rv_path_join(dir, RV_INDEX_FILE);
  if (path == NULL) return rv_fail_memory(err, strlen(dir));
  rv_record_reader *reader = NULL;
  rv_code code = rv_record_reader_new(path, &reader, err);
  free(path);
  *found = code != RV_NOT_FOUND;
  if (code == RV_NOT_FOUND) return RV_OK;
  if (code == RV_OK) code = read_index(reader, dir, out, err);
  rv_record_reader_free(reader);
  if (code != RV_OK) rv_chunk_files_fini(out);
  return code;
}
