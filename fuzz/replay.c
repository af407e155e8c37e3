/* Runs a fuzz target over a corpus, so that fuzzing is part of every test run and needs no particular compiler:
 *
 *   fuzz_chunk corpus/chunk                         every file as it is
 *   fuzz_chunk --mutate 20000 --seed 7 corpus/chunk and then 20,000 inputs made by mutating them
 *
 * When an input crashes, its bytes are in the file that --crash names (default: crash-<target>.bin in the working directory); add
 * it to the corpus once it is fixed. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "base/random.h"
#include "fuzz.h"

enum { MOST_FILES = 4096, INPUT_BYTES = 1 << 16, MOST_CHANGES = 6 };

typedef struct input {
  uint8_t *bytes;
  size_t size;
} input;

typedef struct corpus {
  input inputs[MOST_FILES];
  size_t count;
} corpus;

static void fail(const char *what, const char *path)
{
  fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
  exit(2);
}

/* ---- the corpus ---- */

static void read_file(corpus *c, const char *path)
{
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail("cannot open", path);
  uint8_t *bytes = malloc(INPUT_BYTES);
  if (bytes == NULL || c->count == MOST_FILES) fail("no room for", path);
  size_t size = fread(bytes, 1, INPUT_BYTES, file);
  fclose(file);
  c->inputs[c->count++] = (input){bytes, size};
}

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void read_folder(corpus *c, const char *path)
{
  DIR *folder = opendir(path);
  if (folder == NULL) fail("cannot open", path);
  char *names[MOST_FILES];
  size_t count = 0;
  for (struct dirent *entry = readdir(folder); entry != NULL && count < MOST_FILES; entry = readdir(folder))
    if (entry->d_name[0] != '.') {
      names[count] = strdup(entry->d_name);
      if (names[count++] == NULL) fail("no room for", path);
    }
  closedir(folder);
  qsort(names, count, sizeof *names, by_name); /* the same seed makes the same inputs everywhere */
  for (size_t i = 0; i < count; i++) {
    char file[4096];
    snprintf(file, sizeof file, "%s/%s", path, names[i]);
    read_file(c, file);
    free(names[i]);
  }
}

static void read_path(corpus *c, const char *path)
{
  struct stat status;
  if (stat(path, &status) != 0) fail("cannot read", path);
  if (S_ISDIR(status.st_mode))
    read_folder(c, path);
  else
    read_file(c, path);
}

/* ---- mutation ---- */

static const uint8_t interesting[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0x0A, 0x12, 0x08, 0x10, 0x1A, 0x22, 0x2A, 0xC0, 0xED};

static uint32_t below(rv_random *random, size_t n)
{
  return rv_random_below(random, n > 0 ? (uint32_t)n : 1);
}

static void change(rv_random *random, input *to, const corpus *c)
{
  size_t at = below(random, to->size + 1);
  switch (below(random, 7)) {
  case 0: /* a bit */
    if (at < to->size) to->bytes[at] ^= (uint8_t)(1U << below(random, 8));
    break;
  case 1: /* a byte */
    if (at < to->size) to->bytes[at] = (uint8_t)rv_random_next(random);
    break;
  case 2: /* a byte that means something */
    if (at < to->size) to->bytes[at] = interesting[below(random, sizeof interesting)];
    break;
  case 3: { /* leave out */
    size_t n = below(random, to->size - at + 1);
    memmove(to->bytes + at, to->bytes + at + n, to->size - at - n);
    to->size -= n;
    break;
  }
  case 4: { /* repeat */
    size_t n = below(random, to->size - at + 1);
    if (to->size + n > INPUT_BYTES) break;
    memmove(to->bytes + at + n, to->bytes + at, to->size - at);
    to->size += n;
    break;
  }
  case 5: { /* a part of another */
    const input *other = &c->inputs[below(random, c->count)];
    size_t from = below(random, other->size + 1), n = below(random, other->size - from + 1);
    if (at + n > INPUT_BYTES) break;
    memcpy(to->bytes + at, other->bytes + from, n);
    if (at + n > to->size) to->size = at + n;
    break;
  }
  default: to->size = at; /* cut off */
  }
}

/* ---- running ---- */

/* In a block of exactly its size, so that a read past its end is caught; on disk before it runs, so that a crash leaves it
 * behind. */
static void run(const input *in, const char *crash)
{
  if (crash != NULL) {
    FILE *file = fopen(crash, "wb");
    if (file == NULL) fail("cannot write", crash);
    fwrite(in->bytes, 1, in->size, file);
    fclose(file);
  }
  uint8_t *exact = malloc(in->size > 0 ? in->size : 1);
  if (exact == NULL) fail("no room for", "an input");
  memcpy(exact, in->bytes, in->size);
  LLVMFuzzerTestOneInput(exact, in->size);
  free(exact);
}

static void mutate(const corpus *c, size_t rounds, uint64_t seed, const char *crash)
{
  rv_random random;
  rv_random_init(&random, seed);
  input work = {.bytes = malloc(INPUT_BYTES)};
  if (work.bytes == NULL) fail("no room for", "mutations");
  for (size_t i = 0; i < rounds; i++) {
    const input *from = &c->inputs[below(&random, c->count)];
    memcpy(work.bytes, from->bytes, from->size);
    work.size = from->size;
    for (uint32_t n = 1 + below(&random, MOST_CHANGES); n > 0; n--) change(&random, &work, c);
    run(&work, crash);
  }
  free(work.bytes);
}

int main(int argc, char **argv)
{
  corpus *c = calloc(1, sizeof *c);
  if (c == NULL) fail("no room for", "a corpus");
  size_t rounds = 0;
  uint64_t seed = (uint64_t)time(NULL);
  const char *crash = NULL;
  for (int i = 1; i < argc; i++) {
    bool more = i + 1 < argc;
    if (strcmp(argv[i], "--mutate") == 0 && more)
      rounds = strtoull(argv[++i], NULL, 0);
    else if (strcmp(argv[i], "--seed") == 0 && more)
      seed = strtoull(argv[++i], NULL, 0);
    else if (strcmp(argv[i], "--crash") == 0 && more)
      crash = argv[++i];
    else
      read_path(c, argv[i]);
  }
  if (c->count == 0) {
    fprintf(stderr, "usage: %s [--mutate N] [--seed S] [--crash FILE] CORPUS...\n", argv[0]);
    return 2;
  }
  for (size_t i = 0; i < c->count; i++) run(&c->inputs[i], crash);
  printf("%zu inputs; %zu mutations, seed %llu\n", c->count, rounds, (unsigned long long)seed);
  fflush(stdout);
  mutate(c, rounds, seed, crash);
  if (crash != NULL) remove(crash);
  for (size_t i = 0; i < c->count; i++) free(c->inputs[i].bytes);
  free(c);
  return 0;
}
