/* SPDX-License-Identifier: Apache-2.0
 *
 * Scenarios of crash_test: what one looks like, and what they share.
 */
#ifndef LF_TESTS_CRASH_TEST_H
#define LF_TESTS_CRASH_TEST_H

#include "engine/base/artifact.h"
#include "engine/base/err.h"

/* run does it all once below dir, in the traced child. check judges what a crash left in dir;
 * promised: the last mark before the crash, 0 none. recover, where it is given, is tried on every
 * n-th state: the program is run again and must come to its end. */
struct scenario {
    const char *name;
    void (*run)(const char *dir);
    int (*check)(const char *dir, int promised);
    int (*recover)(const char *dir);
    int spare; /* so many syncs at the end are not put to the test; the scenario says why */
};

extern const struct scenario crash_epochs, crash_events;     /* crash_flow.c */
extern const struct scenario crash_tokenize, crash_pretrain; /* crash_stages.c */

extern lf_err crash_err; /* the error box of all scenarios */

void need(int rc);                                 /* in run: end the child when rc is a failure */
void mark(int n);                                  /* in run: promise number n holds from here on */
const char *at(const char *dir, const char *name); /* dir/name; good for seven more calls */
/* 0: absent, or present with the right hashes */
int whole(const char *dir, enum lf_artifact_state *state);

#endif
