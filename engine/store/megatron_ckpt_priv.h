/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the Megatron reader share.
 */
#ifndef LF_STORE_MEGATRON_CKPT_PRIV_H
#define LF_STORE_MEGATRON_CKPT_PRIV_H

#include "engine/store/megatron_ckpt.h"
#include "engine/store/torch_file_priv.h"

#define LF_MG_MAX_TP 256
#define LF_MG_MAX_PP 1024

enum lf_mg_kind {
    LF_MG_UNKNOWN,
    LF_MG_COLUMN,
    LF_MG_VOCAB, /* column, rows are the vocabulary */
    LF_MG_ROW,
    LF_MG_QKV,
    LF_MG_FC1, /* gate and up, or column */
    LF_MG_SAME /* replicated */
};

enum lf_mg_kind lf_mg_kind_of(const char *name);

/* What the training arguments say about the model and its layout. */
struct lf_mg_shape {
    int tp, pp;
    int64_t layers, heads, groups, head_dim;
    int64_t vocab_size; /* rows to keep; 0: all */
    bool gated, tied;
    double version;
};

/* Adds tensor `name` to s, merged from shards[tp], the tensor of that name of each rank. */
int lf_mg_merge(lf_st *s, const char *name, const struct lf_pv_tensor *const *shards,
                const struct lf_mg_shape *m, lf_err *err);
/* Compares two replicas of a tensor; b is from another file. LF_EFORMAT: the bytes differ. */
int lf_mg_compare(const lf_st *s, const char *name, const struct lf_pv_tensor *a,
                  const struct lf_pv_tensor *b, lf_err *err);

/* Returns the training arguments as JSON, which the caller owns; NULL with err set on failure. */
json_t *lf_mg_args(const lf_pv *args, lf_err *err);

#endif
