/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens: a trie that finds the leftmost and there the longest, and the rules around a match
 * (single_word, lstrip, rstrip) in the order of the tokenizers library (added_vocabulary.rs,
 * find_matches).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"

static int by_match(const void *a, const void *b)
{
    const lf_added *x = *(const lf_added *const *)a, *y = *(const lf_added *const *)b;
    size_t n = x->match_len < y->match_len ? x->match_len : y->match_len;
    int c = memcmp(x->match, y->match, n);
    return c ? c : (x->match_len > y->match_len) - (x->match_len < y->match_len);
}

static int64_t new_node(lf_trie *t, lf_err *err)
{
    int rc = lf_grow(&t->nodes, &t->cap_nodes, t->n_nodes, sizeof(*t->nodes), err);
    if (rc != 0)
        return rc;
    t->nodes[t->n_nodes] = (lf_trie_node){.value = -1};
    return (int64_t)t->n_nodes++;
}

/* One level: the sorted tokens [lo, hi) share their first `depth` bytes and lead to `node`. Work
 * items replace recursion because tokens may be long. */
struct work {
    size_t lo, hi, depth;
    uint32_t node;
};

struct queue {
    struct work *v;
    size_t n, cap;
};

static int expand(lf_trie *t, const lf_added **sorted, const lf_added *base, struct work w,
                  struct queue *todo, lf_err *err)
{
    size_t i = w.lo;
    if (sorted[i]->match_len == w.depth) {
        if (i + 1 < w.hi && sorted[i + 1]->match_len == w.depth)
            return lf_fail(err, LF_EFORMAT, "two added tokens have the same text \"%.100s\"",
                           sorted[i]->content);
        t->nodes[w.node].value = (int32_t)(sorted[i] - base);
        i++;
    }
    t->nodes[w.node].first = (uint32_t)t->n_edges;
    while (i < w.hi) {
        size_t j = i;
        uint8_t b = (uint8_t)sorted[i]->match[w.depth];
        while (j < w.hi && (uint8_t)sorted[j]->match[w.depth] == b)
            j++;
        int64_t node = new_node(t, err);
        if (node < 0)
            return (int)node;
        int rc = lf_grow(&t->bytes, &t->cap_bytes, t->n_edges, 1, err);
        if (rc == 0)
            rc = lf_grow(&t->to, &t->cap_to, t->n_edges, sizeof(*t->to), err);
        if (rc == 0)
            rc = lf_grow(&todo->v, &todo->cap, todo->n, sizeof(*todo->v), err);
        if (rc != 0)
            return rc;
        t->bytes[t->n_edges] = b;
        t->to[t->n_edges++] = (uint32_t)node;
        t->nodes[w.node].n++;
        todo->v[todo->n++] = (struct work){i, j, w.depth + 1, (uint32_t)node};
        i = j;
    }
    return 0;
}

int lf_trie_build(lf_trie *t, const lf_added *added, size_t n, bool normalized, lf_err *err)
{
    struct queue todo = {0};
    size_t k = 0;
    const lf_added **sorted = lf_calloc(n, sizeof(*sorted), err);
    int rc = sorted ? 0 : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (added[i].normalized == normalized)
            sorted[k++] = &added[i];
    if (rc != 0 || k == 0)
        goto out;
    qsort(sorted, k, sizeof(*sorted), by_match);
    rc = new_node(t, err) < 0 ? LF_ENOMEM : lf_grow(&todo.v, &todo.cap, 0, sizeof(*todo.v), err);
    if (rc != 0)
        goto out;
    todo.v[todo.n++] = (struct work){0, k, 0, 0};
    while (todo.n > 0 && rc == 0) {
        struct work w = todo.v[--todo.n];
        rc = expand(t, sorted, added, w, &todo, err);
    }
    t->only_first = t->nodes[0].n == 1 ? t->bytes[t->nodes[0].first] : -1;
    for (uint32_t e = 0; e < t->nodes[0].n; e++)
        t->first[t->bytes[t->nodes[0].first + e]] = true;
    t->used = true;
out:
    free(sorted);
    free(todo.v);
    return rc;
}

void lf_trie_fini(lf_trie *t)
{
    free(t->nodes);
    free(t->bytes);
    free(t->to);
    memset(t, 0, sizeof(*t));
}

static int64_t step(const lf_trie *t, uint32_t node, uint8_t b)
{
    const lf_trie_node *n = &t->nodes[node];
    uint32_t lo = n->first, hi = n->first + n->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->bytes[mid] == b)
            return t->to[mid];
        if (t->bytes[mid] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

bool lf_trie_find(const lf_trie *t, const uint8_t *text, size_t len, size_t from, size_t *start,
                  size_t *end, int *which)
{
    for (size_t i = from; i < len; i++) {
        if (t->only_first >= 0) {
            const uint8_t *hit = memchr(text + i, t->only_first, len - i);
            if (!hit)
                return false;
            i = (size_t)(hit - text);
        } else if (!t->first[text[i]]) {
            continue;
        }
        int64_t node = 0;
        int best = -1;
        size_t best_end = i;
        for (size_t j = i; j < len && (node = step(t, (uint32_t)node, text[j])) >= 0; j++) {
            if (t->nodes[node].value >= 0) {
                best = t->nodes[node].value;
                best_end = j + 1;
            }
        }
        if (best >= 0) {
            *start = i;
            *end = best_end;
            *which = best;
            return true;
        }
    }
    return false;
}

static bool word_before(const uint8_t *cls, const uint8_t *text, size_t at)
{
    unsigned n;
    return at > 0 && (cls[lf_utf8_get(lf_utf8_prev(text + at), &n)] & LF_UC_W);
}

static bool word_after(const uint8_t *cls, const uint8_t *text, size_t len, size_t at)
{
    unsigned n;
    return at < len && (cls[lf_utf8_get(text + at, &n)] & LF_UC_W);
}

/* Where the white space that ends at `at` begins, not before `floor`. */
static size_t space_before(const uint8_t *cls, const uint8_t *text, size_t at, size_t floor)
{
    while (at > floor) {
        const uint8_t *p = lf_utf8_prev(text + at);
        unsigned n;
        if (!(cls[lf_utf8_get(p, &n)] & LF_UC_S))
            break;
        at = (size_t)(p - text);
    }
    return at;
}

static size_t space_after(const uint8_t *cls, const uint8_t *text, size_t len, size_t at)
{
    while (at < len) {
        unsigned n;
        if (!(cls[lf_utf8_get(text + at, &n)] & LF_UC_S))
            break;
        at += n;
    }
    return at;
}

int lf_added_split(lf_tok_state *s, const lf_trie *t, const uint8_t *text, size_t len,
                   lf_piece_fn fn, lf_err *err)
{
    const uint8_t *cls = s->t->cls;
    const bool special_as_text = s->flags & LF_TOK_SPECIAL_TEXT;
    size_t done = 0, from = 0, start, end;
    size_t space_from = 0,
           space_to = 0; /* the white space that rstrip found last, so that a run is walked once */
    int which, rc = 0;
    while (t->used && rc == 0 && lf_trie_find(t, text, len, from, &start, &end, &which)) {
        const lf_added *a = &s->t->added[which];
        from = end;
        if (special_as_text && a->special)
            continue;
        if (a->single_word && (word_before(cls, text, start) || word_after(cls, text, len, end)))
            continue;
        if (a->lstrip) {
            size_t space = space_before(cls, text, start, done < start ? done : start);
            start = space > done ? space : done;
        }
        if (a->rstrip) {
            if (end < space_from || end > space_to) {
                space_from = end;
                space_to = space_after(cls, text, len, end);
            }
            end = space_to;
        }
        if (done < start)
            rc = fn(s, text + done, start - done, NULL, err);
        if (rc == 0)
            rc = fn(s, NULL, 0, a, err);
        /* The library goes on after the match itself, not after the space that rstrip took. */
        done = end;
    }
    if (rc == 0 && done != len)
        rc = fn(s, text + done, len - done, NULL, err);
    return rc;
}
