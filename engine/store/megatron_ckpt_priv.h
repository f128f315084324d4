/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the Megatron reader.
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

/* What the arguments say. */
struct lf_mg_shape {
    int tp, pp;
    int64_t layers, heads, groups, head_dim;
    int64_t vocab_size; /* wanted; 0: all */
    bool gated, tied;
    double version;
};

/* Add tensor `name`, made of the same tensor of each of the tp ranks. ranks: file of each, for
 * messages. */
int lf_mg_merge(lf_st *s, const char *name, const struct lf_pv_tensor *const *shards,
                const struct lf_mg_shape *m, lf_err *err);
/* The same bytes? For replicas: LF_EFORMAT when they differ. b is one of another file. */
int lf_mg_compare(const lf_st *s, const char *name, const struct lf_pv_tensor *a,
                  const struct lf_pv_tensor *b, lf_err *err);

/* Arguments as JSON; NULL with err set. */
json_t *lf_mg_args(const lf_pv *args, lf_err *err);

#endif
