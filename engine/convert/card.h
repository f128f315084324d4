/* SPDX-License-Identifier: Apache-2.0
 *
 * README.md and tokenizer_config.json of an export: what no import had to keep, because we made it.
 */
#ifndef LF_CONVERT_CARD_H
#define LF_CONVERT_CARD_H

#include "engine/base/str.h"
#include "engine/convert/convert.h"

#define LF_HF_CARD      "README.md"
#define LF_HF_TOKENIZER "tokenizer_config.json"

struct lf_convert_card {
    const struct lf_hf_family *family;
    const lf_model_config *config;
    json_t *state;        /* of the checkpoint: steps and tokens, where it was trained; borrowed */
    const char *identity; /* of the checkpoint, in hex */
    const char *dtype;    /* "bfloat16" */
    /* class of transformers that loads the one beside; NULL: there is none */
    const char *tokenizer;
};

/* The card's text into out (cleared first). LF_ENOMEM. */
int lf_convert_card_text(lf_buf *out, const struct lf_convert_card *c, lf_err *err);

/* tokenizer_config.json for a tokenizer.json that has none beside it, and the class it names: that
 * of no family, whose pattern and special tokens would be its own. (Of models of type qwen2
 * transformers 5 takes the family's class all the same; so a card names this one.) Returns owned;
 * NULL: LF_EFORMAT. */
#define LF_HF_TOKENIZER_CLASS "PreTrainedTokenizerFast"
json_t *lf_convert_tokenizer_config(const struct lf_convert_names *n, int64_t positions,
                                    lf_err *err);

#endif
