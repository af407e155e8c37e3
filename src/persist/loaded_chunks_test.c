#include "persist/loaded_chunks.h"

#include "persist/record_file.h"
#include "persist/stores_testing.h"
#include "wire/proto.h"

/* A chunk's record of so many bytes. */
static void write_chunk(const char *path, uint64_t key, size_t size)
{
  rv_error err;
  rv_writer_buf record;
  rv_record_writer *file = NULL;
  rv_chunk *chunk = wire_chunk(key, 1, 0, 20, false, false);
  const uint8_t *wire;
  size_t wire_size;
  static const uint8_t rest[1 << 17];
  rv_writer_buf_init(&record);
  assert_non_null(rv_chunk_wire(chunk, &wire, &wire_size));
  rv_put_raw(&record, wire, wire_size);
  /* a field that nobody knows, behind two bytes of its number and three of its size */
  rv_put_bytes(&record, 3000, rest, size - wire_size - 5);
  assert_int_equal(record.size, size);
  must(rv_record_writer_new(path, 0, &rv_files_of_system, &file, &err), &err);
  must(rv_record_writer_put(file, record.data, record.size, &err), &err);
  must(rv_record_writer_finish(file, &err), &err);
  rv_record_writer_free(file);
  rv_writer_buf_fini(&record);
  rv_chunk_unref(chunk);
}

/* Else each chunk would keep 256 KiB. */
static void no_chunk_keeps_a_block_of_the_file(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  for (size_t size = (1 << 14) - 1; size <= (1 << 14) + 1; size++) {
    char path[200];
    rv_record_reader *file = NULL;
    rv_buf *record, *end;
    rv_chunk *added;
    rv_loaded_chunks all;
    snprintf(path, sizeof path, "%s/%zu", f->top, size);
    write_chunk(path, size, size);
    must(rv_record_reader_new(path, &file, &err), &err);
    must(rv_record_reader_next(file, &record, &err), &err);
    const bool in_block = record->release != NULL;
    assert_int_equal(in_block, size <= 1 << 14);
    rv_loaded_chunks_init(&all, 1);
    all.cache = rv_store_decode_cache(store);
    must(rv_loaded_chunks_add(&all, rv_buf_ref(record), &added, &err), &err);
    rv_buf_unref(record);
    must(rv_record_reader_next(file, &end, &err), &err); /* lets go of the record */
    const uint8_t *wire;
    size_t wire_size;
    assert_true(rv_chunk_wire(added, &wire, &wire_size) != record || !in_block);
    assert_int_equal(wire_size, size);
    rv_loaded_chunks_fini(&all);
    rv_record_reader_free(file);
  }
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(no_chunk_keeps_a_block_of_the_file, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
