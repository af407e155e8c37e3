#include "server/sessions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "persist/done_set.h"

#define WRITER "00112233-4455-6677-8899-aabbccddeeff"

typedef struct test_user {
  rv_writer_session_user user;
  int evictions, grants;
} test_user;

static void on_evict(rv_writer_session_user *user)
{
  ((test_user *)(void *)user)->evictions++;
}
static void on_granted(rv_writer_session_user *user)
{
  ((test_user *)(void *)user)->grants++;
}
static test_user make_user(void)
{
  return (test_user){.user = {.evict = on_evict, .granted = on_granted}};
}

static int64_t clock_ns;
static int64_t read_clock(void *context)
{
  (void)context;
  return clock_ns;
}

static rv_writer_session_limits limits;
static rv_writer_sessions *make_sessions(size_t max)
{
  limits = (rv_writer_session_limits){.max_sessions = max, .ttl_ns = 1000000000};
  rv_env env;
  rv_env_fill(&env, NULL);
  env.monotonic_ns = read_clock;
  clock_ns = 1000;
  rv_writer_sessions *sessions = NULL;
  assert_int_equal(rv_writer_sessions_new(&env, &sessions, NULL), RV_OK);
  return sessions;
}

static rv_writer_session *begun_by(rv_writer_sessions *sessions, test_user *user)
{
  rv_writer_session *session = NULL;
  bool granted = false;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &user->user, &session, &granted, NULL), RV_OK);
  assert_true(granted);
  return session;
}

static void a_recorded_item_is_found_by_the_next_stream(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user(), b = make_user();
  rv_writer_session *session = NULL;
  bool granted = false;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &a.user, &session, &granted, NULL), RV_OK);
  assert_true(granted);
  rv_writer_session_record(session, 1, RV_OK, "");
  rv_writer_session_record(session, 3, RV_INVALID_ARGUMENT, "priority is NaN");
  rv_writer_sessions_detach(sessions, session, &a.user);
  assert_int_equal(
      rv_writer_sessions_attach(sessions, &limits, "00112233445566778899AABBCCDDEEFF", true, &b.user, &session, &granted, NULL),
      RV_OK);
  assert_true(granted);
  rv_code code = RV_UNKNOWN;
  const char *message = NULL;
  assert_true(rv_writer_session_find(session, 1, &code, &message));
  assert_int_equal(code, RV_OK);
  assert_false(rv_writer_session_find(session, 2, &code, &message));
  assert_true(rv_writer_session_find(session, 3, &code, &message));
  assert_int_equal(code, RV_INVALID_ARGUMENT);
  assert_string_equal(message, "priority is NaN");
  rv_writer_sessions_detach(sessions, session, &b.user);
  rv_writer_sessions_free(sessions);
}

static void a_refused_item_is_never_told_as_inserted_however_many_were_refused_since(void **state)
{
  enum { MANY = 5000 };
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user();
  rv_writer_session *session = begun_by(sessions, &a);
  for (uint64_t number = 1; number <= MANY; number++)
    rv_writer_session_record(session, number, number % 2 == 0 ? RV_OK : RV_PERMISSION_DENIED, "it may not");
  for (uint64_t number = MANY + 1; number <= 2 * MANY; number++)
    rv_writer_session_record(session, number, RV_INVALID_ARGUMENT, "priority is NaN");
  for (uint64_t number = 1; number <= MANY; number++) {
    rv_code code = RV_OK;
    const char *message = NULL;
    assert_true(rv_writer_session_find(session, number, &code, &message));
    assert_int_equal(code, number % 2 == 0 ? RV_OK : RV_UNKNOWN);
    if (number % 2 != 0) assert_non_null(strstr(message, "was refused"));
  }
  rv_code code = RV_OK;
  const char *message = NULL;
  assert_true(rv_writer_session_find(session, 2 * MANY, &code, &message));
  assert_int_equal(code, RV_INVALID_ARGUMENT);
  rv_writer_sessions_detach(sessions, session, &a.user);
  rv_writer_sessions_free(sessions);
}

/* Sessions of writers that have gone have reasons, too, which must not fill the memory. */
static void reasons_of_all_writers_take_no_more_than_they_may(void **state)
{
  enum { WRITERS = 60, EACH = 4000, REASON = 500, MAY = 64 << 20 };
  (void)state;
  rv_writer_sessions *sessions = make_sessions(WRITERS);
  char reason[REASON], id[33];
  size_t remembered = 0;
  memset(reason, 'x', sizeof reason - 1);
  reason[sizeof reason - 1] = '\0';
  for (int round = 0; round < 2; round++, remembered = 0) { /* the second's take the place of the first's */
    for (int writer = 0; writer < WRITERS; writer++) {
      test_user user = make_user();
      rv_writer_session *session = NULL;
      bool granted = false;
      snprintf(id, sizeof id, "%032d", round * WRITERS + writer);
      assert_int_equal(rv_writer_sessions_attach(sessions, &limits, id, false, &user.user, &session, &granted, NULL), RV_OK);
      for (uint64_t number = 1; number <= EACH; number++) rv_writer_session_record(session, number, RV_NOT_FOUND, reason);
      for (uint64_t number = 1; number <= EACH; number += 37) {
        rv_code code = RV_OK;
        const char *message = NULL;
        assert_true(rv_writer_session_find(session, number, &code, &message));
        assert_true(code == RV_NOT_FOUND || (code == RV_UNKNOWN && strstr(message, "was refused") != NULL));
        remembered += code == RV_NOT_FOUND;
      }
      assert_int_equal(rv_writer_session_check(session, NULL), RV_OK);
      rv_writer_sessions_detach(sessions, session, &user.user);
    }
    assert_true(remembered > MAY / REASON / 37 - 200 && remembered < MAY / REASON / 37 + 200);
  }
  rv_writer_sessions_free(sessions);
}

static void scattered_refusals_break_no_session(void **state)
{
  enum { MANY = 250000 };
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user();
  rv_writer_session *session = begun_by(sessions, &a);
  for (uint64_t number = 1; number <= MANY; number++)
    rv_writer_session_record(session, number, number % 2 == 0 ? RV_OK : RV_PERMISSION_DENIED, "it may not");
  assert_int_equal(rv_writer_session_check(session, NULL), RV_OK);
  for (uint64_t number = 1; number <= MANY; number += 101) {
    rv_code code = RV_CANCELLED;
    const char *message = NULL;
    assert_true(rv_writer_session_find(session, number, &code, &message));
    if (number % 2 != 0) assert_int_not_equal(code, RV_OK);
    if (number % 2 == 0 && number > MANY / 2) assert_int_equal(code, RV_OK);
  }
  rv_writer_sessions_detach(sessions, session, &a.user);
  rv_writer_sessions_free(sessions);
}

static void who_is_granted_a_session_learns_what_could_not_be_remembered_while_he_waited(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user(), b = make_user();
  rv_writer_session *session = NULL;
  bool granted = false;
  rv_error err;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &a.user, &session, &granted, NULL), RV_OK);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &b.user, &session, &granted, NULL), RV_OK);
  assert_false(granted);
  for (uint64_t i = 0; i <= RV_DONE_RUNS_MAX; i++) rv_writer_session_record(session, 2 * i + 1, RV_OK, "");
  rv_writer_sessions_detach(sessions, session, &a.user);
  assert_int_equal(b.grants, 1);
  assert_int_equal(rv_writer_session_check(session, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "make a new writer"));
  rv_writer_sessions_detach(sessions, session, &b.user);
  rv_writer_sessions_free(sessions);
}

static void a_session_that_one_caller_began_is_no_others(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user(), b = make_user();
  a.user.caller = 1;
  b.user.caller = 2;
  rv_writer_session *session = NULL, *stolen = NULL;
  bool granted = false;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &a.user, &session, &granted, NULL), RV_OK);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &b.user, &stolen, &granted, NULL),
                   RV_PERMISSION_DENIED);
  assert_int_equal(a.evictions, 0);
  rv_writer_sessions_detach(sessions, session, &a.user);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, true, &b.user, &stolen, &granted, NULL),
                   RV_PERMISSION_DENIED);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, true, &a.user, &session, &granted, NULL), RV_OK);
  rv_writer_sessions_detach(sessions, session, &a.user);
  rv_writer_sessions_free(sessions);
}

static void a_newer_stream_evicts_the_owner_and_waits_for_it(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user(), b = make_user(), c = make_user();
  rv_writer_session *session = NULL;
  bool granted = false;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &a.user, &session, &granted, NULL), RV_OK);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &b.user, &session, &granted, NULL), RV_OK);
  assert_false(granted);
  assert_int_equal(a.evictions, 1);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &c.user, &session, &granted, NULL), RV_OK);
  assert_false(granted);
  assert_int_equal(a.evictions, 1);
  assert_int_equal(b.evictions, 1); /* replaced before its turn came */
  rv_writer_sessions_detach(sessions, session, &a.user);
  assert_int_equal(b.grants, 0);
  assert_int_equal(c.grants, 1);
  rv_writer_sessions_detach(sessions, session, &b.user);
  rv_writer_sessions_detach(sessions, session, &c.user);
  rv_writer_sessions_free(sessions);
}

static void a_session_that_somebody_was_evicted_from_stays_until_they_leave(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user(), b = make_user(), c = make_user();
  rv_writer_session *session = NULL;
  bool granted = false;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &a.user, &session, &granted, NULL), RV_OK);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &b.user, &session, &granted, NULL), RV_OK);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &c.user, &session, &granted, NULL), RV_OK);
  rv_writer_sessions_detach(sessions, session, &a.user);
  rv_writer_sessions_detach(sessions, session, &c.user);
  clock_ns += INT64_C(5000000000);
  test_user other = make_user();
  rv_writer_session *others = NULL;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, "ffffffffffffffffffffffffffffffff", false, &other.user, &others,
                                             &granted, NULL),
                   RV_OK);
  assert_int_equal(rv_writer_sessions_count(sessions), 2);
  rv_writer_sessions_detach(sessions, session, &b.user);
  rv_writer_sessions_detach(sessions, others, &other.user);
  rv_writer_sessions_free(sessions);
}

static void an_expired_session_is_not_resumed_silently(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  test_user a = make_user();
  rv_writer_session *session = NULL;
  bool granted = false;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &a.user, &session, &granted, NULL), RV_OK);
  rv_writer_sessions_detach(sessions, session, &a.user);
  clock_ns += INT64_C(2000000000);
  rv_error err = {0};
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, true, &a.user, &session, &granted, &err),
                   RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "expired"));
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &a.user, &session, &granted, NULL), RV_OK);
  rv_writer_sessions_detach(sessions, session, &a.user);
  rv_writer_sessions_free(sessions);
}

static void the_longest_idle_session_makes_room_and_live_ones_stay(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(200);
  test_user users[201];
  rv_writer_session *session[201];
  bool granted = false;
  char writer[33];
  for (int i = 0; i < 200; i++) {
    users[i] = make_user();
    snprintf(writer, sizeof writer, "%032x", i);
    assert_int_equal(rv_writer_sessions_attach(sessions, &limits, writer, false, &users[i].user, &session[i], &granted, NULL),
                     RV_OK);
  }
  users[200] = make_user();
  rv_error err = {0};
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &users[200].user, &session[200], &granted, &err),
                   RV_RESOURCE_EXHAUSTED);
  rv_writer_sessions_detach(sessions, session[7], &users[7].user);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, WRITER, false, &users[200].user, &session[200], &granted, NULL),
                   RV_OK);
  assert_int_equal(rv_writer_sessions_count(sessions), 200);
  snprintf(writer, sizeof writer, "%032x", 7);
  rv_writer_sessions_detach(sessions, session[8], &users[8].user);
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, writer, true, &users[7].user, &session[7], &granted, &err),
                   RV_FAILED_PRECONDITION);
  for (int i = 0; i <= 200; i++)
    if (i != 7 && i != 8) rv_writer_sessions_detach(sessions, session[i], &users[i].user);
  rv_writer_sessions_free(sessions);
}

/* Makes `count` sessions of a caller, which nobody uses then. */
static void leave_idle(rv_writer_sessions *sessions, uint64_t caller, int count)
{
  for (int i = 0; i < count; i++) {
    char writer[33];
    test_user user = make_user();
    rv_writer_session *session;
    bool granted;
    user.user.caller = caller;
    snprintf(writer, sizeof writer, "%016x%016x", (unsigned)caller, i);
    assert_int_equal(rv_writer_sessions_attach(sessions, &limits, writer, false, &user.user, &session, &granted, NULL), RV_OK);
    rv_writer_sessions_detach(sessions, session, &user.user);
    clock_ns++;
  }
}

static bool is_kept(rv_writer_sessions *sessions, uint64_t caller, int number)
{
  char writer[33];
  test_user user = make_user();
  rv_writer_session *session;
  bool granted;
  user.user.caller = caller;
  snprintf(writer, sizeof writer, "%016x%016x", (unsigned)caller, number);
  rv_code code = rv_writer_sessions_attach(sessions, &limits, writer, true, &user.user, &session, &granted, NULL);
  if (code == RV_OK) rv_writer_sessions_detach(sessions, session, &user.user);
  return code == RV_OK;
}

static void who_begins_many_sessions_pushes_out_his_own(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(100);
  leave_idle(sessions, 1, 10);
  leave_idle(sessions, 2, 40);
  leave_idle(sessions, 3, 1000);
  assert_int_equal(rv_writer_sessions_count(sessions), 100);
  for (int i = 0; i < 10; i++) assert_true(is_kept(sessions, 1, i));
  for (int i = 0; i < 40; i++) assert_true(is_kept(sessions, 2, i));
  assert_false(is_kept(sessions, 3, 949));
  for (int i = 950; i < 1000; i++) assert_true(is_kept(sessions, 3, i));
  leave_idle(sessions, 4, 1); /* whoever comes anew takes the place of one of him who has most */
  assert_true(is_kept(sessions, 4, 0));
  assert_false(is_kept(sessions, 3, 950));
  rv_writer_sessions_free(sessions);
}

static void a_session_counts_for_who_takes_it_over(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  leave_idle(sessions, 0, 9); /* of before anybody was asked who he is */
  test_user user = make_user();
  rv_writer_session *session;
  bool granted;
  user.user.caller = 5;
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, "00000000000000000000000000000003", true, &user.user, &session,
                                             &granted, NULL),
                   RV_OK);
  rv_writer_sessions_detach(sessions, session, &user.user);
  leave_idle(sessions, 6, 4);
  for (int i = 0; i < 4; i++) assert_true(is_kept(sessions, 6, i));
  assert_int_equal(rv_writer_sessions_attach(sessions, &limits, "00000000000000000000000000000003", true, &user.user, &session,
                                             &granted, NULL),
                   RV_OK); /* though three of those it was with had to go */
  assert_int_equal(rv_writer_sessions_count(sessions), 10);
  rv_writer_sessions_detach(sessions, session, &user.user);
  rv_writer_sessions_free(sessions);
}

static void a_writer_id_that_is_no_id_is_refused(void **state)
{
  (void)state;
  rv_writer_sessions *sessions = make_sessions(10);
  const char *const bad[] = {"", "12", "00112233445566778899aabbccddeeff0", "zz112233445566778899aabbccddeeff"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    test_user a = make_user();
    rv_writer_session *session = NULL;
    bool granted = false;
    assert_int_equal(rv_writer_sessions_attach(sessions, &limits, bad[i], false, &a.user, &session, &granted, NULL),
                     RV_INVALID_ARGUMENT);
  }
  rv_writer_sessions_free(sessions);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_recorded_item_is_found_by_the_next_stream),
      cmocka_unit_test(a_refused_item_is_never_told_as_inserted_however_many_were_refused_since),
      cmocka_unit_test(reasons_of_all_writers_take_no_more_than_they_may),
      cmocka_unit_test(scattered_refusals_break_no_session),
      cmocka_unit_test(who_is_granted_a_session_learns_what_could_not_be_remembered_while_he_waited),
      cmocka_unit_test(a_session_that_one_caller_began_is_no_others),
      cmocka_unit_test(a_newer_stream_evicts_the_owner_and_waits_for_it),
      cmocka_unit_test(a_session_that_somebody_was_evicted_from_stays_until_they_leave),
      cmocka_unit_test(an_expired_session_is_not_resumed_silently),
      cmocka_unit_test(the_longest_idle_session_makes_room_and_live_ones_stay),
      cmocka_unit_test(who_begins_many_sessions_pushes_out_his_own),
      cmocka_unit_test(a_session_counts_for_who_takes_it_over),
      cmocka_unit_test(a_writer_id_that_is_no_id_is_refused),
  };
  return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
