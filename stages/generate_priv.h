/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside lf-generate: options become the defaults of requests (generate_settings.c).
 */
#ifndef LF_STAGES_GENERATE_PRIV_H
#define LF_STAGES_GENERATE_PRIV_H

#include "engine/infer/genconfig.h"
#include "engine/infer/request.h"
#include "stages/infer_common.h"

typedef struct generate_settings {
    lf_gen_defaults d;
    /* set[i]: the user gave the value, so generation_config.json does not count */
    bool raw, set[LF_GEN_KEYS];
    bool seq2seq; /* the model is an encoder-decoder */
    const char **stop, **eos;
    size_t n_eos;
    int32_t *end;
} generate_settings;

/* Read s from the options alone. */
int generate_settings_read(generate_settings *s, const lf_optset *o, lf_err *err);
/* Add what generation_config.json beside the tokenizer gives, and its end tokens. With `say` the
 * values taken are logged. */
int generate_settings_complete(generate_settings *s, const lf_tokenizer *tok,
                               const char *tokenizer_path, bool say, lf_err *err);
void generate_settings_fini(generate_settings *s);

#endif
