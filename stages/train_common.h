/* SPDX-License-Identifier: Apache-2.0
 *
 * What the mains of training stages share: the options of train_opts.h become a struct
 * lf_train_config, and a sink logs and asks for stop requests. lf_train_fill puts the values where
 * the rows say. Each function after it turns the rows of one macro of train_opts.h into
 * configuration, so a stage calls the functions of the rows that it has. Texts are borrowed from
 * the option set. Arrays are in the arena, which must live as long as the configuration.
 */
#ifndef LF_STAGES_TRAIN_COMMON_H
#define LF_STAGES_TRAIN_COMMON_H

#include "engine/base/mem.h"
#include "engine/base/opt.h"
#include "engine/train/loop.h"

/* What the options ask of an adapter that is read from files. */
struct lf_train_asked {
    const char *from; /* NULL: the adapter is new */
    struct lf_adapter_config want;
    bool rank, alpha, scaling, dora, dropout, targets; /* the options that were given */
    bool head;      /* the run trains a reward model, so the adapter must have a head */
    int64_t labels; /* the run trains so many of labels_of, and so must the adapter; 0: none */
    int labels_of;
};

/* Options that are not yet a configuration. The rows of train_opts.h fill this struct and c. */
struct lf_train_given {
    lf_opt_list data, weights, valid, skip, features;
    int64_t batch, batch_tokens; /* 0: not given */
    int32_t precision;           /* f32|bf16|fp16|fp8 */
    double loss_scale;           /* < 0: not given */
    int32_t fp8_scaling;         /* tensor|block */
    lf_opt_list fp8_layers;
    struct lf_adapter_config lora; /* alpha 0: not given */
    lf_opt_list targets, freeze, lr_scale;
    const char *adapter;
    bool dropout;
};

/* lf_optset_fill of a stage's struct. c and g are members of that struct. */
void lf_train_fill(void *stage, struct lf_train_config *c, struct lf_train_given *g, lf_optset *o);

int lf_train_read_data(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                       lf_err *err);
int lf_train_read_length(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                         const lf_optset *o, lf_err *err);
/* The options batch and batch_tokens; they make one row of the ramp. */
int lf_train_read_batch(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                        lf_err *err);
/* otherwise is the learning rate where the row has no default and none is given. */
void lf_train_read_optimizer(struct lf_train_config *c, const struct lf_train_given *g,
                             const lf_optset *o, double otherwise);
/* The options loss_scale, loss_scale_start and loss_scale_window. */
void lf_train_read_scale(struct lf_scaler_opts *s, const struct lf_train_given *g,
                         const lf_optset *o);
/* The options precision, threads and device. */
void lf_train_read_compute(struct lf_train_config *c, const struct lf_train_given *g,
                           const lf_optset *o);
int lf_train_read_fp8(struct lf_train_config *c, const struct lf_train_given *g, const lf_optset *o,
                      lf_err *err);
/* The options freeze and lr_scale. */
int lf_train_read_choice(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                         lf_err *err);
/* These and lora_*. */
int lf_train_read_parts(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                        lf_err *err);
/* The adapter that the lora_ options describe. */
int lf_train_lora(struct lf_adapter_config *ac, const struct lf_train_given *g, lf_err *err);
/* The options adapter and lora_*. c->adapter is the text of the option until
 * lf_train_settle_adapter. */
int lf_train_read_adapter(struct lf_train_config *c, const struct lf_train_given *g,
                          const lf_optset *o, struct lf_train_asked *asked, lf_err *err);
/* For objectives with an option dropout. Without dropout lora_dropout is refused, and an adapter
 * that was trained with dropout continues without. */
int lf_train_settle_dropout(const struct lf_train_config *c, struct lf_train_asked *asked,
                            bool dropout, lf_err *err);
/* Collective; call it before the run. Reads the settings of the adapter that `adapter` names and
 * compares them with what was asked. LF_EINVAL where they differ; dropout may differ. */
int lf_train_settle_adapter(struct lf_train_config *c, lf_arena *a,
                            const struct lf_train_asked *asked, lf_comm *comm, lf_err *err);
/* lf_train_plan after lf_train_settle_adapter, as far as the adapter is there already. */
int lf_train_plan_adapter(struct lf_train_config *c, lf_arena *a,
                          const struct lf_train_asked *asked, json_t *plan, lf_err *err);
/* The paths that every stage has. */
void lf_train_read_paths(struct lf_train_config *c, const lf_optset *o);
/* Reads [model] of the configuration file, if there is one. stage is for messages
 * ("lf-pretrain"). */
int lf_train_read_model(struct lf_train_config *c, const lf_optset *o, const char *stage,
                        lf_err *err);

/* For stages that continue from a checkpoint, after all options are read. Sets their length where
 * none is given, refuses [model], and calls lf_train_check. */
int lf_train_settle(struct lf_train_config *c, double epochs, lf_err *err);
/* The end of a setup with the result rc. Checks that there is an out where one is needed. A mistake
 * in what the user wrote becomes a usage error, whichever reader found it. */
int lf_train_end_setup(const struct lf_train_config *c, const lf_optset *o, int rc, lf_err *err);

/* Logs with lf_log, stops with lf_stop_requested. */
extern const struct lf_train_sink lf_train_stage_sink;

/* lf_stage.makes of training stages: the final checkpoint. Other results may belong to a run that
 * continues. */
const char *const *lf_train_makes(const void *self);

#endif
