/* SPDX-License-Identifier: Apache-2.0
 *
 * Which weights of an export are 8-bit floats in blocks, and what config.json says of it. */
#ifndef LF_CONVERT_QUANTISED_H
#define LF_CONVERT_QUANTISED_H

#include "engine/convert/convert.h"
#include "engine/convert/requant.h"

struct lf_quantised {
    size_t n;               /* decls of weights; those of scales stand behind them */
    struct lf_requant **of; /* [n]; NULL: this one is not quantised; owned */
    size_t *weight;         /* [decls of scales]: the decl whose scales these are */
    /* [decls of scales]: the scale of what the weight multiplies, as it is; NULL: the weight's */
    const lf_ckpt_entry **act;
    json_t *config; /* quantization_config; owned; NULL: nothing is quantised */
    char **names;   /* [decls of scales], owned */
    size_t n_scales;
};
struct lf_quantised_opts {
    const lf_ckpt *ckpt;
    const lf_map *map;
    const int *items; /* [n_items] of the first decls: index in map->items */
    size_t n_items;
    json_t *state; /* of lf_quantised_state; borrowed */
    const struct lf_convert_opts *o;
};
/* What the checkpoint tells of quantisation, where an export in this family's form with these
 * options goes by it; NULL: nothing. Borrowed. */
json_t *lf_quantised_state(const lf_ckpt *ckpt, const char *family,
                           const struct lf_convert_opts *o);
/* Makes weights among the *n decls quantised and puts their scales behind them; *decls is allocated
 * anew for that. A checkpoint with companions (engine/model/scales.h) of this family has quantised
 * what came so. One without, with quantize = fp8: the matrices of attention, MLPs and experts that
 * 128 divides in both directions, as transformers does; the new config names all others
 * (modules_to_not_convert). LF_EFORMAT: the companions are damaged. LF_EINVAL: quantize = fp8 finds
 * no such matrix. */
int lf_quantised_declare(struct lf_quantised *q, const struct lf_quantised_opts *how,
                         lf_st_decl **decls, size_t *n, lf_err *err);
void lf_quantised_fini(struct lf_quantised *q);

/* Is decl k of 8 bits, or of scales? */
static inline bool lf_quantised_has(const struct lf_quantised *q, size_t k)
{
    return k >= q->n || (q->of && q->of[k]);
}
/* The decl of the weight that decl k is or is of. */
static inline size_t lf_quantised_weight(const struct lf_quantised *q, size_t k)
{
    return k < q->n ? k : q->weight[k - q->n];
}

#endif
