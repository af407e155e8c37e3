#include "client/chunk_rule.h"

enum { WINDOW = 16, FIRST_ROWS = 2, PARTS = 8 };
#define LARGE_ROW ((size_t)15 << 10)       /* RV_STREAM_PACKED_ROWS_BELOW: such rows are not copied into requests */
#define MAX_BYTES ((size_t)1 << 20)        /* of a chunk whose length is chosen */
#define MAX_FIXED_BYTES ((size_t)64 << 20) /* a fixed length gives way only to what a message may hold */

void rv_chunk_rule_init(rv_chunk_rule *rule, uint32_t fixed, uint32_t keep)
{
  *rule = (rv_chunk_rule){.fixed = fixed, .keep = keep, .last_rows = FIRST_ROWS};
}

static uint32_t longest_run(const rv_chunk_rule *rule)
{
  return rule->longest > rule->longest_before ? rule->longest : rule->longest_before;
}

size_t rv_chunk_rule_most_bytes(const rv_chunk_rule *rule)
{
  return rule->fixed > 0 ? MAX_FIXED_BYTES : MAX_BYTES;
}

uint32_t rv_chunk_rule_room(const rv_chunk_rule *rule, size_t row_bytes)
{
  uint32_t rows = rule->fixed;
  if (rows == 0) {
    uint32_t longest = longest_run(rule);
    uint32_t most = longest > 0 && longest < rule->keep ? longest : rule->keep;
    rows = rule->last_rows < most / 2 ? 2 * rule->last_rows : most;
    if (row_bytes >= LARGE_ROW && rule->cut > 0 && rows > rule->cut) rows = rule->cut;
    if (rows < rule->at_once) rows = rule->at_once;
  }
  size_t max_bytes = rv_chunk_rule_most_bytes(rule);
  if (row_bytes > 0 && rows > max_bytes / row_bytes) rows = (uint32_t)(max_bytes / row_bytes);
  if (rows > INT32_MAX) rows = INT32_MAX;
  return rows > 0 ? rows : 1;
}

bool rv_chunk_rule_cuts(const rv_chunk_rule *rule, uint32_t rows)
{
  return rule->fixed == 0 && rows >= longest_run(rule) / PARTS;
}

void rv_chunk_rule_saw_run(rv_chunk_rule *rule, uint32_t rows)
{
  if (rows > rule->longest) rule->longest = rows;
  if (++rule->items < WINDOW) return;
  rule->longest_before = rule->longest;
  rule->longest = 0;
  rule->items = 0;
}

void rv_chunk_rule_saw_chunk(rv_chunk_rule *rule, uint32_t rows)
{
  rule->last_rows = rows > 0 ? rows : 1;
  rule->cut = 0;
}

void rv_chunk_rule_saw_cut(rv_chunk_rule *rule, uint32_t rows)
{
  rule->cut = rows;
}
