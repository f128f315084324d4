/* SPDX-License-Identifier: Apache-2.0
 *
 * The drawing for --plan.
 */
#include <stdio.h>

#include "engine/pipe/pipe_priv.h"
#include "engine/pipe/show.h"

static const char cut_mark[] = " ...";

static int name_of(char *buf, size_t cap, const struct lf_pipe_spec *s, int rank,
                   const struct lf_pipe_item *it)
{
    static const char letters[] = {
        [LF_PIPE_F] = 'F', [LF_PIPE_B] = 'B', [LF_PIPE_W] = 'W', [LF_PIPE_Z] = 'Z'};
    if (s->chunks == 1)
        return snprintf(buf, cap, " %c%d", letters[it->op], it->micro);
    return snprintf(buf, cap, " %c%d.%d", letters[it->op], it->micro,
                    lf_pipe_stage(s, rank, it->chunk));
}

/* The number of items of the list, from its beginning, that a line of `columns` has room for. */
static int items_that_fit(const struct lf_pipe *p, int rank, int columns)
{
    const struct lf_pipe_list *l = &p->list[rank];
    const int mark = (int)sizeof cut_mark - 1;
    char name[40];
    int used = 0, fit = 0;
    for (int i = 0; i < l->n; i++) {
        if (!lf_pipe_computes(&l->item[i]))
            continue;
        used += name_of(name, sizeof name, &p->spec, rank, &l->item[i]);
        if (used + mark <= columns)
            fit = i + 1;
        if (used > columns)
            return fit;
    }
    return l->n;
}

void lf_pipe_draw(lf_buf *out, const struct lf_pipe *p, int columns)
{
    char name[40];
    const int digits = snprintf(name, sizeof name, "%d", p->spec.ranks - 1);
    for (int r = 0; r < p->spec.ranks; r++) {
        const struct lf_pipe_list *l = &p->list[r];
        lf_buf_addf(out, "rank %*d ", digits, r);
        const int fit = items_that_fit(p, r, (columns < 40 ? 40 : columns) - 6 - digits);
        for (int i = 0; i < fit; i++)
            if (lf_pipe_computes(&l->item[i])) {
                name_of(name, sizeof name, &p->spec, r, &l->item[i]);
                lf_buf_adds(out, name);
            }
        lf_buf_addf(out, "%s\n", fit < l->n ? cut_mark : "");
    }
}
