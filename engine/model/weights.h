/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between a parameter store and checkpoints. Tensor "embed.weight" of the store is
 * "<prefix>embed.weight" in a checkpoint, with the kinds "weight", "adam_m", "adam_v" and "ema",
 * each in the type of the plan (f32 or bf16). A tensor of either side that the other lacks is an
 * error that names it. Types may differ: values that are read are rounded to nearest even to the
 * type of the plan. A tensor that is `elsewhere` (pstore.h) is never read. The store must be bound
 * (after lf_exec_create).
 */
#ifndef LF_MODEL_WEIGHTS_H
#define LF_MODEL_WEIGHTS_H

#include "engine/base/mem.h"
#include "engine/graph/pstore.h"
#include "engine/model/config.h"
#include "engine/store/ckpt.h"

#define LF_WEIGHTS_PREFIX "model/"

struct lf_weights_what {
    const char *prefix; /* of the names */
    bool moments;       /* adam_m, adam_v and ema of trained tensors too */
    /* [lf_pstore_count]: checkpoints from which the weights of that tensor are copied, in their
     * type, in place of those in memory (lf_ckpt_tensor.fill). It and they stay open until the
     * writer is destroyed. NULL, or NULL for a tensor: those in memory. A tensor that is
     * `elsewhere` needs one, but for a plan. */
    const lf_ckpt *const *from;
};
/* Describes the tensors of ps for a checkpoint writer. Pointers lead into the memory of the store,
 * and are NULL before it is bound; names and array live in a. */
int lf_weights_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps,
                       const struct lf_weights_what *what, lf_arena *a, lf_err *err);
/* The same for the tensors of an adapter (engine/model/adapter.h), which the function above leaves
 * out. */
int lf_weights_adapter_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps,
                               const char *prefix, bool moments, lf_arena *a, lf_err *err);
/* Reduces the n tensors that one of the two functions above gave to what one of several ranks
 * writes (lf_pstore_written): of boxes that ranks of the data axis keep in parts what this one
 * keeps, of the others, which each of them has, an equal share of their bytes that ends with
 * leaves. All ranks together have each element once, and need not talk for it. t is a copy of the
 * list; what it was copied from tells names, types and shapes from then on, and no values. */
struct lf_weights_share {
    const lf_pstore *ps;
    const char *prefix; /* of the names */
    int rank, ranks;    /* of the data axis */
    int expert;         /* of these, ranks that divide experts; 0: none do */
    /* ranks of the tensor axis beside each that are among them, and which this one is; 0: 1 */
    int fold, fold_rank;
    bool copy; /* what this rank keeps a part of another one writes, which has the same part */
};
void lf_weights_share(lf_ckpt_tensor *t, size_t *n, const struct lf_weights_share *s);
/* Adds to bytes[r] what rank r of s->ranks so writes of boxes that each of them has; s->rank is not
 * read. Takes about as long as the share of one rank. */
void lf_weights_shared_bytes(double *bytes, const lf_ckpt_tensor *t, size_t n,
                             const struct lf_weights_share *s);
/* Does the tensor of this name belong to the head, so that a model with another output lacks it? */
bool lf_weights_is_head(const char *name);
/* Returns the bytes of the whole tensors in a finished plan, with moments: those of an adapter, or
 * all others. from: as above. One that is `elsewhere` counts as f32 where from does not say. */
size_t lf_weights_bytes(const lf_pstore *ps, bool adapter, const lf_ckpt *const *from);
/* The weights of tensor i of ps in c; NULL: c has none of that shape. */
const lf_ckpt_entry *lf_weights_entry(const lf_pstore *ps, int i, const lf_ckpt *c,
                                      const char *prefix);
/* Reads what this rank keeps of an entry with as many elements as tensor i into its weights
 * (LF_P_MASTER) or a moment, with the threads that c was opened for. In memory it needs about a
 * leaf of the entry for each, and not much more than 64 MiB. */
int lf_weights_read(lf_pstore *ps, int i, const lf_ckpt *c, const lf_ckpt_entry *e,
                    enum lf_pkind kind, lf_err *err);
/* Fills ps from c, except the tensors of an adapter; a generator in c (electra.h) that ps lacks is
 * passed over. Without `moments`, moments in the file are ignored. */
int lf_weights_load(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments, lf_err *err);
/* Fills the base of an adapter for a model with this output (enum lf_model_output), without
 * moments. Where c has another output its head is ignored, and ps keeps the initial values of its
 * own head; where the model of c sees no pictures, ps keeps those of encoder and projector, and
 * where it has no generator that one. */
int lf_weights_load_below(lf_pstore *ps, int output, const lf_ckpt *c, const char *prefix,
                          lf_err *err);
/* Is the tensor of this name of the encoder of pictures (vision), or of it or the projector? */
bool lf_weights_is_vision(const char *name);
bool lf_weights_is_sight(const char *name);
/* Is it of a generator beside the model (electra.h)? */
bool lf_weights_is_generator(const char *name);
/* Fills the tensors vision.* of ps from c, a checkpoint of any model with such an encoder. */
int lf_weights_load_vision(lf_pstore *ps, const lf_ckpt *c, const char *prefix, lf_err *err);
/* Fills the tensors generator.* of ps (electra.h) from c, a checkpoint of the generator as a model
 * of its own, whose embedding is not read. */
int lf_weights_load_generator(lf_pstore *ps, const lf_ckpt *c, const char *prefix, lf_err *err);
/* Fills the tensors of an adapter in ps from c, a checkpoint of the adapter alone. */
int lf_weights_load_adapter(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments,
                            lf_err *err);
/* Sets hex to the SHA-256 over everything that the output of the encoder of pictures in c follows
 * from: vision.* of the model's description, and names, types, shapes and hashes of its tensors.
 * LF_EINVAL: the model sees nothing. */
int lf_encoder_identity(char hex[LF_HASH_HEX], const lf_ckpt *c, const char *prefix, lf_err *err);
/* Reads the description of the model of a checkpoint, the member "model" of its state. */
int lf_weights_config(lf_model_config *out, const lf_ckpt *c, lf_err *err);

#endif
