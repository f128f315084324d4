/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run trains towards, when it is not the next token of packed documents: a struct of
 * functions that the loop calls. The loop keeps data, steps, ranks, validation, metrics,
 * checkpoints and resume; an objective gives
 *
 *   rows            what the data must hold: a row of a micro-batch then has whole units (loader.h)
 *   declare         tensors beside the decoder's, and what is frozen, before anything is planned
 *   graph           the training graph and, with train false, the graph of validation and of
 *                   lf_train_over
 *   prepare         what must be known before the first step, such as log-probabilities of a
 *                   reference
 *   after_forward   the loss as arithmetic on the graph's outputs: it adds to sums and, in
 *                   training, writes the gradient inputs (lf_output_grad)
 *   means           sums to the numbers that are reported
 *
 * The loss of a step is over all units of all its micro-batches on all ranks: after_forward scales
 * gradients by inv_units, sums are added up in the order of micro-batches and then of ranks, and
 * divided once. So neither the size of a micro-batch nor the number of ranks changes what is
 * trained.
 */
#ifndef LF_TRAIN_OBJECTIVE_H
#define LF_TRAIN_OBJECTIVE_H

#include <jansson.h>

#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/train/loader.h"

#define LF_OBJECTIVE_SUMS    24 /* at most, of sums and of tops */
#define LF_OBJECTIVE_METRICS 24

typedef struct lf_trainer lf_trainer;

/* One micro-batch after its forward pass. */
struct lf_train_view {
    lf_exec *ex;
    int chain;    /* outputs are lf_exec_read(ex, chain, 0, ...), gradient inputs lf_exec_write */
    int64_t rows; /* of the graph */
    const lf_loader_batch *batch;
    const lf_loader *data; /* the loader of batch; it knows labels and margins of documents */
    bool train;
    bool valid_split; /* batch is of the valid split, and seg_source counts its sources */
    /* In training: loss scale / units of the whole optimizer step. It multiplies gradients and
     * nothing else. */
    double inv_units;
};

typedef struct lf_objective {
    void *user; /* of every function; borrowed */
    enum lf_rows rows;
    bool mismatched;   /* LF_ROWS_UNPAIRED: with a stranger's answer */
    const char *units; /* "pairs": what the data is counted in, for messages */
    int (*declare)(void *user, const lf_decoder *d, lf_pstore *ps, lf_err *err); /* NULL: nothing */
    /* the training graph has the dropouts of the decoder; without, they are left out everywhere */
    bool dropout;
    lf_graph *(*graph)(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err);
    /* Collective, once, when the model has the weights that the run goes on from. fresh: the run
     * begins, with init_from or random weights. NULL: nothing to do. */
    int (*prepare)(void *user, lf_trainer *t, bool fresh, lf_err *err);
    bool prepare_only; /* the run ends after prepare */
    /* What the loss must know about the whole step before it begins (NULL: nothing). survey is
     * called for each micro-batch of an extra forward pass and adds to sums; surveyed gets the sums
     * over all ranks. In validation the pass goes over the whole split. */
    int (*survey)(void *user, const struct lf_train_view *v, double *sums, lf_err *err);
    void (*surveyed)(void *user, const double *sums);
    int (*after_forward)(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err);
    /* over micro-batches and ranks sums are added, of tops the largest is kept (-INFINITY at
     * first) */
    size_t n_sums, n_tops;
    /* means[0] is the loss; the others are reported under metrics[i] and, of validation, under
     * valid_metrics[i]. A value that is not finite is left out. */
    void (*means)(void *user, const double *sums, const double *tops, double *means);
    /* [n_metrics]; literals: they outlive the run */
    const char *const *metrics, *const *valid_metrics;
    size_t n_metrics;
    size_t n_shown; /* metrics 1 .. n_shown - 1 are in the lines of log too */
    /* settings of the objective, kept in checkpoints and compared on resume; borrowed */
    json_t *identity;
    /* Collective, once, after the last step and before the final checkpoint (NULL: nothing to do):
     * may run lf_train_over and fill `extra`, whose members go into the state of that
     * checkpoint. */
    int (*finish)(void *user, lf_trainer *t, lf_err *err);
    json_t *extra; /* borrowed; NULL: none */
} lf_objective;

/* ---- for prepare ---- */

/* Every document of a split of source `source` of the run's data (valid: of its validation data),
 * in a fixed order, once: runs the validation graph and calls visit for each micro-batch of this
 * rank. between (NULL: none) is called on every rank after every `every` steps and at the end, when
 * some rank has visited each sample below `done`. from: the sample to begin at, 0 or the `done` of
 * an earlier call of between. */
struct lf_train_over {
    size_t source;
    bool valid;
    int64_t from;
    int64_t every;
    void *user;
    int (*visit)(void *user, const struct lf_train_view *v, lf_err *err);
    int (*between)(void *user, int64_t done, lf_err *err);
};
int lf_train_over(lf_trainer *t, const struct lf_train_over *o, lf_err *err);

size_t lf_train_n_sources(const lf_trainer *t, bool valid); /* that have the split */
const char *lf_train_source_dir(const lf_trainer *t, size_t source, bool valid);
/* The documents themselves; borrowed. */
const lf_shardset *lf_train_source_set(const lf_trainer *t, size_t source, bool valid);
/* Identity of the weights the run begins with: the checkpoint's (hex), "" for random ones. Rank 0
 * knows it. */
const char *lf_train_init_id(const lf_trainer *t);
/* What must be the same for the same bits: kernels, threads, layout; borrowed. */
json_t *lf_train_numbers(const lf_trainer *t);
const char *lf_train_out(const lf_trainer *t);
bool lf_train_first_rank(const lf_trainer *t);
int lf_train_agree(const lf_trainer *t, int rc, lf_err *err);
/* Collective: v becomes the sum over ranks, in rank order. */
int lf_train_add_up(const lf_trainer *t, double *v, size_t n, lf_err *err);
/* Collective: rank 0's bytes on all ranks. */
int lf_train_share(const lf_trainer *t, void *data, size_t bytes, lf_err *err);
bool lf_train_asked_to_stop(const lf_trainer *t);
void lf_train_log(const lf_trainer *t, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
