/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a document for people.
 */
#include "config.h"

#include <string.h>

#include "engine/base/utf8.h"
#include "stages/tokenize_show.h"

#define TRAINED "\033[32m"
#define SPECIAL "\033[1m"
#define DIM     "\033[2m"
#define PLAIN   "\033[0m"
#define DOT     "\xC2\xB7"

/* C0, DEL and C1 move a terminal's cursor, or worse. */
static bool is_control(const uint8_t *s, size_t n)
{
    return (n == 1 && (s[0] < 0x20 || s[0] == 0x7f)) || (n == 2 && s[0] == 0xC2 && s[1] < 0xA0);
}

static void add_hex(lf_buf *out, const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(out, "\\x%02X", s[i]);
}

static bool is_dot(const uint8_t *s, size_t n)
{
    return n == 2 && memcmp(s, DOT, 2) == 0;
}

static bool is_mark(const uint8_t *s, size_t left)
{
    return left >= 2 && ((s[0] == '{' && s[1] == '+') || (s[0] == '+' && s[1] == '}'));
}

void lf_tok_escape(lf_buf *out, const uint8_t *s, size_t n, bool marks)
{
    for (size_t i = 0; i < n;) {
        size_t len = lf_utf8_len((const char *)s + i, n - i);
        if (len == 0 || (is_control(s + i, len) && s[i] != '\n' && s[i] != '\t'))
            add_hex(out, s + i, len = len ? len : 1);
        else if (s[i] == '\n' || s[i] == '\t')
            lf_buf_adds(out, s[i] == '\n' ? "\\n" : "\\t");
        else {
            if (s[i] == '\\' || is_dot(s + i, len) || (marks && is_mark(s + i, n - i)))
                lf_buf_addc(out, '\\');
            lf_buf_add(out, s + i, len);
        }
        i += len;
    }
}

/* Returns true when the token ends a line. */
static bool add_token(lf_buf *out, const tok_shown *d, const tok_look *l, uint64_t i)
{
    const uint8_t *bytes = NULL;
    size_t n = 0;
    uint32_t id = (uint32_t)d->ids[i];
    bool known = l->tok && lf_tokenizer_token(l->tok, id, &bytes, &n);
    bool special = known && lf_tokenizer_is_special(l->tok, id);
    if (special)
        known = lf_tokenizer_text(l->tok, id, &bytes, &n);
    bool coloured = l->colour && (special || d->is_trained[i]);
    if (coloured) {
        lf_buf_adds(out, special ? SPECIAL : "");
        lf_buf_adds(out, d->is_trained[i] ? TRAINED : "");
    }
    if (known)
        lf_tok_escape(out, bytes, n, !l->colour);
    if (l->ids || !known)
        lf_buf_addf(out, "%s%u", known ? "#" : "", id);
    if (coloured)
        lf_buf_adds(out, PLAIN);
    return known && n > 0 && bytes[n - 1] == '\n';
}

static void add_divider(lf_buf *out, const tok_look *l, bool begins)
{
    lf_buf_adds(out, l->colour ? DIM : "");
    lf_buf_adds(out, begins ? DOT DOT : DOT);
    lf_buf_adds(out, l->colour ? PLAIN : "");
}

/* How many placeholders of pictures follow one like them, before `end`. */
static uint64_t placeholders(const tok_shown *d, const tok_look *l, uint64_t i, uint64_t end)
{
    uint64_t n = 0;
    while (d->ids[i] == l->image_token && i + n + 1 < end && d->ids[i + n + 1] == l->image_token &&
           !d->is_trained[i] && !d->is_trained[i + n + 1])
        n++;
    return n;
}

/* Tokens [first, end) as one piece of text, marks closed at its end. */
static void add_span(lf_buf *out, const tok_shown *d, const tok_look *l, uint64_t first,
                     uint64_t end)
{
    const bool marks = !l->colour;
    lf_buf_adds(out, "  ");
    for (uint64_t i = first; i < end; i++) {
        const uint64_t more = placeholders(d, l, i, end);
        bool trained = d->is_trained[i];
        if (marks && trained && (i == first || !d->is_trained[i - 1]))
            lf_buf_adds(out, "{+");
        bool line_end = add_token(out, d, l, i);
        if (more > 0)
            lf_buf_addf(out, " x %llu", (unsigned long long)more + 1);
        i += more;
        const bool last = i + 1 == end;
        if (marks && trained && (last || !d->is_trained[i + 1]))
            lf_buf_adds(out, "+}");
        if (!last)
            add_divider(out, l, d->begins[i + 1]);
        lf_buf_adds(out, last ? "\n" : line_end ? "\n  " : "");
    }
}

void lf_tok_shown_text(lf_buf *out, const tok_shown *d, const tok_look *l)
{
    if (l->tokens == 0 || d->n <= l->tokens) {
        if (d->n)
            add_span(out, d, l, 0, d->n);
        return;
    }
    uint64_t front = (l->tokens + 1) / 2, back = l->tokens - front;
    add_span(out, d, l, 0, front);
    lf_buf_addf(out, "  ... %llu tokens are left out ...\n",
                (unsigned long long)(d->n - front - back));
    if (back)
        add_span(out, d, l, d->n - back, d->n);
}
