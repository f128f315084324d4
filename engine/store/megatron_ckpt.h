/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of Megatron-LM in its "torch" (legacy) form, as one set of tensors (tensors.h) with
 * Megatron's own names.
 *
 *     DIR/latest_checkpointed_iteration.txt         "release" or the number of an iteration
 *     DIR/release | iter_NNNNNNN/mp_rank_TT[_PPP]/model_optim_rng.pt
 *
 * Each file is one of torch.save (torch_file.h): {"args": Namespace, "checkpoint_version",
 * "iteration", "model": {...} or "model0", "model1", ... (virtual pipeline stages), optimizer,
 * random states}. Read: args and the model; what belongs to the optimizer is left alone.
 *
 * Merged over tensor-parallel ranks (T of them), kind by kind of the table in
 * megatron_ckpt_kinds.c:
 *   column      rows of rank 0, 1, ...                    fc1 without gate, embeddings, head
 *   gate/up     each rank has [gate; up]: all gates, then all ups         fc1 with args.swiglu
 *   row         columns of rank 0, 1, ...                 attention output, fc2
 *   qkv         rows of rank 0, 1, ..., each in groups [q ... q, k, v] x head_dim.
 *               checkpoint_version 0 has [3, heads, head_dim] and 1.0 has [heads, head_dim, 3]
 *               instead: regrouped here, so every version looks like 2.0
 *   replicated  norms, biases of row layers, positions, router: compared over ranks, then rank 0's
 * A tensor of no known kind is an error where T > 1.
 *
 * Merged over pipeline stages: layers are renumbered. Without virtual stages a stage has as many as
 * its file holds (so a short first stage works); with V virtual stages of P: chunk v of stage p
 * begins at v * P * n + p * n. The head that a last stage holds as a copy of tied embeddings is
 * compared and shown as an alias of them.
 */
#ifndef LF_STORE_MEGATRON_CKPT_H
#define LF_STORE_MEGATRON_CKPT_H

#include <jansson.h>

#include "engine/store/tensors.h"

#define LF_MEGATRON_CKPT_TRACKER "latest_checkpointed_iteration.txt"

typedef struct lf_megatron_ckpt_options {
    /* rows of embeddings and head that are kept; the rest is Megatron's padding. 0: keep all */
    int64_t vocab_size;
} lf_megatron_ckpt_options;

/* Open DIR, or one iteration's directory. args (may be NULL): owned object of the training
 * arguments (numbers, texts, lists; enumerations as their value, dtypes by name; others left out),
 * with "iteration" and "checkpoint_version" of the file and "tensor_model_parallel_size",
 * "pipeline_model_parallel_size" as found. o may be NULL. LF_ENOENT: no tracker and no rank;
 * LF_EFORMAT, LF_ENOTSUP: text names file and tensor (a rank or stage missing, shapes that do not
 * fit, replicas that differ, expert parallelism, the newer distributed form). */
int lf_megatron_ckpt_open(lf_st **out, json_t **args, const char *dir,
                          const lf_megatron_ckpt_options *o, lf_err *err);

#endif
