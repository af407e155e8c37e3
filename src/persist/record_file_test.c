#include "persist/record_file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "persist/frame.h"

/* ---- a directory of the test's own, and files in it ---- */

static char directory[64], path[96];

static int set_up(void **state)
{
  (void)state;
  strcpy(directory, "/tmp/rv_records.XXXXXX");
  assert_non_null(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/records", directory);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  unlink(path);
  rmdir(directory);
  return 0;
}

static void must(rv_code code, const rv_error *err)
{
  if (code != RV_OK) fail_msg("%s: %s", rv_code_name(code), err->message);
}

typedef struct bytes {
  uint8_t *data;
  size_t size;
} bytes;

static bytes read_file(void)
{
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  struct stat info;
  assert_int_equal(fstat(fileno(file), &info), 0);
  bytes out = {malloc((size_t)info.st_size + 1), (size_t)info.st_size};
  assert_int_equal(fread(out.data, 1, out.size, file), out.size);
  fclose(file);
  return out;
}

static void write_file(const void *data, size_t size)
{
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

static void write_records(int level, const bytes *records, size_t n)
{
  rv_record_writer *writer;
  rv_error err;
  unlink(path);
  must(rv_record_writer_new(path, level, &rv_files_of_system, &writer, &err), &err);
  for (size_t i = 0; i < n; i++) must(rv_record_writer_put(writer, records[i].data, records[i].size, &err), &err);
  must(rv_record_writer_finish(writer, &err), &err);
  rv_record_writer_free(writer);
}

/* Reads as many records as there are; *count is how many came before an error, or the end, *sum their checksum. */
static rv_code read_and_sum(size_t *count, uint32_t *sum, rv_error *err)
{
  rv_record_reader *reader = NULL;
  rv_buf *buf;
  *count = 0;
  *sum = 0;
  rv_code code = rv_record_reader_new(path, &reader, err);
  while (code == RV_OK) {
    code = rv_record_reader_next(reader, &buf, err);
    if (code != RV_OK || buf == NULL) break;
    ++*count;
    *sum = rv_crc32c(*sum, buf->data, buf->size);
    rv_buf_unref(buf);
  }
  rv_record_reader_free(reader);
  return code;
}

static rv_code read_records(size_t *count, rv_error *err)
{
  uint32_t unused;
  return read_and_sum(count, &unused, err);
}

static void refuses(size_t whole, const char *sentence)
{
  rv_error err = {.message = ""};
  size_t count;
  assert_int_equal(read_records(&count, &err), RV_DATA_LOSS);
  assert_int_equal(count, whole);
  if (strstr(err.message, path) == NULL || strstr(err.message, sentence) == NULL)
    fail_msg("\"%s\" does not name the file and say \"%s\"", err.message, sentence);
}

/* Records as TensorFlow would have written them without compression. */
static bytes framed(const bytes *records, size_t n)
{
  size_t size = 0;
  for (size_t i = 0; i < n; i++) size += RV_FRAME_HEADER + records[i].size + RV_FRAME_FOOTER;
  bytes out = {malloc(size + 1), 0};
  for (size_t i = 0; i < n; i++) {
    uint8_t *at = out.data + out.size;
    rv_frame_put64(at, records[i].size);
    rv_frame_put32(at + 8, rv_frame_mask(rv_crc32c_plain(0, at, 8)));
    memcpy(at + RV_FRAME_HEADER, records[i].data, records[i].size);
    rv_frame_put32(at + RV_FRAME_HEADER + records[i].size, rv_frame_mask(rv_crc32c_plain(0, records[i].data, records[i].size)));
    out.size += RV_FRAME_HEADER + records[i].size + RV_FRAME_FOOTER;
  }
  return out;
}

static bytes compressed(bytes in, int window)
{
  z_stream zlib = {0};
  assert_int_equal(deflateInit2(&zlib, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
  bytes out = {malloc(deflateBound(&zlib, in.size)), 0};
  zlib.next_in = in.data;
  zlib.avail_in = (uInt)in.size;
  zlib.next_out = out.data;
  zlib.avail_out = (uInt)deflateBound(&zlib, in.size);
  assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  out.size = zlib.total_out;
  deflateEnd(&zlib);
  return out;
}

static const bytes few[] = {{(uint8_t *)"one", 3}, {(uint8_t *)"", 0}, {(uint8_t *)"the third record", 16}};

/* ---- what is written is read ---- */

static void records_of_any_size_come_back_at_every_level(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 7);
  const size_t sizes[] = {0, 1, 11, 65536, 3 << 20, 5};
  bytes records[6];
  for (size_t i = 0; i < 6; i++) {
    records[i] = (bytes){malloc(sizes[i] + 1), sizes[i]};
    for (size_t k = 0; k < sizes[i]; k++) records[i].data[k] = (uint8_t)(rv_random_next(&random) >> (k % 3 == 0 ? 60 : 56));
  }
  for (int level = 0; level <= 9; level += 3) {
    write_records(level, records, 6);
    rv_record_reader *reader;
    rv_error err;
    must(rv_record_reader_new(path, &reader, &err), &err);
    for (size_t i = 0; i < 6; i++) {
      rv_buf *buf;
      must(rv_record_reader_next(reader, &buf, &err), &err);
      assert_non_null(buf);
      assert_int_equal(buf->size, sizes[i]);
      assert_memory_equal(buf->data, records[i].data, sizes[i]);
      rv_buf_unref(buf);
    }
    rv_buf *end;
    must(rv_record_reader_next(reader, &end, &err), &err);
    assert_null(end);
    rv_record_reader_free(reader);
  }
  for (size_t i = 0; i < 6; i++) free(records[i].data);
}

static void pieces_are_one_record(void **state)
{
  (void)state;
  rv_pieces pieces;
  rv_error err;
  rv_record_writer *writer;
  rv_record_reader *reader;
  rv_buf *shared = rv_buf_copy("shared bytes", 12), *buf;
  rv_pieces_init(&pieces);
  rv_pieces_copy(&pieces, "small", 5);
  rv_pieces_share(&pieces, shared, shared->data, shared->size);
  must(rv_record_writer_new(path, 1, &rv_files_of_system, &writer, &err), &err);
  must(rv_record_writer_put_pieces(writer, &pieces, &err), &err);
  must(rv_record_writer_finish(writer, &err), &err);
  rv_record_writer_free(writer);
  must(rv_record_reader_new(path, &reader, &err), &err);
  must(rv_record_reader_next(reader, &buf, &err), &err);
  assert_int_equal(buf->size, 17);
  assert_memory_equal(buf->data, "smallshared bytes", 17);
  rv_buf_unref(buf);
  rv_buf_unref(shared);
  rv_pieces_fini(&pieces);
  rv_record_reader_free(reader);
}

static void no_records_are_the_eight_bytes_that_reverb_writes(void **state)
{
  (void)state;
  write_records(6, NULL, 0);
  bytes file = read_file();
  assert_int_equal(file.size, 8);
  assert_memory_equal(file.data, "\x78\x9C\x03\x00\x00\x00\x00\x01", 8);
  free(file.data);
}

static void empty_and_uncompressed_files_are_read(void **state)
{
  (void)state;
  rv_error err;
  size_t count;
  write_file("", 0);
  must(read_records(&count, &err), &err);
  assert_int_equal(count, 0);
  bytes plain = framed(few, 3);
  write_file(plain.data, plain.size);
  must(read_records(&count, &err), &err);
  assert_int_equal(count, 3);
  write_file(plain.data, plain.size - 1);
  refuses(2, "record 3");
  plain.data[RV_FRAME_HEADER + 1] ^= 1;
  write_file(plain.data, plain.size);
  refuses(0, "checksum does not match");
  free(plain.data);
}

/* ---- damage ---- */

static void a_file_cut_anywhere_is_refused(void **state)
{
  (void)state;
  for (int level = 0; level <= 6; level += 6) {
    write_records(level, few, 3);
    bytes file = read_file();
    for (size_t size = 1; size < file.size; size++) {
      rv_error err;
      size_t count;
      write_file(file.data, size);
      if (read_records(&count, &err) != RV_DATA_LOSS) fail_msg("level %d: cut after %zu of %zu bytes", level, size, file.size);
    }
    free(file.data);
  }
}

/* But for the few bits of deflate that mean nothing (they fill up a byte behind a block): with those all is as it was. */
static void a_flipped_bit_anywhere_is_refused(void **state)
{
  (void)state;
  for (int level = 0; level <= 6; level += 6) {
    write_records(level, few, 3);
    bytes file = read_file();
    size_t count, passed = 0;
    rv_error err;
    uint32_t crc = 0, flipped_crc;
    must(read_and_sum(&count, &crc, &err), &err);
    for (size_t bit = 0; bit < 8 * file.size; bit++) {
      file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
      write_file(file.data, file.size);
      rv_code code = read_and_sum(&count, &flipped_crc, &err);
      if (code == RV_OK && count == 3 && flipped_crc == crc)
        passed++;
      else if (code != RV_DATA_LOSS)
        fail_msg("level %d: bit %zu of byte %zu: %s", level, bit % 8, bit / 8, rv_code_name(code));
      file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(passed <= 2 * 7); /* a block of records, and the end */
    free(file.data);
  }
}

static void a_wrong_checksum_inside_a_sound_stream_is_refused(void **state)
{
  (void)state;
  const size_t of_length = 8, of_contents = RV_FRAME_HEADER + 3;
  const size_t offsets[] = {of_length, of_contents};
  const char *const sentences[] = {"checksum of its length", "its checksum does not match"};
  for (size_t i = 0; i < 2; i++) {
    bytes plain = framed(few, 3);
    plain.data[offsets[i]] ^= 0x10;
    bytes file = compressed(plain, 15);
    write_file(file.data, file.size);
    refuses(0, sentences[i]);
    free(plain.data);
    free(file.data);
  }
}

static void a_length_beyond_two_gibibytes_is_refused_before_memory_is_taken(void **state)
{
  (void)state;
  uint8_t header[RV_FRAME_HEADER];
  rv_frame_put64(header, UINT64_C(1) << 31);
  rv_frame_put32(header + 8, rv_frame_mask(rv_crc32c(0, header, 8)));
  bytes file = compressed((bytes){header, sizeof header}, 15);
  write_file(file.data, file.size);
  refuses(0, "at most 2147483647");
  free(file.data);
  rv_frame_put64(header, RV_RECORD_MAX_BYTES); /* possible, but nothing is there */
  rv_frame_put32(header + 8, rv_frame_mask(rv_crc32c(0, header, 8)));
  file = compressed((bytes){header, sizeof header}, 15);
  write_file(file.data, file.size);
  refuses(0, "cut short");
  free(file.data);
}

static void gzip_raw_deflate_and_a_second_stream_are_refused(void **state)
{
  (void)state;
  bytes plain = framed(few, 3), gzip = compressed(plain, 31), file = compressed(plain, 15);
  write_file(gzip.data, gzip.size);
  refuses(0, "gzip");
  bytes two = {malloc(2 * file.size), 2 * file.size};
  memcpy(two.data, file.data, file.size);
  memcpy(two.data + file.size, file.data, file.size);
  write_file(two.data, two.size);
  refuses(3, "something follows the end");
  write_file("records? no", 11);
  refuses(0, "zlib");
  free(plain.data);
  free(gzip.data);
  free(file.data);
  free(two.data);
}

/* ---- large files, which a thread reads ahead ---- */

enum { MANY = 3000, MANY_BYTES = 4000 };

/* Distinct ones, some of them larger than a block of the stream. */
static void fill_record(uint8_t *out, size_t number, size_t *size)
{
  *size = number % 1000 == 500 ? 300000 : MANY_BYTES + number % 7;
  for (size_t i = 0; i < *size; i += 4) {
    uint32_t word = (uint32_t)(number * 2654435761U + i * 40503U);
    memcpy(out + i, &word, sizeof word);
  }
}

static void write_many(int level)
{
  rv_record_writer *writer;
  rv_error err;
  uint8_t *record = malloc(300004);
  unlink(path);
  must(rv_record_writer_new(path, level, &rv_files_of_system, &writer, &err), &err);
  for (size_t i = 0, size; i < MANY; i++) {
    fill_record(record, i, &size);
    must(rv_record_writer_put(writer, record, size, &err), &err);
  }
  must(rv_record_writer_finish(writer, &err), &err);
  rv_record_writer_free(writer);
  free(record);
}

static void is_record(const rv_buf *buf, size_t number)
{
  uint8_t *expected = malloc(300004);
  size_t size;
  fill_record(expected, number, &size);
  assert_int_equal(buf->size, size);
  assert_memory_equal(buf->data, expected, size);
  free(expected);
}

static void records_that_are_kept_outlive_their_reader(void **state)
{
  (void)state;
  for (int level = 0; level <= 1; level++) {
    rv_record_reader *reader;
    rv_error err;
    rv_buf *buf, *kept[MANY / 100];
    write_many(level);
    must(rv_record_reader_new(path, &reader, &err), &err);
    for (size_t i = 0; i < MANY; i++) {
      must(rv_record_reader_next(reader, &buf, &err), &err);
      is_record(buf, i);
      if (i % 100 == 0)
        kept[i / 100] = buf;
      else
        rv_buf_unref(buf);
    }
    must(rv_record_reader_next(reader, &buf, &err), &err);
    assert_null(buf);
    must(rv_record_reader_next(reader, &buf, &err), &err); /* and it stays so */
    assert_null(buf);
    rv_record_reader_free(reader);
    for (size_t i = 0; i < MANY / 100; i++) {
      is_record(kept[i], 100 * i);
      rv_buf_unref(kept[i]);
    }
  }
}

/* 100 MB in records of any size, so that units end anywhere and later ones go by what was found of earlier ones. */
static void what_compresses_and_what_does_not_take_turns(void **state)
{
  (void)state;
  enum { RECORDS = 400, ROOM = 500000 };
  const int levels[] = {0, RV_LEVEL_WHERE_IT_PAYS};
  uint8_t *noise = malloc(ROOM), *zeros = calloc(ROOM, 1);
  rv_random random;
  rv_random_init(&random, 3);
  for (size_t i = 0; i < ROOM; i++) noise[i] = (uint8_t)rv_random_next(&random);
  for (size_t l = 0; l < 2; l++) {
    bytes records[RECORDS];
    uint32_t expected = 0, sum;
    size_t count;
    rv_error err;
    for (size_t i = 0; i < RECORDS; i++) {
      size_t size = rv_random_below(&random, ROOM);
      records[i] = (bytes){i / 90 % 2 == 0 ? noise + (ROOM - size) : zeros, size};
      expected = rv_crc32c(expected, records[i].data, size);
    }
    write_records(levels[l], records, RECORDS);
    must(read_and_sum(&count, &sum, &err), &err);
    assert_int_equal(count, RECORDS);
    assert_int_equal(sum, expected);
  }
  free(noise);
  free(zeros);
}

static size_t pages_in_cache(int file)
{
  struct stat info;
  assert_int_equal(fstat(file, &info), 0);
  size_t size = (size_t)info.st_size, pages = (size + (size_t)sysconf(_SC_PAGESIZE) - 1) / (size_t)sysconf(_SC_PAGESIZE), in = 0;
  unsigned char *is_there = malloc(pages);
  void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
  assert_ptr_not_equal(map, MAP_FAILED);
  assert_int_equal(mincore(map, size, is_there), 0);
  for (size_t i = 0; i < pages; i++) in += is_there[i] & 1;
  munmap(map, size);
  free(is_there);
  return in;
}

/* Whatever brought them in: the file system itself may, although it is asked to go past it. Where the system's cache is all that it has
 * (tmpfs), nothing shows. */
static void what_was_read_does_not_stay_in_the_cache(void **state)
{
  (void)state;
  rv_record_reader *reader;
  rv_error err;
  rv_buf *buf;
  write_many(0);
  int file = open(path, O_RDONLY);
  free(read_file().data);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  bool leaves = pages_in_cache(file) == 0;
  free(read_file().data);
  must(rv_record_reader_new(path, &reader, &err), &err);
  do {
    must(rv_record_reader_next(reader, &buf, &err), &err);
    rv_buf_unref(buf);
  } while (buf != NULL);
  rv_record_reader_free(reader);
  if (leaves) assert_true(pages_in_cache(file) < 16);
  close(file);
}

static void a_reader_may_go_at_any_record(void **state)
{
  (void)state;
  write_many(0);
  for (size_t stop = 0; stop < MANY; stop += 1 + stop) {
    rv_record_reader *reader;
    rv_error err;
    rv_buf *buf;
    must(rv_record_reader_new(path, &reader, &err), &err);
    for (size_t i = 0; i < stop; i++) {
      must(rv_record_reader_next(reader, &buf, &err), &err);
      rv_buf_unref(buf);
    }
    rv_record_reader_free(reader);
  }
}

static void damage_of_a_large_file_is_found_at_its_record(void **state)
{
  (void)state;
  write_many(0);
  bytes file = read_file();
  char record[40];
  for (size_t number = 10; number < 490; number += 160) {
    size_t frame = RV_FRAME_HEADER + MANY_BYTES + 3 + RV_FRAME_FOOTER; /* 3 bytes more on average */
    size_t at = number * frame + frame / 2;
    snprintf(record, sizeof record, "record %zu ", number + 1);
    file.data[at] ^= 4;
    write_file(file.data, file.size);
    refuses(number, record);
    file.data[at] ^= 4;
    write_file(file.data, at);
    refuses(number, record);
  }
  uint8_t *longer = realloc(file.data, file.size + 1);
  assert_non_null(longer);
  longer[file.size] = 0;
  write_file(longer, file.size + 1);
  refuses(MANY, "something follows the end");
  free(longer);
}

/* ---- what the system refuses ---- */

static void a_record_that_no_reader_takes_is_not_begun(void **state)
{
  (void)state;
  rv_record_writer *writer;
  rv_error err;
  must(rv_record_writer_new(path, 0, &rv_files_of_system, &writer, &err), &err);
  uint8_t byte = 0; /* never looked at */
  assert_int_equal(rv_record_writer_put(writer, &byte, (size_t)RV_RECORD_MAX_BYTES + 1, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "2147483648 bytes"));
  must(rv_record_writer_put(writer, "fine", 4, &err), &err);
  must(rv_record_writer_finish(writer, &err), &err);
  rv_record_writer_free(writer);
  size_t count;
  must(read_records(&count, &err), &err);
  assert_int_equal(count, 1);
}

static void a_full_disk_is_told(void **state)
{
  (void)state;
  struct rlimit old, small;
  rv_record_writer *writer;
  rv_error err;
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 100000;
  must(rv_record_writer_new(path, 0, &rv_files_of_system, &writer, &err), &err);
  bytes record = {calloc(1, 1 << 20), 1 << 20};
  setrlimit(RLIMIT_FSIZE, &small);
  rv_code code = rv_record_writer_put(writer, record.data, record.size, &err);
  if (code == RV_OK) code = rv_record_writer_finish(writer, &err);
  setrlimit(RLIMIT_FSIZE, &old);
  assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(err.message, path));
  rv_record_writer_free(writer);
  free(record.data);
}

static void files_that_cannot_be_made_or_opened_are_named(void **state)
{
  (void)state;
  rv_record_writer *writer;
  rv_record_reader *reader;
  rv_error err;
  assert_int_equal(rv_record_reader_new(path, &reader, &err), RV_NOT_FOUND);
  assert_non_null(strstr(err.message, path));
  assert_int_equal(rv_record_writer_new("/nowhere/at/all", 1, &rv_files_of_system, &writer, &err), RV_NOT_FOUND);
  assert_non_null(strstr(err.message, "/nowhere/at/all"));
  assert_int_equal(rv_record_writer_new(path, 10, &rv_files_of_system, &writer, &err), RV_INVALID_ARGUMENT);
  write_file("", 0);
  assert_int_not_equal(rv_record_writer_new(path, 1, &rv_files_of_system, &writer, &err), RV_OK); /* nothing is written over */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {TEST(records_of_any_size_come_back_at_every_level),
                                     TEST(pieces_are_one_record),
                                     TEST(no_records_are_the_eight_bytes_that_reverb_writes),
                                     TEST(empty_and_uncompressed_files_are_read),
                                     TEST(a_file_cut_anywhere_is_refused),
                                     TEST(a_flipped_bit_anywhere_is_refused),
                                     TEST(a_wrong_checksum_inside_a_sound_stream_is_refused),
                                     TEST(a_length_beyond_two_gibibytes_is_refused_before_memory_is_taken),
                                     TEST(gzip_raw_deflate_and_a_second_stream_are_refused),
                                     TEST(what_compresses_and_what_does_not_take_turns),
                                     TEST(records_that_are_kept_outlive_their_reader),
                                     TEST(what_was_read_does_not_stay_in_the_cache),
                                     TEST(a_reader_may_go_at_any_record),
                                     TEST(damage_of_a_large_file_is_found_at_its_record),
                                     TEST(a_record_that_no_reader_takes_is_not_begun),
                                     TEST(a_full_disk_is_told),
                                     TEST(files_that_cannot_be_made_or_opened_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
