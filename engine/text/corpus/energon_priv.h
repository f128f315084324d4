/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that energon.c (what a folder says), energon_braces.c (names of archives) and
 * energon_row.c (samples to rows) share.
 */
#ifndef LF_TEXT_ENERGON_PRIV_H
#define LF_TEXT_ENERGON_PRIV_H

#include "engine/text/corpus/energon.h"

enum lf_energon_class {
    LF_ENERGON_CRUDE,
    LF_ENERGON_PLAIN_TEXT,
    LF_ENERGON_CAPTION,
    LF_ENERGON_OCR,
    LF_ENERGON_VQA,
    LF_ENERGON_MIX,
    LF_ENERGON_INTERLEAVE
};

struct lf_energon {
    char *about; /* path of dataset.yaml, for messages */
    enum lf_energon_class is;
    enum lf_energon_loader loader;
    json_t *fields;   /* field -> text of its place; an object, or NULL with a loader */
    json_t *archives; /* list of names */
    json_t *counts;   /* name -> samples */
    json_t *excluded; /* "archive/key" -> true */
};

/* Appends the texts that braces stand for, as Python's braceexpand has it: "a{1..3}", "{a,b}",
 * nested, with {01..10} padded and {1..9..2} in steps. Other braces are LF_EFORMAT. */
int lf_energon_braces(json_t *out, const char *text, const char *path, lf_err *err);

#endif
