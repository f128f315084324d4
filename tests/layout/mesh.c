/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on a mesh: see mesh.h.
 */
#include "tests/layout/mesh.h"

#include "engine/graph/exec_priv.h"

static __thread struct rig_mesh *mine;

int rig_tensor_ranks(const struct rig_layout *l)
{
    return l->tensor > 1 ? l->tensor : 1;
}

int rig_mesh_open(struct rig_mesh *m, const struct rig_layout *l, lf_comm *world, lf_err *err)
{
    const lf_mesh_dim dims[] = {{"data", l->ranks}, {"tensor", rig_tensor_ranks(l)}};
    *m = (struct rig_mesh){.world = world, .data = world};
    if (dims[1].size == 1)
        return 0;
    if (!(m->mesh = lf_mesh_create(world, dims, 2, err)))
        return err->rc;
    m->data = lf_mesh_comm(m->mesh, "data");
    m->tensor = lf_mesh_comm(m->mesh, "tensor");
    m->layout = (struct lf_layout){
        .tensor = m->tensor->size, .tensor_rank = m->tensor->rank, .sequence = l->sequence};
    mine = m;
    return 0;
}

void rig_mesh_close(struct rig_mesh *m)
{
    mine = NULL;
    lf_mesh_destroy(m->mesh);
    *m = (struct rig_mesh){0};
}

/* ---- in place of the engine's ---- */

lf_pstore *__real_lf_pstore_create(lf_err *err);
lf_pstore *__wrap_lf_pstore_create(lf_err *err);

lf_pstore *__wrap_lf_pstore_create(lf_err *err)
{
    lf_pstore *ps = __real_lf_pstore_create(err);
    if (ps && mine && lf_pstore_set_layout(ps, &mine->layout, err)) {
        lf_pstore_destroy(ps);
        return NULL;
    }
    return ps;
}

int __real_lf_train_save_at(lf_trainer *t, int rc, const char *dir, json_t *extra, lf_err *err);
int __wrap_lf_train_save_at(lf_trainer *t, int rc, const char *dir, json_t *extra, lf_err *err);

/* A rank that has boxes of tensors does not save them as if they were whole, which the engine does
 * where a step diverges. */
int __wrap_lf_train_save_at(lf_trainer *t, int rc, const char *dir, json_t *extra, lf_err *err)
{
    return mine ? rc : __real_lf_train_save_at(t, rc, dir, extra, err);
}

/* ---- what the executor calls ---- */

static int sum(void *data, size_t n, enum lf_comm_type type, lf_err *err)
{
    const struct lf_comm_call call = {
        .what = LF_COMM_ALL_REDUCE, .out = data, .n = n, .type = type, .planned = true};
    return lf_comm_do(mine->tensor, &call, err);
}

static int tensor_sum(void *user, float *data, size_t n, lf_err *err)
{
    (void)user;
    return sum(data, n, LF_COMM_F32, err);
}

static int tensor_add(void *user, double *sums, size_t n, lf_err *err)
{
    (void)user;
    return sum(sums, n, LF_COMM_F64, err);
}

static const size_t *parts(size_t n)
{
    for (int r = 0; r < mine->tensor->size; r++)
        mine->part[r] = n;
    return mine->part;
}

static int tensor_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_comm_call call = {
        .what = LF_COMM_ALL_GATHER, .out = all, .counts = parts(bytes), .planned = true};
    (void)user;
    return lf_comm_do(mine->tensor, &call, err);
}

static int tensor_scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    const struct lf_comm_call call = {.what = LF_COMM_REDUCE_SCATTER,
                                      .type = LF_COMM_F32,
                                      .out = out,
                                      .in = data,
                                      .counts = parts(n),
                                      .planned = true};
    (void)user;
    return lf_comm_do(mine->tensor, &call, err);
}

/* The functions for the data axis, and their user, stay as engine/train has set them. */
void rig_mesh_connect(lf_exec *ex)
{
    struct lf_exec_comm c = ex->comm;
    if (!mine)
        return;
    c.tensor_sum = tensor_sum;
    c.tensor_add = tensor_add;
    c.tensor_gather = tensor_gather;
    c.tensor_scatter = tensor_scatter;
    lf_exec_set_comm(ex, &c, ex->comm_user);
}
