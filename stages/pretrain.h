/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that the options of lf-pretrain fill, for its main and its option table.
 */
#ifndef LF_STAGES_PRETRAIN_H
#define LF_STAGES_PRETRAIN_H

#include "engine/post/class_train.h"
#include "engine/post/dual_train.h"
#include "engine/post/moco_train.h"
#include "engine/train/electra.h"
#include "engine/train/mae.h"
#include "stages/train_common.h"
#include "stages/train_opts.h"
#include "stages/train_samples.h"

enum pretrain_objective {
    PRETRAIN_NEXT = 0,
    PRETRAIN_MAE,
    PRETRAIN_MLM,
    PRETRAIN_CLASSES,
    PRETRAIN_SPAN,
    PRETRAIN_DENOISE,
    PRETRAIN_CLIP,
    PRETRAIN_SIGLIP,
    PRETRAIN_MOCO,
    PRETRAIN_ELECTRA
};

struct pretrain {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_given g;
    lf_opt_list ramp; /* the rows of batch_ramp */
    struct lf_train_samples samples;
    int objective; /* enum pretrain_objective */
    /* with objective = mae */
    double mask_ratio;
    bool norm_pix;
    lf_mae_train *restoring;
    /* with objective = classes */
    struct lf_class_train_opts told;
    lf_class_train *telling;
    /* with objective = clip and siglip */
    lf_dual_train *comparing;
    /* with objective = moco; crop_scale and flip are told's */
    struct lf_moco_train_opts moco;
    lf_moco_train *contrasting;
    /* with objective = electra, besides mlm */
    double discriminator_weight;
    lf_electra_train *replacing;
    /* with objective = mlm */
    lf_mlm mlm;
    int64_t mask_token;
    lf_opt_list spared; /* the rows of mask_spared */
    bool paired;        /* nsp: texts are pairs */
    lf_nsp nsp;
    int64_t separator;
    /* with objective = span and denoise, besides c.seq2seq; begin_token and sentence_ends with nsp
     * too */
    lf_opt_list ends; /* the rows of sentence_ends */
};

/* pretrain_mae.c. Options of pictures that are restored, told apart or compared; refuses those of
 * text beside them. After the options are filled in. */
int lf_pretrain_read_pictures(struct pretrain *p, const lf_optset *o, lf_err *err);
/* pretrain_mlm.c. The same of options of tokens that are hidden. */
int lf_pretrain_read_mlm(struct pretrain *p, const lf_optset *o, lf_err *err);
/* The numbers of rows "ID" or "FIRST-LAST" of an option, in ascending order, in the arena. */
int lf_pretrain_read_ids(struct pretrain *p, const char *option, const lf_opt_list *rows,
                         const int32_t **ids, size_t *n, lf_err *err);
/* pretrain_seq2seq.c. The same of options of texts that are corrupted. */
int lf_pretrain_read_seq2seq(struct pretrain *p, const lf_optset *o, lf_err *err);
/* pretrain_mlm.c. With mask_whole_words: finds the tokenizer and reads where its words begin. When
 * the stage runs, before the loop. */
int lf_pretrain_open_words(struct pretrain *p, lf_err *err);
/* The same after the model is read: with objective = electra [model] describes a discriminator. */
int lf_pretrain_settle_electra(struct pretrain *p, lf_err *err);
/* After the model is read: is it one that the objective trains? */
int lf_pretrain_check_pictures(const struct pretrain *p, lf_err *err);

#endif
