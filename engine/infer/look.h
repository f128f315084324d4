/* SPDX-License-Identifier: Apache-2.0
 *
 * The features of a prompt's pictures: a chain of the plan that has the encoder and the projector
 * alone (engine/model/composed.h). It runs once for the pictures of a prompt, and generation reads
 * its rows in the place of tokens.
 */
#ifndef LF_INFER_LOOK_H
#define LF_INFER_LOOK_H

#include "engine/graph/exec.h"
#include "engine/infer/gen.h"
#include "engine/media/batch.h"
#include "engine/media/processor.h"
#include "engine/model/sight.h"

/* Bounds of the pictures of one prompt. */
struct lf_look_opts {
    int64_t patches, tiles;
    int64_t tokens; /* most tokens of pictures */
    uint32_t eras;  /* of the chain (plan.h) */
};

/* What lf_gen_media.pictures points to. Pictures are decoded when they are looked at. */
struct lf_look_pictures {
    const lf_processor *processor;
    const char *const *path; /* [n]; NULL: they come from read */
    /* decodes and processes picture i, to the tiles and sides of batch; on success the caller owns
     * *out */
    int (*read)(void *arg, int32_t i, lf_pixels *out, lf_err *err);
    void *arg; /* of read; borrowed */
    int32_t n;
    const lf_media_batch *batch; /* sizes; rows of each picture; no patches */
};

typedef struct lf_look lf_look;
/* Adds the chain to a plan that is not finished. d outlives *out. */
int lf_look_plan(lf_look **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                 const struct lf_look_opts *o, lf_err *err);
void lf_look_destroy(lf_look *l);
void lf_look_bind(lf_look *l, lf_exec *ex); /* when the plan has memory; ex is borrowed */
/* Decodes one and does what the processor does. */
int lf_look_at(lf_pixels *out, const lf_processor *p, const char *path, bool alone, lf_err *err);
/* Computes out[rows of pictures][width], width as lf_paged_feature_width. LF_EINVAL: there is no
 * room for these pictures. */
int lf_look_run(lf_look *l, const struct lf_look_pictures *p, float *out, lf_err *err);

#endif
