/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from a failure. One const table: class -> what to do, who may do it, how the
 * wrapper's job ends and what that does to the jobs that wait for it. And one function that reads a
 * stage's history and says what the next try should ask for.
 *
 * Actors, strongest first. Each does a row when it can and otherwise leaves it to the next:
 *   wrapper   inside the job (SLURM): requeues it under the same id, with more memory or without a
 *             node where it must
 *   link      a job of the same attempt that was submitted beforehand (PBS, chain = links)
 *             continues; it cannot ask for more
 *   command   the next `submit`, `resume` or `tick` makes another attempt that asks for more
 * A row without an actor waits for a person: `resume` still tries, `tick` does not.
 *
 * Exit codes of the wrapper's job: 0 lets children start (afterok). 75 says that work is left: an
 * afterany link goes on, afterok children do not start. 1 ends the chain; links that follow see the
 * end record and end with 1 too. 76 and 77: see exec.h.
 */
#ifndef LF_FLOW_POLICY_H
#define LF_FLOW_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "flow/run/state.h"

enum lf_policy_act {
    LF_POLICY_NONE,     /* done, nothing to do */
    LF_POLICY_CONTINUE, /* the next segment; not a failure and not counted against `retries` */
    LF_POLICY_RETRY,    /* again, the same request */
    LF_POLICY_MEMORY,   /* again with 1.5 times the memory, up to memory_max */
    /* again with 1.5 times the time limit, up to time_max, when the last try saved nothing */
    LF_POLICY_TIME,
    LF_POLICY_NODE, /* again elsewhere: the node is excluded and gets a strike */
    LF_POLICY_STOP  /* a person must look */
};

enum lf_policy_actor { /* a set */
                       LF_ACTOR_WRAPPER = 1,
                       LF_ACTOR_LINK = 2,
                       LF_ACTOR_COMMAND = 4
};

typedef struct lf_policy {
    const char *cls; /* failure class, as in end.json; "" is done */
    enum lf_policy_act act;
    unsigned actors;      /* who may act without a person */
    int exit_code;        /* of the wrapper's job when it cannot act itself */
    const char *children; /* effect on waiting jobs, for people */
    const char *advice;   /* what a person can do, one sentence, "" when there is nothing to say */
    bool same_again; /* trying again ends in the same way until a person has changed something */
} lf_policy;

/* Never NULL: a class that is not in the table is "unknown". */
const lf_policy *lf_policy_of(const char *cls);
/* The table itself, for the documentation and its test. */
const lf_policy *lf_policy_table(size_t *n);
/* "continue", "retry", "more memory", ... */
const char *lf_policy_act_name(enum lf_policy_act act);

/* What the next attempt, or start, of a stage should ask for. */
typedef struct lf_next {
    enum lf_policy_act act; /* NONE: nothing was tried yet, or it is done */
    const char *cls; /* class of the last end, borrowed from the view; "" when there is none */
    /* An actor may go on without a person: the class allows it, `retries` is not used up, and no
     * cap is reached. false with another act than STOP: `resume` goes on, `tick` does not. */
    bool automatic;
    int64_t memory_bytes; /* per node, instead of the plan's; 0: as planned */
    int64_t time_limit_s; /* of one job, instead of the plan's; 0: as planned */
    lf_texts exclude;     /* host names; owned */
    int tries;            /* how many ends in a row had this class */
    char why[240];        /* for people: "ran out of memory at 4.0 GiB: asks for 6.0 GiB" */
} lf_next;

/* View of a stage (any state). LF_ENOMEM is the only failure. Release with lf_next_fini. */
int lf_policy_next(lf_next *out, const lf_stage_view *s, lf_err *err);
void lf_next_fini(lf_next *n);

/* ---- caps over all starts of an attempt chain ---- */

typedef struct lf_chain_sum {
    int segments;      /* starts, the running one included */
    double walltime_s; /* their sum */
    /* how many of the newest starts in a row gained no step; a start that does not say counts */
    int stalled;
    int64_t step; /* furthest step that is saved, -1 unknown */
} lf_chain_sum;

/* Sum over those starts of the stage that belong to the last attempt. A start that still runs
 * counts up to `now`. */
void lf_chain_add_up(lf_chain_sum *out, const lf_stage_view *s, double now);
/* May another segment follow? NULL, or the class ("capped", "stalled") with the reason as text.
 * resources: the attempt's. */
const char *lf_chain_capped(const lf_chain_sum *sum, const lf_resources *resources, char *why,
                            size_t cap);

#endif
