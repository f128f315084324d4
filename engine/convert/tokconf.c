/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_config.json of a tokenizer that was made here. */
#include "engine/base/json.h"
#include "engine/convert/card.h"

json_t *lf_convert_tokenizer_config(const struct lf_convert_names *n, int64_t positions,
                                    lf_err *err)
{
    /* Before version 5 the class makes token types too, which no decoder takes, unless inputs are
     * named. */
    json_t *o = json_pack("{s:s, s:[s, s], s:b, s:I, s:s*, s:s*, s:s*, s:s*}", "tokenizer_class",
                          LF_HF_TOKENIZER_CLASS, "model_input_names", "input_ids", "attention_mask",
                          "clean_up_tokenization_spaces", false, "model_max_length",
                          (json_int_t)positions, "bos_token", n->bos, "eos_token", n->eos,
                          "pad_token", n->pad, "unk_token", n->unk);
    if (!o)
        lf_fail(err, LF_EFORMAT, "a special token is not valid UTF-8, or out of memory");
    return o;
}
