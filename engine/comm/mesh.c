/* SPDX-License-Identifier: Apache-2.0
 *
 * The process mesh: coordinates by division, communicators by splitting the world. What is divided
 * is a rank's place in the order of nodes, since launchers may deal ranks to nodes in turns.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/mesh.h"
#include "engine/comm/mesh_priv.h"

enum { NAME_CAP = 16 };

struct dim {
    char name[NAME_CAP];
    int size, coord, stride;
    lf_comm *comm; /* NULL when one rank wide: then `alone` */
};

struct lf_mesh {
    lf_comm *world;
    lf_comm *alone; /* of one rank */
    struct dim dim[LF_MESH_MAX_DIMS];
    int n;
    /* [ranks] each: ranks node by node, and the other way round; the first rank of the node of the
     * rank at each place */
    int *at, *place, *node;
};

static int read_dims(lf_mesh *m, const lf_mesh_dim *dims, int n, lf_err *err)
{
    long product = 1;
    int rest = -1;
    if (n < 0 || n > LF_MESH_MAX_DIMS)
        return lf_fail(err, LF_EINVAL, "a mesh of %d dimensions; at most %d", n, LF_MESH_MAX_DIMS);
    for (int i = 0; i < n; i++) {
        if (!dims[i].name || !dims[i].name[0] || strlen(dims[i].name) >= NAME_CAP)
            return lf_fail(err, LF_EINVAL, "dimension %d of the mesh needs a name of 1 to %d bytes",
                           i, NAME_CAP - 1);
        for (int k = 0; k < i; k++)
            if (strcmp(dims[k].name, dims[i].name) == 0)
                return lf_fail(err, LF_EINVAL, "dimension \"%s\" stands in the mesh twice",
                               dims[i].name);
        if (dims[i].size < 0 || (dims[i].size == 0 && rest >= 0))
            return lf_fail(err, LF_EINVAL, "dimension \"%s\" of the mesh has size %d", dims[i].name,
                           dims[i].size);
        if (dims[i].size == 0)
            rest = i;
        memcpy(m->dim[i].name, dims[i].name, strlen(dims[i].name) + 1);
        m->dim[i].size = dims[i].size;
        product *= dims[i].size ? dims[i].size : 1;
        if (product > m->world->size)
            break;
    }
    if (rest >= 0 && product <= m->world->size && m->world->size % product == 0) {
        m->dim[rest].size = (int)(m->world->size / product);
        product = m->world->size;
    }
    if (product != m->world->size)
        return lf_fail(err, LF_EINVAL,
                       "the mesh's dimensions multiply to %ld%s, there are %d ranks", product,
                       rest >= 0 ? " or a multiple" : "", m->world->size);
    m->n = n;
    return 0;
}

struct seat {
    const char *host;
    int node, rank; /* node: first rank of the host */
};

static int by_host(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;
    const int c = strcmp(x->host, y->host);
    return c ? c : x->rank - y->rank;
}

static int by_node(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;
    return x->node != y->node ? x->node - y->node : x->rank - y->rank;
}

int lf_mesh_order(const char *const *host, int n, int *at, int *place, int *node, lf_err *err)
{
    struct seat *s = lf_calloc((size_t)n, sizeof *s, err);
    if (!s)
        return LF_ENOMEM;
    for (int r = 0; r < n; r++)
        s[r] = (struct seat){.host = host[r], .rank = r};
    qsort(s, (size_t)n, sizeof *s, by_host);
    for (int i = 0; i < n; i++)
        s[i].node = i && strcmp(s[i].host, s[i - 1].host) == 0 ? s[i - 1].node : s[i].rank;
    qsort(s, (size_t)n, sizeof *s, by_node);
    for (int i = 0; i < n; i++) {
        at[i] = s[i].rank;
        place[s[i].rank] = i;
        node[i] = s[i].node;
    }
    free(s);
    return 0;
}

static int order(lf_mesh *m, lf_err *err)
{
    const int size = m->world->size;
    const char **host = lf_calloc((size_t)size, sizeof *host, err);
    m->at = lf_calloc(3 * (size_t)size, sizeof *m->at, err);
    int rc = host && m->at ? 0 : LF_ENOMEM;
    for (int r = 0; rc == 0 && r < size; r++)
        host[r] = lf_comm_peer_host(m->world, r);
    if (rc == 0) {
        m->place = m->at + size;
        m->node = m->place + size;
        rc = lf_mesh_order(host, size, m->at, m->place, m->node, err);
    }
    free(host);
    return rc;
}

static void place(lf_mesh *m)
{
    int stride = 1;
    for (int i = m->n - 1; i >= 0; i--) {
        m->dim[i].stride = stride;
        m->dim[i].coord = m->place[m->world->rank] / stride % m->dim[i].size;
        stride *= m->dim[i].size;
    }
}

/* Ranks that read different settings would form groups that wait for each other. */
static int check_same(const lf_mesh *m, lf_err *err)
{
    struct {
        char name[NAME_CAP];
        int32_t size;
    } mine[LF_MESH_MAX_DIMS];
    struct lf_comm_blobs all = {0};
    memset(mine, 0, sizeof mine);
    for (int i = 0; i < m->n; i++) {
        memcpy(mine[i].name, m->dim[i].name, NAME_CAP);
        mine[i].size = m->dim[i].size;
    }
    size_t len = (size_t)m->n * sizeof mine[0];
    int rc = lf_comm_gather_blobs(m->world, mine, len, &all, err);
    for (int r = 0; rc == 0 && r < m->world->size; r++)
        if (all.offset[r + 1] - all.offset[r] != len ||
            memcmp(all.data + all.offset[r], mine, len) != 0)
            rc = lf_fail(err, LF_EINVAL, "rank %d asks for another mesh than rank %d", r,
                         m->world->rank);
    lf_comm_blobs_fini(&all);
    return rc;
}

static const struct dim *find(const lf_mesh *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->dim[i].name, name) == 0)
            return &m->dim[i];
    return NULL;
}

/* The color of a rank among the groups that span the marked dimensions: its place in the others. */
static lf_comm *split_over(const lf_mesh *m, const char *spans, lf_err *err)
{
    int color = 0;
    for (int i = 0; i < m->n; i++)
        if (!spans[i])
            color = color * m->dim[i].size + m->dim[i].coord;
    return lf_comm_split(m->world, color, m->place[m->world->rank], err);
}

static int make_comms(lf_mesh *m, lf_err *err)
{
    m->alone = lf_comm_split(m->world, m->world->rank, 0, err);
    if (!m->alone)
        return err ? err->rc : LF_ENOMEM;
    for (int i = 0; i < m->n; i++) {
        char spans[LF_MESH_MAX_DIMS] = {0};
        spans[i] = 1;
        if (m->dim[i].size > 1 && !(m->dim[i].comm = split_over(m, spans, err)))
            return err ? err->rc : LF_ENOMEM;
    }
    return 0;
}

lf_mesh *lf_mesh_create(lf_comm *world, const lf_mesh_dim *dims, int n_dims, lf_err *err)
{
    lf_mesh *m = lf_calloc(1, sizeof *m, err);
    if (!m)
        return NULL;
    m->world = world;
    int rc = read_dims(m, dims, n_dims, err);
    if (rc == 0)
        rc = order(m, err);
    rc = lf_comm_agree_ok(world, rc, err);
    if (rc == 0) {
        place(m);
        rc = check_same(m, err);
    }
    if (rc == 0)
        rc = make_comms(m, err);
    if (rc != 0) {
        lf_mesh_destroy(m);
        return NULL;
    }
    return m;
}

void lf_mesh_destroy(lf_mesh *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n; i++)
        lf_comm_destroy(m->dim[i].comm);
    lf_comm_destroy(m->alone);
    free(m->at);
    free(m);
}

int lf_mesh_size(const lf_mesh *m, const char *dim)
{
    const struct dim *d = find(m, dim);
    return d ? d->size : 1;
}

int lf_mesh_coord(const lf_mesh *m, const char *dim)
{
    const struct dim *d = find(m, dim);
    return d ? d->coord : 0;
}

int lf_mesh_rank_at(const lf_mesh *m, const int *coord)
{
    int place = 0;
    for (int i = 0; i < m->n; i++)
        place = place * m->dim[i].size + coord[i];
    return m->at[place];
}

bool lf_mesh_inside(const lf_mesh *m, const char *dim, int ranks[2])
{
    const struct dim *d = find(m, dim);
    for (int i = 0; d && i < m->world->size; i++) {
        const int first = i - i / d->stride % d->size * d->stride;
        if (m->node[i] == m->node[first])
            continue;
        ranks[0] = m->at[first];
        ranks[1] = m->at[i];
        return false;
    }
    return true;
}

lf_comm *lf_mesh_comm(const lf_mesh *m, const char *dim)
{
    const struct dim *d = find(m, dim);
    return d && d->comm ? d->comm : m->alone;
}

lf_comm *lf_mesh_comm_over(lf_mesh *m, const char *const *dims, int n, lf_err *err)
{
    char spans[LF_MESH_MAX_DIMS] = {0};
    for (int k = 0; k < n; k++) {
        const struct dim *d = find(m, dims[k]);
        if (d)
            spans[d - m->dim] = 1;
    }
    return split_over(m, spans, err);
}
