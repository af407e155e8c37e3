/* Memory that is freed all at once: what the configuration consists of. */
#ifndef RV_TOOL_ARENA_H
#define RV_TOOL_ARENA_H

#include <stddef.h>

typedef struct arena {
  struct arena_block *blocks;
} arena;

/* Zeroed; ends the program with a sentence when memory is out (nothing runs yet that would need to be stopped). */
void *arena_alloc(arena *memory, size_t count, size_t size);
char *arena_copy(arena *memory, const char *text, size_t length);
/* The array of `count` elements with room for one more (zeroed); elements move. */
void *arena_append(arena *memory, void *array, size_t count, size_t size);
void arena_free(arena *memory);

#endif
