/* SPDX-License-Identifier: Apache-2.0
 *
 * See yaml.h. The cursor stands at a token between calls; what a block is follows from the column
 * of its first token, so "- key: value" needs no rule of its own.
 */
#include "config.h"

#include "engine/base/yaml.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"

#define DEPTH_MAX 64

struct yaml {
    const char *p;
    size_t n, at, line_start, line;
    int depth;
    const char *path;
    lf_err *err;
};

static int block_node(struct yaml *y, json_t **out);
static int flow_node(struct yaml *y, json_t **out);

/* ---- characters ---- */

static int bad_at(const struct yaml *y, size_t at, const char *what)
{
    return lf_fail(y->err, LF_EFORMAT, "%s:%zu:%zu: %s", y->path, y->line, at - y->line_start + 1,
                   what);
}

static int bad(const struct yaml *y, const char *what)
{
    return bad_at(y, y->at, what);
}

static int no_memory(const struct yaml *y)
{
    return lf_fail(y->err, LF_ENOMEM, "%s: no memory for its values", y->path);
}

/* The byte i behind the cursor, '\n' for any line end and behind the last. */
static char peek(const struct yaml *y, size_t i)
{
    if (y->at + i >= y->n)
        return '\n';
    char c = y->p[y->at + i];
    return c == '\r' && (y->at + i + 1 >= y->n || y->p[y->at + i + 1] == '\n') ? '\n' : c;
}

static bool ends_word(char c)
{
    return c == ' ' || c == '\n';
}

static size_t column(const struct yaml *y)
{
    return y->at - y->line_start;
}

static void skip_spaces(struct yaml *y)
{
    while (peek(y, 0) == ' ')
        y->at++;
}

/* Goes over blanks, comments and line ends to the next token; false: there is none. */
static bool next_token(struct yaml *y)
{
    for (; y->at < y->n; y->at++) {
        char c = y->p[y->at];
        if (c == '#' && (y->at == y->line_start || y->p[y->at - 1] == ' '))
            while (y->at < y->n && y->p[y->at] != '\n')
                y->at++;
        if (y->at >= y->n)
            return false;
        c = peek(y, 0);
        if (c != ' ' && c != '\n')
            return true;
        if (y->p[y->at] == '\n') {
            y->line++;
            y->line_start = y->at + 1;
        }
    }
    return false;
}

/* Nothing but a comment may stand behind a value. */
static int end_line(struct yaml *y)
{
    skip_spaces(y);
    if (peek(y, 0) == '\n' || (peek(y, 0) == '#' && y->p[y->at - 1] == ' '))
        return 0;
    return bad(y, peek(y, 0) == '\t' ? "a tab; YAML is indented by spaces"
                                     : "something stands behind the value");
}

static bool is_marker(const struct yaml *y)
{
    return column(y) == 0 && y->n - y->at >= 3 &&
           (memcmp(y->p + y->at, "---", 3) == 0 || memcmp(y->p + y->at, "...", 3) == 0) &&
           ends_word(peek(y, 3));
}

static bool is_dash(const struct yaml *y)
{
    return peek(y, 0) == '-' && ends_word(peek(y, 1));
}

/* ---- scalars ---- */

static int hex_escape(struct yaml *y, size_t digits, lf_buf *b)
{
    uint32_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        const char c = peek(y, i);
        if (!((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')))
            return bad(y, "an escape has too few digits");
        v = v * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    y->at += digits;
    if (v == 0 || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        return bad(y, "an escape is no character that a text may have");
    char u[4];
    lf_buf_add(b, u, lf_utf8_put(u, v));
    return 0;
}

/* Behind a backslash. */
static int escape(struct yaml *y, lf_buf *b)
{
    static const char names[] = "abefnrtv\"\\/ ", values[] = "\a\b\x1b\f\n\r\t\v\"\\/ ";
    const char c = peek(y, 0);
    y->at++;
    if (c == 'x')
        return hex_escape(y, 2, b);
    if (c == 'u')
        return hex_escape(y, 4, b);
    if (c == 'U')
        return hex_escape(y, 8, b);
    static const char wide[] = "N_LP", *const characters[] = {"\xC2\x85", "\xC2\xA0",
                                                              "\xE2\x80\xA8", "\xE2\x80\xA9"};
    const char *at = c && c != '\n' ? strchr(names, c) : NULL;
    const char *far = c ? strchr(wide, c) : NULL;
    if (!at && !far)
        return bad_at(y, y->at - 1, "an escape that is not known");
    if (at)
        lf_buf_addc(b, values[at - names]);
    else
        lf_buf_adds(b, characters[far - wide]);
    return 0;
}

/* A text between quotes, with the cursor at the first of them. */
static int quoted(struct yaml *y, lf_buf *b)
{
    const char q = peek(y, 0);
    const size_t from = y->at++;
    for (;;) {
        const char c = peek(y, 0);
        if (c == '\n')
            return bad_at(y, from, "a text between quotes does not end in its line");
        y->at++;
        if (c == q && q == '\'' && peek(y, 0) == q) {
            lf_buf_addc(b, q);
            y->at++;
        } else if (c == q) {
            return 0;
        } else if (c == '\\' && q == '"') {
            int rc = escape(y, b);
            if (rc < 0)
                return rc;
        } else {
            lf_buf_addc(b, c);
        }
    }
}

/* Why a value or key cannot begin with this character; NULL: it can. */
static const char *refusal(char c, char next)
{
    switch (c) {
    case '&':
        return "an anchor (&), which is not read";
    case '*':
        return "an alias (*), which is not read; between quotes it is a text";
    case '!':
        return "a tag (!), which is not read; between quotes it is a text";
    case '|':
    case '>':
        return "a text over several lines (| or >), which is not read";
    case '%':
        return "a directive (%), which is not read; between quotes it is a text";
    case '@':
    case '`':
        return "a text cannot begin with @ or `; put it between quotes";
    case ',':
    case ']':
    case '}':
        return "a bracket or comma where a value is wanted";
    case '\t':
        return "a tab; YAML is indented by spaces";
    case '?':
    case ':':
        return ends_word(next) ? "a key with ? or without a name, which is not read" : NULL;
    case '-':
        return ends_word(next) ? "a list cannot begin in the middle of a line" : NULL;
    default:
        return NULL;
    }
}

static bool is_flow(char c)
{
    return c && strchr(",[]{}", c) != NULL;
}

/* Length of the plain text at the cursor; flow: between brackets. */
static size_t plain_length(const struct yaml *y, bool flow)
{
    size_t n = 0;
    for (size_t i = 0;; i++) {
        const char c = peek(y, i);
        if (c == '\n' || (c == '#' && i > 0 && peek(y, i - 1) == ' ') || (flow && is_flow(c)) ||
            (c == ':' && (ends_word(peek(y, i + 1)) || (flow && is_flow(peek(y, i + 1))))))
            return n;
        if (c != ' ')
            n = i + 1;
    }
}

/* A quoted or plain text; *is_plain: it was the latter. */
static int scalar(struct yaml *y, lf_buf *b, bool flow, bool *is_plain)
{
    const char c = peek(y, 0);
    *is_plain = c != '"' && c != '\'';
    if (!*is_plain)
        return quoted(y, b);
    const char *why = refusal(c, peek(y, 1));
    if (why)
        return bad(y, why);
    const size_t n = plain_length(y, flow);
    const char *tab = memchr(y->p + y->at, '\t', n);
    if (tab)
        return bad_at(y, (size_t)(tab - y->p), "a tab; put the text between quotes");
    lf_buf_add(b, y->p + y->at, n);
    y->at += n;
    return 0;
}

static bool is_null(const char *s)
{
    static const char *const v[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        if (strcmp(s, v[i]) == 0)
            return true;
    return false;
}

static int scalar_value(struct yaml *y, json_t **out, bool flow)
{
    lf_buf b;
    bool plain;
    lf_buf_init(&b);
    int rc = scalar(y, &b, flow, &plain);
    if (rc == 0) {
        *out = plain && is_null(b.data) ? json_null() : json_stringn(b.data, b.len);
        rc = *out && !b.failed ? 0 : no_memory(y);
    }
    lf_buf_fini(&b);
    return rc;
}

/* ---- keys ---- */

/* Does "key:" stand at the cursor? */
static bool is_key(const struct yaml *y)
{
    const char c = peek(y, 0);
    if (c == '"' || c == '\'') {
        struct yaml ahead = *y;
        lf_buf b;
        lf_buf_init(&b);
        ahead.err = NULL;
        const bool whole = quoted(&ahead, &b) == 0;
        lf_buf_fini(&b);
        skip_spaces(&ahead);
        return whole && peek(&ahead, 0) == ':' && ends_word(peek(&ahead, 1));
    }
    if (is_flow(c) || refusal(c, peek(y, 1)))
        return false;
    const size_t n = plain_length(y, false);
    size_t i = n;
    while (peek(y, i) == ' ')
        i++;
    return n > 0 && peek(y, i) == ':';
}

/* Reads "key:" and leaves the cursor behind the colon. */
static int key(struct yaml *y, lf_buf *name, const json_t *into, bool flow)
{
    bool plain;
    const size_t from = y->at;
    lf_buf_clear(name);
    int rc = scalar(y, name, flow, &plain);
    if (rc < 0)
        return rc;
    skip_spaces(y);
    if (name->failed)
        return no_memory(y);
    if (plain && strcmp(name->data, "<<") == 0)
        return bad_at(y, from, "the merge key <<, which is not read");
    if (strlen(name->data) != name->len)
        return bad_at(y, from, "a key with a NUL");
    if (json_object_get(into, name->data))
        return bad_at(y, from, "this key stands here twice");
    if (peek(y, 0) != ':' || (plain && !ends_word(peek(y, 1)) && !is_flow(peek(y, 1))))
        return bad(y, "a key needs a colon and a value behind it");
    y->at++;
    return 0;
}

static int put(struct yaml *y, json_t *into, const char *name, json_t *v)
{
    const int failed = name ? json_object_set_new(into, name, v) : json_array_append_new(into, v);
    return failed ? no_memory(y) : 0;
}

/* ---- between brackets ---- */

static int flow_token(struct yaml *y)
{
    if (!next_token(y))
        return bad(y, "the file ends inside of brackets");
    return peek(y, 0) == '\t' ? bad(y, "a tab; YAML is indented by spaces") : 0;
}

static int flow_item(struct yaml *y, json_t *into, lf_buf *name)
{
    json_t *v = NULL;
    const bool object = json_is_object(into);
    int rc = object ? key(y, name, into, true) : 0;
    if (rc == 0)
        rc = flow_token(y);
    if (rc == 0 && object && (peek(y, 0) == ',' || peek(y, 0) == '}'))
        v = json_null();
    else if (rc == 0)
        rc = flow_node(y, &v);
    return rc < 0 ? rc : put(y, into, object ? name->data : NULL, v);
}

static int flow_items(struct yaml *y, json_t *into, char close)
{
    lf_buf name;
    int rc = 0;
    lf_buf_init(&name);
    y->at++;
    while (rc == 0 && (rc = flow_token(y)) == 0 && peek(y, 0) != close) {
        rc = flow_item(y, into, &name);
        if (rc == 0)
            rc = flow_token(y);
        if (rc == 0 && peek(y, 0) == ',')
            y->at++;
        else if (rc == 0 && peek(y, 0) != close)
            rc = bad(y, "a comma or the closing bracket is wanted");
    }
    y->at += rc == 0;
    lf_buf_fini(&name);
    return rc;
}

static int flow_node(struct yaml *y, json_t **out)
{
    const char c = peek(y, 0);
    if (c != '[' && c != '{')
        return scalar_value(y, out, true);
    if (y->depth >= DEPTH_MAX)
        return bad(y, "nested too deep");
    json_t *v = c == '[' ? json_array() : json_object();
    y->depth++;
    int rc = v ? flow_items(y, v, c == '[' ? ']' : '}') : no_memory(y);
    y->depth--;
    if (rc < 0)
        json_decref(v);
    else
        *out = v;
    return rc;
}

/* ---- blocks ---- */

/* A value that ends with its line, or with the line of its last bracket. */
static int line_value(struct yaml *y, json_t **out)
{
    const char c = peek(y, 0);
    int rc = c == '[' || c == '{' ? flow_node(y, out) : scalar_value(y, out, false);
    if (rc == 0 && peek(y, 0) == ':')
        rc = bad(y, "a colon inside of a text; put the text between quotes");
    if (rc == 0)
        rc = end_line(y);
    if (rc < 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* The value behind "key:" in a mapping at column c, or behind "-" in a list there; `list`: a list
 * at that very column may be the value. */
static int block_value(struct yaml *y, json_t **out, size_t c, bool list)
{
    const size_t line = y->line;
    skip_spaces(y);
    if (!next_token(y) || is_marker(y)) {
        *out = json_null();
        return 0;
    }
    if (y->line == line) /* the cursor did not leave the line */
        return list ? line_value(y, out) : block_node(y, out);
    if (column(y) > c || (list && column(y) == c && is_dash(y)))
        return block_node(y, out);
    *out = json_null();
    return 0;
}

/* 1: another item of the block at column c follows; 0: it has ended. */
static int follows(struct yaml *y, size_t c)
{
    if (!next_token(y) || is_marker(y) || column(y) < c)
        return 0;
    if (column(y) > c)
        return bad(y, "this is indented more than what it belongs to; a text has one line");
    return 1;
}

static int block_map(struct yaml *y, json_t *into, lf_buf *name)
{
    const size_t c = column(y);
    int more = 1;
    while (more == 1) {
        json_t *v = NULL;
        if (!is_key(y)) {
            const char *why = refusal(peek(y, 0), peek(y, 1));
            return bad(y, why ? why : "a key and a colon are wanted here");
        }
        int rc = key(y, name, into, false);
        if (rc == 0)
            rc = block_value(y, &v, c, true);
        if (rc == 0)
            rc = put(y, into, name->data, v);
        more = rc < 0 ? rc : follows(y, c);
    }
    return more;
}

static int block_list(struct yaml *y, json_t *into)
{
    const size_t c = column(y);
    int more = 1;
    while (more == 1 && is_dash(y)) {
        json_t *v = NULL;
        y->at++;
        int rc = block_value(y, &v, c, false);
        if (rc == 0)
            rc = put(y, into, NULL, v);
        more = rc < 0 ? rc : follows(y, c);
    }
    return more < 0 ? more : 0; /* a key at this column belongs to the mapping around the list */
}

static int block_node(struct yaml *y, json_t **out)
{
    const bool list = is_dash(y);
    if (!list && !is_key(y))
        return line_value(y, out);
    if (y->depth >= DEPTH_MAX)
        return bad(y, "nested too deep");
    json_t *v = list ? json_array() : json_object();
    lf_buf name;
    lf_buf_init(&name);
    y->depth++;
    int rc = !v ? no_memory(y) : list ? block_list(y, v) : block_map(y, v, &name);
    y->depth--;
    lf_buf_fini(&name);
    if (rc < 0)
        json_decref(v);
    else
        *out = v;
    return rc;
}

/* ---- documents ---- */

static int document(struct yaml *y, json_t **out)
{
    if (next_token(y) && is_marker(y) && peek(y, 0) == '-') {
        y->at += 3;
        skip_spaces(y);
        if (peek(y, 0) != '\n' && peek(y, 0) != '#')
            return bad(y, "a value on the line of ---, which is not read");
    }
    if (!next_token(y) || is_marker(y))
        *out = json_null();
    else if (block_node(y, out) < 0)
        return LF_EFORMAT;
    if (!next_token(y))
        return 0;
    return bad(y, is_marker(y) ? "a second document, or its end (...), which is not read"
                               : "this belongs to nothing above it");
}

json_t *lf_yaml_load_text(const char *text, size_t len, const char *path, lf_err *err)
{
    struct yaml y = {.p = text, .n = len, .line = 1, .path = path, .err = err};
    json_t *out = NULL;
    y.at = y.line_start = lf_utf8_bom(text, len);
    const size_t odd = lf_utf8_check(text, len);
    if (odd < len || (len > 0 && memchr(text, 0, len))) {
        lf_fail(err, LF_EFORMAT, "%s: it is no text: it holds %s", path,
                odd < len ? "bytes that are not UTF-8" : "a NUL");
        return NULL;
    }
    if (document(&y, &out) < 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

json_t *lf_yaml_load_file(const char *path, size_t max_bytes, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    json_t *out = lf_io_read_file(path, max_bytes, &b, err) < 0
                      ? NULL
                      : lf_yaml_load_text(b.data, b.len, path, err);
    lf_buf_fini(&b);
    return out;
}
