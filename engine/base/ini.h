/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict INI reader. It keeps the place that every value came from. It knows syntax only; its
 * callers decide which keys exist and handle references ${...}, includes and inheritance.
 *
 *   [section], [kind NAME]  stored as the text between the brackets, inner blanks collapsed to one
 *   key = value             the key is [A-Za-z_][A-Za-z0-9_.-]*; the value is the rest of the line,
 *                           trimmed; a line may have any length
 *   # or ;                  begins a comment at the start of a line, also behind blanks; later in a
 *                           line it is an ordinary character
 *   a blank                 at the start of a line continues the value above, joined by "\n"
 *
 * Errors (LF_EFORMAT, worded path:line:column): key outside a section, duplicate key in a section,
 * duplicate section, no '=', bad key, NUL byte, invalid UTF-8, file above 16 MiB.
 */
#ifndef LF_BASE_INI_H
#define LF_BASE_INI_H

#include <stddef.h>

#include "engine/base/err.h"

typedef struct lf_ini_entry {
    const char *section; /* "stage train" */
    const char *key;
    const char *value; /* "" when empty */
    const char *path;  /* file it came from */
    int line, column;  /* of the value, from 1 */
} lf_ini_entry;

typedef struct lf_ini_section {
    const char *name;
    const char *path;
    int line;
    size_t first, n; /* its entries, contiguous in entries[] */
} lf_ini_section;

typedef struct lf_ini {
    lf_ini_entry *entries; /* in file order */
    size_t n_entries;
    lf_ini_section *sections;
    size_t n_sections;
    void *priv; /* owns every string above */
} lf_ini;

int lf_ini_parse_file(lf_ini *out, const char *path, lf_err *err);
int lf_ini_parse_text(lf_ini *out, const char *text, size_t len, const char *path_for_messages,
                      lf_err *err);
void lf_ini_fini(lf_ini *ini);
const lf_ini_section *lf_ini_find_section(const lf_ini *ini, const char *name); /* NULL: none */
/* NULL: none */
const lf_ini_entry *lf_ini_find(const lf_ini *ini, const char *section, const char *key);

#endif
