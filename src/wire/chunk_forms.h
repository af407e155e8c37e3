/* Chunks of one stream mostly look alike: their messages have the same bytes but for the key, the range of steps and the rows. What
 * was found of one is then true of the next, which is compared with it instead of being read. */
#ifndef RV_WIRE_CHUNK_FORMS_H
#define RV_WIRE_CHUNK_FORMS_H

#include "store/joined.h"
#include "wire/proto.h"

enum { RV_CHUNK_FORMS = 8, RV_CHUNK_FORM_BYTES = 2048 };

typedef struct rv_chunk_form {
  rv_chunk *model;    /* a copy of the first such chunk, which nobody else has */
  size_t fixed_bytes; /* of it: from behind the range to the end */
  size_t row_bytes;   /* of these: all rows; of a form by itself */
  bool used;
  bool joins; /* rv_joined_takes */
} rv_chunk_form;

/* Of one stream; zeroed, it is empty. */
typedef struct rv_chunk_forms {
  rv_chunk_form form[RV_CHUNK_FORMS];
  uint32_t count, next;       /* the one that is expected: chunks of several columns come in turns */
  uint32_t hand;              /* the next to go */
  uint32_t to_skip, patience; /* chunks that are not looked at, as long as forms go that no chunk had */
} rv_chunk_forms;

void rv_chunk_forms_fini(rv_chunk_forms *forms);

/* As rv_chunk_parse with `copy`: the same chunk, and the same errors; joined to those before it where it can be. The caller gets a reference. `joined` NULL:
 * it is by itself. */
rv_code rv_chunk_parse_alike(rv_chunk_forms *forms, rv_joined *joined, rv_span message, rv_chunk_place *out, rv_error *err);

/* ---- one form by itself: a pack of inserts brings its own (wire/insert_pack.h) ---- */

/* Bytes of a form that are no rows: each further chunk has a copy of them, and nobody sends it. */
enum {
  RV_CHUNK_FORM_BESIDES = 256,     /* with one tensor */
  RV_CHUNK_FORM_BESIDES_EACH = 64, /* and with each further one */
  RV_CHUNK_FORM_TENSORS = 64
};

/* RV_INVALID_ARGUMENT: they are more. */
rv_code rv_chunk_form_check_besides(const rv_chunk_meta *meta, size_t besides, size_t num_tensors, rv_error *err);
/* Takes a reference to the chunk, of which nothing but its form is looked at later. RV_INVALID_ARGUMENT: others cannot be like it: it has
 * no tensor, or more than the bound above, one of them is not one literal, key and range do not stand first in it, or it has more besides them
 * and its rows than the bounds above. */
rv_code rv_chunk_form_init(rv_chunk_form *form, rv_chunk *chunk, rv_error *err);
void rv_chunk_form_fini(rv_chunk_form *form);
/* What is its own of a chunk of this form; it stays where it is. */
typedef struct rv_chunk_own {
  rv_chunk_meta meta;
  rv_span head; /* key and range as they came */
  const uint8_t *rows;
} rv_chunk_own;
/* Of the next chunk in `bytes`, which moves on behind it. RV_INVALID_ARGUMENT: key, range and rows are not there. */
rv_code rv_chunk_form_take(const rv_chunk_form *form, rv_span *bytes, rv_chunk_own *out, rv_error *err);
/* That chunk by itself; `apart`: its bytes may have to move (rv_chunk_parse_apart). */
rv_code rv_chunk_form_make(const rv_chunk_form *form, const rv_chunk_own *own, bool apart, rv_chunk **out, rv_error *err);
/* That chunk joined to those before it; false: it is to be by itself. `own` NULL: the chunk that the form is of. */
bool rv_chunk_form_join(const rv_chunk_form *form, rv_joined *joined, const rv_chunk_own *own, rv_chunk_place *out);

/* What differs from chunk to chunk besides the rows, where it stands first as every writer puts it; `rest` is what follows. False: it does not. */
bool rv_chunk_head_read(rv_span message, rv_chunk_meta *meta, rv_span *rest);
/* A SequenceRange; false: the bytes are none. */
bool rv_sequence_range_parse(rv_span message, rv_chunk_meta *meta);

#endif
