/* PackedItems: many items that look alike, each with chunks of its own, in one message (between Reverie's own ends, docs/protocol.md).
 *
 * The first item and its chunks are there as they would be by themselves. Of every further item there is only what is its own: key,
 * priority, and of each chunk the key, the range of steps and the rows. So an item costs its bytes, and what is said of the first is
 * read, and checked, once. */
#ifndef RV_WIRE_INSERT_PACK_H
#define RV_WIRE_INSERT_PACK_H

#include "wire/chunk_forms.h"
#include "wire/chunk_placed.h"
#include "wire/messages.h"

enum {
  RV_INSERT_PACK = 1000,   /* its field in InsertStreamRequest */
  RV_PACK_CHUNKS_MAX = 64, /* of one item; and so many tensors */
  RV_PACK_SLICES_MAX = 256 /* of one item, and columns: the further ones have as many without a byte for them */
};

/* Fields of PackedItems. */
enum {
  RV_PACK_ITEM = 1,       /* PrioritizedItem, the first */
  RV_PACK_CHUNKS = 2,     /* ChunkData, its chunks, as its slices name them */
  RV_PACK_KEYS = 3,       /* of the further items, 8 bytes each */
  RV_PACK_PRIORITIES = 4, /* as many, likewise */
  RV_PACK_REST = 5, /* for each further item, and each of its chunks: the fields key and range of ChunkData, then the rows */
  /* Where rows of some chunks are named by their place: */
  RV_PACK_PLACED = 6,  /* of each of an item's chunks, how many bytes its rows take, packed; 0: they come with it */
  RV_PACK_ROWS_AT = 7, /* and behind how many bytes of the chunk's others they belong, packed */
  RV_PACK_PLACES = 8   /* for each item, the first included, and each such chunk: the place, RV_ROWS_PLACE_BYTES each */
};

/* One that is read item by item. */
typedef struct rv_insert_pack {
  size_t count, next; /* items, and how many were taken */
  rv_wire_item item;  /* the one that was taken last; its arrays are in `room` */
  rv_chunk **chunks;  /* its own, num_chunks; one reference each, or NULL */
  struct rv_pack_chunk {
    uint64_t key;        /* of each of these, as it was sent */
    int32_t first_row;   /* there */
    int32_t model_first; /* and in the model */
    bool is_joined;
  } * of_chunk;
  size_t num_chunks, found;
  size_t item_bytes; /* what an item takes, however few bytes it came in */
  bool apart;        /* their bytes may have to move */
  /* what follows is the pack's own */
  rv_item_room room;
  rv_joined *joined;      /* NULL: each chunk is by itself */
  rv_chunk_form *forms;   /* num_chunks, in one block with `placed`, `chunks` and what is of each of these, and `chunk_of` */
  rv_placed_form *placed; /* num_chunks; row_bytes 0: the rows come with the chunk */
  const rv_placed_rows *rows;
  uint32_t *chunk_of;   /* of each slice */
  int32_t *rows_on;     /* of each chunk, from the model's */
  rv_trajectory *model; /* of an item that was taken: the others' differ in their chunks alone; NULL: none was asked for yet */
  uint64_t first_sequence;
  const uint8_t *keys, *priorities;
  rv_span rest, places;
  size_t num_placed;  /* of an item's chunks, those that have a place */
  size_t num_tensors; /* of an item's chunks together */
} rv_insert_pack;

/* Reads the first item and its chunks; what lies in `message` stays there. RV_INVALID_ARGUMENT: arrays that do not belong together, an
 * item that names another chunk or has too many slices or columns, chunks of which others cannot have the form (rv_chunk_form_init).
 * `apart`: as in rv_chunk_form_make. `rows`: where those are that are named by their place; it stays where it is. */
rv_code rv_insert_pack_begin(rv_insert_pack *pack, rv_span message, bool apart, const rv_placed_rows *rows, rv_error *err);
void rv_insert_pack_fini(rv_insert_pack *pack); /* again is fine; so is one that is all zeros */
/* From the next item on rows of small chunks are joined to those there, where they can be; they stay where they are. */
void rv_insert_pack_join(rv_insert_pack *pack, rv_joined *joined);
/* Takes the next item, there being one. Numbers of items follow each other from the first one's. */
rv_code rv_insert_pack_next(rv_insert_pack *pack, rv_error *err);
/* One of the taken item's chunks, borrowed; false: it has none of that key. `pack` is an rv_insert_pack. */
bool rv_insert_pack_find(void *pack, uint64_t key, rv_chunk_place *out);
/* The taken item's trajectory, as rv_wire_item_trajectory would make it. `owned_spare`: as in rv_trajectory_renew. */
rv_code rv_insert_pack_trajectory(rv_insert_pack *pack, rv_layouts *layouts, rv_layout *like, rv_trajectory *owned_spare,
                                  rv_trajectory **out, rv_error *err);

#endif
