/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of engine/pipe share.
 */
#include "tests/unit/pipe_util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/rng.h"
#include "tests/tap/tap.h"

static struct lf_pipe made(struct lf_pipe_spec spec)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe p;
    if (lf_pipe_init(&p, &spec, &err) < 0)
        tap_bail("%s", err.text);
    return p;
}

struct lf_pipe pipe_made(enum lf_pipe_kind kind, int ranks, int chunks, int micro_batches)
{
    return made((struct lf_pipe_spec){kind, ranks, chunks, micro_batches, 0, false});
}

struct lf_pipe pipe_grouped(int ranks, int chunks, int micro_batches, int group)
{
    return made(
        (struct lf_pipe_spec){LF_PIPE_INTERLEAVED, ranks, chunks, micro_batches, group, false});
}

struct lf_pipe pipe_forward(enum lf_pipe_kind kind, int ranks, int chunks, int micro_batches)
{
    return made((struct lf_pipe_spec){kind, ranks, chunks, micro_batches, 0, true});
}

int pipe_stage(const struct lf_pipe_spec *s, int rank, int chunk)
{
    return !pipe_bent(s->kind) ? chunk * s->ranks + rank : chunk ? 2 * s->ranks - 1 - rank : rank;
}

struct lf_pipe pipe_sending(enum lf_pipe_kind kind, int ranks, int chunks, int micro_batches,
                            struct lf_pipe_message_opts o)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe p = pipe_made(kind, ranks, chunks, micro_batches);
    if (lf_pipe_add_messages(&p, &o, &err) < 0)
        tap_bail("%s", err.text);
    return p;
}

struct lf_pipe_timing pipe_timed(const struct lf_pipe *p, struct lf_pipe_walk_opts o)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe_timing t;
    if (lf_pipe_walk(&t, p, &o, &err) < 0)
        tap_bail("%s, P %d v %d m %d: %s", lf_pipe_kind_name(p->spec.kind), p->spec.ranks,
                 p->spec.chunks, p->spec.micro_batches, err.text);
    return t;
}

void pipe_equal_cost(struct lf_pipe_cost *cost, int chunks, double f, double b, double w)
{
    for (int i = 0; i < PIPE_RANKS * PIPE_CHUNKS; i++)
        cost[i] = (struct lf_pipe_cost){
            .f_s = f / chunks, .b_s = b / chunks, .w_s = w / chunks, .z_s = (b + w) / chunks};
}

static int rank_of(const struct lf_pipe_spec *s, int stage)
{
    return pipe_bent(s->kind) && stage >= s->ranks ? 2 * s->ranks - 1 - stage : stage % s->ranks;
}

static double takes(const struct lf_pipe_cost *c, const struct lf_pipe_item *it)
{
    return it->op == LF_PIPE_F   ? c->f_s
           : it->op == LF_PIPE_B ? c->b_s
           : it->op == LF_PIPE_W ? c->w_s
                                 : c->z_s;
}

double pipe_reference_end(const struct lf_pipe *p, const struct lf_pipe_cost *cost,
                          double message_s)
{
    const int ranks = p->spec.ranks, stages = ranks * p->spec.chunks, m = p->spec.micro_batches;
    double *done[2] = {calloc((size_t)(stages * m), sizeof(double)),
                       calloc((size_t)(stages * m), sizeof(double))};
    double end = 0;
    if (!done[0] || !done[1])
        tap_bail("no memory");
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < ranks; r++) {
            double now = 0;
            for (int i = 0; i < p->list[r].n; i++) {
                const struct lf_pipe_item *it = &p->list[r].item[i];
                const int back = it->op != LF_PIPE_F, s = pipe_stage(&p->spec, r, it->chunk);
                const int from = back ? s + 1 : s - 1;
                if (it->op != LF_PIPE_W && from >= 0 && from < stages)
                    now = fmax(now, done[back][from * m + it->micro] +
                                        (rank_of(&p->spec, from) == r ? 0 : message_s));
                now += takes(&cost[r * p->spec.chunks + it->chunk], it);
                if (it->op != LF_PIPE_W && done[back][s * m + it->micro] < now) {
                    done[back][s * m + it->micro] = now;
                    moved = true;
                }
            }
            end = fmax(end, now);
        }
    }
    free(done[0]);
    free(done[1]);
    return end;
}

const char *pipe_list(const struct lf_pipe *p, int rank)
{
    static char text[4096];
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < p->list[rank].n && at + 32 < sizeof text; i++) {
        const struct lf_pipe_item *it = &p->list[rank].item[i];
        if (it->op > LF_PIPE_Z)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%c%d", at ? " " : "", "FBWZ"[it->op],
                               it -> micro);
        if (p->spec.chunks > 1)
            at += (size_t)snprintf(text + at, sizeof text - at, ".%d",
                                   pipe_stage(&p->spec, rank, it->chunk));
    }
    return text;
}

double pipe_random(void)
{
    static uint64_t drawn;
    return lf_rng_f64(2026, 1, drawn++);
}

int pipe_below(int n)
{
    return (int)(pipe_random() * n);
}
