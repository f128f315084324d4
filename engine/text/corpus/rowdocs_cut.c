/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents that are too long.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/corpus/rowdocs_priv.h"

void lf_truncate_budget(size_t *prompt, size_t *answer, size_t room)
{
    size_t p = *prompt, a = *answer, most;
    if (2 * a < room)
        most = room;
    else if (2 * p < room)
        most = room - p;
    else
        most = (size_t)((double)room * ((double)a / (double)(p + a)));
    *answer = a < most ? a : most;
    *prompt = p < room - *answer ? p : room - *answer;
}

/* What is kept of turn k: tokens [first, first + prompt) and the first `answer` of its span. */
struct kept {
    size_t first, prompt, begin, answer;
};

static void share(struct kept *v, const lf_rowdocs *d, size_t max, bool last_first)
{
    size_t total = 0, before = 0;
    for (size_t k = 0; k < d->n_spans; k++) {
        const lf_chat_span *s = &d->spans[k];
        v[k] = (struct kept){before, s->begin - before, s->begin, s->end - s->begin};
        before = s->end;
    }
    for (size_t i = 0; i < d->n_spans; i++) {
        struct kept *e = &v[last_first ? d->n_spans - 1 - i : i];
        if (total >= max) {
            e->prompt = e->answer = 0;
            continue;
        }
        lf_truncate_budget(&e->prompt, &e->answer, max - total);
        total += e->prompt + e->answer;
    }
}

static void move(lf_rowdocs *d, size_t at, size_t *n, size_t from, size_t count)
{
    memmove(d->ids.v + at + *n, d->ids.v + at + from, count * sizeof *d->ids.v);
    memmove(d->mask.data + at + *n, d->mask.data + at + from, count);
    *n += count;
}

int lf_rowdocs_cut(lf_rowdocs *d, const lf_rowdocs_opts *o, size_t at, lf_err *err)
{
    size_t n = 0;
    d->truncated = true;
    if (o->truncate != LF_TRUNCATE_BUDGET || d->n_spans == 0) {
        n = o->max_length;
    } else {
        struct kept *v = lf_calloc(d->n_spans, sizeof *v, err);
        if (!v)
            return LF_ENOMEM;
        share(v, d, o->max_length, o->train.last_only);
        for (size_t k = 0; k < d->n_spans; k++) {
            move(d, at, &n, v[k].first, v[k].prompt);
            move(d, at, &n, v[k].begin, v[k].answer);
        }
        free(v);
    }
    d->ids.n = at + n;
    d->mask.data[d->mask.len = at + n] = 0;
    return 0;
}
