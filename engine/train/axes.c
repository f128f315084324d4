/* SPDX-License-Identifier: Apache-2.0
 *
 * The axes of a run's ranks: see axes.h.
 */
#include "engine/train/axes.h"

#include <stdio.h>
#include <string.h>

#include "engine/model/decoder.h"
#include "engine/train/zero.h"

static int at_least_1(int n)
{
    return n > 1 ? n : 1;
}

static int check_pipeline(const struct lf_axes *a, lf_err *err)
{
    if (a->measured && a->stages)
        return lf_fail(err, LF_EINVAL,
                       "pipeline_cost = measured finds where to cut the model, and pipeline_stages "
                       "= %s says it; give one of them",
                       a->stages);
    if (at_least_1(a->pipeline) > 1 ||
        (at_least_1(a->chunks) == 1 && !a->stages && !a->schedule && !a->measured))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "%s belongs to ranks that have different layers; set pipeline to 2 or more",
                   a->stages     ? "pipeline_stages"
                   : a->schedule ? "pipeline_schedule"
                   : a->measured ? "pipeline_cost"
                                 : "pipeline_chunks");
}

const char *lf_context_kind_name(int kind)
{
    static const char *const names[] = {"ulysses", "gather", "both", "ring"};
    return kind >= 0 && kind <= LF_CONTEXT_RING ? names[kind] : "?";
}

static int check_context(const struct lf_axes *a, lf_err *err)
{
    if (a->context_kind == LF_CONTEXT_RING)
        return lf_fail(
            err, LF_ENOTSUP,
            "context_kind = ring is not built, because a ring adds up what a row sees in "
            "the order in which it comes by, which is another one on each rank and never "
            "gives one rank's bits; take ulysses, or gather");
    if (a->context_kind != LF_CONTEXT_ULYSSES && at_least_1(a->context) == 1)
        return lf_fail(err, LF_EINVAL,
                       "context_kind = %s is of ranks that divide rows; set context to 2 or more",
                       lf_context_kind_name(a->context_kind));
    return 0;
}

/* "context = 2, tensor = 4 and pipeline = 2"; axes of one rank are not named. */
static const char *sizes_text(char *buf, size_t cap, int context, int tensor, int pipeline)
{
    char more[32] = "";
    if (tensor > 1)
        snprintf(more, sizeof more, "%s tensor = %d", pipeline > 1 ? "," : " and", tensor);
    snprintf(buf, cap, "context = %d%s", context, more);
    if (pipeline > 1)
        snprintf(buf + strlen(buf), cap - strlen(buf), " and pipeline = %d", pipeline);
    return buf;
}

static bool folds(const struct lf_axes *a)
{
    return a->expert > 1 && a->expert_tensor == 1 && a->tensor > 1;
}

static int check_expert_tensor(const struct lf_axes *a, lf_err *err)
{
    if (a->expert_tensor > 0 && at_least_1(a->expert) == 1)
        return lf_fail(
            err, LF_EINVAL,
            "expert_tensor = %d is of ranks that divide experts; set expert to 2 or more",
            a->expert_tensor);
    if (folds(a) && a->expert % a->tensor)
        return lf_fail(err, LF_EINVAL,
                       "expert_tensor = 1 with expert = %d and tensor = %d: all ranks that divide "
                       "matrices divide experts, too; make expert a multiple of tensor",
                       a->expert, a->tensor);
    if (a->expert_tensor <= 1 || a->expert_tensor == at_least_1(a->tensor))
        return 0;
    return lf_fail(err, LF_ENOTSUP,
                   "expert_tensor = %d: the matrices of an expert are divided among all ranks of "
                   "tensor (%d), or among none (1)",
                   a->expert_tensor, at_least_1(a->tensor));
}

static int check_expert(const struct lf_axes *a, int sharers, lf_err *err)
{
    if (check_expert_tensor(a, err))
        return err ? err->rc : LF_EINVAL;
    if (at_least_1(a->expert) == 1)
        return a->expert_room > 0 ? lf_fail(err, LF_EINVAL,
                                            "expert_room = %g is of ranks that divide experts; set "
                                            "expert to 2 or more",
                                            a->expert_room)
                                  : 0;
    if (sharers % a->expert)
        return lf_fail(err, LF_EINVAL,
                       "expert = %d: the %d rank%s that share%s the batch cannot form such groups; "
                       "take a divisor of their number",
                       a->expert, sharers, sharers == 1 ? "" : "s", sharers == 1 ? "s" : "");
    return 0;
}

int lf_axes_check(const struct lf_axes *a, int ranks, lf_err *err)
{
    const int tensor = at_least_1(a->tensor), pipeline = at_least_1(a->pipeline),
              context = at_least_1(a->context);
    const int most = ranks < 1 ? 1 : ranks;
    if (check_context(a, err))
        return err ? err->rc : LF_ENOTSUP;
    if (a->sequence && tensor == 1)
        return lf_fail(err, LF_EINVAL,
                       "sequence_parallel divides rows among the ranks that tensor names; set "
                       "tensor to 2 or more");
    if (context > 1 && (context > most || tensor > most || pipeline > most ||
                        ranks % ((int64_t)context * tensor * pipeline)))
        return lf_fail(err, LF_EINVAL,
                       "%s: %d rank%s cannot form such groups; start a multiple of %lld ranks",
                       sizes_text((char[96]){0}, 96, context, tensor, pipeline), ranks,
                       ranks == 1 ? "" : "s", (long long)context * tensor * pipeline);
    if (tensor > most || pipeline > most || ranks % ((int64_t)tensor * pipeline))
        return pipeline == 1
                   ? lf_fail(err, LF_EINVAL,
                             "tensor = %d: %d rank%s cannot form such groups; take a divisor of "
                             "their number, or start a multiple of %d ranks",
                             tensor, ranks, ranks == 1 ? "" : "s", tensor)
                   : lf_fail(err, LF_EINVAL,
                             "pipeline = %d and tensor = %d: %d rank%s cannot form such groups; "
                             "start a multiple of %lld ranks",
                             pipeline, tensor, ranks, ranks == 1 ? "" : "s",
                             (long long)tensor * pipeline);
    const int rc = check_expert(a, most / ((folds(a) ? 1 : tensor) * pipeline), err);
    return rc != 0 ? rc : check_pipeline(a, err);
}

struct lf_train_who lf_axes_who(const struct lf_axes *a, int place, int ranks)
{
    const int tensor = at_least_1(a->tensor), pipeline = at_least_1(a->pipeline),
              context = at_least_1(a->context), expert = at_least_1(a->expert),
              data = at_least_1((int)(ranks / ((int64_t)tensor * context * pipeline)));
    struct lf_train_who w = {.folded = folds(a),
                             .expert_ranks = expert,
                             .data = place / tensor / context % data,
                             .data_ranks = data,
                             .context = place / tensor % context,
                             .context_ranks = context,
                             .tensor = place % tensor,
                             .tensor_ranks = tensor,
                             .pipeline = place / tensor / context / data,
                             .pipeline_ranks = pipeline};
    w.expert = lf_axes_expert_place(&w) % expert;
    return w;
}

struct lf_layout lf_axes_layout(const struct lf_axes *a, const struct lf_train_who *w)
{
    return (struct lf_layout){.tensor = w->tensor_ranks,
                              .tensor_rank = w->tensor,
                              .sequence = a->sequence,
                              .context = w->context_ranks,
                              .context_rank = w->context,
                              .context_gather =
                                  w->context_ranks > 1 && (a->context_kind == LF_CONTEXT_GATHER ||
                                                           a->context_kind == LF_CONTEXT_BOTH),
                              .expert = w->expert_ranks,
                              .expert_rank = w->expert,
                              .folded = w->folded,
                              .expert_room = a->expert_room};
}

void lf_axes_fit(struct lf_layout *l, const struct lf_axes *a, const lf_model_config *mc,
                 int64_t own_rows)
{
    if (a->context_kind == LF_CONTEXT_BOTH) /* where all ranks exchange heads, no keys come */
        l->context_heads = lf_decoder_context_heads(mc, l->tensor, l->context);
    l->context_gather = l->context_gather && l->context_heads < l->context;
    const int64_t reach = l->context_gather ? lf_decoder_reach(mc) : 0;
    const int64_t rows = own_rows * lf_context_parts(l).heads;
    l->context_in_order = reach > 0 && reach <= rows;
    l->context_in_turns = l->context_gather && reach == 0 && lf_context_pairs(rows) &&
                          lf_decoder_mostly_near(mc, rows / 2 - LF_ATTN_TILE + 2);
}

int lf_axes_check_device(const struct lf_axes *a, enum lf_device device, lf_err *err)
{
    return a->context_kind != LF_CONTEXT_ULYSSES && lf_target_device(device)->sm
               ? lf_fail(err, LF_ENOTSUP,
                         "context = %d with context_kind = %s: attention of some rows over the "
                         "keys of others is for CPUs so far; take ulysses, or device = cpu",
                         a->context, lf_context_kind_name(a->context_kind))
               : 0;
}

static int check_nodes(const lf_mesh *m, lf_comm *world, int tensor, lf_err *err)
{
    int ranks[2];
    if (lf_mesh_inside(m, "tensor", ranks))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "tensor = %d: ranks %d and %d divide matrices and are on two nodes (%s, %s), "
                   "which makes each layer wait for the network; take a divisor of the ranks of a "
                   "node, or set tensor_across_nodes = yes",
                   tensor, ranks[0], ranks[1], lf_comm_peer_host(world, ranks[0]),
                   lf_comm_peer_host(world, ranks[1]));
}

/* Those over several axes, and the ends. */
static int open_others(struct lf_axes_comms *c, const struct lf_train_who *w, lf_comm *world,
                       lf_err *err)
{
    static const char *const column[] = {"pipeline", "context", "tensor"}, *const layers[] = {
                                                                               "data", "context",
                                                                               "tensor"};
    const bool end = w->pipeline == 0 || w->pipeline == w->pipeline_ranks - 1;
    c->column = lf_mesh_comm_over(c->mesh, column, 3, err);
    c->layers = c->column ? lf_mesh_comm_over(c->mesh, layers, 3, err) : NULL;
    if (c->layers && w->context_ranks > 1)
        c->data = lf_mesh_comm_over(c->mesh, layers, 2, err);
    if (!c->layers || !c->data)
        return err ? err->rc : LF_ECOMM;
    if (w->pipeline_ranks == 1)
        return 0;
    c->ends = lf_comm_split(world, end ? lf_axes_sharer(w) * w->tensor_ranks + w->tensor : -1,
                            w->pipeline, err);
    return c->ends || !end ? 0 : err ? err->rc : LF_ECOMM;
}

static int open_experts(struct lf_axes_comms *c, const struct lf_train_who *w, lf_err *err)
{
    if (w->expert_ranks == 1)
        return 0;
    const int place = lf_axes_expert_place(w);
    lf_comm *among = w->folded ? c->layers : c->data;
    c->experts = lf_comm_split(among, place / w->expert_ranks, place, err);
    c->same = c->experts ? lf_comm_split(among, w->expert, place, err) : NULL;
    return c->same ? 0 : err ? err->rc : LF_ECOMM;
}

int lf_axes_open(struct lf_axes_comms *c, struct lf_train_who *w, const struct lf_axes *a,
                 lf_comm *world, lf_err *err)
{
    const int tensor = at_least_1(a->tensor), pipeline = at_least_1(a->pipeline),
              context = at_least_1(a->context);
    const lf_mesh_dim with[] = {{"pipeline", pipeline},
                                {"data", 0},
                                {"context", context},
                                {"tensor", tensor}},
                      without[] = {{"pipeline", pipeline}, {"data", 0}, {"tensor", tensor}};
    *c = (struct lf_axes_comms){.data = world, .layers = world};
    *w = lf_axes_who(a, world ? world->rank : 0, world ? world->size : 1);
    if (tensor * context * pipeline == 1)
        return world ? open_experts(c, w, err) : 0;
    c->layers = NULL;
    c->mesh = lf_mesh_create(world, context > 1 ? with : without, context > 1 ? 4 : 3, err);
    if (!c->mesh)
        return err ? err->rc : LF_ECOMM;
    w->data = lf_mesh_coord(c->mesh, "data");
    w->context = lf_mesh_coord(c->mesh, "context");
    w->tensor = lf_mesh_coord(c->mesh, "tensor");
    w->pipeline = lf_mesh_coord(c->mesh, "pipeline");
    c->data = context > 1 ? NULL : lf_mesh_comm(c->mesh, "data");
    c->context = context > 1 ? lf_mesh_comm(c->mesh, "context") : NULL;
    w->expert = lf_axes_expert_place(w) % w->expert_ranks;
    c->tensor = lf_mesh_comm(c->mesh, "tensor");
    c->pipeline = lf_mesh_comm(c->mesh, "pipeline");
    int rc = open_others(c, w, world, err);
    if (rc == 0)
        rc = open_experts(c, w, err);
    return rc != 0 || a->across_nodes ? rc : check_nodes(c->mesh, world, tensor, err);
}

void lf_axes_close(struct lf_axes_comms *c)
{
    lf_comm_destroy(c->same);
    lf_comm_destroy(c->experts);
    if (c->mesh) {
        lf_comm_destroy(c->ends);
        lf_comm_destroy(c->layers);
        lf_comm_destroy(c->column);
    }
    if (c->context)
        lf_comm_destroy(c->data);
    lf_mesh_destroy(c->mesh);
    *c = (struct lf_axes_comms){0};
}

double lf_axes_comm_bytes(const struct lf_train_who *w)
{
    const int all = lf_axes_ranks(w),
              column = w->pipeline_ranks * w->context_ranks * w->tensor_ranks,
              context = w->context_ranks > 1 ? w->context_ranks + w->data_ranks : 0;
    const double experts =
        w->expert_ranks == 1
            ? 0
            : LF_COMM_BYTES * (w->expert_ranks + lf_axes_expert_places(w) / w->expert_ranks);
    if (column == 1)
        return experts;
    return experts +
           LF_COMM_BYTES * (all + context + w->tensor_ranks + w->pipeline_ranks + column +
                            lf_axes_sharers(w) * w->tensor_ranks + (w->pipeline_ranks > 1 ? 2 : 0));
}
