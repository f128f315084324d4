/* SPDX-License-Identifier: Apache-2.0
 *
 * What both directions of peft.h share: the modules of a model that an adapter of ours is on. */
#ifndef LF_CONVERT_PEFT_PRIV_H
#define LF_CONVERT_PEFT_PRIV_H

#include "engine/convert/peft.h"
#include "engine/convert/priv.h"

/* One linear layer with an adapter. */
struct lf_peft_unit {
    const char *stem;   /* ours: "layers.0.attn.q" */
    const char *module; /* theirs: "model.layers.0.self_attn.q_proj" */
    int64_t rows, cols; /* of its weight */
    int64_t *row;       /* [rows]: row r of their B is row row[r] of ours */
    bool turned;        /* their weight is [in, out] */
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
};

/* The mapping of a model. */
int lf_peft_open(struct lf_peft *p, const lf_model_config *mc, lf_err *err);
/* Declare the adapter p->ac and find its modules. */
int lf_peft_units(struct lf_peft *p, lf_err *err);
void lf_peft_close(struct lf_peft *p);

#endif
