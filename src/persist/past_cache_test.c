#include "persist/past_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#ifdef __linux__
#include <linux/magic.h>
#endif

static void disks_of_this_machine_are_written_past_the_cache(void **state)
{
  (void)state;
#ifdef __linux__
  static const uint32_t kinds[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) assert_true(rv_past_cache_is_gain(kinds[i]));
#endif
}

static void file_systems_of_the_network_are_written_through_it(void **state)
{
  (void)state;
  assert_false(rv_past_cache_is_gain(0)); /* it does not say what it is */
#ifdef __linux__
  static const uint32_t kinds[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, FUSE_SUPER_MAGIC, V9FS_MAGIC, AFS_SUPER_MAGIC,
                                   CODA_SUPER_MAGIC,
                                   /* where the system's headers may be older: CIFS, SMB 2, Ceph */
                                   0xFF534D42, 0xFE534D42, 0x00C36400};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) assert_false(rv_past_cache_is_gain(kinds[i]));
#endif
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(disks_of_this_machine_are_written_past_the_cache),
                                     cmocka_unit_test(file_systems_of_the_network_are_written_through_it)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
