/* SPDX-License-Identifier: Apache-2.0
 *
 * Small checkpoints for the tests of inference, written without a training run.
 */
#ifndef LF_TESTS_INFER_CKPT_H
#define LF_TESTS_INFER_CKPT_H

#include "engine/graph/pstore.h"
#include "engine/model/adapter.h"
#include "engine/model/config.h"

/* Values of one tensor of the model, rows x cols row-major (cols 1 for vectors). */
typedef void (*infer_ckpt_fill)(void *arg, const struct lf_param_desc *d, float *dst, int64_t rows,
                                int64_t cols);

/* Write a checkpoint of step 0 to dir with what fill gives. */
int infer_ckpt_write(const char *dir, const lf_model_config *c, infer_ckpt_fill fill, void *arg,
                     lf_err *err);

/* The same of an adapter of the checkpoint in base. */
int infer_ckpt_write_adapter(const char *dir, const lf_model_config *c,
                             const struct lf_adapter_config *ac, const char *base,
                             infer_ckpt_fill fill, void *arg, lf_err *err);

/* Hot random weights (arg: uint64_t seed): fan-in scaled so that logits and attention scores are of
 * order 1 to 3. */
void infer_ckpt_hot(void *arg, const struct lf_param_desc *d, float *dst, int64_t rows,
                    int64_t cols);

#endif
