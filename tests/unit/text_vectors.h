/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden vectors of tokenizers: texts with the ids and decoded texts that a library gives, as
 * make_tokenizer.py and make_forms.py write them.
 */
#ifndef LF_TESTS_TEXT_VECTORS_H
#define LF_TESTS_TEXT_VECTORS_H

#include <jansson.h>
#include <stdint.h>

#include "engine/text/token/tokenizer.h"

/* Bytes of hex text into out (room for half of it and a zero); returns how many. */
size_t vectors_unhex(char *out, const char *hex);
/* The UTF-8 of a code point; returns its bytes, at most 4. */
size_t vectors_utf8(uint8_t *p, uint32_t c);
/* FNV-1a over the little-endian words of v; h0: the value to go on from (VECTORS_FNV to begin). */
#define VECTORS_FNV 0xCBF29CE484222325u
uint64_t vectors_fnv(uint64_t h0, const uint32_t *v, size_t n);
/* Every text of `vectors` with t against the rows under `name`; tests for each kind of check. */
void vectors_check(json_t *vectors, const char *name, const lf_tokenizer *t);

#endif
