/* SPDX-License-Identifier: Apache-2.0
 *
 * Jinja for chat templates, the language of `chat_template` in a tokenizer_config.json. It behaves
 * like the environment in which authors test their templates: the Jinja2 sandbox with trim_blocks,
 * lstrip_blocks and the loopcontrols extension, `tojson` without ASCII or HTML escaping, and the
 * globals raise_exception and strftime_now. The text equals that of Jinja2 3.1
 * (tests/golden/jinja). A part of the language that is not implemented is an error with its name,
 * line and column, and never another text.
 *
 *   statements   if elif else, for (else, filter, unpacking, break, continue, loop.*), set (names,
 *                attributes of a namespace, unpacking, blocks), macro, call, filter, with, raw,
 *                generation; not: include, import, extends, block, autoescape, trans, do, recursive
 *                loops
 *   expressions  all of Jinja's operators, slices, conditional expressions, calls with keywords
 *   filters      abs capitalize count default dictsort escape first float indent int items join
 *                last length list lower map max min reject rejectattr replace reverse round safe
 *                select selectattr sort string sum title tojson trim unique upper wordcount
 *   tests        all of Jinja's
 *   methods      those of strings, dicts and lists that change nothing
 *   globals      namespace raise_exception strftime_now range dict
 *
 * A template is not trusted. Steps, depth (of calls, evaluations, values), memory and output are
 * bounded, and a template reaches nothing but its variables. All values but namespaces are
 * immutable.
 */
#ifndef LF_TEXT_JINJA_JINJA_H
#define LF_TEXT_JINJA_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

#define LF_JINJA_MAX_SOURCE ((size_t)4 << 20)

typedef struct lf_jinja lf_jinja;

/* Text between {% generation %} and {% endgeneration %}: bytes [begin, end) of the output. */
typedef struct lf_jinja_span {
    size_t begin, end;
} lf_jinja_span;

typedef struct lf_jinja_opts {
    /* the time of strftime_now, seconds since 1970, as UTC; so the same text can be made again */
    int64_t now;
    /* 0: 20 million evaluations, 200 nested calls, 256 MiB of values, 64 MiB of text */
    size_t max_steps, max_depth, max_memory, max_output;
} lf_jinja_opts;

typedef struct lf_jinja_spans {
    lf_jinja_span *v; /* owned: free() it */
    size_t n, cap;
} lf_jinja_spans;

/* Returns a template that the caller owns, or NULL. `name` is copied. A template is immutable, and
 * several threads may render it. LF_EFORMAT: "name:line:column: text". */
lf_jinja *lf_jinja_parse(const char *source, size_t len, const char *name, lf_err *err);
void lf_jinja_destroy(lf_jinja *t);

/* Renders the template with vars, a borrowed JSON object, and appends the text to out. o and spans
 * may be NULL; spans are appended. On failure out and spans are as before. LF_EINVAL: the template
 * called raise_exception (the message is its text) or used a value wrongly (with line and column).
 * LF_ENOTSUP: an operation is not implemented. LF_ENOMEM: a bound was reached. */
int lf_jinja_render(const lf_jinja *t, json_t *vars, const lf_jinja_opts *o, lf_buf *out,
                    lf_jinja_spans *spans, lf_err *err);

#endif
