#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/journal.h"
#include "persist/record_file.h"

void rv_journal_link_text(const rv_journal_link *link, char out[128])
{
  snprintf(out, 128, "journal %016" PRIx64 "%016" PRIx64 " from segment %" PRIu64 "\n", link->id[0], link->id[1], link->segment);
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
    int fields =
        fscanf(file, "journal %16" SCNx64 "%16" SCNx64 " from segment %" SCNu64, &out->id[0], &out->id[1], &out->segment);
    *found = fields == 3;
    if (ferror(file))
      code = rv_fail_system(err, errno, "read", path);
    else if (!*found)
      code = rv_fail(err, RV_DATA_LOSS, "%s is damaged: it does not say which journal goes on from the checkpoint", path);
    fclose(file);
  }
  free(path);
  return code;
}
