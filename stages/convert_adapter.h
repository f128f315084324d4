/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-convert on adapters: import PEFT's files, export them, and merge an adapter into its base.
 */
#ifndef LF_STAGES_CONVERT_ADAPTER_H
#define LF_STAGES_CONVERT_ADAPTER_H

#include "engine/base/opt.h"
#include "engine/convert/peft.h"

struct convert_adapter {
    const lf_optset *o;            /* borrowed, of lf_convert_opts */
    const char *from, *base, *out; /* base: a checkpoint, or NULL when not given */
    bool bf16;                     /* merged weights are bf16 */
    int threads;
};

/* Whether the checkpoint in dir is an adapter. */
int lf_convert_is_adapter(bool *yes, const char *dir, lf_err *err);
/* writes OUT/adapter */
int lf_convert_adapter_import(const struct convert_adapter *v, lf_err *err);
int lf_convert_adapter_export(const struct convert_adapter *v, lf_err *err); /* writes OUT/peft */
/* Writes OUT/checkpoint and compares its logits with those of base and adapter. LF_ENUMERIC when
 * they differ; OUT/checkpoint is then removed. */
int lf_convert_adapter_merge(const struct convert_adapter *v, lf_err *err);

#endif
