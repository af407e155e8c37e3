/* How much of a long random run of one thread is made where the thread sanitizer looks on: nothing but more time would come of the rest, which
 * the address sanitizer sees. */
#ifndef RV_BASE_PART_TESTING_H
#define RV_BASE_PART_TESTING_H

#ifdef __SANITIZE_THREAD__
enum { ONE_PART_OF = 10 };
#else
enum { ONE_PART_OF = 1 };
#endif

#endif
