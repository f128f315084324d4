/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact cut.
 */
#include "engine/pipe/cut.h"

#include <stdlib.h>

#include "engine/base/mem.h"

/* A sum of squares is at most the square of the sum, which is below 2^124. */
__extension__ typedef unsigned __int128 square;

struct cutter {
    const struct lf_pipe_layers *of;
    int stages;
    int least;     /* layers of a pipeline stage */
    int64_t *upto; /* [n + 1]: the cost of the layers before i */
    int64_t bound; /* the largest cost of a pipeline stage */
    int32_t
        *take; /* [stages][n + 1]: layers of the pipeline stage that begins with layer i, or -1 */
    square *even,
        *next; /* [n + 1]: the sum of squares from this pipeline stage, the next one, on */
};

/* The cost of the pipeline stage with layers [from, to). */
static int64_t cost_of(const struct cutter *c, int stage, int from, int to)
{
    return c->upto[to] - c->upto[from] + (stage == 0 ? c->of->embedding : 0) +
           (stage == c->stages - 1 ? c->of->head : 0);
}

/* Can every pipeline stage stay within the bound? Each takes as many layers as it can, but leaves
 * enough for the others: what is left for them is only ever less. */
static bool fits(const struct cutter *c, int64_t bound)
{
    int from = 0;
    for (int s = 0; s < c->stages; s++) {
        const int last = c->of->n - c->least * (c->stages - 1 - s);
        int to = s == c->stages - 1 ? c->of->n : from + c->least;
        while (to < last && cost_of(c, s, from, to + 1) <= bound)
            to++;
        if (cost_of(c, s, from, to) > bound)
            return false;
        from = to;
    }
    return true;
}

static int64_t smallest_bound(const struct cutter *c)
{
    int64_t no = -1, yes = c->upto[c->of->n] + c->of->embedding + c->of->head;
    while (yes - no > 1) {
        const int64_t middle = no + (yes - no) / 2;
        if (fits(c, middle))
            yes = middle;
        else
            no = middle;
    }
    return yes;
}

/* Fills the row of a pipeline stage that begins with layer `from`: the fewest layers that leave the
 * smallest sum of squares. -1: the bound cannot be kept. */
static void choose(struct cutter *c, int stage, int from)
{
    const int n = c->of->n, last = stage == c->stages - 1;
    int32_t *take = &c->take[(size_t)stage * ((size_t)n + 1) + (size_t)from];
    *take = -1;
    for (int to = last ? n : from + c->least; to <= n; to++) {
        const int64_t cost = cost_of(c, stage, from, to);
        if (cost > c->bound || to - from < c->least)
            break;
        if (!last && take[n + 1 + to - from] < 0)
            continue;
        const square sum = (square)cost * (square)cost + (last ? 0 : c->next[to]);
        if (*take < 0 || sum < c->even[from]) {
            *take = to - from;
            c->even[from] = sum;
        }
    }
}

static void cut(int *layers, struct cutter *c)
{
    const int n = c->of->n;
    c->bound = smallest_bound(c);
    for (int s = c->stages - 1; s >= 0; s--) {
        for (int i = 0; i <= n; i++)
            choose(c, s, i);
        square *swap = c->even;
        c->even = c->next;
        c->next = swap;
    }
    for (int s = 0, from = 0; s < c->stages; s++) {
        layers[s] = c->take[(size_t)s * ((size_t)n + 1) + (size_t)from];
        from += layers[s];
    }
}

static int check_layers(const struct lf_pipe_layers *of, int stages, bool empty, lf_err *err)
{
    const int64_t most = INT64_C(1) << 62;
    int64_t sum = 0;
    bool good = of->embedding >= 0 && of->head >= 0 && of->embedding < most && of->head < most;
    for (int i = -2; good && i < of->n; i++) {
        const int64_t cost = i == -2 ? of->embedding : i == -1 ? of->head : of->cost[i];
        good = cost >= 0 && cost < most - sum;
        sum += good ? cost : 0;
    }
    if (!good)
        return lf_fail(err, LF_EINVAL,
                       "the costs of layers are not negative, and their sum is below 2^62");
    if (stages < 1 || of->n < 0 || (!empty && of->n < stages))
        return lf_fail(err, LF_EINVAL,
                       "%d layers cannot be cut into %d pipeline stages that have one each", of->n,
                       stages);
    return 0;
}

int lf_pipe_cut(int *layers, int64_t *largest, const struct lf_pipe_layers *of, int stages,
                bool empty, lf_err *err)
{
    struct cutter c = {.of = of, .stages = stages, .least = empty ? 0 : 1};
    int rc = check_layers(of, stages, empty, err);
    if (rc < 0)
        return rc;
    const size_t places = (size_t)of->n + 1;
    c.upto = lf_calloc(places, sizeof *c.upto, err);
    c.take = lf_calloc(places * (size_t)stages, sizeof *c.take, err);
    square *sums = lf_calloc(2 * places, sizeof *sums, err);
    rc = c.upto && c.take && sums ? 0 : LF_ENOMEM;
    if (rc == 0) {
        for (int i = 0; i < of->n; i++)
            c.upto[i + 1] = c.upto[i] + of->cost[i];
        c.even = sums, c.next = sums + places;
        cut(layers, &c);
        if (largest)
            *largest = c.bound;
    }
    free(sums);
    free(c.take);
    free(c.upto);
    return rc;
}

void lf_pipe_cut_costs(int64_t *cost, const struct lf_pipe_layers *of, const int *layers,
                       int stages)
{
    for (int s = 0, i = 0; s < stages; s++) {
        cost[s] = (s == 0 ? of->embedding : 0) + (s == stages - 1 ? of->head : 0);
        for (const int end = i + layers[s]; i < end; i++)
            cost[s] += of->cost[i];
    }
}
