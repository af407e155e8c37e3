/* Files that are read by who may not be kept waiting, as a server that reads its certificates again: a pipe keeps whoever opens it, or reads it,
 * until somebody writes to it, a terminal likewise, and some devices never end. */
#ifndef RV_BASE_PLAIN_FILE_H
#define RV_BASE_PLAIN_FILE_H

/* A descriptor to read the file by; -1: it cannot be opened, with errno and *instead NULL, or it is no file, and *instead says what it is ("a pipe"). */
int rv_plain_file_open(const char *path, const char **instead);
/* The same for who waits for a pipe, a terminal or another device by himself: he gets them, too, to be read without blocking. */
int rv_plain_file_open_any(const char *path, const char **instead);

#endif
