/* SPDX-License-Identifier: Apache-2.0
 *
 * What a running stage writes to its log, told as it comes: each new line once, without what only
 * the log needs. Of many lines at once those with a validation or a warning are told, and the last
 * ones. They are the log's bytes: who prints them for a terminal makes them visible.
 */
#ifndef LF_FLOW_TALK_H
#define LF_FLOW_TALK_H

#include <stdbool.h>
#include <stdint.h>

#include "flow/run/state.h"

/* Where the listener is; all zero at first. */
typedef struct lf_talk {
    int epoch;      /* the start whose log it is */
    int64_t at;     /* bytes of the log that were told */
    int64_t warned; /* warnings among them */
    bool brief;     /* tell only lines with a validation, a warning or a note; stays */
} lf_talk;

/* Tell what the log of `start` has got since the last call. A log that cannot be read says
 * nothing. */
void lf_talk_on(lf_talk *t, const lf_start *start, void (*say)(void *user, const char *text),
                void *user);

/* Tell that a stage is done: head, then its numbers in the same line, and below it scores or first
 * texts (flow/run/closing.h). */
void lf_talk_done(const lf_stage_view *s, const char *head,
                  void (*say)(void *user, const char *text), void *user);

#endif
