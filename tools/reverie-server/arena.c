#include "arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
  struct arena_block *next;
  max_align_t data[];
};

bool arena_try(arena *memory, bool (*work)(void *context), void *context, bool *no_memory)
{
  jmp_buf here, *before = memory->out;
  memory->out = &here;
  *no_memory = false;
  if (setjmp(here) != 0) {
    memory->out = before;
    *no_memory = true;
    return false;
  }
  bool done = work(context);
  memory->out = before;
  return done;
}

void *arena_alloc(arena *memory, size_t count, size_t size)
{
  struct arena_block *block = NULL;
  if (size == 0 || count <= (SIZE_MAX - sizeof *block) / size) block = calloc(1, sizeof *block + count * size);
  if (block == NULL && memory->out != NULL) longjmp(*memory->out, 1);
  if (block == NULL) {
    fprintf(stderr, "reverie-server: out of memory while reading the configuration\n");
    exit(1);
  }
  block->next = memory->blocks;
  memory->blocks = block;
  return block->data;
}

char *arena_copy(arena *memory, const char *text, size_t length)
{
  char *copy = arena_alloc(memory, length + 1, 1);
  memcpy(copy, text, length);
  return copy;
}

void *arena_append(arena *memory, void *array, size_t count, size_t size)
{
  if (count != 0 && (count & (count - 1)) != 0) return array;
  void *grown = arena_alloc(memory, count == 0 ? 1 : count * 2, size);
  if (count > 0) memcpy(grown, array, count * size);
  return grown;
}

void arena_free(arena *memory)
{
  while (memory->blocks != NULL) {
    struct arena_block *block = memory->blocks;
    memory->blocks = block->next;
    free(block);
  }
}
