#include "tf_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ISO C has no conversion from a pointer to an object to one to a function. */
static bool find(void *library, const char *name, void *function, size_t size, const char **missing)
{
  void *symbol = dlsym(library, name);
  if (symbol == NULL) *missing = name;
  memcpy(function, &symbol, size);
  return symbol != NULL;
}

bool tf_api_find(tf_api *api, const char **missing)
{
  /* The same name in every TensorFlow 2. Loaded with all of it, before anybody imports what needs us. */
  void *library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  *missing = "libtensorflow_framework.so.2";
  if (library == NULL) return false;
#define TF_FIND(returns, name, parameters) &&find(library, "TF_" #name, &api->name, sizeof api->name, missing)
  bool found = true TF_FUNCTIONS(TF_FIND);
#undef TF_FIND
  dlclose(library); /* TensorFlow stays: who imported it holds it */
  return found;
}

bool tf_string_set(tf_string *out, const void *data, size_t size)
{
  char *text = out->as.small.text;
  if (size < sizeof out->as.small.text) {
    out->as.small.size = (uint8_t)(size << 2);
  } else {
    size_t capacity = size | 15; /* and one more byte for the end */
    text = malloc(capacity + 1);
    if (text == NULL) return false;
    out->as.large.size = (size << 2) | 1;
    out->as.large.capacity = capacity;
    out->as.large.text = text;
  }
  if (size > 0) memcpy(text, data, size);
  text[size] = '\0';
  return true;
}
