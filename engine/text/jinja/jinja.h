/* SPDX-License-Identifier: Apache-2.0
 *
 * Jinja for chat templates: the language that the `chat_template` of a tokenizer_config.json is
 * written in, as its authors tested it: the Jinja2 sandbox with trim_blocks, lstrip_blocks and the
 * loopcontrols extension, `tojson` without ASCII or HTML escaping, and the globals raise_exception
 * and strftime_now. Text equals what Jinja2 3.1 renders (tests/golden/jinja); what is left out is
 * an error that names it with line and column, never another text.
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
 *   methods      of strings, dicts and lists, those that change nothing
 *   globals      namespace raise_exception strftime_now range dict
 *
 * A template is untrusted: steps, depth (of calls, evaluations, values), memory and output are
 * bounded, and there is nothing outside of its variables that it could reach. Values are immutable
 * but for namespaces.
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
    /* what strftime_now formats, seconds since 1970, as UTC; so a text can be made again */
    int64_t now;
    /* 0: 20 million evaluations, 200 nested calls, 256 MiB of values, 64 MiB of text */
    size_t max_steps, max_depth, max_memory, max_output;
} lf_jinja_opts;

typedef struct lf_jinja_spans {
    lf_jinja_span *v; /* owned: free() it */
    size_t n, cap;
} lf_jinja_spans;

/* Returns owned, NULL on failure: LF_EFORMAT with "name:line:column: text". `name` is copied.
 * Immutable afterwards and safe to render from several threads. */
lf_jinja *lf_jinja_parse(const char *source, size_t len, const char *name, lf_err *err);
void lf_jinja_destroy(lf_jinja *t);

/* Append to out what the template makes of vars, a JSON object (borrowed). o and spans may be NULL;
 * spans are appended. LF_EINVAL: raise_exception (its text) or a wrong use of a value, with line
 * and column; LF_ENOTSUP: an operation that is left out; LF_ENOMEM: a bound was met. On failure out
 * and spans are as before. */
int lf_jinja_render(const lf_jinja *t, json_t *vars, const lf_jinja_opts *o, lf_buf *out,
                    lf_jinja_spans *spans, lf_err *err);

#endif
