/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of a file of expected logits (convert.h, lf_convert_verify). */
#ifndef LF_CONVERT_VERIFY_SIGHT_H
#define LF_CONVERT_VERIFY_SIGHT_H

#include "engine/graph/exec.h"
#include "engine/model/sight.h"
#include "engine/store/tensors.h"

struct lf_verify_sight {
    const lf_st *st;          /* borrowed, as is c */
    const lf_model_config *c; /* of a model that sees */
    const lf_st_entry *pixels, *tiles, *pictures;
    int64_t length; /* of a sequence */
    struct lf_sight_tile *tile;
    struct lf_sight_picture *picture;
    struct lf_sight_batch batch;
    struct lf_decoder_media media;
    lf_sight *sight;
    float *read, *rows; /* pixels as in the file, and in the order of the encoder */
};

/* LF_EFORMAT: the file has no pictures, or they do not go with the model. close is legal after a
 * failed open of a struct of zeros. */
int lf_verify_sight_open(struct lf_verify_sight *s, const lf_st *st, const lf_model_config *c,
                         int64_t batch, int64_t length, lf_err *err);
void lf_verify_sight_close(struct lf_verify_sight *s);

struct lf_verify_feed {
    lf_exec *exec;
    int chain;
    const int32_t *tokens, *positions; /* [length] */
};
/* Writes the inputs of sequence b that pictures change: tokens and places too. */
int lf_verify_sight_feed(struct lf_verify_sight *s, int64_t b, const struct lf_verify_feed *in,
                         lf_err *err);

#endif
