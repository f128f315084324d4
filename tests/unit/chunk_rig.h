/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder cut into chunks, all of them in one process: each chunk is a graph, and the rig takes
 * what crosses from one to the next in the order of a pipeline. The model as one graph goes through
 * the same rig, so results are compared bit for bit.
 */
#ifndef LF_TESTS_CHUNK_RIG_H
#define LF_TESTS_CHUNK_RIG_H

#include <pthread.h>

#include "engine/graph/exec.h"
#include "engine/model/adapter.h"
#include "engine/model/decoder.h"

enum { RIG_SET = 12, RIG_CHUNKS = 8, RIG_MICRO = 6, RIG_TENSORS = 256 };
enum { RIG_ROWS = 48, RIG_SOURCES = 40, RIG_DOCS = 3, RIG_VOCAB = 45, RIG_LAYERS = 4 };

/* The last two are forward passes alone. */
enum rig_head { RIG_LOSS = 0, RIG_LOGP, RIG_SCORE, RIG_SCORING, RIG_LOGITS };

/* What is computed. */
struct rig_model {
    const char *name;
    const char *family;       /* NULL: llama */
    const char *set[RIG_SET]; /* "key=value" of the description */
    int lora;                 /* rank of adapters on every linear layer; -1: with magnitudes */
    double lora_dropout;
    const char *targets; /* one pattern of layers with adapters; NULL: all */
    bool noise;
    bool mtp; /* heads of mtp_layers are trained */
    enum rig_head head;
    const char *freeze; /* pattern of tensors that are not trained */
};

/* How. */
struct rig_way {
    const char *name;
    int n;                   /* chunks; 0: the whole model as one graph */
    int64_t end[RIG_CHUNKS]; /* chunk k ends before this layer */
    int micro;               /* micro-batches */
    bool in_flight;          /* 1F1B, with as many slots as it needs; else one after the other */
    bool split;              /* the backward pass is two segments, the second one a pass later */
    bool together;           /* all chunks are chains of one plan */
    bool plain;              /* chains do not say which chunk they are */
    bool joined;             /* with split: both segments run as one all the same */
    bool no_reuse;
    int zero;      /* > 0: of two ranks, each of which keeps a part of the state */
    int tensor;    /* 2: two ranks, each a thread, divide every chunk\'s matrices */
    bool sequence; /* and the rows between them */
    bool few;      /* the last document is empty, and only rows of the others are computed */
    lf_back *(*open)(int threads, lf_err *err); /* of an sm_90; NULL: the CPU */
    /* steps of two data-parallel ranks, of which the other one has the same gradients */
    int (*reduce)(void *user, float *grads, size_t n, lf_err *err); /* user: lf_back */
    bool early; /* their sums may begin in the last backward pass */
    enum lf_dtype compute;
    enum lf_recompute recompute;
    enum lf_fp8 fp8;
    int fp8_edges;
    int spoil; /* tests of tests: 1: dx is lost, 2: the balance is, 3: a micro-batch's x */
};

struct rig_tensor {
    char name[96];
    int chunk;
    int64_t n;
    float *grad;
};

struct rig_result {
    char error[1100];
    struct lf_step_record rec; /* sums over chunks */
    double out[6];             /* weighted sums of the outputs of heads */
    struct rig_tensor t[RIG_TENSORS];
    int n_t;
    int frozen; /* so many chunks, from the first on, have nothing that is trained */
    bool tokens[RIG_CHUNKS], targets[RIG_CHUNKS]; /* the chunk has such an input */
    struct lf_plan_bytes bytes[RIG_CHUNKS];       /* of ranks */
    struct lf_plan_cost cost[RIG_CHUNKS];
    uint64_t hash; /* of the first plan */
    /* chunks add to a tied embedding in the order of the whole model: in one store, one micro-batch
     * after the other */
    bool exact;
};

/* ---- what the files of the rig share ---- */

struct rig_rank {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
};

/* What has arrived for a micro-batch and a chunk; NULL: not yet, or nothing crosses. */
struct rig_box {
    char *x, *dx, *load, *total, *source, *dsource;
    bool forward, backward; /* something has */
};

struct rig_item {
    char what; /* F, B, W, or 0 at the end */
    int m;
};

struct rig_part {
    struct rig_rank *on;
    int chain, slots;
    struct rig_item list[3 * RIG_MICRO + 1];
    size_t next; /* of the list */
};

struct rig {
    const struct rig_model *m;
    const struct rig_way *w;
    struct rig_result *r;
    struct rig_rank rank[RIG_CHUNKS];
    struct lf_decoder_chunk chunk[RIG_CHUNKS];
    struct rig_part part[RIG_CHUNKS];
    struct rig_box box[RIG_CHUNKS][RIG_MICRO];
    int n, micro, ranks;
    struct rig_world *world; /* NULL: there is one rank */
    int tensor_rank;
};

/* The ranks of the tensor axis, each a thread that runs all chunks. */
struct rig_world {
    pthread_barrier_t barrier;
    void *part[2];
};
extern const struct lf_exec_comm rig_comm; /* user: struct rig * */
/* Does the model have gradients? */
bool rig_trains(const struct rig *g);
/* Runs all segments in the order of a pipeline. */
void rig_run_all(struct rig *g);

/* ---- what tests use ---- */

void rig_configure(const struct rig_model *m, lf_model_config *c);
/* The chunks of a way, of which the first `frozen` have nothing to train. Without cuts it is one,
 * the whole model. */
int rig_cut(const struct rig_way *w, int frozen, struct lf_decoder_chunk out[RIG_CHUNKS]);
/* Plans, binds and runs forward and backward passes of all micro-batches. r has a result for each
 * rank of the tensor axis. */
void rig_run(const struct rig_model *m, const struct rig_way *w, struct rig_result *r);
void rig_forget(struct rig_result *r);
/* The gradient of a tensor in some chunk, or in the last one of those that have it; NULL: none. */
const struct rig_tensor *rig_find(const struct rig_result *r, const char *name, bool last);

/* ---- models and comparing (chunk_models.c) ---- */

extern const struct rig_model rig_models[];
extern const int rig_n_models;
/* The model of that name. */
const struct rig_model *rig_model(const char *name);
/* The same as one graph, in the plainest order. */
struct rig_way rig_whole(const struct rig_way *w);
/* The number of tensors whose gradients differ in a bit, or for a tied embedding that is added in
 * another order by more than 1e-6; *name becomes the first of them. */
int rig_differing(const struct rig_model *m, const struct rig_result *whole,
                  const struct rig_result *cut, const char **name);
/* Are there sums of loss, outputs and balance, and are they the same? */
bool rig_same_record(const struct rig_result *a, const struct rig_result *b);
bool rig_near(double a, double b); /* 1e-12 */

#endif
