/* What a client keeps of what a server said of its tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <string.h>

#include "client/client.h"
#include "wire/unary.h"

static const int64_t three[] = {3};

typedef struct said {
  rv_spec spec;
  rv_table_info table;
  rv_server_info info;
} said;

static void say(said *out)
{
  out->spec = (rv_spec){.name = "a", .dtype = RV_FLOAT32, .rank = 1, .shape = three};
  out->table = (rv_table_info){.size = sizeof out->table,
                               .name = (char *)(uintptr_t) "t",
                               .sampler = {.kind = RV_SELECTOR_UNIFORM},
                               .remover = {.kind = RV_SELECTOR_FIFO},
                               .max_size = 10,
                               .signature = {.specs = &out->spec, .num_specs = 1},
                               .extensions = (char *)(uintptr_t) ""};
  out->info = (rv_server_info){.num_tables = 1, .tables = &out->table};
  memset(out->info.state_id, 7, sizeof out->info.state_id);
}

static rv_tables *learn(rv_client *client, const said *now)
{
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_server_info_serialize(&out, &now->info);
  rv_tables *tables = NULL;
  rv_span span = {.data = out.data, .size = out.size};
  rv_error err;
  rv_code code = rv_client_learn_tables(client, rv_client_before_asking(client), span, &tables, &err);
  if (code != RV_OK) fail_msg("%s", err.message);
  rv_writer_buf_fini(&out);
  return tables;
}

static void a_server_of_the_same_state_is_believed_when_its_tables_are_others(void **state)
{
  (void)state;
  rv_client_config config = {.size = sizeof config, .address = "127.0.0.1:1"};
  rv_client *client;
  assert_int_equal(rv_client_new(&config, &client, NULL), RV_OK);
  said now;
  say(&now);
  rv_tables *first = learn(client, &now), *last = learn(client, &now);
  assert_ptr_equal(first, last);
  for (int i = 0; i < 6; i++) {
    rv_tables_unref(first);
    first = last;
    say(&now);
    switch (i) {
    case 0: now.spec.name = "b"; break;
    case 1: now.spec.dtype = RV_INT64; break;
    case 2: now.spec.rank = 0; break;
    case 3: now.table.sampler.kind = RV_SELECTOR_LIFO; break;
    case 4: now.table.remover = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.5}; break;
    default: now.table.name = (char *)(uintptr_t) "u"; break;
    }
    last = learn(client, &now);
    assert_ptr_not_equal(first, last);
    const rv_table_info *info;
    assert_int_equal(rv_tables_find(last, now.table.name, &info, NULL), RV_OK);
    assert_int_equal(info->signature.specs[0].dtype, now.spec.dtype);
    assert_string_equal(info->signature.specs[0].name, now.spec.name);
  }
  rv_tables_unref(first);
  rv_tables_unref(last);
  rv_client_free(client);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_server_of_the_same_state_is_believed_when_its_tables_are_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
