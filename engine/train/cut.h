/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run is cut along the pipeline axis (axes.h): which layers each rank has, its lists of
 * engine/pipe, and the buffers between it and its neighbours. All of it follows from settings, so
 * that every rank, and --plan, finds the same.
 */
#ifndef LF_TRAIN_CUT_H
#define LF_TRAIN_CUT_H

#include "engine/model/decoder.h"
#include "engine/pipe/pipe.h"
#include "engine/train/axes.h"

enum { LF_TRAIN_MAX_CHUNKS = 16 };

struct lf_train_config;

/* One chunk of this rank: its layers, and its chains in the plan. */
struct lf_train_chunk {
    struct lf_decoder_chunk part;
    int stage;                    /* of the pipeline: its number among the parts of the model */
    int train, valid;             /* valid < 0: none */
    int slots;                    /* of train */
    int buffers[LF_PIPE_DIRS][2]; /* the most of all lists: to receive into, and to send from */
};

/* Zeroed but for one chunk where the model is whole. */
struct lf_train_cut {
    struct lf_train_chunk chunk[LF_TRAIN_MAX_CHUNKS];
    int n_chunks;
    struct lf_pipe_spec spec; /* micro_batches: the most of all lists; ranks 0: a whole model */
    int *layers;              /* [spec.ranks * spec.chunks] of each pipeline stage; owned */
    struct lf_pipe *list;     /* for each number of micro-batches that a step may have; owned */
    size_t n_lists, room;
    struct lf_pipe *forward; /* lists that only go forwards, made when they are needed; owned */
    size_t n_forward, forward_room;
    size_t message; /* room for what crosses a cut for one micro-batch, either way */
    /* where the stream of sources begins in it, behind x or dx, and behind that the balance of
     * experts */
    size_t source_at, sums_at;
    size_t bytes; /* of all buffers; state LF_TRAIN_CUT_STATE of the plan */
};
#define LF_TRAIN_CUT_STATE "pipeline"

static inline bool lf_train_is_cut(const struct lf_train_cut *k)
{
    return k->spec.ranks > 1;
}
/* Does this rank have the losses? */
static inline bool lf_train_has_loss(const struct lf_train_cut *k)
{
    return k->chunk[k->n_chunks - 1].part.last;
}
/* Does it have both ends of the model? Then what they share, such as a tied embedding, is on it
 * alone. */
static inline bool lf_train_has_ends(const struct lf_train_cut *k)
{
    return k->chunk[0].part.first && lf_train_has_loss(k);
}
/* The layers of a pipeline stage. What is frozen is not known yet. */
struct lf_decoder_chunk lf_train_part(const struct lf_train_cut *k, int stage);
/* The list for so many micro-batches. */
const struct lf_pipe *lf_train_list(const struct lf_train_cut *k, int micro_batches);
/* The list of as many that only go forwards, whose messages have the buffers of lf_train_list. It
 * is valid until the next call. At most lf_train_forward_most, which keeps all ranks busy. NULL: no
 * memory. */
const struct lf_pipe *lf_train_forward_list(struct lf_train_cut *k, int micro_batches, lf_err *err);
int lf_train_forward_most(const struct lf_train_cut *k);

/* Parts of the model that each rank of the pipeline axis has. */
int lf_train_chunks(const struct lf_axes *a);
/* Rows of a micro-batch that a rank computes. */
int64_t lf_train_own_rows(const struct lf_train_config *c, const struct lf_train_who *who);
/* Refuses what no model can have together with a pipeline: LF_EINVAL, LF_ENOTSUP. */
int lf_train_cut_check(const struct lf_train_config *c, lf_err *err);
/* Cuts the model mc for the rank `who`. LF_EINVAL: settings that contradict each other or the
 * model; the message names the options. */
int lf_train_cut_open(struct lf_train_cut *k, const struct lf_train_config *c,
                      const lf_model_config *mc, const struct lf_train_who *who, lf_err *err);
void lf_train_cut_close(struct lf_train_cut *k);

#endif
