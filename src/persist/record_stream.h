/* The bytes of a file of records, taken out of the zlib stream that they stand in. Of a large file a thread reads and inflates the next
 * ones while those before are being used: half of what loading a checkpoint costs is done there. What the records mean, record_reader.c
 * knows. */
#ifndef RV_PERSIST_RECORD_STREAM_H
#define RV_PERSIST_RECORD_STREAM_H

#include "base/buf.h"

typedef struct rv_record_stream rv_record_stream;

/* RV_DATA_LOSS: it begins as no such file does. */
rv_code rv_record_stream_new(const char *path, rv_record_stream **out, rv_error *err);
/* The next bytes, borrowed until the next call; who takes a reference may keep them. NULL at the end. RV_DATA_LOSS: a sentence about what
 * is wrong with the stream, which does not name the file; it stays so. */
rv_code rv_record_stream_next(rv_record_stream *stream, rv_buf **block, rv_error *err);
void rv_record_stream_free(rv_record_stream *stream); /* NULL is fine */

#endif
