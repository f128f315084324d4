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

/* In turns: pipeline stage c P + r is chunk c of rank r. */
static int looped_stage(const struct lf_pipe_spec *s, int rank, int chunk)
{
    return chunk * s->ranks + rank;
}

static void looped_place(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage)
{
    *rank = stage % s->ranks;
    *chunk = stage / s->ranks;
}

/* Forth and back: pipeline stages r and 2P-1-r are chunks 0 and 1 of rank r. */
static int bent_stage(const struct lf_pipe_spec *s, int rank, int chunk)
{
    return chunk ? 2 * s->ranks - 1 - rank : rank;
}

static void bent_place(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage)
{
    *chunk = stage >= s->ranks;
    *rank = *chunk ? 2 * s->ranks - 1 - stage : stage;
}

/* A kind also decides where pipeline stages live. */
#define IN_TURNS lf_pipe_order_forward, looped_stage, looped_place
#define IN_A_V   lf_pipe_order_forward_v, bent_stage, bent_place
static const struct kind {
    const char *name;
    int chunks;  /* of a rank; 0: as many as are asked for, in groups of micro-batches */
    bool splits; /* has B and W */
    int least;   /* micro-batches for each rank; 0: one is enough for all of them */
    void (*order)(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
    void (*forward)(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
    int (*stage)(const struct lf_pipe_spec *s, int rank, int chunk);
    void (*place)(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage);
} kinds[LF_PIPE_KINDS] = {
    [LF_PIPE_GPIPE] = {"gpipe", 1, false, 0, lf_pipe_order_gpipe, IN_TURNS},
    [LF_PIPE_1F1B] = {"1f1b", 1, false, 0, lf_pipe_order_1f1b, IN_TURNS},
    [LF_PIPE_INTERLEAVED] = {"interleaved", 0, false, 0, lf_pipe_order_interleaved, IN_TURNS},
    [LF_PIPE_ZB_H1] = {"zb-h1", 1, true, 0, lf_pipe_order_zb_h1, IN_TURNS},
    [LF_PIPE_ZB_V] = {"zb-v", 2, true, 0, lf_pipe_order_zb_v, IN_A_V},
    [LF_PIPE_DUALPIPE_V] = {"dualpipe-v", 2, true, 2, lf_pipe_order_dualpipe_v, IN_A_V},
};

int lf_pipe_stage(const struct lf_pipe_spec *s, int rank, int chunk)
{
    return kinds[s->kind].stage(s, rank, chunk);
}

void lf_pipe_place(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage)
{
    kinds[s->kind].place(rank, chunk, s, stage);
}

int lf_pipe_kind_chunks(enum lf_pipe_kind kind)
{
    return kinds[kind].chunks;
}

bool lf_pipe_kind_splits(enum lf_pipe_kind kind)
{
    return kinds[kind].splits;
}

int lf_pipe_kind_least(enum lf_pipe_kind kind, int ranks)
{
    return kinds[kind].least ? kinds[kind].least * ranks : 1;
}

bool lf_pipe_in_v(const struct lf_pipe_spec *s)
{
    return kinds[s->kind].place == bent_place;
}

bool lf_pipe_goes_round(const struct lf_pipe_spec *s)
{
    return s->chunks > 1 && !lf_pipe_in_v(s);
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
                   "\"%s\" is no pipeline schedule (gpipe, 1f1b, interleaved, zb-h1, zb-v, "
                   "dualpipe-v)%s%s%s",
                   name, near ? "; do you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

int lf_pipe_group(int ranks, int micro_batches)
{
    int n = ranks;
    while (n < micro_batches && micro_batches % n != 0 && micro_batches % n < ranks)
        n++;
    return n;
}

static int check_kind(const struct lf_pipe_spec *s, lf_err *err)
{
    const struct kind *k = &kinds[s->kind];
    const int least = lf_pipe_kind_least(s->kind, s->ranks);
    if (k->chunks && (s->chunks != k->chunks || s->group > 0))
        return lf_fail(err, LF_EINVAL,
                       "the pipeline schedule %s has %s a rank and no groups; interleaved has both",
                       k->name, k->chunks == 1 ? "one chunk" : "two chunks");
    if (!s->forward && s->micro_batches < least)
        return lf_fail(err, LF_EINVAL,
                       "the pipeline schedule %s needs %d micro-batches on %d ranks, and there are "
                       "%d; zb-v does with fewer",
                       k->name, least, s->ranks, s->micro_batches);
    return 0;
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
    return check_kind(s, err);
}

static int make_lists(struct lf_pipe *p, lf_err *err)
{
    const struct lf_pipe_spec *s = &p->spec;
    const size_t room = 3 * (size_t)s->chunks * (size_t)s->micro_batches;
    for (int r = 0; r < s->ranks; r++) {
        p->list[r].item = lf_malloc(room, sizeof *p->list[r].item, err);
        if (!p->list[r].item)
            return LF_ENOMEM;
        (s->forward ? kinds[s->kind].forward : kinds[s->kind].order)(&p->list[r], s, r);
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
    if (spec->forward && !lf_pipe_in_v(spec))
        made.spec.group = spec->ranks;
    else if (!kinds[spec->kind].chunks && spec->group == 0)
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
