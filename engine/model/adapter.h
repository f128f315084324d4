/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a decoder: the linear layers that have one, and the description of an adapter in its
 * checkpoint. engine/graph/adapter.h says what an adapter computes.
 *
 *     lf_decoder_declare(dec, ps, err);
 *     lf_decoder_adapt(dec, ps, &adapter, err);
 *
 * lf_decoder_adapt freezes the base and declares the tensors of the adapter. Graphs of this decoder
 * and store then use the adapter; rows.adapter_off builds a graph of the base alone.
 *
 * Targets name linear layers of a decoder:
 *     all                      every one of mixers and MLP, each with an adapter of its own (the
 *                              default)
 *     q k v o gate up down     that part of every layer, and
 *     z a b, c x, f_a ...      of scans and short convolutions (names of tensors: decoder.h)
 *     qkv gate_up in           q, k, v (gate, up; all that a scan or a short convolution reads) as
 *                              one module with one A, for models that store them as one
 *     layers.3.attn.q.weight   a pattern (* ? [...]) over the names of tensors
 *     q+gate                   parts of one of these groups that share one A, for models that store
 *                              them as one module; in a pattern too: layers.*.scan.q+k+v.weight
 *     vision.* projector.*     patterns over the names of encoder and projector, of which nothing
 *                              else takes in a layer: vision.layers.*.attn.qkv.weight; the matrix
 *                              of patches has no adapter
 *     layers.*.moe.experts.*   patterns over the matrices of experts, each of which has an adapter
 *                              of its own; gate, up, down and all take them in too. With
 *                              layers.*.moe.experts.gate+up.weight both read one A
 * The router of a mixture has no adapter. score.weight of a reward model is new, so
 * it is trained whole beside the adapters (head), and so are the matrices of labels (labels.* and
 * label_in.*); the base may be a language model.
 */
#ifndef LF_MODEL_ADAPTER_H
#define LF_MODEL_ADAPTER_H

#include <jansson.h>

#include "engine/graph/adapter.h"
#include "engine/model/decoder.h"
#include "engine/store/ckpt.h"

#define LF_ADAPTER_TARGETS 32
enum { LF_ADAPTER_MAX_RANK = 65536 };

struct lf_adapter_config {
    int64_t rank;
    double alpha;
    bool rank_stabilised; /* scale alpha / sqrt(rank) in place of alpha / rank */
    bool dora;            /* lengths of rows are trained separately from their directions */
    double dropout;       /* of the input of A, in training */
    bool head; /* the score head of a reward model is trained whole and kept with the adapter */
    int64_t labels; /* so many are told of each text or token, whose matrices are kept so, too */
    int labels_of;  /* enum lf_model_labels_of */
    bool mtp;       /* heads of mtp_layers have adapters too: they were trained with the model */
    int n_targets;  /* 0: all */
    char target[LF_ADAPTER_TARGETS][96];
};

double lf_adapter_scale(const struct lf_adapter_config *a);
/* Checks the values. LF_EINVAL: a value is out of range or contradicts another; the message uses
 * the names of the options of stages. */
int lf_adapter_check(const struct lf_adapter_config *a, lf_err *err);

/* Changes the description of the base to that of the adapted model: with a head it gives scores,
 * with labels those, whatever the output of the base. */
int lf_adapter_model(lf_model_config *mc, const struct lf_adapter_config *a, lf_err *err);

/* Freezes every tensor of ps and declares those of the adapter. LF_EINVAL: a target matches no
 * layer, or `head` or `labels` is set and the model has none; the message names it. LF_ENOTSUP: a
 * target takes in experts, with magnitudes (dora) or dropout. */
int lf_decoder_adapt(lf_decoder *d, lf_pstore *ps, const struct lf_adapter_config *a, lf_err *err);
/* Has the encoder an adapter? */
bool lf_adapter_of_encoder(const lf_pstore *ps);

json_t *lf_adapter_to_json(const struct lf_adapter_config *a, lf_err *err); /* owned */
int lf_adapter_from_json(struct lf_adapter_config *out, json_t *o, const char *where, lf_err *err);
/* Reads the member "adapter" of a checkpoint's state. LF_ENOENT: the checkpoint is no adapter. */
int lf_adapter_config(struct lf_adapter_config *out, const lf_ckpt *c, lf_err *err);

/* The same for a directory, of which only the state is read. LF_ENOENT: there is no checkpoint, or
 * it is no adapter. */
int lf_adapter_config_of(struct lf_adapter_config *out, const char *dir, lf_err *err);

/* Checks that the adapter in `a` was trained on the weights in `base`. LF_EINVAL: it was trained on
 * other weights. */
int lf_adapter_check_base(const lf_ckpt *a, const lf_ckpt *base, lf_err *err);
/* The weights below an adapter. */
struct lf_adapter_base {
    const char *id;  /* identity, hex */
    const char *dir; /* for messages */
};
/* Reads the adapter in dir into the adapter's tensors of ps, which *ac describes and which have
 * memory. base describes the weights in ps. id (may be NULL) gets the identity of the adapter. */
int lf_adapter_load(lf_pstore *ps, const struct lf_adapter_config *ac, const char *dir,
                    const struct lf_adapter_base *base, int threads, char id[LF_HASH_HEX],
                    lf_err *err);

#endif
