/* SPDX-License-Identifier: Apache-2.0
 *
 * An objective replaces the next token of packed documents as the loss of a run. It is a struct of
 * functions that the loop calls. The loop still does data, steps, ranks, validation, metrics,
 * checkpoints and resume. An objective gives
 *
 *   rows            the kind of data; a row of a micro-batch then has whole units (loader.h)
 *   declare         tensors beside those of the decoder, and frozen tensors, before planning
 *   graph           the training graph and, with train false, the graph of validation and of
 *                   lf_train_over
 *   prepare         work before the first step, such as log-probabilities of a reference
 *   inputs          what is written before a forward pass, where that is not the decoder's
 *   after_forward   the loss, computed from the outputs of the graph: it adds to sums and, in
 *                   training, writes the gradient inputs (lf_output_grad)
 *   means           the reported numbers, computed from sums
 *
 * The loss of a step is over all units of all its micro-batches on all ranks. after_forward scales
 * gradients by inv_units. Sums are added up in the order of micro-batches, then of ranks, and
 * divided once. So neither the size of a micro-batch nor the number of ranks changes the training.
 *
 * Ranks that divide the rows of a micro-batch (context) all see the whole of it, with the outputs
 * of all rows (lf_train_view_read). They compute the same losses, of which one counts, and each
 * writes the gradients of its rows (lf_train_view_write).
 */
#ifndef LF_TRAIN_OBJECTIVE_H
#define LF_TRAIN_OBJECTIVE_H

#include <jansson.h>

#include "engine/graph/exec.h"
#include "engine/graph/plan.h"
#include "engine/model/decoder.h"
#include "engine/train/guest.h"
#include "engine/train/loader.h"

#define LF_OBJECTIVE_SUMS    24 /* most sums, and most tops */
#define LF_OBJECTIVE_METRICS 24

typedef struct lf_trainer lf_trainer;

/* One micro-batch after its forward pass. */
struct lf_train_view {
    lf_exec *ex;
    /* outputs are lf_exec_read(ex, chain, slot, ...), gradient inputs lf_exec_write */
    int chain, slot;
    int64_t rows; /* of the micro-batch; of the graph, where ranks do not divide them */
    lf_trainer *trainer;
    const lf_loader_batch *batch;
    const lf_loader *data; /* the loader of batch, which has labels and margins of documents */
    bool train;
    bool valid_split; /* batch is of the valid split, and seg_source counts its sources */
    /* In training: loss scale / units of the whole optimizer step. It multiplies gradients only. */
    double inv_units;
    double inv_trained; /* the same of the trained tokens of the step */
};

typedef struct lf_objective {
    void *user; /* of every function; borrowed */
    enum lf_rows rows;
    bool mismatched;   /* LF_ROWS_UNPAIRED: with a stranger's answer */
    const char *units; /* "pairs": the name of units, for messages */
    /* Units are the pictures of plain documents, tiles counted: a row is one document, whose text
     * is not read (loader.h). Nothing counts tokens then */
    bool pictures;
    bool captions; /* with pictures: it reads the tokens of documents all the same */
    const struct lf_augment *augment; /* pictures that are trained on are changed so; NULL: none */
    int64_t least_valid; /* a validation has so many samples at least, or the run is refused */
    int repeats;         /* each sample comes so many times in a batch (loader.h); 0, 1: once */
    /* It reads whole texts, so the tokens of its model may see what follows them */
    bool whole_texts;
    /* With whole_texts: what is behind the first token of this number in a text is of type 1 (the
     * second text of a pair), where the model has types; -1: all is of type 0 */
    int64_t separator;
    /* A document is several texts that end with the separator (texts.h) and see not each other */
    bool several;
    int (*declare)(void *user, const lf_decoder *d, lf_pstore *ps, lf_err *err); /* NULL: nothing */
    /* the training graph has the dropouts of the decoder; false: no graph has them */
    bool dropout;
    /* It moves frozen tensors itself, so that these have masters in every precision */
    bool averages;
    /* The most bytes of a row of an output that it reads of each row, or of its gradient, which
     * graph may set; 0: it reads otherwise, so that ranks do not divide rows */
    size_t row_bytes;
    lf_graph *(*graph)(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err);
    /* Adds chains of its own to the plan, of LF_TRAIN_ERA_OBJECTIVE: passes that `inputs` runs
     * before a micro-batch. r is of the graph of training; valid: there is a graph of validation.
     * Once, behind graph. May be NULL. */
    int (*plan)(void *user, lf_pstore *ps, lf_plan *plan, const struct lf_decoder_rows *r,
                bool valid, lf_err *err);
    /* Writes the inputs of a graph that is not the decoder's, in place of the loop. May be NULL. */
    int (*inputs)(void *user, const struct lf_train_view *v, lf_err *err);
    /* Host memory that it will have taken, once graph was called; NULL: nothing to speak of */
    size_t (*host_bytes)(void *user);
    /* Collective, once, when the model has its weights. fresh: the run begins, with init_from or
     * random weights. May be NULL. */
    int (*prepare)(void *user, lf_trainer *t, bool fresh, lf_err *err);
    bool prepare_only; /* the run ends after prepare */
    /* Before each step: `done` of `total` are done. Every rank does the same. May be NULL. */
    int (*begin)(void *user, int64_t done, int64_t total, lf_err *err);
    /* For a loss that needs sums over the whole step before the step begins; may be NULL. survey is
     * called for each micro-batch of an extra forward pass and adds to sums; surveyed gets the sums
     * over all ranks. In validation the pass goes over the whole split. */
    int (*survey)(void *user, const struct lf_train_view *v, double *sums, lf_err *err);
    void (*surveyed)(void *user, const double *sums);
    /* Collective, behind surveyed: samples [first, first + n) were seen, by one rank each. For what
     * does not fit into sums. May be NULL */
    int (*gathered)(void *user, lf_trainer *t, bool valid, int64_t first, int64_t n, lf_err *err);
    int (*after_forward)(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err);
    /* over micro-batches and ranks, sums are added and the largest of tops is kept (-INFINITY at
     * first) */
    size_t n_sums, n_tops;
    /* means[0] is the loss. The others are reported under metrics[i] and, in validation, under
     * valid_metrics[i]. A value that is not finite is left out. */
    void (*means)(void *user, const double *sums, const double *tops, double *means);
    /* [n_metrics]; they outlive the run */
    const char *const *metrics, *const *valid_metrics;
    size_t n_metrics;
    size_t n_shown; /* metrics 1 .. n_shown - 1 are in log lines too */
    /* settings of the objective, which checkpoints keep and a resume compares; borrowed */
    json_t *identity;
    /* Collective, once, after the last step and before the final checkpoint; may be NULL. It may
     * run lf_train_over and fill `extra`, whose members go into the state of that checkpoint. */
    int (*finish)(void *user, lf_trainer *t, lf_err *err);
    json_t *extra; /* borrowed; NULL: none */
} lf_objective;

/* Chains of an objective are live at no time of which those of training and validation are. */
#define LF_TRAIN_ERA_OBJECTIVE (4u << LF_TRAIN_GUEST_ERAS)

/* For `inputs`: writes the inputs of the decoder's graphs over the micro-batch into a chain over
 * the same rows: tokens, positions, documents and what else the description and dropout need, and
 * with `targets` these. */
int lf_train_view_inputs(const struct lf_train_view *v, int chain, bool targets, lf_err *err);
/* The rows of a micro-batch, of which a graph of r has some where ranks divide them. */
int64_t lf_train_all_rows(const lf_pstore *ps, const struct lf_decoder_rows *r);
/* Reads output `name`, `each` bytes (<= row_bytes) a row, of all rows of the micro-batch in their
 * order. Collective among the ranks that divide these rows: one without memory for them meets the
 * others with dst NULL, LF_ENOMEM, whose words are its own. Errors of lf_exec_read, LF_ECOMM. */
int lf_train_view_read(const struct lf_train_view *v, const char *name, void *dst, size_t each,
                       lf_err *err);
/* Writes this rank's rows of the gradient that `src` has of all rows. Errors of lf_exec_write. */
int lf_train_view_write(const struct lf_train_view *v, const char *name, const void *src,
                        size_t each, lf_err *err);

/* ---- for prepare ---- */

/* Goes over every document of source `source` of the run's data (with valid: of its validation
 * data), in a fixed order, once. It runs the validation graph and calls visit for each micro-batch
 * of this rank. between (may be NULL) is called on every rank after every `every` steps and at the
 * end; each sample below `done` then has been visited by some rank. from is the first sample: 0, or
 * the `done` of an earlier call of between. */
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

size_t lf_train_n_sources(const lf_trainer *t, bool valid); /* sources that have the split */
const char *lf_train_source_dir(const lf_trainer *t, size_t source, bool valid);
/* The documents themselves; borrowed. */
const lf_shardset *lf_train_source_set(const lf_trainer *t, size_t source, bool valid);
/* Returns the identity (hex) of the checkpoint with which the run begins, "" for random weights.
 * Only rank 0 knows it. */
const char *lf_train_init_id(const lf_trainer *t);
/* Returns what must be equal for the same bits: kernels, threads, layout. Borrowed. */
json_t *lf_train_numbers(const lf_trainer *t);
const char *lf_train_out(const lf_trainer *t);
bool lf_train_first_rank(const lf_trainer *t);
int lf_train_agree(const lf_trainer *t, int rc, lf_err *err);
/* Collective: replaces v by its sum over ranks, in rank order. Ranks that have seen the same
 * micro-batches count once. */
int lf_train_add_up(const lf_trainer *t, double *v, size_t n, lf_err *err);
/* Collective: copies the bytes of rank 0 to all ranks. */
int lf_train_share(const lf_trainer *t, void *data, size_t bytes, lf_err *err);
bool lf_train_asked_to_stop(const lf_trainer *t);
void lf_train_log(const lf_trainer *t, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
