/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-convert on adapters: PEFT's files to an adapter and back, and an adapter into its base. */
#ifndef LF_STAGES_CONVERT_ADAPTER_H
#define LF_STAGES_CONVERT_ADAPTER_H

#include "engine/base/opt.h"
#include "engine/convert/peft.h"

struct convert_adapter {
    const lf_optset *o;            /* borrowed, of lf_convert_opts */
    const char *from, *base, *out; /* base: checkpoint, NULL: not given */
    bool bf16;                     /* merged weights */
    int threads;
};

/* Is the checkpoint in dir an adapter? */
int lf_convert_is_adapter(bool *yes, const char *dir, lf_err *err);
int lf_convert_adapter_import(const struct convert_adapter *v, lf_err *err); /* OUT/adapter */
int lf_convert_adapter_export(const struct convert_adapter *v, lf_err *err); /* OUT/peft */
/* OUT/checkpoint, compared with what it was made of: LF_ENUMERIC, and it is taken back, when logits
 * differ. */
int lf_convert_adapter_merge(const struct convert_adapter *v, lf_err *err);

#endif
