#include "wire/column_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/signature.h"
#include "wire/unary.h"

struct rv_column_names {
  rv_signature *places; /* its specs are called by where they are */
};

static rv_code wrap(rv_signature *owned_places, rv_column_names **out, rv_error *err)
{
  rv_column_names *names = owned_places != NULL ? malloc(sizeof *names) : NULL;
  if (names == NULL) {
    free(owned_places);
    return rv_fail_memory(err, sizeof *names);
  }
  names->places = owned_places;
  *out = names;
  return RV_OK;
}

rv_code rv_column_names_new(const rv_signature *signature, rv_column_names **out, rv_error *err)
{
  *out = NULL;
  if (signature->num_specs == 0) return RV_OK;
  if (signature->structure.size == 0) return wrap(rv_signature_copy(signature), out, err);
  rv_signature places;
  rv_code code = rv_signature_parse_places((rv_span){signature->structure.data, signature->structure.size}, &places, err);
  if (code == RV_RESOURCE_EXHAUSTED) return code;
  if (code != RV_OK) return RV_OK; /* a nest that cannot be read is no fault of the items */
  bool same = places.num_specs == signature->num_specs;
  code = same ? wrap(rv_signature_copy(&places), out, err) : RV_OK;
  rv_signature_fini(&places);
  return code;
}

void rv_column_names_free(rv_column_names *names)
{
  if (names == NULL) return;
  free(names->places);
  free(names);
}

/* ---- comparing ---- */

static size_t part_length(const char *part)
{
  return strcspn(part, "/");
}

static bool is_name(const char *part, size_t length)
{
  return strspn(part, "0123456789") < length;
}

static size_t count_parts(const char *name)
{
  size_t count = 1;
  for (; *name != '\0'; name++) count += *name == '/';
  return count;
}

static bool differ(const char *a, const char *b)
{
  if (strcmp(a, b) == 0 || count_parts(a) != count_parts(b)) return false;
  for (;;) {
    size_t m = part_length(a), n = part_length(b);
    if (is_name(a, m) && is_name(b, n) && (m != n || memcmp(a, b, n) != 0)) return true;
    if (a[m] == '\0') return false;
    a += m + 1;
    b += n + 1;
  }
}

rv_code rv_column_name_fits(const rv_column_names *names, const char *table, size_t index, const char *name, rv_error *err)
{
  if (names == NULL || name == NULL || index >= names->places->num_specs) return RV_OK;
  const char *expected = names->places->specs[index].name;
  if (strlen(expected) >= RV_SIGNATURE_PLACE_MAX || !differ(expected, name)) return RV_OK;
  return rv_fail(
      err, RV_INVALID_ARGUMENT,
      "table \"%.80s\": column %zu of the item is called \"%.100s\", the table's signature calls it \"%.100s\"; call the "
      "item's columns as the signature does, or change the signature",
      table, index, name, expected);
}

rv_code rv_signature_check_names(const rv_signature *signature, const char *table, const char *const *names, size_t num_names,
                                 rv_error *err)
{
  if (num_names != signature->num_specs) return RV_OK;
  rv_column_names *expected;
  rv_code code = rv_column_names_new(signature, &expected, err);
  for (size_t i = 0; i < num_names && code == RV_OK; i++) code = rv_column_name_fits(expected, table, i, names[i], err);
  rv_column_names_free(expected);
  return code;
}
