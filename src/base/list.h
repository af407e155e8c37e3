/* An intrusive doubly linked list: the node stands inside the thing; the list owns nothing. */
#ifndef RV_BASE_LIST_H
#define RV_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rv_link {
  struct rv_link *next, *prev;
} rv_link;

/* A list's head is an rv_link of its own. */
static inline void rv_list_init(rv_link *head)
{
  head->next = head->prev = head;
}
static inline bool rv_list_empty(const rv_link *head)
{
  return head->next == head;
}

static inline void rv_list_push_back(rv_link *head, rv_link *node)
{
  node->prev = head->prev;
  node->next = head;
  head->prev->next = node;
  head->prev = node;
}

static inline void rv_list_push_front(rv_link *head, rv_link *node)
{
  rv_list_push_back(head->next, node);
}

/* A node taken out points to itself, so that it may be taken out again. */
static inline void rv_list_remove(rv_link *node)
{
  node->prev->next = node->next;
  node->next->prev = node->prev;
  node->next = node->prev = node;
}

static inline rv_link *rv_list_pop_front(rv_link *head)
{
  if (rv_list_empty(head)) return NULL;
  rv_link *node = head->next;
  rv_list_remove(node);
  return node;
}

/* Moves everything on `from` to the end of `to`. */
static inline void rv_list_splice(rv_link *to, rv_link *from)
{
  if (rv_list_empty(from)) return;
  from->next->prev = to->prev;
  to->prev->next = from->next;
  from->prev->next = to;
  to->prev = from->prev;
  rv_list_init(from);
}

#define RV_CONTAINER(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define RV_LIST_EACH(node, head) for (rv_link *node = (head)->next; node != (head); node = node->next)

#endif
