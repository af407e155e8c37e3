/* An arena as another process sees it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena_parts.h"
#include "base/machine_memory.h"
#include "base/memory_file.h"

size_t rv_arena_size_of_file(int fd)
{
  size_t size = rv_memory_file_size(fd);
  return size <= rv_machine_memory() && rv_arena_has_addresses() ? size : 0;
}

bool rv_arena_view_open(int fd, size_t most_segments, rv_arena_view *out)
{
  size_t size = rv_arena_size_of_file(fd);
  if (size == 0) return false;
  rv_arena_view view = {
      .size = size, .segment = calloc(size / RV_ARENA_SEGMENT + 1, sizeof *view.segment), .may_map = most_segments};
  if (view.segment == NULL) return false;
  view.file = rv_memory_file_again(fd);
  if (view.file < 0) {
    free((void *)view.segment);
    return false;
  }
  *out = view;
  return true;
}

void rv_arena_view_close(rv_arena_view *view)
{
  if (view->segment == NULL) return;
  for (size_t i = 0; i * RV_ARENA_SEGMENT < view->size; i++)
    if (view->segment[i] != NULL) munmap((void *)(uintptr_t)view->segment[i], rv_arena_segment_size(view->size, i));
  free((void *)view->segment);
  close(view->file);
  view->segment = NULL;
}

const uint8_t *rv_arena_view_at(rv_arena_view *view, uint64_t offset, uint64_t size)
{
  if (offset >= view->size) return NULL;
  size_t number = (size_t)(offset / RV_ARENA_SEGMENT), within = (size_t)(offset % RV_ARENA_SEGMENT),
         all = rv_arena_segment_size(view->size, number);
  if (size > all - within) return NULL;
  if (view->segment[number] == NULL && view->may_map > 0) {
    view->segment[number] = rv_arena_map_segment(view->file, PROT_READ, offset - within, all);
    if (view->segment[number] != NULL) view->may_map--;
  }
  return view->segment[number] == NULL ? NULL : view->segment[number] + within;
}
