/* A configuration file of reverie-server: read, or refused with a sentence that says where. */
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char path[64];
  int file = memfd_create("config", MFD_CLOEXEC);
  RV_FUZZ_CHECK(file >= 0 && write(file, data, size) == (ssize_t)size);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  settings all;
  rv_error err = {.code = RV_OK, .message = ""};
  settings_init(&all);
  if (!read_config_file(&all, path, &err)) {
    RV_FUZZ_CHECK(err.code != RV_OK && strncmp(err.message, path, strlen(path)) == 0);
  } else if (!settings_finish(&all, &err)) {
    RV_FUZZ_CHECK(err.code != RV_OK && err.message[0] != '\0');
  }
  settings_free(&all);
  close(file);
  return 0;
}
