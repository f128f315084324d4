/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters in the files of PEFT, in and out, and what a merged model is worth.
 *
 *     DIR/adapter_config.json          peft_type LORA, r, lora_alpha, use_rslora, target_modules
 *                                      ...
 *     DIR/adapter_model.safetensors    base_model.model.MODULE.lora_A.weight [r, in],
 *                                      ...lora_B.weight [out, r], with use_dora
 *                                      ...lora_magnitude_vector [out]
 *
 *     and of a reward model          base_model.model.score.weight [1, hidden]: the head, trained
 *                                    whole (modules_to_save)
 *
 * MODULE is the name of the linear layer in the base model's own program; the mapping rows of its
 * family (map.h) give it. Where that program has q, k, v (or gate, up) as one module with one A,
 * ours is an adapter of the group as a whole, and rows of B are put in its order; so both are the
 * same function. config.json keys that change numbers in ways that are not known here are errors
 * that name them.
 */
#ifndef LF_CONVERT_PEFT_H
#define LF_CONVERT_PEFT_H

#include "engine/convert/convert.h"
#include "engine/model/adapter.h"

#define LF_PEFT_CONFIG "adapter_config.json"
#define LF_PEFT_FILE   "adapter_model.safetensors"

struct lf_peft_opts {
    const char *from, *out;
    const char *base; /* import: checkpoint that the adapter is for */
    int threads;
};
/* PEFT's directory to a checkpoint of an adapter. res->tensors, bytes and identity are set. */
int lf_peft_import(const struct lf_peft_opts *o, struct lf_convert_result *res, lf_err *err);
/* And back: an artifact of kind "peft". LF_ENOTSUP: an adapter of q, k or v alone where the program
 * has one module. */
int lf_peft_export(const struct lf_peft_opts *o, struct lf_convert_result *res, lf_err *err);

/* Largest difference of logits, of a reward model of every token's score, between base with adapter
 * and the merged checkpoint on `tokens` tokens drawn from a fixed seed, relative to the largest of
 * them; f32, invariant kernels. */
int lf_adapter_probe(const char *base, const char *adapter, const char *merged, int64_t tokens,
                     int threads, double *out, lf_err *err);

#endif
