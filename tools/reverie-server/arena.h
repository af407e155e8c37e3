/* Memory that is freed all at once: what the configuration consists of. */
#ifndef RV_TOOL_ARENA_H
#define RV_TOOL_ARENA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct arena {
  struct arena_block *blocks;
  jmp_buf *out; /* of the innermost arena_try; NULL: none */
} arena;

/* Does `work`. Where memory is out for the arena, that is left where it stands, and *no_memory set: it may have nothing else to give back.
 * Else what it returned. */
bool arena_try(arena *memory, bool (*work)(void *context), void *context, bool *no_memory);
/* Zeroed. When memory is out outside of arena_try, it ends the program with a sentence: then nothing runs yet that would need to be stopped. */
void *arena_alloc(arena *memory, size_t count, size_t size);
char *arena_copy(arena *memory, const char *text, size_t length);
/* The array of `count` elements with room for one more (zeroed); elements move. */
void *arena_append(arena *memory, void *array, size_t count, size_t size);
void arena_free(arena *memory);

#endif
