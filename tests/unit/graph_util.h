/* SPDX-License-Identifier: Apache-2.0
 *
 * What the graph tests share: a small decoder with switches, built through the public builder, and
 * a harness that plans, binds and runs it.
 */
#ifndef LF_TESTS_GRAPH_UTIL_H
#define LF_TESTS_GRAPH_UTIL_H

#include "engine/graph/exec.h"
#include "tests/tap/tap.h"

enum { GU_DOCS = 6 };

struct gu_model {
    int layers, c, heads, groups, d, ffn, vocab, max_pos;
    bool layer_norm, rope, glu, bias, qk_norm, tied, parallel, split_qkv;
    float dropout;
    int64_t rows; /* tokens of a micro-batch */
};

struct gu_opts {
    struct lf_plan_opts plan;
    enum lf_recompute recompute;
    int slots;
    /* valid: a second, forward-only graph of the same model in another era */
    bool poison, optimizer, valid;
    bool packed, whole; /* of the second graph */
    /* of the optimizer: how it keeps its state; the numbers are always the same */
    struct lf_adamw_opts state;
    struct lf_profile *profile;
    int dp_ranks;                                    /* > 0: data-parallel, in small buckets */
    int dp_rank, zero;                               /* lf_plan_ranks */
    const char *freeze;                              /* prefix */
    const char *fp8;                                 /* pattern of what plan.fp8 is for */
    void (*tamper)(lf_plan *p);                      /* between planning and binding */
    lf_back *(*open_back)(int threads, lf_err *err); /* NULL: the CPU's */
    const struct lf_kernels *kernels; /* to plan with, where not those of the target */
};

struct gu {
    struct gu_model m;
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
    int train, valid;
};

extern const struct gu_model gu_llama, gu_gpt2, gu_qwen;
extern const struct gu_opts gu_f32, gu_bf16;

lf_graph *gu_graph(const struct gu_model *m, lf_pstore *ps, const char *name, bool outputs,
                   lf_err *err);
lf_pstore *gu_store(const struct gu_model *m, lf_err *err);
/* The plan alone, which needs no memory. */
void gu_plan(struct gu *u, const struct gu_model *m, const struct gu_opts *o);
/* Everything, with weights from seed 7 scaled up ("hot"); bails out on failure. */
void gu_open(struct gu *u, const struct gu_model *m, const struct gu_opts *o);
void gu_close(struct gu *u);

/* Deterministic batch number `which`; copies rows [from, from + rows) of a virtual longer batch
 * when parts > 1. */
struct gu_batch {
    int32_t token[512], target[512], position[512], cu[GU_DOCS + 1];
    int64_t sample[512];
    int trained;
};
void gu_batch_make(struct gu_batch *b, const struct gu_model *m, int64_t rows, uint32_t which);
void gu_feed(struct gu *u, int chain, int slot, const struct gu_batch *b);
/* Step record with inv_tokens = 1 / trained. */
void gu_record(struct gu *u, int trained, float lr);
struct lf_step_record gu_result(struct gu *u);
/* One forward + backward of one micro-batch. */
void gu_fwd_bwd(struct gu *u, int slot, enum lf_variant v);
/* All gradients, one after another; free(). */
float *gu_grads(const struct gu *u, size_t *n);
double gu_rel_diff(const float *a, const float *b, size_t n); /* ||a-b|| / ||b|| */

#endif
