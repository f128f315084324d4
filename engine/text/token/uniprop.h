/* SPDX-License-Identifier: Apache-2.0
 *
 * The classes that a pattern names with \p{..}, as the tokenizers library has them: Unicode 16.0,
 * from generated tables (uniprop_data.h, uniprop_sets.h), whatever Unicode version the installed
 * PCRE2 has.
 */
#ifndef LF_TEXT_UNIPROP_H
#define LF_TEXT_UNIPROP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/str.h"

typedef struct lf_uniprop {
    uint32_t categories; /* bits of general categories; 0: a set of its own */
    bool stable;         /* Unicode 14 and later agree on every character that Unicode 14 has */
    bool cased;          /* (?i) may reach beyond it */
    const uint32_t (*range)[2]; /* [n][2] first and last code point, ascending */
    size_t n;
} lf_uniprop;

/* The class of a name of n bytes: a category ("L", "Lu", "Uppercase_Letter"), a script, or one of a
 * few properties. Case, spaces, '-' and '_' do not count. false: not known. */
bool lf_uniprop_find(lf_uniprop *p, const char *name, size_t n);

/* Append its ranges as a bracket expression of a pattern holds them, "\x{61}-\x{7a}..". */
enum lf_uniprop_part {
    LF_UNIPROP_ALL,
    LF_UNIPROP_REST, /* everything else */
    LF_UNIPROP_YOUNG /* those that Unicode 14 does not have (categories only) */
};
void lf_uniprop_write(lf_buf *out, const lf_uniprop *p, enum lf_uniprop_part part);

#endif
