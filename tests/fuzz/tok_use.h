/* SPDX-License-Identifier: Apache-2.0
 *
 * Use of a tokenizer that a fuzz target has loaded (NULL: nothing happens): texts are encoded,
 * their ids and all small ids decoded, and it is destroyed.
 */
#ifndef LF_TESTS_FUZZ_TOK_USE_H
#define LF_TESTS_FUZZ_TOK_USE_H

#include "engine/text/token/tokenizer.h"

void fuzz_use_tokenizer(lf_tokenizer *t);

#endif
