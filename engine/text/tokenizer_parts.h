/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json.
 */
#ifndef LF_TEXT_TOKENIZER_PARTS_H
#define LF_TEXT_TOKENIZER_PARTS_H

#include <jansson.h>

#include "engine/text/tokenizer_priv.h"

int lf_tok_load_parts(lf_tokenizer *t, json_t *root, const char *path, lf_err *err);

#endif
