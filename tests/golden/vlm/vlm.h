/* SPDX-License-Identifier: Apache-2.0
 *
 * A golden directory of a model that sees (make_vlm.py): imported by engine/convert, its pictures
 * fed through engine/model/sight.h, and what transformers computed from it. */
#ifndef LF_TESTS_GOLDEN_VLM_H
#define LF_TESTS_GOLDEN_VLM_H

#include "engine/model/sight.h"
#include "tests/golden/families/family.h"

typedef struct vlm {
    family f; /* documents of different lengths: f.length is the longest */
    int64_t patches, patch_dim, trained;
    float *pixels; /* [patches, patch_dim] */
    struct lf_sight_tile *tile;
    struct lf_sight_picture *picture;
    struct lf_sight_batch batch;
} vlm;

extern const char *const vlm_names[]; /* ended by NULL */

/* Bails out (TAP) on any failure. The folder is $LF_SRCDIR/tests/golden/vlm/NAME. */
vlm *vlm_open(const char *name);
void vlm_close(vlm *v);

/* The model in the engine, with a chain of logits, and with train one of the loss. */
typedef struct vlm_rig {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    lf_sight *sight;
    struct lf_decoder_media media;
    float *rows; /* pixels in the order of the encoder */
    int loss, logits;
} vlm_rig;

/* LF_EINVAL and the like: the description, or these pictures with it, are refused. */
int vlm_rig_open(vlm_rig *r, const vlm *v, const lf_model_config *c, enum lf_dtype compute,
                 bool train, lf_err *err);
void vlm_rig_close(vlm_rig *r);
void vlm_logits(const vlm_rig *r, const vlm *v, float *out);
/* Every switch that matters to the model, flipped: reports each that the logits do not show, and
 * returns how many there are. *least: the least error of a logit. */
int vlm_flips(const vlm *v, int *n, double *least);
/* Every pair of tensors of the same shape, swapped; the same. */
int vlm_swaps(const vlm *v, int *n, double *least);
/* A key bias without effect on attention: its gradient is 0 in exact arithmetic. */
bool vlm_without_effect(const vlm *v, const char *name);
/* Three points: the checkpoint against expected logits with a picture, without, a wrong one. */
void vlm_verify(const vlm *v);
/* Forward and backward; the mean loss. */
double vlm_step(const vlm_rig *r, const vlm *v);

#endif
