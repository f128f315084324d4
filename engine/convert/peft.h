/* SPDX-License-Identifier: Apache-2.0
 *
 * Import and export of adapters in the files of PEFT, and a test of merged models.
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
 *     and of experts                 base_model.model.MODULE[.base_layer].lora_A.weight [E r, in],
 *                                    ...lora_B.weight [out, r E], of a stacked parameter of MODULE
 *                                    (target_parameters; peft_experts.c)
 *
 * MODULE is the name of the linear layer in the program of the base model; the mapping rows of its
 * family (map.h) give it. Where that program has q, k, v (or gate, up) as one module with one A,
 * our adapter is one of the group as a whole, with the rows of B in our order, and where it has
 * some of a group as one module (q with its gate, in_proj_qkvz), ours is one of these parts joined;
 * so both are the same function. Keys of the config that change numbers in unknown ways are errors
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
/* Converts PEFT's directory to a checkpoint of an adapter. Sets res->tensors, bytes and
 * identity. */
int lf_peft_import(const struct lf_peft_opts *o, struct lf_convert_result *res, lf_err *err);
/* Converts back, to an artifact of kind "peft". LF_ENOTSUP: there is an adapter of q, k or v alone,
 * where the program has one module. */
int lf_peft_export(const struct lf_peft_opts *o, struct lf_convert_result *res, lf_err *err);

/* Computes the largest difference between the logits (for a reward model the scores of all tokens)
 * of base with adapter and of the merged checkpoint, relative to the largest of them. It runs in
 * f32 with invariant kernels on `tokens` tokens from a fixed seed. */
int lf_adapter_probe(const char *base, const char *adapter, const char *merged, int64_t tokens,
                     int threads, double *out, lf_err *err);

#endif
