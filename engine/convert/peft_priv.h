/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that both directions of peft.h share: the modules of a model with an adapter. */
#ifndef LF_CONVERT_PEFT_PRIV_H
#define LF_CONVERT_PEFT_PRIV_H

#include "engine/convert/peft.h"
#include "engine/convert/priv.h"

#define LF_PEFT_BEFORE "base_model.model." /* before the name of a module */

/* A B of ours, whose rows are [at, at + rows) of those of the unit; its magnitude has the same. */
struct lf_peft_part {
    const char *stem; /* "layers.0.attn.q" */
    int64_t at, rows;
};

/* One linear layer with an adapter. */
struct lf_peft_unit {
    const char *stem; /* ours, of A: "layers.0.attn.q" */
    struct lf_peft_part *part;
    int n_parts;        /* more than one: parts of a group that share an A */
    const char *module; /* theirs: "model.layers.0.self_attn.q_proj" */
    int64_t rows, cols; /* of its weight */
    int64_t *row;       /* [rows]: row r of their B is row row[r] of ours, behind each other */
    bool turned;        /* their weight is [in, out] */
};

/* Matrices of the experts of a layer that are one stacked parameter [experts, rows, cols] in the
 * program. Its A is [experts r, cols], expert by expert; B is [rows, r experts], and column
 * j experts + e has what expert e has as its column j. */
struct lf_peft_experts {
    const char *module, *param; /* "model.layers.0.mlp.experts", "gate_up_proj" */
    bool inner; /* another parameter of the module is adapted around it, so names have base_layer */
    int n;      /* matrices of ours whose rows it has behind each other, all with one A */
    const char *stem[2];
    bool turns; /* their rows come in turns instead */
    int64_t experts, rows[2], cols;
};

struct lf_peft {
    lf_arena *arena;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_map map;
    bool mapped;
    const struct lf_hf_family *family;
    struct lf_adapter_config ac;
    struct lf_peft_unit *unit;
    size_t n;
    struct lf_peft_experts *stack;
    size_t n_stacks;
};

/* The tensors of the adapter of a module: the ends of their names and of ours. */
static const struct {
    const char *theirs, *ours;
} lf_peft_tensors[] = {{"lora_A.weight", "lora_A"},
                       {"lora_B.weight", "lora_B"},
                       {"lora_magnitude_vector", "lora_magnitude"}};

static inline int lf_peft_each(const struct lf_peft *p)
{
    return p->ac.dora ? 3 : 2;
}

/* How many tensors of ours `which` of a unit is. */
static inline int lf_peft_parts(const struct lf_peft_unit *u, int which)
{
    return which ? u->n_parts : 1;
}
static inline struct lf_peft_part lf_peft_part(const struct lf_peft *p,
                                               const struct lf_peft_unit *u, int which, int k)
{
    return which ? u->part[k] : (struct lf_peft_part){u->stem, 0, p->ac.rank};
}

/* The trained head of a reward model stands behind the adapters of all modules. It is copied as it
 * is. */
#define LF_PEFT_HEAD  LF_PEFT_BEFORE "score.weight"
#define LF_PEFT_SCORE "score.weight"
static inline size_t lf_peft_count(const struct lf_peft *p)
{
    return (size_t)lf_peft_each(p) * p->n + p->ac.head + 2 * p->n_stacks;
}
/* A (0) or B (1) of parameter (i - the first) / 2 of experts; -1: tensor i is of none. */
static inline int lf_peft_of_stack(const struct lf_peft *p, size_t i, size_t *k)
{
    const size_t first = lf_peft_count(p) - 2 * p->n_stacks;
    *k = i < first ? 0 : (i - first) / 2;
    return i < first ? -1 : (int)((i - first) % 2);
}
static inline bool lf_peft_is_head(const struct lf_peft *p, size_t i)
{
    return p->ac.head && i == (size_t)lf_peft_each(p) * p->n;
}

struct lf_peft_shape {
    int64_t rows, cols; /* cols 0: a vector */
    bool permuted;      /* its rows are those of the weight, in the order of lf_peft_unit */
};
static inline struct lf_peft_shape lf_peft_shape(const struct lf_peft *p,
                                                 const struct lf_peft_unit *u, int which)
{
    const struct lf_peft_shape s[] = {
        {p->ac.rank, u->cols, false}, {u->rows, p->ac.rank, true}, {u->rows, 0, true}};
    return s[which];
}

/* The name of a module in the program: that of its weight in a file, name, without the ending.
 * NULL: out of memory. */
const char *lf_peft_module(struct lf_peft *p, const char *name, lf_err *err);
/* Makes the mapping of a model, with the names of modules that are in a file; st NULL: those of
 * now. */
int lf_peft_open(struct lf_peft *p, const lf_model_config *mc, const lf_st *st, lf_err *err);
/* ---- experts (peft_experts.c) ---- */

/* Finds the stacked parameters of adapted experts, in order of layers. LF_ENOTSUP: the program of
 * the family has them otherwise, or gate and up, one parameter there, have an A each. */
int lf_peft_find_stacks(struct lf_peft *p, lf_err *err);
/* The name of tensor `which` in a file; NULL: out of memory. */
const char *lf_peft_stack_name(const struct lf_peft *p, const struct lf_peft_experts *x, int which,
                               lf_err *err);
/* Its shape there. */
void lf_peft_stack_shape(const struct lf_peft *p, const struct lf_peft_experts *x, int which,
                         int64_t shape[2]);
/* Between theirs, of lf_peft_stack_shape, and ours: of A [experts, r, cols], of B the matrices of
 * x behind each other, [experts, rows, r] each. */
void lf_peft_stack_turn(const struct lf_peft *p, const struct lf_peft_experts *x, int which,
                        float *ours, float *theirs, bool in);
/* Adds the targets that a file has adapters of experts for; the family's program must have these
 * as stacked parameters. */
int lf_peft_stack_targets(struct lf_peft *p, const lf_st *s, lf_err *err);

/* Declares the adapter p->ac and finds its modules. */
int lf_peft_units(struct lf_peft *p, lf_err *err);
void lf_peft_close(struct lf_peft *p);

#endif
