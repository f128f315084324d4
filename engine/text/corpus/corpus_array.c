/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects of one JSON array. Brackets are counted outside of texts; what stands inside of an
 * object is judged by whoever reads it.
 */
#include "engine/text/corpus/corpus_array.h"

enum { BEFORE, OPENED, WANTS_OBJECT, INSIDE, IN_TEXT, ESCAPED, CLOSED };

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Outside of objects: brackets and commas in their order. -1: something else. */
static int between(lf_array_scan *s, char c)
{
    if (is_space(c)) {
        s->lines += c == '\n';
        return 0;
    }
    if (s->state == BEFORE && c == (s->first ? '[' : ',')) {
        s->state = s->first ? OPENED : WANTS_OBJECT;
        return 0;
    }
    if (c == ']' && s->state == (s->first ? OPENED : BEFORE)) {
        s->state = CLOSED;
        return 0;
    }
    if (c != '{' || (s->state != OPENED && s->state != WANTS_OBJECT))
        return -1;
    s->begin = s->at;
    s->depth = 1;
    s->state = INSIDE;
    return 0;
}

/* true: the object ends with c. */
static bool inside(lf_array_scan *s, char c)
{
    if (s->state == ESCAPED)
        s->state = IN_TEXT;
    else if (s->state == IN_TEXT)
        s->state = c == '\\' ? ESCAPED : c == '"' ? INSIDE : IN_TEXT;
    else if (c == '"')
        s->state = IN_TEXT;
    else if (c == '{' || c == '[')
        s->depth++;
    else if (c == '}' || c == ']')
        return --s->depth == 0;
    return false;
}

int lf_array_scan_next(lf_array_scan *s, const char *p, size_t n, bool last)
{
    for (; s->at < n; s->at++) {
        char c = p[s->at];
        if (s->state == CLOSED) {
            if (!is_space(c)) /* nothing may stand behind the array */
                return -1;
        } else if (s->state < INSIDE) {
            if (between(s, c) < 0)
                return -1;
        } else if (inside(s, c)) {
            s->end = ++s->at;
            return 1;
        }
    }
    if (!last)
        return 0;
    s->begin = s->end = n;
    return s->state == CLOSED ? 1 : -1;
}
