/* SPDX-License-Identifier: Apache-2.0
 *
 * Character classes and lower case of the BERT family's components (normalizers Lowercase,
 * StripAccents, BertNormalizer; pre-tokenizers Punctuation, BertPreTokenizer), as the tokenizers
 * library has them. The table is generated (unitext_data.h); its Unicode versions differ from those
 * of uniclass.h because the library uses several.
 */
#ifndef LF_TEXT_UNITEXT_H
#define LF_TEXT_UNITEXT_H

#include <stdint.h>

#include "engine/base/err.h"

enum lf_unitext_flags {
    LF_UT_MARK = 1,  /* removed by StripAccents */
    LF_UT_MN = 2,    /* removed by BertNormalizer's strip_accents */
    LF_UT_OTHER = 4, /* removed by BertNormalizer's clean_text */
    LF_UT_PUNCT = 8  /* punctuation */
};

/* Returns one byte of flags for each of LF_UNICLASS_SIZE code points, which the caller frees; NULL
 * on failure. */
uint8_t *lf_unitext_create(lf_err *err);

/* Returns the lower case of one character. The caller handles U+0130, whose lower case has two
 * characters. */
uint32_t lf_unitext_lower(uint32_t c);

#endif
