/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipeline parallelism in the loop. A rank of the pipeline axis (axes.h) has some layers of the
 * model, its chunks, and carries out its list of engine/pipe (cut.h). Activations and their
 * gradients go from rank to rank beside the computation, through buffers of the plan, or of the
 * host where memory of GPUs goes through it (LF_COMM=ucx). Between GPUs a list is queued, and the
 * streams wait for each other; else the host waits where the list does.
 *
 * A step reads all of its micro-batches first, so that ranks which will wait for each other agree
 * that each has them; then it walks the list. What goes forwards only is read in the same way, as
 * many micro-batches at once as a step of training has at most, whole groups of all ranks of them,
 * and has lists of its own, in which all ranks are busy but for the first and the last passes.
 */
#ifndef LF_TRAIN_PIPE_H
#define LF_TRAIN_PIPE_H

#include "engine/train/loop_priv.h"

/* After the executor is bound. lf_train_pipe_close is legal after a failure. */
int lf_train_pipe_open(lf_trainer *t, lf_err *err);
void lf_train_pipe_close(lf_trainer *t);
/* On the first rank: room for the gradients of a tied embedding that the last one makes, until
 * lf_train_pipe_close. NULL: none is needed. */
float *lf_train_pipe_tied(const lf_trainer *t);
/* Memory of the host that open takes, by the plan of m. */
size_t lf_train_pipe_bytes(const struct lf_train_config *c, const struct lf_train_model *m);

/* Reads the micro-batches of a step, of which this rank carries out its list. Collective over the
 * ranks of a pipeline. */
int lf_train_pipe_step(lf_trainer *t, const struct lf_loader_step *ls, struct lf_train_sums *sums,
                       double *data_s, lf_err *err);
/* A chain's memory of a slot for what crosses one of its cuts: what comes in, or what goes out. */
struct lf_train_side {
    int chain, slot;
    enum lf_pipe_dir dir;
    bool out;
};
/* Copies between that memory and a message, which has t->m.cut.message bytes in the memory of
 * t->pipe, or without one on the host: x or dx, that of sources, then the balance of experts. A
 * chain that has nothing there is left alone. */
int lf_train_pipe_copy(const lf_trainer *t, char *message, const struct lf_train_side *s,
                       lf_err *err);
/* lf_train_forwards through the chunks of all ranks. */
int lf_train_pipe_forwards(lf_trainer *t, struct lf_train_forwards *f, int64_t n, lf_err *err);

#endif
