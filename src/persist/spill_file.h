/* One file without a name: places in it are handed out, and used again when what lay there is gone.
 *
 * It grows by RV_SPILL_PIECE bytes, and is written in order as far as it can be (ranges.h); the file stays until its owner has closed it and the last
 * place has gone. It is read, not mapped, so that a disk that fails is an error and no signal. Strings alone, whose readers keep pointers, are
 * read through a mapping: a page that was brought, and left again before it was read, could end the process there. */
#ifndef RV_PERSIST_SPILL_FILE_H
#define RV_PERSIST_SPILL_FILE_H

#include "store/cold.h"

enum { RV_SPILL_PIECE = 4 << 20 };

typedef struct rv_spill_file rv_spill_file;

/* max_bytes is rounded down to whole pieces. */
rv_code rv_spill_file_new(const char *directory, size_t max_bytes, rv_spill_file **out, rv_error *err);
/* Whether a file could be made there, as far as that can be seen without making one. */
rv_code rv_spill_file_check(const char *directory, rv_error *err);
void rv_spill_file_close(rv_spill_file *file);
/* Writes the bytes to a place, which lies as they do with regard to 16 bytes. NULL, with errno: rv_spill_is_full of it where max_bytes or the disk leaves no
 * room for them, which there may be for fewer bytes, or what the system says. One thread at a time. */
rv_cold_place *rv_spill_file_put(rv_spill_file *file, const uint8_t *bytes, size_t size);
/* Waits until the disk has taken what was put: what is in the system's cache alone may yet be lost, and nobody would be told. 0, or an errno: then what was put since
 * the last time may not be read back. */
int rv_spill_file_settle(rv_spill_file *file);
/* Of an errno: the file may not grow, by the disk, a quota or the system's limit for a file. What it has already can still be written to. */
bool rv_spill_is_full(int error);

#endif
