/* SPDX-License-Identifier: Apache-2.0
 *
 * What an import keeps of weights that come as 8-bit floats in blocks: the companions of
 * engine/model/scales.h. */
#ifndef LF_CONVERT_COMPANIONS_H
#define LF_CONVERT_COMPANIONS_H

#include "engine/convert/priv.h"

struct lf_companions {
    lf_ckpt_tensor *tensors; /* [n], each with fill, which reads the open model */
    size_t n;
    int64_t bytes;
    json_t *state; /* LF_SCALES_STATE; owned; NULL: there are none */
};
/* Finds those of an open model, whose arena holds them. A model whose weights are not of 8 bits has
 * none. */
int lf_companions_of(struct lf_companions *out, const struct lf_hf_model *m, lf_err *err);
void lf_companions_fini(struct lf_companions *c);

#endif
