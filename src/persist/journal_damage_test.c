/* Damage to a journal, and to what it goes on from, costs what it must and is reported. */
#include "persist/journal_parts.h"
#include "persist/journal_testing.h"

static void a_tail_that_is_torn_at_any_byte_costs_only_what_was_in_it(void **state)
{
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX], path[400];
  uint8_t *bytes;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  sync_all(&j);
  last_segment_name(&d, name);
  size_t whole = read_bytes(d.journal, name, &bytes);
  free(bytes);
  add_rows(rv_store_table(j.store, 0), 2, 10);
  sync_all(&j);
  size_t all = read_bytes(d.journal, name, &bytes);
  assert_true(all > whole + RV_JOURNAL_GROUP_HEADER);
  for (size_t size = whole; size <= all; size++) {
    disk copy = copy_of(&d, "copy");
    snprintf(path, sizeof path, "%s/%s", copy.journal, name);
    assert_int_equal(truncate(path, (off_t)size), 0);
    journaled again = open_with(&copy, (how){.mode = 0}, &config, 1);
    assert_int_equal(size_of(again.store, 0), size == all ? 5 : 3);
    if (size % 8 == all % 8) { /* and it goes on from there */
      add_rows(rv_store_table(again.store, 0), 4, 20);
      close_all(&again);
      again = open_with(&copy, (how){.mode = 0}, &config, 1);
      assert_int_equal(size_of(again.store, 0), size == all ? 9 : 7);
    }
    close_all(&again);
    disk_fini(&copy);
  }
  free(bytes);
  close_all(&j);
  disk_fini(&d);
}

/* Raw rows lie in the journal as they were sent. */
static void rows_that_look_like_a_later_group_do_not_make_damage_of_a_torn_tail(void **state)
{
  rv_error err;
  rv_rows rows;
  rv_table_config config = rv_table_config_default("replay", 1000);
  const rv_group_header lie = {.number = UINT64_C(1) << 40, .synced = (UINT64_C(1) << 40) - 1};
  int64_t values[RV_JOURNAL_GROUP_HEADER / sizeof(int64_t)];
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t forged[RV_JOURNAL_GROUP_HEADER], *bytes;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  rv_group_header_put(&lie, forged);
  memcpy(values, forged, sizeof values);
  for (int with_beginning = 0; with_beginning < 2; with_beginning++) { /* of the segment torn, too */
    j = open_with(&d, (how){.mode = 0}, &config, 1);
    add_values(rv_store_table(j.store, 0), &rows, values, sizeof values / sizeof values[0], NULL);
    must(rows.waiter.code, &rows.waiter.error);
    close_all(&j);
    last_segment_name(&d, name);
    size_t size = read_bytes(d.journal, name, &bytes);
    const uint8_t *found = memmem(bytes, size, forged, sizeof forged);
    assert_non_null(found);
    size_t before = (size_t)(found - bytes);
    if (with_beginning) memset(bytes, 0, before);
    write_bytes(d.journal, name, bytes, before + sizeof forged);
    free(bytes);
    must(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), &err);
    assert_int_equal(size_of(j.store, 0), 3);
    close_all(&j);
  }
  disk_fini(&d);
}

/* ---- between an insert and the delete that made room for it ---- */

/* One row of so many bytes. */
static void add_wide_row(rv_table *table, size_t bytes)
{
  uint8_t *data = calloc(1, bytes);
  int64_t shape[2] = {1, (int64_t)bytes};
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = data};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = 1};
  rows.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  must(rows.waiter.code, &rows.waiter.error);
  free(data);
}

/* Where the last group begins, if a delete is all that it has; else 0. */
static size_t last_group_with_one_delete(const disk *d, const char *name)
{
  uint8_t *bytes, kind = 0;
  rv_group_header group = {.changes = 0};
  rv_span body;
  bool broken = false;
  size_t size = read_bytes(d->journal, name, &bytes), last = 0;
  for (size_t at = RV_JOURNAL_SEGMENT_HEADER; at < size; at += RV_JOURNAL_GROUP_HEADER + group.bytes) {
    assert_true(rv_group_header_get(bytes + at, size - at, &group));
    last = at;
  }
  rv_span records = {bytes + last + RV_JOURNAL_GROUP_HEADER, group.bytes};
  bool found = rv_journal_record_next(&records, &kind, &body, &broken) && kind == RV_RECORD_DELETE;
  free(bytes);
  return found ? last : 0;
}

/* Rows as wide as fill a group, so that the delete comes into the next one, which is torn then. */
static void tear_before_a_delete(const disk *d, const journaled *j)
{
  enum { WIDEST = 4 << 20, LESS = 300, APART = 20 };
  char name[RV_JOURNAL_NAME_MAX], path[400];
  size_t at = 0;
  last_segment_name(d, name);
  for (size_t bytes = WIDEST - LESS; at == 0; bytes += APART) {
    assert_true(bytes < WIDEST);
    add_wide_row(rv_store_table(j->store, 0), bytes);
    sync_all(j);
    at = last_group_with_one_delete(d, name);
  }
  snprintf(path, sizeof path, "%s/%s", d->journal, name);
  assert_int_equal(truncate(path, (off_t)at), 0);
}

static void what_goes_at_a_start_since_its_delete_was_torn_stays_gone_at_the_next(void **state)
{
  enum { ROUNDS = 8 };
  fixture *f = *state;
  rv_table_config config = rv_table_config_default("replay", 3);
  config.remover.kind = RV_SELECTOR_UNIFORM;
  disk d = disk_of(f, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  tear_before_a_delete(&d, &j);
  for (int round = 0; round < ROUNDS; round++) { /* which one goes is chance */
    disk copy = copy_of(&d, "copy");
    journaled once = open_with(&copy, (how){.mode = 0}, &config, 1);
    assert_int_equal(size_of(once.store, 0), 3);
    add_rows(rv_store_table(once.store, 0), 1, 10);
    sync_all(&once);
    disk killed = copy_of(&copy, "killed");
    journaled again = open_with(&killed, (how){.mode = 0}, &config, 1);
    same_stores(once.store, again.store);
    close_all(&once);
    close_all(&again);
    disk_fini(&copy);
    disk_fini(&killed);
  }
  close_all(&j);
  disk_fini(&d);
}

/* As a version wrote it that knew no salts. */
static void take_salt_away(const disk *d, const char *name)
{
  uint8_t *bytes;
  rv_segment_header head;
  rv_group_header group;
  size_t size = read_bytes(d->journal, name, &bytes);
  assert_true(rv_segment_header_get(bytes, size, &head));
  head.salt = 0;
  rv_segment_header_put(&head, bytes);
  for (size_t at = RV_JOURNAL_SEGMENT_HEADER; at < size; at += RV_JOURNAL_GROUP_HEADER + group.bytes) {
    assert_true(rv_group_header_get(bytes + at, size - at, &group));
    group.salt = 0;
    rv_group_header_put(&group, bytes + at);
  }
  write_bytes(d->journal, name, bytes, size);
  free(bytes);
}

/* Three rows, in a segment of before. */
static void write_as_before(const disk *d, const rv_table_config *config, char name[RV_JOURNAL_NAME_MAX])
{
  journaled j = open_with(d, (how){.mode = 0}, config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  last_segment_name(d, name);
  take_salt_away(d, name);
}

static void a_journal_of_before_whose_groups_have_no_salt_is_read(void **state)
{
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX];
  disk d = disk_of(*state, "first");
  write_as_before(&d, &config, name);
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3);
  close_all(&j);
  disk_fini(&d);
}

static void a_segment_of_before_whose_header_is_damaged_keeps_its_groups(void **state)
{
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  disk d = disk_of(*state, "first");
  write_as_before(&d, &config, name);
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 2, 0); /* in a segment with a salt */
  close_all(&j);
  size_t size = read_bytes(d.journal, name, &bytes);
  memset(bytes, 0, RV_JOURNAL_SEGMENT_HEADER);
  write_bytes(d.journal, name, bytes, size);
  free(bytes);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 5);
  close_all(&j);
  disk_fini(&d);
}

/* What the error says that salvage would lose. */
static int64_t told_cost(const rv_error *err)
{
  long long unread, lost;
  const char *groups = strstr(err->message, " groups with "), *others = strstr(err->message, "and without them ");
  assert_true(groups != NULL && others != NULL);
  if (sscanf(groups, " groups with %lld changes", &unread) != 1) return INT64_MAX; /* nobody knows */
  if (sscanf(others, "and without them up to %lld", &lost) != 1)
    assert_int_equal(sscanf(others, "and without them %lld", &lost), 1);
  return unread + lost;
}

static void a_flipped_byte_costs_the_last_group_at_most_or_is_reported_with_what_it_costs(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1), again;
  size_t last_group = 0, reported = 0, harmless = 0, cut = 0;
  last_segment_name(&d, name);
  for (int i = 0; i < 3; i++) {
    last_group = read_bytes(d.journal, name, &bytes);
    free(bytes);
    add_rows(rv_store_table(j.store, 0), 1, i);
    sync_all(&j);
  }
  size_t all = read_bytes(d.journal, name, &bytes);
  for (size_t at = 0; at < all; at++) {
    disk copy = copy_of(&d, "copy");
    bytes[at] ^= 0x10;
    write_bytes(copy.journal, name, bytes, all);
    bytes[at] ^= 0x10;
    rv_code code = try_open(&copy, (how){.mode = 0}, &config, 1, &again, &err);
    if (code == RV_OK) {
      int64_t size = size_of(again.store, 0);
      assert_true(size == 3 || (size == 2 && at >= last_group));
      *(size == 3 ? &harmless : &cut) += 1;
    } else {
      assert_int_equal(code, RV_DATA_LOSS);
      assert_non_null(strstr(err.message, "cannot be read"));
      assert_non_null(strstr(err.message, "salvage"));
      if (reported++ % 16 != 0) {
        disk_fini(&copy);
        continue;
      }
      again = open_with(&copy, (how){.salvage = true}, &config, 1);
      assert_true(size_of(again.store, 0) < 3);
      assert_true(told_cost(&err) >= 3 - size_of(again.store, 0));
    }
    close_all(&again);
    disk_fini(&copy);
  }
  print_message("%zu bytes: %zu reported, %zu cut the last group, %zu harmless\n", all, reported, cut, harmless);
  assert_true(reported > 0 && cut > 0);
  free(bytes);
  close_all(&j);
  disk_fini(&d);
}

/* A clean end was told to whoever ended the server: what it wrote last is no torn tail, whatever happens to it afterwards. */
static void a_flip_in_any_group_after_a_clean_end_is_reported(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  rv_group_header group;
  size_t with_rows = 0;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1), again;
  last_segment_name(&d, name);
  for (int i = 0; i < 3; i++) {
    add_rows(rv_store_table(j.store, 0), 1, i);
    sync_all(&j);
  }
  close_all(&j);
  size_t all = read_bytes(d.journal, name, &bytes);
  for (size_t at = RV_JOURNAL_SEGMENT_HEADER; at < all; at += RV_JOURNAL_GROUP_HEADER + group.bytes) {
    assert_true(rv_group_header_get(bytes + at, all - at, &group));
    if (group.changes == 0) continue;
    const size_t flips[] = {at + 12, at + RV_JOURNAL_GROUP_HEADER + group.bytes - 1};
    for (size_t i = 0; i < 2; i++) {
      disk copy = copy_of(&d, "copy");
      bytes[flips[i]] ^= 0x10;
      write_bytes(copy.journal, name, bytes, all);
      bytes[flips[i]] ^= 0x10;
      assert_int_equal(try_open(&copy, (how){.mode = 0}, &config, 1, &again, &err), RV_DATA_LOSS);
      assert_non_null(strstr(err.message, "cannot be read"));
      assert_non_null(strstr(err.message, "salvage"));
      again = open_with(&copy, (how){.salvage = true}, &config, 1);
      assert_int_equal(size_of(again.store, 0), 2);
      close_all(&again);
      disk_fini(&copy);
    }
    with_rows++;
  }
  assert_int_equal(with_rows, 3);
  free(bytes);
  disk_fini(&d);
}

static void a_missing_segment_or_checkpoint_is_reported_and_salvage_goes_on_without(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char command[400], name[RV_JOURNAL_NAME_MAX];
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  last_segment_name(&d, name);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 2, 0);
  close_all(&j);

  disk copy = copy_of(&d, "segment");
  snprintf(command, sizeof command, "rm %s/%s", copy.journal, name);
  assert_int_equal(system(command), 0);
  assert_int_not_equal(try_open(&copy, (how){.mode = 0}, &config, 1, &j, &err), RV_OK);
  assert_non_null(strstr(err.message, "2 changes"));
  j = open_with(&copy, (how){.salvage = true}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 0);
  close_all(&j);
  disk_fini(&copy);

  copy = copy_of(&d, "checkpoint");
  snprintf(command, sizeof command, "rm -r %s", copy.checkpoints);
  assert_int_equal(system(command), 0);
  assert_int_equal(try_open(&copy, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  assert_non_null(strstr(err.message, "there is no checkpoint"));
  j = open_with(&copy, (how){.salvage = true}, &config, 1);
  close_all(&j);
  j = open_with(&copy, (how){.mode = 0}, &config, 1);
  close_all(&j);
  disk_fini(&copy);
  disk_fini(&d);
}

static void a_checkpoint_that_was_saved_without_the_journal_is_not_mixed_with_it(void **state)
{
  rv_error err;
  char command[400];
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  rv_store *other = new_store(&config, 1);
  snprintf(command, sizeof command, "rm %s/*/JOURNAL", d.checkpoints); /* somebody did not want the journal */
  assert_int_equal(system(command), 0);
  must(rv_checkpointer_save(d.checkpointer, other, NULL, NULL, &err), &err);
  rv_store_unref(other);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "was saved without it"));
  disk_fini(&d);
}

static rv_code read_link(const char *dir, const char *text, size_t size, rv_journal_link *out)
{
  char path[256];
  bool found;
  snprintf(path, sizeof path, "%s/%s", dir, RV_LINK_FILE);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, size, file), size);
  fclose(file);
  return rv_journal_link_read(dir, &found, out, NULL);
}

static void a_link_to_the_journal_with_any_damage_is_none(void **state)
{
  fixture *f = *state;
  const rv_journal_link link = {.id = {0x1234, UINT64_MAX}, .segment = 17};
  rv_journal_link got;
  char text[128];
  rv_journal_link_text(&link, text);
  size_t size = strlen(text);
  assert_int_equal(read_link(f->top, text, size, &got), RV_OK);
  assert_memory_equal(&got, &link, sizeof link);
  for (size_t bit = 0; bit < 8 * size; bit++) {
    text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    assert_int_equal(read_link(f->top, text, size, &got), RV_DATA_LOSS);
    text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
  }
  for (size_t cut = 0; cut < size; cut++) assert_int_equal(read_link(f->top, text, cut, &got), RV_DATA_LOSS);
}

/* The damage that a crash leaves in the last segment: nothing that it holds was forced to the disk. */
static void a_last_segment_whose_beginning_was_torn_costs_nothing(void **state)
{
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  rv_group_header group;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  disk killed = copy_of(&d, "killed"); /* while it lives: what ends in order says that this was on the disk */
  close_all(&j);
  last_segment_name(&killed, name);
  size_t size = read_bytes(killed.journal, name, &bytes);
  assert_true(rv_group_header_get(bytes + RV_JOURNAL_SEGMENT_HEADER, size - RV_JOURNAL_SEGMENT_HEADER, &group));
  size_t second = RV_JOURNAL_SEGMENT_HEADER + RV_JOURNAL_GROUP_HEADER + group.bytes;
  assert_true(size > second); /* written together with the first */
  memset(bytes, 0, second);
  write_bytes(killed.journal, name, bytes, size);
  free(bytes);
  j = open_with(&killed, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3);
  close_all(&j);
  disk_fini(&killed);
  disk_fini(&d);
}

static void what_is_lost_at_the_beginning_of_the_first_segment_is_reported(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  rv_segment_list list;
  rv_journal_reader *reader;
  rv_journal_found found;
  rv_group_header group;
  rv_span records;
  rv_journal_gap gap;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  for (int i = 0; i < 3; i++) {
    add_rows(rv_store_table(j.store, 0), 1, i);
    sync_all(&j);
  }
  close_all(&j);
  last_segment_name(&d, name);
  size_t size = read_bytes(d.journal, name, &bytes), at = RV_JOURNAL_SEGMENT_HEADER;
  for (int lost = 1; lost <= 4; lost++) {
    assert_true(rv_group_header_get(bytes + at, size - at, &group));
    at += RV_JOURNAL_GROUP_HEADER + group.bytes;
    assert_true(at < size);
    memset(bytes, 0, at);
    write_bytes(d.journal, name, bytes, size);
    must(rv_segment_list_read(d.journal, &list, &err), &err);
    must(rv_journal_reader_new(d.journal, &list, list.entries[0].number, &reader, &err), &err);
    must(rv_journal_reader_next(reader, &found, &group, &records, &gap, &err), &err);
    assert_int_equal(found, RV_FOUND_GAP);
    assert_int_equal(gap.changes, -1); /* who knows */
    must(rv_journal_reader_next(reader, &found, &group, &records, &gap, &err), &err);
    assert_int_equal(found, RV_FOUND_GROUP);
    rv_journal_reader_free(reader);
    rv_segment_list_fini(&list);
    assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
    assert_non_null(strstr(err.message, "salvage"));
  }
  free(bytes);
  disk_fini(&d);
}

/* Two tables "a" and "b", which the configuration names in the other order from the second start on: 3 rows of "a" in the first segment,
 * `rows` of "b", one a group, in the second, whose first group is then damaged. */
static void damage_the_names(const disk *d, rv_table_config tables[2], size_t rows)
{
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  rv_group_header group;
  tables[0] = rv_table_config_default("a", 1000);
  tables[1] = rv_table_config_default("b", 1000);
  journaled j = open_with(d, (how){.mode = 0}, tables, 2);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  tables[0] = rv_table_config_default("b", 1000);
  tables[1] = rv_table_config_default("a", 1000);
  j = open_with(d, (how){.mode = 0}, tables, 2);
  for (size_t i = 0; i < rows; i++) {
    add_rows(rv_store_table(j.store, 0), 1, 1000 + (int64_t)i);
    sync_all(&j);
  }
  close_all(&j);
  last_segment_name(d, name);
  size_t size = read_bytes(d->journal, name, &bytes);
  assert_true(rv_group_header_get(bytes + RV_JOURNAL_SEGMENT_HEADER, size - RV_JOURNAL_SEGMENT_HEADER, &group));
  assert_true(group.bytes > 0);
  bytes[RV_JOURNAL_SEGMENT_HEADER + RV_JOURNAL_GROUP_HEADER] ^= 0xff;
  write_bytes(d->journal, name, bytes, size);
  free(bytes);
}

static void where_a_segments_names_of_tables_are_damaged_no_item_comes_into_another_table(void **state)
{
  rv_table_config tables[2];
  disk d = disk_of(*state, "first");
  damage_the_names(&d, tables, 200);
  journaled j = open_with(&d, (how){.salvage = true}, tables, 2);
  assert_int_equal(size_of(j.store, 1), 3);
  assert_true(size_of(j.store, 0) >= 100); /* the names stand there again soon */
  close_all(&j);
  disk_fini(&d);
}

static void the_cost_of_salvage_counts_what_cannot_be_made_again_without_what_is_missing(void **state)
{
  rv_error err;
  rv_table_config tables[2];
  journaled j;
  const size_t some[] = {20, 200}; /* of 200 some stand behind the names, when they are there again */
  for (size_t i = 0; i < 2; i++) {
    disk d = disk_of(*state, i == 0 ? "first" : "second");
    damage_the_names(&d, tables, some[i]);
    assert_int_equal(try_open(&d, (how){.mode = 0}, tables, 2, &j, &err), RV_DATA_LOSS);
    j = open_with(&d, (how){.salvage = true}, tables, 2);
    assert_int_equal(told_cost(&err), (int64_t)some[i] - size_of(j.store, 0));
    assert_true(told_cost(&err) > 0);
    close_all(&j);
    disk_fini(&d);
  }
}

/* The first group of records that has one of that kind. */
static void damage_first_with(const disk *d, uint64_t segment, uint8_t wanted)
{
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes, kind = 0;
  rv_group_header group;
  rv_segment_name(segment, name);
  size_t size = read_bytes(d->journal, name, &bytes), at = RV_JOURNAL_SEGMENT_HEADER;
  for (bool found = false; !found; at += RV_JOURNAL_GROUP_HEADER + group.bytes) {
    bool broken;
    rv_span body;
    assert_true(rv_group_header_get(bytes + at, size - at, &group));
    rv_span records = {bytes + at + RV_JOURNAL_GROUP_HEADER, group.bytes};
    while (!found && rv_journal_record_next(&records, &kind, &body, &broken)) found = kind == wanted;
    if (found) bytes[at + RV_JOURNAL_GROUP_HEADER] ^= 0xff;
  }
  write_bytes(d->journal, name, bytes, size);
  free(bytes);
}

static void the_cost_of_salvage_counts_a_table_whose_changes_have_lost_their_beginning(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  const uint64_t segment = (uint64_t)j.journal->file.segment;
  for (int i = 0; i < 20; i++) {
    add_rows(rv_store_table(j.store, 0), 1, i);
    sync_all(&j);
  }
  close_all(&j);
  damage_first_with(&d, segment, RV_RECORD_SNAPSHOT);
  size_t before = strlen(d.f->log);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  assert_int_equal(told_cost(&err), 20);
  assert_non_null(strstr(err.message, "up to 20 of the 20 changes")); /* a checkpoint may have some */
  assert_null(strstr(d.f->log + before, "are lost"));                 /* yet */
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 0);
  close_all(&j);
  disk_fini(&d);
}

int main(void)
{
#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      WITH_DISK(a_tail_that_is_torn_at_any_byte_costs_only_what_was_in_it),
      WITH_DISK(rows_that_look_like_a_later_group_do_not_make_damage_of_a_torn_tail),
      WITH_DISK(what_goes_at_a_start_since_its_delete_was_torn_stays_gone_at_the_next),
      WITH_DISK(a_journal_of_before_whose_groups_have_no_salt_is_read),
      WITH_DISK(a_segment_of_before_whose_header_is_damaged_keeps_its_groups),
      WITH_DISK(a_flipped_byte_costs_the_last_group_at_most_or_is_reported_with_what_it_costs),
      WITH_DISK(a_flip_in_any_group_after_a_clean_end_is_reported),
      WITH_DISK(a_missing_segment_or_checkpoint_is_reported_and_salvage_goes_on_without),
      WITH_DISK(a_checkpoint_that_was_saved_without_the_journal_is_not_mixed_with_it),
      WITH_DISK(a_link_to_the_journal_with_any_damage_is_none),
      WITH_DISK(a_last_segment_whose_beginning_was_torn_costs_nothing),
      WITH_DISK(what_is_lost_at_the_beginning_of_the_first_segment_is_reported),
      WITH_DISK(where_a_segments_names_of_tables_are_damaged_no_item_comes_into_another_table),
      WITH_DISK(the_cost_of_salvage_counts_what_cannot_be_made_again_without_what_is_missing),
      WITH_DISK(the_cost_of_salvage_counts_a_table_whose_changes_have_lost_their_beginning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
