/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: the part of Jinja that they use, sandboxed. Output is what jinja2 gives in the environment the
 * models' authors tested with: trim_blocks and lstrip_blocks on, loopcontrols, one newline at the end of the template
 * dropped, no escaping.
 *
 *   statements   if elif else, for (with if, else, break, continue, tuples), set (also of a block and of members of a
 *                namespace), macro, generation (transparent), comments
 *   expressions  or and not, comparisons, in, is, + - * / // % **, ~, if else, calls, members, items, slices, literals
 *   filters      abs capitalize count d default dictsort first float int items join last length list lower map max min
 *                reject rejectattr replace reverse round safe select selectattr sort string sum title tojson trim
 * unique upper tests        boolean callable defined divisibleby eq equalto even false float ge gt in integer iterable
 * le lower lt mapping ne none number odd sequence string true undefined upper methods      of texts: capitalize
 * endswith find lower lstrip replace rstrip split startswith strip title upper; of mappings: get items keys values
 *   globals      namespace, range, raise_exception(text), strftime_now(format), dict
 *
 * What is not here is an error when the template is parsed or when it is reached, with line and column; nothing is
 * passed over. A template can compute and make text, nothing else; steps, depth, memory and output are bounded.
 */
#ifndef LF_TEXT_JINJA_H
#define LF_TEXT_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

typedef struct lf_jinja lf_jinja;

typedef struct lf_jinja_limits {
    uint64_t steps; /* evaluated nodes; 0: 10 million */
    size_t output;  /* bytes; 0: 64 MiB */
    size_t memory;  /* bytes of values; 0: 256 MiB */
    int64_t now;    /* seconds since 1970 that strftime_now tells (UTC) */
} lf_jinja_limits;

/* name: for messages ("chat_template"). The text is copied. LF_EFORMAT: "name:line:column: what". */
int lf_jinja_parse(lf_jinja **out, const char *text, size_t len, const char *name, lf_err *err);
void lf_jinja_destroy(lf_jinja *t); /* NULL is fine */

/* Append the rendered text to out. vars: an object whose members are the template's variables. limits NULL: the
 * defaults. Thread-safe. LF_EFORMAT: an error of the template, with its place; LF_EINVAL: raise_exception, whose text
 * is told; LF_ENOMEM, LF_ENUMERIC: a limit was passed. */
int lf_jinja_render(const lf_jinja *t, json_t *vars, const lf_jinja_limits *limits, lf_buf *out, lf_err *err);

#endif
