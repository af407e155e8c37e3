/* A connection on which more waits than is kept: nobody who only waits is told that he failed. */
#include <unistd.h>

#include "net/session.h"
#include "server/server.h"
#include "support/place.h"

#define MUCH ((size_t)1 << 40) /* bytes */

static test_place place;

static void hold_much(void *argument)
{
  rv_loop *loop = argument;
  RV_LIST_EACH(link, &loop->connections) RV_CONTAINER(link, rv_session, link)->held_bytes += MUCH;
}

static void let_go(void *argument)
{
  rv_loop *loop = argument;
  RV_LIST_EACH(link, &loop->connections) RV_CONTAINER(link, rv_session, link)->held_bytes -= MUCH;
}

static void on_all_loops(void (*run)(void *loop))
{
  rv_grpc_server *grpc = place.server->grpc;
  for (size_t i = 0; i < rv_grpc_server_num_loops(grpc); i++)
    rv_loop_call(rv_grpc_server_loop(grpc, i), run, rv_grpc_server_loop(grpc, i));
}

/* As if a thousand other writers of its connection waited, each with a full window. */
static void an_item_waits_where_others_of_its_connection_wait_with_much(void **state)
{
  (void)state;
  rv_table_config table = place_queue_like("t", 1000);
  place_open(&place, true, &table, 1);
  rv_writer *writer = place_writer(&place, (rv_writer_config){0});
  append_number(writer, 1);
  OK(item_of_rows(writer, "t", 0, 1, 1, 1, NULL, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  on_all_loops(hold_much);
  append_number(writer, 2);
  OK(item_of_rows(writer, "t", 1, 1, 1, 1, NULL, error));
  rv_writer_status status = {.size = sizeof status};
  do {
    usleep(1000);
    rv_writer_get_status(writer, &status);
  } while (status.reconnects == 0 && status.items_failed == 0);
  on_all_loops(let_go);
  OK(rv_writer_flush(writer, 0, NULL, error));
  assert_int_equal(place_size(&place, "t"), 2);
  rv_writer_free(writer);
  place_close(&place);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_item_waits_where_others_of_its_connection_wait_with_much),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
