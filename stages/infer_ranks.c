/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of ranks that run one model forward: see infer_ranks.h.
 */
#include "stages/infer_ranks.h"

#include "engine/base/sys.h"
#include "engine/train/laid.h"
#include "engine/train/zero.h"
#include "stages/infer_common.h"
#include "stages/stage.h"

static int connect_ranks(void *user, int rc, lf_back *back, lf_exec *ex, lf_err *err)
{
    struct lf_infer_ranks *r = user;
    const struct lf_devcomm_axes axes = {.data = r->comms.data,
                                         .tensor = r->comms.tensor,
                                         .experts = r->comms.experts,
                                         .same = r->comms.same};
    rc = lf_comm_agree_ok(r->comms.layers, rc, err);
    if (rc == 0)
        rc = lf_devcomm_open(&r->dev, &axes, back, err);
    if (rc == 0)
        lf_devcomm_connect(&r->dev, ex);
    return rc;
}

static void settle(struct lf_infer_ranks *r)
{
    r->with = (struct lf_loaded_ranks){
        .layout = lf_axes_layout(&r->axes, &r->who), .connect = connect_ranks, .user = r};
}

int lf_infer_ranks_read(struct lf_infer_ranks *r, const lf_optset *o, lf_err *err)
{
    const int ranks = (int)lf_optset_int(o, "ranks");
    r->axes = (struct lf_axes){.tensor = (int)lf_optset_int(o, "tensor"),
                               .across_nodes = lf_optset_bool(o, "tensor_across_nodes"),
                               .expert = (int)lf_optset_int(o, "expert")};
    r->axes.expert_tensor = r->axes.expert > 1;
    if (r->axes.expert > 1 && r->axes.expert != r->axes.tensor)
        return lf_fail(err, LF_EINVAL,
                       "expert = %d: the ranks that work on the same texts (tensor = %d) divide "
                       "the experts, or each of them; take expert = %d, or leave it out",
                       r->axes.expert, r->axes.tensor, r->axes.tensor);
    r->who = lf_axes_who(&r->axes, 0, ranks);
    settle(r);
    return lf_optset_bool(o, "plan") ? lf_axes_check(&r->axes, ranks, err) : 0;
}

const struct lf_loaded_ranks *lf_infer_with(const struct lf_infer_ranks *r)
{
    return r->who.tensor_ranks > 1 ? &r->with : NULL;
}

static int tell(const struct lf_infer_ranks *r, lf_err *err)
{
    lf_buf line;
    lf_buf_init(&line);
    lf_laid_line(&line, &r->axes, &r->who, NULL);
    const int rc = lf_buf_check(&line, err);
    if (rc == 0 && line.len)
        lf_log(2, "%s", line.data);
    lf_buf_fini(&line);
    return rc;
}

int lf_infer_ranks_open(struct lf_infer_ranks *r, lf_comm *comm, lf_err *err)
{
    int rc = lf_axes_check(&r->axes, comm ? comm->size : 1, err);
    r->opened = rc == 0;
    if (rc == 0)
        rc = lf_axes_open(&r->comms, &r->who, &r->axes, comm, err);
    settle(r);
    if (rc == 0 && comm && comm->rank == 0)
        rc = tell(r, err);
    return lf_stage_agree(comm, rc, err);
}

void lf_infer_ranks_close(struct lf_infer_ranks *r, int rc)
{
    if (!r->opened)
        return;
    if (r->dev.back)
        lf_devcomm_close(&r->dev, rc != 0);
    lf_axes_close(&r->comms);
    r->opened = false;
}

void lf_infer_ranks_begin(struct lf_infer_ranks *r)
{
    lf_group_begin(&r->group, r->comms.tensor, lf_stop_requested);
}

int lf_infer_ranks_gather(struct lf_infer_ranks *r, lf_comm *comm, lf_buf *text, lf_err *err)
{
    if (!comm)
        return 0;
    if (r->who.tensor == 0)
        return lf_infer_gather(r->comms.data, text, err);
    lf_buf_clear(text);
    return lf_buf_check(text, err);
}

int lf_infer_ranks_sign(const struct lf_infer_ranks *r, json_t *fingerprint, lf_err *err)
{
    return lf_laid_sign(fingerprint, &r->axes, &r->who, NULL, err);
}

/* As of the ranks of a training stage. */
static double comm_bytes(const struct lf_infer_ranks *r)
{
    return lf_zero_comm_bytes(&(struct lf_zero){0}, r->who.data_ranks) +
           lf_axes_comm_bytes(&r->who);
}

/* On a GPU. */
static double gpu_comm_bytes(const struct lf_infer_ranks *r)
{
    return lf_devcomm_gpu_bytes(&r->who, &(struct lf_zero){0}, false);
}

struct lf_plan_memory lf_infer_ranks_planned(const struct lf_infer_ranks *r,
                                             struct lf_plan_memory m)
{
    m.host += comm_bytes(r);
    m.total += comm_bytes(r);
    m.device += m.device > 0 ? gpu_comm_bytes(r) : 0;
    return m;
}

/* On a GPU total is what the host has, and there are communicators there, too. */
static int add_comm_bytes(const struct lf_infer_ranks *r, json_t *bytes)
{
    static const char *const of[] = {"host", "total"};
    int bad = 0;
    for (size_t i = 0; bytes && i < sizeof of / sizeof *of; i++) {
        const json_int_t is = json_integer_value(json_object_get(bytes, of[i]));
        bad |= json_object_set_new(bytes, of[i], json_integer(is + (json_int_t)comm_bytes(r)));
    }
    const json_int_t device = json_integer_value(json_object_get(bytes, "device"));
    if (device > 0 && gpu_comm_bytes(r) > 0)
        bad |= json_object_set_new(bytes, "device",
                                   json_integer(device + (json_int_t)gpu_comm_bytes(r))) ||
               json_object_set_new(bytes, "communicators",
                                   json_integer((json_int_t)gpu_comm_bytes(r)));
    return bad;
}

int lf_infer_ranks_plan(const struct lf_infer_ranks *r, json_t *plan, lf_err *err)
{
    int bad = add_comm_bytes(r, json_object_get(plan, "bytes"));
    if (r->who.tensor_ranks > 1)
        bad |= json_object_set_new(plan, "axes", lf_laid_axes(&r->axes, &r->who));
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}
