/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a parameter store and checkpoints: tensor "embed.weight" of the store is
 * "<prefix>embed.weight" there, kinds "weight", "adam_m", "adam_v", each in the type that the plan
 * keeps it in (f32 or bf16). Strict in both directions: a tensor of either side without its partner
 * is an error that names it. Types may differ: what is read becomes what the plan keeps, rounded to
 * nearest even. The store must be bound (after lf_exec_create).
 */
#ifndef LF_MODEL_WEIGHTS_H
#define LF_MODEL_WEIGHTS_H

#include "engine/base/mem.h"
#include "engine/graph/pstore.h"
#include "engine/model/config.h"
#include "engine/store/ckpt.h"

#define LF_WEIGHTS_PREFIX "model/"

/* The tensors of ps as a checkpoint writer takes them, pointing into the store's memory
 * (host-visible backends). Names and array live in a. moments: adam_m and adam_v of trained tensors
 * too. */
int lf_weights_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps, const char *prefix,
                       bool moments, lf_arena *a, lf_err *err);
/* The same of an adapter's tensors (engine/model/adapter.h), which the function above leaves
 * out. */
int lf_weights_adapter_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps,
                               const char *prefix, bool moments, lf_arena *a, lf_err *err);
/* Is this tensor (its name in the store) of what stands behind the trunk, so that a model with
 * another output lacks it? */
bool lf_weights_is_head(const char *name);
/* Bytes of them in a finished plan, moments included: those of an adapter, or all others. */
size_t lf_weights_bytes(const lf_pstore *ps, bool adapter);
/* One entry, whose elements are as many as tensor i has, into its weights (LF_P_MASTER) or a moment
 * of it. */
int lf_weights_read(lf_pstore *ps, int i, const lf_ckpt *c, const lf_ckpt_entry *e,
                    enum lf_pkind kind, lf_err *err);
/* Fill ps, but for an adapter's tensors, from c. moments false: moments in the file are left
 * alone. */
int lf_weights_load(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments, lf_err *err);
/* What stands below an adapter of a model with this output (enum lf_model_output): lf_weights_load
 * without moments. Where c has another output its head is left out, and ps keeps the initial values
 * of its own. */
int lf_weights_load_below(lf_pstore *ps, int output, const lf_ckpt *c, const char *prefix,
                          lf_err *err);
/* Fill the adapter's tensors of ps from c, a checkpoint of them alone. */
int lf_weights_load_adapter(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments,
                            lf_err *err);
/* The model description a checkpoint carries: member "model" of its state. */
int lf_weights_config(lf_model_config *out, const lf_ckpt *c, lf_err *err);

#endif
