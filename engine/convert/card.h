/* SPDX-License-Identifier: Apache-2.0
 *
 * README.md and tokenizer_config.json of an export, for models that have no such files from an
 * import.
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
    json_t *state;        /* of the checkpoint: steps and tokens of a trained one; borrowed */
    const char *identity; /* of the checkpoint, in hex */
    const char *dtype;    /* "bfloat16" */
    int64_t params;       /* a tied head counts once */
    /* class of transformers that loads the tokenizer beside it; NULL: there is none */
    const char *tokenizer;
    bool ends; /* texts need its eos behind them, which it adds when it is told */
};

/* Sets out to the text of the card. LF_ENOMEM. */
int lf_convert_card_text(lf_buf *out, const struct lf_convert_card *c, lf_err *err);

/* Returns a tokenizer_config.json for a tokenizer.json that has none; the caller owns it. Its class
 * is not that of a family, which would bring its own pattern and special tokens. (For models of
 * type qwen2, transformers 5 takes the class of the family all the same, so a card names this one.)
 * LF_EFORMAT. */
#define LF_HF_TOKENIZER_CLASS "PreTrainedTokenizerFast"
json_t *lf_convert_tokenizer_config(const struct lf_convert_names *n, int64_t positions,
                                    lf_err *err);

#endif
