#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/journal.h"
#include "persist/record_file.h"

#define LINE "journal %016" PRIx64 "%016" PRIx64 " from segment %" PRIu64

void rv_journal_link_text(const rv_journal_link *link, char out[128])
{
  int size = snprintf(out, 128, LINE, link->id[0], link->id[1], link->segment);
  snprintf(out + size, 128 - (size_t)size, ", crc32c %08" PRIx32 "\n", rv_crc32c(0, (const uint8_t *)out, (size_t)size));
}

/* Is the file what would be written of what it says? */
static bool is_whole(const char *text, rv_journal_link *out)
{
  char again[128];
  if (sscanf(text, "journal %16" SCNx64 "%16" SCNx64 " from segment %" SCNu64, &out->id[0], &out->id[1], &out->segment) != 3)
    return false;
  rv_journal_link_text(out, again);
  return strcmp(text, again) == 0;
}

rv_code rv_journal_link_read(const char *checkpoint, bool *found, rv_journal_link *out, rv_error *err)
{
  *found = false;
  char *path = rv_path_join(checkpoint, RV_LINK_FILE);
  if (path == NULL) return rv_fail_memory(err, strlen(checkpoint));
  FILE *file = fopen(path, "re");
  rv_code code = RV_OK;
  if (file == NULL) {
    if (errno != ENOENT) code = rv_fail_system(err, errno, "open", path);
  } else {
    char text[256];
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    *found = is_whole(text, out);
    if (ferror(file))
      code = rv_fail_system(err, errno, "read", path);
    else if (!*found)
      code = rv_fail(err, RV_DATA_LOSS, "%s is damaged: it does not say which journal goes on from the checkpoint", path);
    fclose(file);
  }
  free(path);
  return code;
}
