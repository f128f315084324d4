/* SPDX-License-Identifier: Apache-2.0
 *
 * Fences that span nodes: each node brings the data of its ranks, and when all that take part have
 * come everybody gets everything, in the order of the nodes. A fence is known by its ranks (none:
 * all); a node that comes twice with the same ranks means the next one.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/launch/job.h"

struct fence {
    uint32_t *ranks, n; /* n 0: all */
    lf_buf *data;       /* [nodes] */
    uint32_t *id;       /* [nodes] the daemon's number */
    bool *here;         /* [nodes] */
    int missing;
};

struct lf_fences {
    const struct lf_launch_job *job;
    struct fence *fence;
    size_t n, cap;
};

int lf_launch_node_of(const struct lf_launch_job *j, int rank)
{
    for (int k = 0; k < j->nodes; k++)
        if (rank >= j->node[k].first && rank < j->node[k].first + j->node[k].n)
            return k;
    return -1;
}

struct lf_fences *lf_fences_create(const struct lf_launch_job *j, lf_err *err)
{
    struct lf_fences *f = lf_calloc(1, sizeof *f, err);
    if (f != NULL)
        f->job = j;
    return f;
}

static void fence_fini(const struct lf_fences *all, struct fence *f)
{
    for (int k = 0; f->data != NULL && k < all->job->nodes; k++)
        lf_buf_fini(&f->data[k]);
    free(f->ranks);
    free(f->data);
    free(f->id);
    free(f->here);
}

void lf_fences_destroy(struct lf_fences *all)
{
    for (size_t i = 0; all != NULL && i < all->n; i++)
        fence_fini(all, &all->fence[i]);
    if (all != NULL)
        free(all->fence);
    free(all);
}

/* Which nodes take part: those that have one of the ranks. */
static int count_nodes(const struct lf_launch_job *j, const uint32_t *ranks, uint32_t n)
{
    int count = 0;
    if (n == 0)
        return j->nodes;
    for (int k = 0; k < j->nodes; k++) {
        bool in = false;
        for (uint32_t i = 0; i < n; i++)
            in = in || lf_launch_node_of(j, (int)ranks[i]) == k;
        count += in;
    }
    return count;
}

static struct fence *find(struct lf_fences *all, int node, const uint32_t *ranks, uint32_t n,
                          lf_err *err)
{
    const size_t nodes = (size_t)all->job->nodes;
    for (size_t i = 0; i < all->n; i++) {
        struct fence *f = &all->fence[i];
        if (f->n == n && !f->here[node] &&
            (n == 0 || memcmp(f->ranks, ranks, n * sizeof *ranks) == 0))
            return f;
    }
    if (lf_grow(&all->fence, &all->cap, all->n, sizeof *all->fence, err) < 0)
        return NULL;
    struct fence f = {.ranks = lf_calloc((size_t)n + 1, sizeof *ranks, err),
                      .n = n,
                      .data = lf_calloc(nodes, sizeof *f.data, err),
                      .id = lf_calloc(nodes, sizeof *f.id, err),
                      .here = lf_calloc(nodes, sizeof *f.here, err),
                      .missing = count_nodes(all->job, ranks, n)};
    for (size_t k = 0; f.data != NULL && k < nodes; k++)
        lf_buf_init(&f.data[k]);
    if (f.ranks == NULL || f.data == NULL || f.id == NULL || f.here == NULL) {
        fence_fini(all, &f);
        return NULL;
    }
    if (n > 0)
        memcpy(f.ranks, ranks, n * sizeof *ranks);
    all->fence[all->n] = f;
    return &all->fence[all->n++];
}

static int finish(struct lf_fences *all, struct fence *f, lf_fence_done done, void *arg,
                  lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (int k = 0; k < all->job->nodes; k++)
        lf_buf_add(&b, f->data[k].data, f->data[k].len);
    int rc = lf_buf_check(&b, err);
    for (int k = 0; rc == 0 && k < all->job->nodes; k++)
        if (f->here[k])
            done(arg, k, f->id[k], b.data, b.len);
    lf_buf_fini(&b);
    fence_fini(all, f);
    *f = all->fence[--all->n];
    return rc;
}

int lf_fences_add(struct lf_fences *all, int node, const struct lf_frame_head *h, const char *data,
                  lf_fence_done done, void *arg, lf_err *err)
{
    uint32_t n = 0;
    if (h->len >= sizeof n)
        memcpy(&n, data, sizeof n);
    if (h->len < sizeof n || n > (uint32_t)all->job->ranks ||
        h->len < sizeof n + (uint64_t)n * sizeof n)
        return lf_fail(err, LF_EFORMAT, "a fence of node %d cannot be read", node);
    uint32_t *ranks = lf_calloc((size_t)n + 1, sizeof *ranks, err);
    if (ranks == NULL)
        return LF_ENOMEM;
    memcpy(ranks, data + sizeof n, n * sizeof n);
    struct fence *f = find(all, node, ranks, n, err);
    free(ranks);
    if (f == NULL)
        return LF_ENOMEM;
    const size_t skip = sizeof n + n * sizeof n;
    lf_buf_add(&f->data[node], data + skip, (size_t)h->len - skip);
    f->id[node] = h->id;
    f->here[node] = true;
    return --f->missing == 0 ? finish(all, f, done, arg, err) : 0;
}
