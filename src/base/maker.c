#include "base/maker.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
  return (size_t)sysconf(_SC_PAGESIZE);
}

/* NULL: there is no memory for it, or the kernel does not know how. */
static unsigned char *new_page(void)
{
#ifdef MADV_WIPEONFORK
  void *page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  bool knows = madvise(page, page_size(), -1) != 0; /* emulators answer yes to whatever they do not know */
  if (knows && madvise(page, page_size(), MADV_WIPEONFORK) == 0) return page;
  munmap(page, page_size());
#endif
  return NULL;
}

void rv_maker_init(rv_maker *maker)
{
  unsigned char *page = new_page();
  if (page != NULL) *page = 1;
  *maker = (rv_maker){.process = getpid(), .page = page};
}

void rv_maker_fini(rv_maker *maker)
{
  if (maker->page != NULL) munmap((void *)(uintptr_t)maker->page, page_size());
  maker->page = NULL;
}

bool rv_maker_ask_kernel(const rv_maker *maker)
{
  return getpid() == maker->process;
}
