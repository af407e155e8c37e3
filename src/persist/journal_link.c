#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "persist/checkpoint_dir.h"
#include "persist/journal.h"

void rv_journal_link_text(const rv_journal_link *link, char out[128])
{
  snprintf(out, 128, "journal %016" PRIx64 "%016" PRIx64 " from segment %" PRIu64 "\n", link->id[0], link->id[1], link->segment);
}

bool rv_journal_link_read(const char *checkpoint, rv_journal_link *out)
{
  char *path = rv_path_join(checkpoint, RV_LINK_FILE);
  FILE *file = path == NULL ? NULL : fopen(path, "re");
  free(path);
  if (file == NULL) return false;
  int found = fscanf(file, "journal %16" SCNx64 "%16" SCNx64 " from segment %" SCNu64, &out->id[0], &out->id[1], &out->segment);
  fclose(file);
  return found == 3;
}
