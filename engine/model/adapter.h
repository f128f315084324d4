/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a decoder: which linear layers have one (engine/graph/adapter.h says what one
 * computes), and what a checkpoint of an adapter keeps about itself.
 *
 *     lf_decoder_declare(dec, ps, err);
 *     lf_decoder_adapt(dec, ps, &adapter, err);       freezes the base, declares the adapter's
 *       tensors
 *     ... graphs of this decoder and store go through it; rows.adapter_off builds one of the base
 *     alone
 *
 * Targets name linear layers of the layers:
 *     all                      every one of attention and MLP, each with an adapter of its own (the
 *                              default)
 *     q k v o gate up down     that part of every layer
 *     qkv gate_up              q, k, v (gate, up) as one module with one A, as models that keep
 *                              them so have it
 *     layers.3.attn.q.weight   a pattern (* ? [...]) over the names of tensors
 * Experts of a mixture and their router have no adapters. A reward model's score.weight, which is
 * new, is trained whole beside them (head); its base may be a language model.
 */
#ifndef LF_MODEL_ADAPTER_H
#define LF_MODEL_ADAPTER_H

#include <jansson.h>

#include "engine/graph/adapter.h"
#include "engine/model/decoder.h"
#include "engine/store/ckpt.h"

#define LF_ADAPTER_TARGETS 16

struct lf_adapter_config {
    int64_t rank;
    double alpha;
    bool rank_stabilised; /* scale alpha / sqrt(rank) in place of alpha / rank */
    bool dora;            /* lengths of rows are trained apart from their directions */
    double dropout;       /* of what A reads, in training */
    bool head;     /* the score head of a reward model is trained whole and kept with the adapter */
    int n_targets; /* 0: all */
    char target[LF_ADAPTER_TARGETS][96];
};

double lf_adapter_scale(const struct lf_adapter_config *a);
/* Out of range, or something that cannot be. Worded with the option names of stages. */
int lf_adapter_check(const struct lf_adapter_config *a, lf_err *err);

/* The model that an adapter makes of one described by *mc: with a head it gives scores, whatever
 * its base does. */
int lf_adapter_model(lf_model_config *mc, const struct lf_adapter_config *a, lf_err *err);

/* Freeze every tensor of ps and declare the adapter's. LF_EINVAL names a target that matches no
 * layer, or a head where the model has none; LF_ENOTSUP experts. */
int lf_decoder_adapt(lf_decoder *d, lf_pstore *ps, const struct lf_adapter_config *a, lf_err *err);

json_t *lf_adapter_to_json(const struct lf_adapter_config *a, lf_err *err); /* owned */
int lf_adapter_from_json(struct lf_adapter_config *out, json_t *o, const char *where, lf_err *err);
/* Member "adapter" of a checkpoint's state. LF_ENOENT: the checkpoint is no adapter. */
int lf_adapter_config(struct lf_adapter_config *out, const lf_ckpt *c, lf_err *err);

/* The same of a directory, from its state alone. LF_ENOENT: nothing there, or no adapter. */
int lf_adapter_config_of(struct lf_adapter_config *out, const char *dir, lf_err *err);

/* Is the adapter in `a` one of the weights in `base`? LF_EINVAL when it was trained on other
 * weights. */
int lf_adapter_check_base(const lf_ckpt *a, const lf_ckpt *base, lf_err *err);
/* The weights below an adapter. */
struct lf_adapter_base {
    const char *id;  /* identity, hex */
    const char *dir; /* for messages */
};
/* Open the adapter in dir and fill the adapter's tensors of ps, which *ac describes and which lie
 * in memory, from it. base: what ps holds below. id (NULL: not wanted) gets the adapter's own
 * identity. */
int lf_adapter_load(lf_pstore *ps, const struct lf_adapter_config *ac, const char *dir,
                    const struct lf_adapter_base *base, int threads, char id[LF_HASH_HEX],
                    lf_err *err);

#endif
