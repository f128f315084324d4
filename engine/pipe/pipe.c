/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of schedules, and the lists that they make.
 */
#include "engine/pipe/pipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/pipe/pipe_priv.h"

/* More items than this on a rank are refused, so that counts of items with messages are ints. */
enum { MOST_ITEMS = 1 << 26, MOST_STAGES = 1 << 15 };

/* Pipeline stage c P + r is chunk c of rank r. */
static int looped_stage(const struct lf_pipe_spec *s, int rank, int chunk)
{
    return chunk * s->ranks + rank;
}

static void looped_place(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage)
{
    *rank = stage % s->ranks;
    *chunk = stage / s->ranks;
}

/* A kind also decides where pipeline stages live: those that go forth and back over the ranks get
 * functions of their own. */
static const struct kind {
    const char *name;
    bool groups; /* has chunks, and groups of micro-batches */
    void (*order)(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
    int (*stage)(const struct lf_pipe_spec *s, int rank, int chunk);
    void (*place)(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage);
} kinds[LF_PIPE_KINDS] = {
    [LF_PIPE_GPIPE] = {"gpipe", false, lf_pipe_order_gpipe, looped_stage, looped_place},
    [LF_PIPE_1F1B] = {"1f1b", false, lf_pipe_order_1f1b, looped_stage, looped_place},
    [LF_PIPE_INTERLEAVED] = {"interleaved", true, lf_pipe_order_interleaved, looped_stage,
                             looped_place},
    [LF_PIPE_ZB_H1] = {"zb-h1", false, lf_pipe_order_zb_h1, looped_stage, looped_place},
};

int lf_pipe_stage(const struct lf_pipe_spec *s, int rank, int chunk)
{
    return kinds[s->kind].stage(s, rank, chunk);
}

void lf_pipe_place(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage)
{
    kinds[s->kind].place(rank, chunk, s, stage);
}

const char *lf_pipe_kind_name(enum lf_pipe_kind kind)
{
    return (unsigned)kind < LF_PIPE_KINDS ? kinds[kind].name : "?";
}

int lf_pipe_kind_parse(enum lf_pipe_kind *out, const char *name, lf_err *err)
{
    const char *names[LF_PIPE_KINDS];
    for (int k = 0; k < LF_PIPE_KINDS; k++) {
        names[k] = kinds[k].name;
        if (strcmp(name, names[k]) == 0) {
            *out = (enum lf_pipe_kind)k;
            return 0;
        }
    }
    const char *near = lf_nearest(name, names, LF_PIPE_KINDS);
    return lf_fail(err, LF_EINVAL,
                   "\"%s\" is no pipeline schedule (gpipe, 1f1b, interleaved, zb-h1)%s%s%s", name,
                   near ? "; do you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

int lf_pipe_group(int ranks, int micro_batches)
{
    int n = ranks;
    while (n < micro_batches && micro_batches % n != 0 && micro_batches % n < ranks)
        n++;
    return n;
}

static int check_spec(const struct lf_pipe_spec *s, lf_err *err)
{
    if ((unsigned)s->kind >= LF_PIPE_KINDS)
        return lf_fail(err, LF_EINVAL, "there is no pipeline schedule number %d", (int)s->kind);
    if (s->ranks < 1 || s->chunks < 1 || s->micro_batches < 1 || s->group < 0)
        return lf_fail(err, LF_EINVAL,
                       "%d pipeline ranks with %d chunks, %d micro-batches and groups of %d make "
                       "no schedule",
                       s->ranks, s->chunks, s->micro_batches, s->group);
    if ((int64_t)s->ranks * s->chunks > MOST_STAGES ||
        3 * (int64_t)s->chunks * s->micro_batches > MOST_ITEMS)
        return lf_fail(err, LF_EINVAL,
                       "%d pipeline ranks with %d chunks and %d micro-batches are too many",
                       s->ranks, s->chunks, s->micro_batches);
    if (!kinds[s->kind].groups && (s->chunks > 1 || s->group > 0))
        return lf_fail(err, LF_EINVAL,
                       "the pipeline schedule %s has one chunk a rank and no groups; interleaved "
                       "has both",
                       kinds[s->kind].name);
    return 0;
}

static int make_lists(struct lf_pipe *p, lf_err *err)
{
    const struct lf_pipe_spec *s = &p->spec;
    const size_t room = 3 * (size_t)s->chunks * (size_t)s->micro_batches;
    for (int r = 0; r < s->ranks; r++) {
        p->list[r].item = lf_malloc(room, sizeof *p->list[r].item, err);
        if (!p->list[r].item)
            return LF_ENOMEM;
        if (s->forward)
            lf_pipe_order_forward(&p->list[r], s);
        else
            kinds[s->kind].order(&p->list[r], s, r);
    }
    return lf_pipe_give_slots(p, err);
}

int lf_pipe_init(struct lf_pipe *p, const struct lf_pipe_spec *spec, lf_err *err)
{
    struct lf_pipe made = {.spec = *spec};
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    const size_t stages = (size_t)lf_pipe_stages(spec);
    if (spec->forward)
        made.spec.group = spec->ranks;
    else if (kinds[spec->kind].groups && spec->group == 0)
        made.spec.group = lf_pipe_group(spec->ranks, spec->micro_batches);
    made.list = lf_calloc((size_t)spec->ranks, sizeof *made.list, err);
    /* One block holds the counts of slots and of the four kinds of buffers. */
    made.slots = made.list ? lf_calloc(5 * stages, sizeof *made.slots, err) : NULL;
    rc = made.slots ? 0 : LF_ENOMEM;
    if (rc == 0) {
        for (size_t d = 0; d < LF_PIPE_DIRS; d++) {
            made.recv_buffers[d] = made.slots + (1 + d) * stages;
            made.send_buffers[d] = made.slots + (3 + d) * stages;
        }
        rc = make_lists(&made, err);
    }
    if (rc == 0)
        *p = made;
    else
        lf_pipe_fini(&made);
    return rc;
}

void lf_pipe_fini(struct lf_pipe *p)
{
    if (!p)
        return;
    for (int r = 0; p->list && r < p->spec.ranks; r++)
        free(p->list[r].item);
    free(p->list);
    free(p->slots);
    *p = (struct lf_pipe){0};
}
