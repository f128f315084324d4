/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of a tiny decoder by several ranks in lock step (local.h): each rank opens the trainer
 * of engine/train with its own store, plan, executor and loader, makes the steps of
 * engine/train/step.c and shows what it has. One rank alone, from the same binary, is the measure
 * of all.
 */
#ifndef LF_TESTS_LAYOUT_RIG_H
#define LF_TESTS_LAYOUT_RIG_H

#include "engine/train/loop_priv.h"
#include "tests/layout/local.h"

/* Steps of a run: a case may make fewer (c.steps). */
enum { RIG_STEPS = 3, RIG_TOLD = 7, RIG_TOLD_ROUTES = 3 };

/* How ranks divide the work: pipeline * ranks * context * tensor of them, in a mesh
 * (engine/train/axes.h). */
struct rig_layout {
    int ranks;            /* of the data axis */
    int zero, zero_inner; /* lf_train_config */
    int tensor;           /* ranks that divide matrices; 0 is 1 */
    int context;          /* ranks that divide rows; 0 is 1 */
    int kind;             /* lf_context_kind */
    bool sequence;        /* lf_axes */
    int pipeline;         /* ranks that have different layers; 0 is 1 */
    int chunks, schedule; /* lf_axes */
    const char *stages;   /* lf_axes */
    int expert;           /* of the data axis, ranks that divide experts; 0 is 1 */
    double expert_room;   /* lf_axes */
    int expert_tensor;    /* lf_axes */
};
static inline int rig_tensor_ranks(const struct rig_layout *l)
{
    return l->tensor > 1 ? l->tensor : 1;
}
/* Those that sum their gradients, and divide the state. */
static inline int rig_sharers(const struct rig_layout *l)
{
    return l->ranks * (l->context > 1 ? l->context : 1);
}
static inline int rig_pipeline_ranks(const struct rig_layout *l)
{
    return l->pipeline > 1 ? l->pipeline : 1;
}
static inline int rig_expert_ranks(const struct rig_layout *l)
{
    return l->expert > 1 ? l->expert : 1;
}
static inline int rig_all_ranks(const struct rig_layout *l)
{
    return rig_sharers(l) * rig_tensor_ranks(l) * rig_pipeline_ranks(l);
}

/* A run: what is trained, how, and by whom. */
struct rig_case {
    struct rig_layout layout;
    bool poison, no_reuse, late; /* modes: lf_exec_opts, lf_plan_opts, local.h */
    uint64_t turns;              /* local.h */
    struct local_plant plant;    /* local.h */
    struct lf_train_config c;    /* what rig_fill does not set */
    int64_t batch;               /* sequences of a step */
    struct lf_adapter_config adapter;
    bool adapted;
    const char *frozen; /* pattern of names, NULL: none */
    const char *out;    /* NULL: nothing is read or written there */
    int from;           /* step of a checkpoint in out to go on from, 0: begin */
    bool save;          /* a checkpoint after step 1, in out */
    /* NULL; else a checkpoint of what the run begins with is written to this directory */
    const char *copy;
    bool still; /* no step is made */
};

/* The settings that the cases differ from. The model has no description yet: rig_model. */
void rig_begin(struct rig_case *k);
/* Do both ends of a pipeline hold embed.weight? */
static inline bool rig_tied(const struct rig_case *k)
{
    return k->c.model.tied_head || (k->c.model.mtp_layers && k->c.mtp_weight > 0);
}
/* Applies "key=value key=value" to the description of the model. LF_EINVAL. */
int rig_model(struct rig_case *k, const char *keys, lf_err *err);
/* Makes the model an encoder-decoder, with two layers in each stack, that says what was taken out
 * of texts. What is usual goes with it: every head has keys of its own, and positions are
 * distances; other values stay. */
void rig_two_stacks(struct rig_case *k);

/* What is looked at of each tensor. */
enum rig_kind {
    RIG_BEFORE, /* weights, and moments, that it begins with */
    RIG_BEFORE_M,
    RIG_BEFORE_V,
    RIG_GRAD,
    RIG_AFTER, /* weights at the end, then moments */
    RIG_M,
    RIG_V,
    RIG_COPY,
    RIG_KINDS
};
struct rig_tensor {
    char name[64];
    int64_t n;
    /* so many ranks with one data coordinate have the same elements of it: some of the tensor axis,
     * and of a tied embedding both ends of the pipeline axis */
    int copies;
    bool experts;              /* ranks of the data axis with other experts have other elements */
    bool folded;               /* and those of the tensor axis, too (lf_layout) */
    float *v[RIG_KINDS];       /* [n], owned; NULL: no rank has it */
    uint8_t *times[RIG_KINDS]; /* [n] how many ranks have it, owned */
};

/* In step 1, of all ranks: collectives of plans and bytes that are sent, and what plans say of
 * them. */
struct rig_moved {
    uint64_t calls, bytes, planned_calls;
    double planned_bytes;
};

enum { RIG_DATA, RIG_TENSOR, RIG_PIPELINE, RIG_CONTEXT, RIG_EXPERT, RIG_AXES };

/* What all ranks together have shown. */
struct rig_seen {
    double loss[RIG_STEPS], norm[RIG_STEPS], scale[RIG_STEPS];
    /* of step 1: accuracy, entropy, z-loss, and from RIG_TOLD_ROUTES on four of routers */
    double told[RIG_TOLD];
    double trained;       /* tokens of step 1 */
    struct rig_tensor *t; /* by name, owned */
    int n;
    bool replicas;     /* the engine says that ranks hold different weights */
    char apart[200];   /* the first thing in which ranks differ, "" none */
    char missing[200]; /* of which a part is kept by the wrong number of ranks, "" none */
    int from;          /* rig_case: what was before that step is not shown */
    struct rig_moved moved[RIG_AXES];
    /* Of ranks that divide experts, in step 1: calls and bytes of rows that go to others and back,
     * and what that is in one round with every expert chosen equally often. */
    struct rig_moved rows;
};
void rig_fini(struct rig_seen *s);

/* The rank of this thread, in a run; for faults that are planted in the engine's functions. */
extern __thread int rig_rank;

/* Runs a case. Data and other files are made below the temporary directory of the test when they
 * are needed first. */
int rig_run(const struct rig_case *k, struct rig_seen *out, lf_err *err);
/* The same by one rank without any mode; then in f32, too. */
int rig_alone(const struct rig_case *k, struct rig_seen *out, lf_err *err);
int rig_exact(const struct rig_case *k, struct rig_seen *out, lf_err *err);

/* The largest permitted differences. */
struct rig_bounds {
    double grad;   /* of a tensor's first gradient, relative to its norm */
    double loss;   /* relative; of the other numbers of step 1, too */
    double routes; /* of what routers say: a row may go to another expert */
    double rows;   /* of accuracy, in rows whose largest logit is another one */
    double norm;   /* of the gradient in any step, relative */
    double change; /* of a tensor's weights over all steps, and of moments, relative to the norm */
    /* the same of biases that balance experts: a step moves each up or down, by the loads */
    double balance;
    /* elements of less than this share of the typical one are noise: the gradient of the biases of
     * keys without positions is 0 but for rounding */
    double noise;
    /* Ranks that divide matrices round to bf16 what one rank has not rounded, and the other way
     * round. So beside the numbers above as much as slack times what bf16 makes of one rank, whose
     * numbers in f32 these are; NULL: no more. */
    const struct rig_seen *exact;
    double slack;
    double lr, eps, clip; /* of the run */
};
/* Is the case one for `exact`? */
bool rig_needs_exact(const struct rig_case *k);
struct rig_bounds rig_bounds(const struct rig_case *k);

/* Names of what is compared, as bits. A run that goes on from a checkpoint is compared with one
 * that did not. */
enum rig_check {
    RIG_SAW_RUN = 1, /* the run failed */
    RIG_SAW_LOSS = 2,
    RIG_SAW_GRAD = 4, /* the first gradient of a tensor */
    RIG_SAW_NORM = 8,
    RIG_SAW_CHANGE = 16,  /* weights, or moments */
    RIG_SAW_APART = 32,   /* ranks do not have the same bits where they keep the same */
    RIG_SAW_MISSING = 64, /* an element is kept by too few or too many ranks */
    RIG_SAW_SCALE = 128,
    RIG_SAW_MOVED = 512,    /* other calls or bytes than planned */
    RIG_SAW_REPLICAS = 256, /* the engine's own comparison (lf_train_replicas) */
    RIG_SAW_BITS = 1024     /* fault.h: not the bits that rig_steps_alike compares */
};
/* Compares a run with one rank's. Returns bits of rig_check; text gets the worst of each. */
unsigned rig_compare(const struct rig_seen *one, const struct rig_seen *s,
                     const struct rig_bounds *b, char *text, size_t cap);
/* Are all bits of both the same? Else text says where not. */
bool rig_equal(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap);
/* Do both begin, or end, with the same bits? */
bool rig_begins_alike(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap);
bool rig_ends_alike(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap);
/* Have both the same loss in step 1? */
bool rig_loss_alike(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap);
/* Have both the same loss and gradients in step 1, but for the gradient of `but` (NULL: of all),
 * and for those of tables that all layers of a stack share? */
bool rig_steps_alike(const struct rig_seen *a, const struct rig_seen *b, const char *but,
                     char *text, size_t cap);
/* "grad norm" of these bits. */
const char *rig_names(unsigned seen, char *text, size_t cap);

#endif
