#include <stdlib.h>

#include "reverie/client.h"
#include "store/table.h"

void rv_server_info_free(rv_server_info *info)
{
  if (info == NULL) return;
  for (size_t i = 0; i < info->num_tables; i++) rv_table_info_fini(&info->tables[i]);
  free(info->tables);
  free(info);
}
