#include "client/check_received.h"

#include "base/error.h"
#include "store/signature.h"

void rv_received_check_fini(rv_received_check *check)
{
  if (check->fits != NULL) rv_trajectory_unref(check->fits);
  check->fits = NULL;
}

static rv_code fits(const rv_tables *tables, const char *table, const rv_trajectory *trajectory, rv_error *err)
{
  const rv_table_info *info;
  if (rv_tables_find(tables, table, &info, NULL) != RV_OK) return RV_OK; /* it is newer than what we know */
  return rv_signature_fits(&info->signature, table, trajectory->columns, trajectory->num_columns, err);
}

static rv_code look_again(rv_client *client, const char *table, const rv_trajectory *trajectory, rv_patience *patience,
                          rv_error *err)
{
  rv_tables *tables;
  rv_code code = rv_client_tables(client, patience, &tables, err);
  if (code != RV_OK) return code;
  code = fits(tables, table, trajectory, err);
  if (code != RV_OK) rv_error_prefix(err, "%s sent an item that does not fit its table", client->address);
  rv_tables_unref(tables);
  return code;
}

bool rv_is_layout_checked(const rv_received_check *check, rv_client *client, const rv_layout *layout)
{
  if (check->fits != NULL) return check->fits->layout == layout;
  rv_tables *tables = rv_client_known_tables(client);
  bool unknown = tables == NULL;
  rv_tables_unref(tables);
  return unknown;
}

rv_code rv_check_received(rv_received_check *check, rv_client *client, const char *table, const rv_draw *draw,
                          rv_patience *patience, rv_error *err)
{
  if (rv_is_checked(check, draw)) return RV_OK;
  rv_tables *tables = rv_client_known_tables(client);
  if (tables == NULL) return RV_OK;
  rv_code code = fits(tables, table, draw->trajectory, NULL);
  rv_tables_unref(tables);
  if (code != RV_OK) code = look_again(client, table, draw->trajectory, patience, err);
  if (code != RV_OK) return code;
  rv_received_check_fini(check);
  check->fits = rv_trajectory_ref(draw->trajectory);
  return RV_OK;
}
