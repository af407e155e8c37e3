#include "client/await.h"

#include "store/table.h"

static void complete(rv_waiter *waiter)
{
  rv_gate_open(waiter->context);
}

static void describe(void *context, char *out, size_t capacity)
{
  rv_waiter_explain(context, out, capacity);
}

void rv_await_prepare(rv_waiter *waiter, rv_gate *gate, int64_t deadline_ns)
{
  waiter->complete = complete;
  waiter->context = gate;
  waiter->deadline_ns = deadline_ns;
  waiter->peer = "in process";
}

rv_code rv_await(rv_waiter *waiter, rv_gate *gate, rv_patience *patience, rv_error *err)
{
  patience->describe = describe;
  patience->context = waiter;
  patience->memory = rv_table_memory(waiter->table);
  rv_code code = rv_gate_wait(gate, patience, err);
  patience->describe = NULL;
  patience->memory = NULL;
  if (code == RV_OK || rv_waiter_cancel(waiter)) return code;
  rv_gate_wait_forever(gate); /* it is completing */
  return RV_OK;
}
