/* SPDX-License-Identifier: Apache-2.0
 *
 * The classes that a pattern names with \p{..}. They are those of the tokenizers library, Unicode
 * 16.0, from generated tables (uniprop_data.h, uniprop_sets.h), whatever the Unicode version of the
 * installed PCRE2.
 */
#ifndef LF_TEXT_UNIPROP_H
#define LF_TEXT_UNIPROP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/str.h"

typedef struct lf_uniprop {
    uint32_t categories; /* bits of general categories; 0: the class is no union of categories */
    /* all versions from Unicode 14 on agree on every character that Unicode 14 has */
    bool stable;
    bool cased;                 /* (?i) may match characters outside the class */
    const uint32_t (*range)[2]; /* [n][2] first and last code point, ascending */
    size_t n;
} lf_uniprop;

/* Finds the class with a name of n bytes: a category ("L", "Lu", "Uppercase_Letter"), a script, or
 * one of a few properties. Case, spaces, '-' and '_' do not count. false: the name is unknown. */
bool lf_uniprop_find(lf_uniprop *p, const char *name, size_t n);

/* lf_uniprop_write appends ranges in the form of a bracket expression, "\x{61}-\x{7a}..". This says
 * which: */
enum lf_uniprop_part {
    LF_UNIPROP_ALL,
    LF_UNIPROP_REST, /* everything else */
    LF_UNIPROP_YOUNG /* the characters that Unicode 14 does not have (categories only) */
};
void lf_uniprop_write(lf_buf *out, const lf_uniprop *p, enum lf_uniprop_part part);

#endif
