#include "persist/past_cache.h"

#include <fcntl.h>
#include <stddef.h>

/* Of linux/magic.h, and of file systems that are not in the kernel. What FUSE does with a request it alone knows; most send it on. */
static const uint32_t remote[] = {
    0,          /* not known: those of this machine say it */
    0x6969,     /* NFS */
    0x517B,     /* SMB */
    0xFF534D42, /* SMB: CIFS */
    0xFE534D42, /* SMB 2 and later */
    0x00C36400, /* Ceph */
    0x65735546, /* FUSE */
    0x01021997, /* 9P */
    0x5346414F, /* AFS */
    0x6B414653, /* AFS: kAFS */
    0x73757245, /* Coda */
    0x0BD00BD0, /* Lustre */
    0x19830326, /* BeeGFS */
    0x47504653  /* GPFS */
};

bool rv_past_cache_is_gain(uint32_t file_system)
{
  for (size_t i = 0; i < sizeof remote / sizeof *remote; i++)
    if (remote[i] == file_system) return false;
  return true;
}

bool rv_past_cache_set(int file, bool wanted)
{
#ifdef O_DIRECT
  int flags = fcntl(file, F_GETFL);
  return flags >= 0 && fcntl(file, F_SETFL, wanted ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
#else
  (void)file;
  return !wanted;
#endif
}
