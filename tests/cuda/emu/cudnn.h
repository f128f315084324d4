/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulated cuDNN for tests. It takes descriptors as strictly as the library's manual words them
 * (attributes with their types and numbers of elements, everything finished before it is used,
 * unique ids, every address named) and runs any graph of pointwise operations, products, reductions
 * and transpositions operation by operation, in the stream's queue. What lies beyond the lengths of
 * a batch is NaN until a graph masks it.
 */
#ifndef LF_KERNELS_CUDA_EMU_CUDNN_H
#define LF_KERNELS_CUDA_EMU_CUDNN_H

#include "kernels/cuda/attn_cudnn.h"

void lf_emu_cudnn(struct lf_dnn *out);
/* What it does from now on. */
struct lf_emu_dnn_mood {
    size_t version; /* 0: 91900 */
    bool no_engine; /* no configuration for any graph */
    bool no_plan;   /* plans do not finish */
    bool no_run;    /* executions fail */
    bool no_start;  /* no handle */
    int fail_call;  /* > 0: that descriptor call (made, set, finished) from now on fails */
};
struct lf_emu_dnn_counts {
    int asked, plans, runs; /* heuristics, finished plans, executions */
    int calls;              /* descriptors made, attributes set, descriptors finished */
};
struct lf_emu_dnn_counts lf_emu_dnn_mood(const struct lf_emu_dnn_mood *m); /* NULL: counts alone */

/* ---- between cudnn.c and cudnn_eval.c ---- */

enum { LF_EMU_DNN_ATTRIBUTES = 12, LF_EMU_DNN_TENSORS = 192, LF_EMU_DNN_IDS = 128 };
struct lf_emu_attribute {
    int name, type;
    int64_t n;
    void *value; /* owned */
};
struct lf_emu_desc {
    int type;
    bool finished;
    struct lf_emu_attribute a[LF_EMU_DNN_ATTRIBUTES];
    int n;
    int choice; /* of a configuration, an engine, a plan: which of the offers */
};
const struct lf_emu_attribute *lf_emu_dnn_find(const struct lf_emu_desc *d, int name);
struct lf_emu_desc *lf_emu_dnn_ref(const struct lf_emu_desc *d, int name); /* NULL: not set */
int lf_emu_dnn_enum(const struct lf_emu_desc *d, int name);
int64_t lf_emu_dnn_int(const struct lf_emu_desc *d, int name);

/* The tensors of a graph, each once; -1 when two have one id, or too many. */
int lf_emu_dnn_tensors(const struct lf_emu_desc *graph,
                       struct lf_emu_desc *out[LF_EMU_DNN_TENSORS]);
/* Do the shapes and types of its operations fit together? */
bool lf_emu_dnn_sound(const struct lf_emu_desc *graph);
/* Addresses by place in the pack; scalars are taken when the graph is executed. */
struct lf_emu_dnn_job {
    const struct lf_emu_desc *graph;
    int64_t n, id[LF_EMU_DNN_IDS];
    void *at[LF_EMU_DNN_IDS];
    float scalar[LF_EMU_DNN_IDS];
    bool spoil; /* an engine that nobody should have chosen */
};
void lf_emu_dnn_run(void *job);

#endif
