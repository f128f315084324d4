/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest is other work on a model while it trains, such as generating samples: a struct of
 * functions that the loop calls. A guest adds chains to the plan. Its chains never run together
 * with those of training and share their memory. The loop calls the guest between steps, with the
 * current weights. A guest changes neither weights nor moments nor data, so training has the same
 * bits with a guest and without. The metrics may hold numbers of the guest.
 */
#ifndef LF_TRAIN_GUEST_H
#define LF_TRAIN_GUEST_H

#include "engine/back/back.h"
#include "engine/graph/exec.h"
#include "engine/graph/plan.h"
#include "engine/model/decoder.h"
#include "engine/store/shard.h"
#include "engine/train/run.h"

/* Where a guest is; everything is borrowed and lives until `leave`. */
struct lf_guest_host {
    lf_run *run; /* to log, and to write samples */
    /* Does this rank make the passes of the guest: rank 0, and those that divide matrices with it?
     * They have the same results, and `group` connects them; NULL: rank 0 alone. */
    bool draws;
    lf_comm *group;
    const lf_shardset *data; /* of the training; it names the end of documents and the tokenizer */
    const lf_shardset *const *docs; /* [n_docs] what prompts may be taken from: the valid splits */
    size_t n_docs;
    bool prompts; /* a document of docs is a prompt, all of it */
    const lf_model_config *model;
    /* most patches and tiles of a prompt for which the generator of another has room; 0: the guest
     * plans its own */
    int64_t patches, tiles;
};

/* The chains of a guest take the eras below this bit (lf_chain_opts), those of training the
 * rest. */
#define LF_TRAIN_GUEST_ERAS    24
#define LF_TRAIN_GUEST_METRICS 8

struct lf_train_guest {
    void *user;       /* of every function; borrowed */
    int64_t interval; /* steps between visits; there is one after the last step too */
    /* Before the plan is finished, on every rank and for lf_train_plan. d and ps outlive
     * `leave`. */
    int (*plan)(void *user, const lf_decoder *d, lf_pstore *ps, lf_plan *plan, lf_err *err);
    /* Memory of the host beside that of the plan, after `plan`; NULL: none. */
    size_t (*host_bytes)(void *user);
    /* Called when the plan has memory and the data is open, before the weights are read; on every
     * rank. */
    int (*bind)(void *user, const struct lf_guest_host *host, lf_exec *ex, lf_back *back,
                lf_err *err);
    /* Called on the ranks of host->draws after step `step`, while the others wait; with zero = 3
     * they have gathered the weights that chains with `whole` read (lf_exec_hold).
     * values[n_metrics] go into the record of that step; NaN is left out. It is called again for a
     * step that an earlier, killed start had visited. */
    int (*visit)(void *user, int64_t step, double *values, lf_err *err);
    /* before executor, plan and decoder are destroyed; also when plan or bind failed */
    void (*leave)(void *user);
    const char *const *metrics;
    size_t n_metrics; /* at most LF_TRAIN_GUEST_METRICS */
};

#endif
