/* Files of records, as checkpoints have them: TFRecord framing (length, its checksum, bytes, their checksum) in one zlib stream
 * (RFC 1950). Nothing here knows what the records mean.
 *
 * Every sentence of an error names the file; those about damage say RV_DATA_LOSS, the record, where it begins in the uncompressed
 * stream, and what is wrong. Errors of the system: RV_RESOURCE_EXHAUSTED (no space left, file too large, memory),
 * RV_PERMISSION_DENIED, RV_NOT_FOUND, else RV_UNKNOWN. */
#ifndef RV_PERSIST_RECORD_FILE_H
#define RV_PERSIST_RECORD_FILE_H

#include "base/buf.h"
#include "persist/files.h"
#include "wire/proto.h"

/* Protobuf's readers take no more. */
#define RV_RECORD_MAX_BYTES ((uint64_t)INT32_MAX)

/* Fills err for the errno of what was tried: "cannot <what> <path>: <why>". */
rv_code rv_fail_system(rv_error *err, int number, const char *what, const char *path);

/* ---- writing ---- */

typedef struct rv_record_writer rv_record_writer;

/* Compressed where samples of what is written shrink by a quarter. */
enum { RV_LEVEL_WHERE_IT_PAYS = -1 };

/* Makes a file that must not be there yet, through `files` (borrowed). Level: zlib's, 0 (stored) to 9, or RV_LEVEL_WHERE_IT_PAYS. */
rv_code rv_record_writer_new(const char *path, int level, const rv_files *files, rv_record_writer **out, rv_error *err);
/* After an error of any of these the file is no good. RV_INVALID_ARGUMENT: more than RV_RECORD_MAX_BYTES, with which nothing was
 * written. */
rv_code rv_record_writer_put(rv_record_writer *writer, const void *data, size_t size, rv_error *err);
rv_code rv_record_writer_put_pieces(rv_record_writer *writer, const rv_pieces *pieces, rv_error *err);
/* Writes the rest and waits until it is on the disk. */
rv_code rv_record_writer_finish(rv_record_writer *writer, rv_error *err);
uint64_t rv_record_writer_bytes(const rv_record_writer *writer); /* in the file so far, about */
void rv_record_writer_free(rv_record_writer *writer);            /* NULL is fine */

/* ---- reading ---- */

/* Also reads files without compression (Reverb's before 0.8) and empty ones. A stream that ends without its end marker is refused
 * although TensorFlow's reader takes it where it was flushed: nothing else tells that records are missing. */
typedef struct rv_record_reader rv_record_reader;

rv_code rv_record_reader_new(const char *path, rv_record_reader **out, rv_error *err);
/* The next record, alone in a buffer; NULL at the end. Whoever keeps a small one (up to 16 KiB) for long copies it: its bytes lie in a block
 * of 256 KiB, which stays with it. Memory is taken as bytes arrive, whatever length is announced. */
rv_code rv_record_reader_next(rv_record_reader *reader, rv_buf **out, rv_error *err);
/* What lies in memory already of the record that comes next: its first bytes, or none. Nothing of it was checked: it is good for hints. */
rv_span rv_record_reader_peek(const rv_record_reader *reader);
/* Puts "<file>: record 3 (at byte 120 of its contents): ", of the record read last, before the sentence that is there. */
void rv_record_reader_prefix(const rv_record_reader *reader, rv_error *err);
void rv_record_reader_free(rv_record_reader *reader); /* NULL is fine */

#endif
