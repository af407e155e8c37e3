/* Where things were given: "replay.yaml:4: identities[0].rights.replay". What is wrong or strange only beside something else is found after
 * everything was read, and must still say it. */
#ifndef RV_TOOL_PLACES_H
#define RV_TOOL_PLACES_H

#include <stddef.h>

#include "arena.h"

typedef enum place_kind {
  PLACE_SETTING,    /* number `index` of the settings of the whole */
  PLACE_ADDRESS,    /* number `index` of the settings' addresses */
  PLACE_TABLE,      /* and of their tables */
  PLACE_IDENTITY,   /* number `index` of the settings' identities */
  PLACE_GRANT,      /* its grant number `part` */
  PLACE_IDENTITIES, /* the list of them */
} place_kind;

typedef struct known_place known_place;
typedef struct places {
  known_place *list;
  size_t count;
} places;

/* `text` is the arena's, too, or static; NULL: it was not given, but follows from others. */
void places_add(places *all, arena *memory, place_kind kind, size_t index, size_t part, const char *text);
/* What was added last for it; NULL: nothing was, or NULL. */
const char *places_find(const places *all, place_kind kind, size_t index, size_t part);

#endif
