/* SPDX-License-Identifier: Apache-2.0
 *
 * Records, and parts of them, as `--json` shows them; for what prints alone.
 */
#ifndef LF_FLOW_SHOWN_H
#define LF_FLOW_SHOWN_H

#include "flow/record/attempt.h"
#include "flow/record/queue.h"
#include "flow/record/start.h"

struct json_t;

/* A member of a result as it is on disk: "outputs", "inputs"; NULL where d is NULL. New
 * reference. */
struct json_t *lf_done_shown(const struct lf_done *d, const char *member);
struct json_t *lf_started_shown(const struct lf_started *s, const char *member);
struct json_t *lf_end_shown(const struct lf_end *e, const char *member);

/* "resources" or "accepted"; NULL also where it was not given. */
struct json_t *lf_sched_job_shown(const lf_sched_job *j);
struct json_t *lf_job_said_shown(const lf_job_said *j);
struct json_t *lf_job_shown(const struct lf_job_rec *j, const char *member);
struct json_t *lf_attempt_shown(const struct lf_attempt_rec *a, const char *member);

#endif
