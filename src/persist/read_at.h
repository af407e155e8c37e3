/* Bytes of a file from one place on, however many reads that takes. */
#ifndef RV_PERSIST_READ_AT_H
#define RV_PERSIST_READ_AT_H

#include <stddef.h>
#include <sys/types.h>

/* 0, or the errno, as it is set, too, of a read that failed. *got is less than `size` where the file ends before. */
int rv_read_at(int file, void *out, size_t size, off_t at, size_t *got);

#endif
