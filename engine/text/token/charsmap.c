/* SPDX-License-Identifier: Apache-2.0
 *
 * See charsmap.h. Every unit's index is checked where it is used, so that a broken trie ends a
 * search, no more.
 */
#include "config.h"

#include "engine/text/token/charsmap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/base/le.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/token/uniclass.h"

#define CLUSTER_MAX 6 /* clusters of fewer bytes are looked up whole */

int lf_charsmap_init(lf_charsmap *m, const uint8_t *blob, size_t len, const char *what, lf_err *err)
{
    uint32_t bytes = len >= 4 ? (uint32_t)lf_get_le(blob, 4) : 0;
    if (len < 4 || bytes > len - 4 || bytes % 4 != 0 || bytes == 0)
        return lf_fail(err, LF_EFORMAT,
                       "%s: the precompiled normalisation of %zu bytes is cut or broken", what,
                       len);
    size_t n = bytes / 4, n_texts = len - 4 - bytes;
    const uint8_t *texts = blob + 4 + bytes;
    if (lf_utf8_check((const char *)texts, n_texts) != n_texts)
        return lf_fail(err, LF_EFORMAT, "%s: the precompiled normalisation's texts are not UTF-8",
                       what);
    lf_charsmap made = {.n_units = n, .n_texts = n_texts};
    made.units = lf_malloc(n, sizeof(*made.units), err);
    made.texts = made.units ? lf_strndup("", 0, err) : NULL;
    int rc = made.texts ? lf_realloc(&made.texts, n_texts + 1, 1, err) : LF_ENOMEM;
    if (rc != 0) {
        lf_charsmap_fini(&made);
        return rc;
    }
    for (size_t i = 0; i < n; i++)
        made.units[i] = (uint32_t)lf_get_le(blob + 4 + 4 * i, 4);
    memcpy(made.texts, texts, n_texts);
    made.texts[n_texts] = 0;
    *m = made;
    return 0;
}

void lf_charsmap_fini(lf_charsmap *m)
{
    free(m->units);
    free(m->texts);
    memset(m, 0, sizeof(*m));
}

/* Walk the trie over p; the first or the last rule on the way. Returns its bytes, 0 none. */
static size_t search(const lf_charsmap *m, const uint8_t *p, size_t len, bool first,
                     const char **text)
{
    size_t best = 0;
    if (m->n_units == 0)
        return 0;
    uint32_t unit = m->units[0];
    size_t pos = (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
    for (size_t i = 0; i < len && p[i]; i++) {
        pos ^= p[i];
        if (pos >= m->n_units)
            return best;
        unit = m->units[pos];
        if ((unit & 0x800000FFu) != p[i])
            return best;
        pos ^= (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
        if (!(unit & 0x100) || pos >= m->n_units)
            continue;
        uint32_t value = m->units[pos] & 0x7FFFFFFFu;
        if (value > m->n_texts)
            continue;
        *text = m->texts + value;
        best = i + 1;
        if (first)
            return best;
    }
    return best;
}

size_t lf_charsmap_longest(const lf_charsmap *m, const uint8_t *p, size_t len, const char **text)
{
    return search(m, p, len, false, text);
}

const char *lf_charsmap_shortest(const lf_charsmap *m, const uint8_t *p, size_t len)
{
    const char *text = NULL;
    return search(m, p, len, true, &text) ? text : NULL;
}

/* Bytes of the grapheme cluster at p. */
static size_t cluster(const uint8_t *p, size_t len)
{
    unsigned k;
    utf8proc_int32_t state = 0, a = (utf8proc_int32_t)lf_utf8_get(p, &k);
    size_t at = k;
    while (at < len) {
        if (a < 0x80 && p[at] < 0x80 && a != '\r')
            break;
        utf8proc_int32_t b = (utf8proc_int32_t)lf_utf8_get(p + at, &k);
        if (utf8proc_grapheme_break_stateful(a, b, &state))
            break;
        at += k;
        a = b;
    }
    return at;
}

void lf_charsmap_apply(const lf_charsmap *m, const uint8_t *p, size_t len, lf_buf *out)
{
    for (size_t at = 0, n; at < len; at += n) {
        n = cluster(p + at, len - at);
        const char *text = n < CLUSTER_MAX ? lf_charsmap_shortest(m, p + at, n) : NULL;
        if (text) {
            lf_buf_adds(out, text);
            continue;
        }
        unsigned k;
        for (size_t i = 0; i < n; i += k) {
            (void)lf_utf8_get(p + at + i, &k);
            text = lf_charsmap_shortest(m, p + at + i, k);
            if (text)
                lf_buf_adds(out, text);
            else
                lf_buf_add(out, p + at + i, k);
        }
    }
}
