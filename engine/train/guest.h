/* SPDX-License-Identifier: Apache-2.0
 *
 * What else runs on a model while it trains, such as samples of what it would say: a struct of
 * functions that the loop calls. A guest adds chains to the plan. Its chains and those of training
 * never run together and share memory. The loop calls the guest between steps, with the weights of
 * that moment. A guest changes neither weights nor moments nor data, so training has the same bits
 * with a guest and without. Its numbers may go into the metrics.
 */
#ifndef LF_TRAIN_GUEST_H
#define LF_TRAIN_GUEST_H

#include "engine/back/back.h"
#include "engine/graph/exec.h"
#include "engine/graph/plan.h"
#include "engine/model/decoder.h"

typedef struct lf_trainer lf_trainer;

/* The chains of a guest take the eras below this bit (lf_chain_opts), those of training the
 * rest. */
#define LF_TRAIN_GUEST_ERAS    24
#define LF_TRAIN_GUEST_METRICS 8

struct lf_train_guest {
    void *user;       /* of every function; borrowed */
    int64_t interval; /* visited after every so many steps, and after the last */
    /* Before the plan is finished, on every rank and for lf_train_plan. d and ps outlive
     * `leave`. */
    int (*plan)(void *user, const lf_decoder *d, lf_pstore *ps, lf_plan *plan, lf_err *err);
    /* The plan has memory, the data is open; on every rank, before weights are there. */
    int (*bind)(void *user, lf_trainer *t, lf_exec *ex, lf_back *back, lf_err *err);
    /* Rank 0, after step `step`; the other ranks wait. values: [n_metrics] for the record of that
     * step, NaN: left out. Called again for a step that a run visited before it was killed. */
    int (*visit)(void *user, lf_trainer *t, int64_t step, double *values, lf_err *err);
    /* before executor, plan and decoder are destroyed; also when plan or bind failed */
    void (*leave)(void *user);
    const char *const *metrics;
    size_t n_metrics; /* at most LF_TRAIN_GUEST_METRICS */
};

#endif
