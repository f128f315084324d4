/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-convert on data: Megatron's .idx to OUT/shards, and shards to OUT/megatron.
 */
#ifndef LF_STAGES_CONVERT_DATA_H
#define LF_STAGES_CONVERT_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/opt.h"

struct convert_data {
    const lf_optset *o; /* borrowed, of lf_convert_opts */
    const char *from, *tokenizer, *eod_token;
    int64_t vocab_size;
    bool append_eod;
};

int lf_convert_data_import(const struct convert_data *d, const char *out, lf_err *err);
int lf_convert_data_export(const struct convert_data *d, const char *out, lf_err *err);

#endif
