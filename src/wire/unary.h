/* The messages of the unary calls, and table info with signatures. Structs own what they hold: fini. */
#ifndef RV_WIRE_UNARY_H
#define RV_WIRE_UNARY_H

#include "reverie/client.h"
#include "store/table.h"
#include "wire/proto.h"

typedef struct rv_mutate_request {
  rv_span table;
  rv_key_priority *updates;
  size_t num_updates;
  uint64_t *deletes;
  size_t num_deletes;
} rv_mutate_request;
rv_code rv_mutate_request_parse(rv_span message, rv_mutate_request *out, rv_error *err);
void rv_mutate_request_fini(rv_mutate_request *request);
void rv_mutate_request_serialize(rv_writer_buf *out, const char *table, const rv_key_priority *updates, size_t num_updates,
                                 const uint64_t *deletes, size_t num_deletes);
/* The same, change by change: what it takes does not grow with the message, whose bytes it reads where they are. */
typedef enum rv_mutate_kind { RV_MUTATE_END, RV_MUTATE_NOTHING, RV_MUTATE_DELETE, RV_MUTATE_UPDATE } rv_mutate_kind;
typedef struct rv_mutate_reader {
  rv_reader reader;
  rv_field field;
  size_t in_field; /* where in a field of deletes */
  bool in_deletes;
  rv_span table; /* as far as it has come */
} rv_mutate_reader;
void rv_mutate_reader_init(rv_mutate_reader *reader, rv_span message);
/* The next one, *out: its key and, of an update, the priority. RV_MUTATE_NOTHING: a field that is none. RV_MUTATE_END at the end, where
 * rv_mutate_reader_check says whether the message was right. */
rv_mutate_kind rv_mutate_reader_next(rv_mutate_reader *reader, rv_key_priority *out);
rv_code rv_mutate_reader_check(const rv_mutate_reader *reader, rv_error *err);
/* Response, extension 1000: keys that were not in the table; 1001 true: the server reports them. */
rv_code rv_mutate_response_parse(rv_span message, uint64_t *unknown, size_t capacity, size_t *num_unknown, rv_error *err);
/* In parts: so many of them at a time, and at the end that they are complete. */
void rv_mutate_response_put_unknown(rv_writer_buf *out, const uint64_t *unknown, size_t num_unknown);
void rv_mutate_response_put_end(rv_writer_buf *out);
void rv_mutate_response_serialize(rv_writer_buf *out, const uint64_t *unknown, size_t num_unknown);

rv_code rv_reset_request_parse(rv_span message, rv_span *table, rv_error *err);
void rv_reset_request_serialize(rv_writer_buf *out, const char *table);

rv_code rv_initialize_connection_parse(rv_span message, int64_t *pid, rv_span *table, rv_error *err);

/* ServerInfoResponse from and to rv_server_info. Reverie's own fields (rates, waiting callers, memory, ...) are extensions
 * numbered 1000 and up inside TableInfo. */
rv_code rv_server_info_parse(rv_span message, rv_server_info **out, rv_error *err);
void rv_server_info_serialize(rv_writer_buf *out, const rv_server_info *info);

/* Signatures: flat specs of a serialized tensorflow.StructuredValue. Depth-limited (64), UTF-8 checked; leaves other than tensor
 * specs are RV_INVALID_ARGUMENT, as for Reverb's clients. A spec without a name of its own is called by its place in the nest
 * ("obs/pixels"). The result owns its memory: rv_signature_fini. */
rv_code rv_signature_parse(rv_span structured_value, rv_signature *out, rv_error *err);
/* The same, but leaves are called by where they are also if they have names; only those in lists alone keep theirs. Places of
 * RV_SIGNATURE_PLACE_MAX bytes and more may be cut. */
enum { RV_SIGNATURE_PLACE_MAX = 248 };
rv_code rv_signature_parse_places(rv_span structured_value, rv_signature *out, rv_error *err);
void rv_signature_fini(rv_signature *signature);
/* A StructuredValue that is a list of the specs, for signatures that were given without a structure. */
void rv_signature_serialize(rv_writer_buf *out, const rv_signature *signature);
/* As a field of the message that is being written: its structure, or such a list; nothing without either. */
void rv_signature_put(rv_writer_buf *out, uint32_t field, const rv_signature *signature);

/* Extension service reverie.Reverie (docs/protocol.md): Items, Get, SetRateLimiter, SetBounds. */
typedef struct rv_items_request {
  rv_span table;
  uint64_t cursor;
  uint64_t capacity;
} rv_items_request;
rv_code rv_items_request_parse(rv_span message, rv_items_request *out, rv_error *err);
void rv_items_request_serialize(rv_writer_buf *out, const rv_items_request *request);
rv_code rv_items_response_parse(rv_span message, uint64_t *cursor, rv_item_info *items, size_t capacity, size_t *count,
                                rv_error *err);
void rv_items_response_serialize(rv_writer_buf *out, uint64_t cursor, const rv_item_info *items, size_t count);

rv_code rv_get_request_parse(rv_span message, rv_span *table, uint64_t *key,
                             rv_error *err); /* the response is a SampleStreamResponse */
void rv_get_request_serialize(rv_writer_buf *out, const char *table, uint64_t key);

rv_code rv_set_rate_limiter_parse(rv_span message, rv_span *table, rv_rate_limiter_config *out, rv_error *err);
void rv_set_rate_limiter_serialize(rv_writer_buf *out, const char *table, const rv_rate_limiter_config *limiter);

/* What is to stay as it is is absent. */
rv_code rv_set_bounds_parse(rv_span message, rv_span *table, rv_table_bounds *out, rv_error *err);
void rv_set_bounds_serialize(rv_writer_buf *out, const char *table, const rv_table_bounds *bounds);

rv_code rv_set_memory_limit_parse(rv_span message, uint64_t *bytes, rv_error *err);
void rv_set_memory_limit_serialize(rv_writer_buf *out, uint64_t bytes);

/* CheckpointResponse. */
rv_code rv_checkpoint_response_parse(rv_span message, rv_span *path, rv_error *err);
void rv_checkpoint_response_serialize(rv_writer_buf *out, const char *path);

#endif
