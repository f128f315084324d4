/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts of generation and of the models beside the actor: which ranks divide the matrices of
 * each, and what moves between them. All are over the same ranks. */
#include "engine/base/sys.h"
#include "engine/post/pg_priv.h"
#include "engine/train/laid.h"

static const char *const names[LF_PG_PLACES] = {"rollout", "reference", "reward", "critic"};

static int tensor_ranks(const struct lf_axes *a)
{
    return a->tensor > 1 ? a->tensor : 1;
}

/* The layout of one of them, where it has its own. Rollouts make a token of a text at a time, and
 * the reward model reads texts of a rank's own, so their ranks do not divide rows. */
static bool own_axes(const struct lf_pg_config *c, enum lf_pg_place_of i, struct lf_axes *out)
{
    const int tensor = c->tensor_of[i] ? c->tensor_of[i] : tensor_ranks(&c->axes);
    const bool whole = i == LF_PG_ROLLOUT || (i == LF_PG_REWARD && c->reward_model);
    *out = c->axes;
    if (tensor == tensor_ranks(&c->axes) && !(whole && c->axes.context > 1))
        return false;
    *out = (struct lf_axes){.tensor = tensor, .across_nodes = c->axes.across_nodes};
    return true;
}

bool lf_pg_own_tensor(const lf_pg *p, int i)
{
    return p->at[i].own && tensor_ranks(&p->at[i].axes) != tensor_ranks(&p->c->axes);
}

void lf_pg_places_plan(lf_pg *p)
{
    for (int i = 0; i < LF_PG_PLACES; i++) {
        struct lf_pg_place *l = &p->at[i];
        l->own = own_axes(p->c, (enum lf_pg_place_of)i, &l->axes);
        l->who = l->own ? lf_axes_who(&l->axes, 0, p->run.ranks) : p->who;
    }
}

int lf_pg_places_check(const lf_pg *p, lf_err *err)
{
    for (int i = 0; i < LF_PG_PLACES; i++) {
        const struct lf_pg_place *l = &p->at[i];
        int rc = l->own ? lf_axes_check(&l->axes, p->run.ranks, err) : 0;
        if (rc == 0 && l->own && i == LF_PG_CRITIC)
            rc = lf_zero_check(&p->c->zero, lf_axes_sharers(&l->who), err);
        if (rc != 0)
            return lf_err_prefix(err, "%s_layout", names[i]);
    }
    return 0;
}

int lf_pg_places_open(lf_pg *p, lf_err *err)
{
    int rc = 0;
    lf_pg_places_plan(p);
    rc = lf_run_agree(&p->run, lf_pg_places_check(p, err), err);
    for (int i = 0; i < LF_PG_PLACES && rc == 0; i++) {
        struct lf_pg_place *l = &p->at[i];
        l->comms = p->comms;
        if (!l->own)
            continue;
        rc = lf_axes_open(&l->comms, &l->who, &l->axes, p->run.comm, err);
        if (rc != 0)
            lf_err_prefix(err, "%s_layout", names[i]);
        rc = lf_run_agree(&p->run, rc, err);
    }
    return rc;
}

/* ---- of a model ---- */

static enum lf_pg_place_of place_of(const lf_pg *p, const lf_pg_model *m)
{
    return m == p->actor       ? LF_PG_PLACES
           : m == p->generator ? LF_PG_ROLLOUT
           : m == p->critic    ? LF_PG_CRITIC
                               : LF_PG_REFERENCE;
}

const struct lf_train_who *lf_pg_who(const lf_pg *p, const lf_pg_model *m)
{
    const enum lf_pg_place_of i = place_of(p, m);
    return i == LF_PG_PLACES ? &p->who : &p->at[i].who;
}

const struct lf_axes_comms *lf_pg_comms(const lf_pg *p, const lf_pg_model *m)
{
    const enum lf_pg_place_of i = place_of(p, m);
    return i == LF_PG_PLACES ? &p->comms : &p->at[i].comms;
}

const struct lf_devcomm *lf_pg_dev(const lf_pg *p, const lf_pg_model *m)
{
    const enum lf_pg_place_of i = place_of(p, m);
    return i == LF_PG_PLACES || !p->at[i].own ? &p->dev : &p->at[i].dev;
}

/* ---- connections ---- */

static int open_dev(lf_pg *p, struct lf_devcomm *dev, const struct lf_axes_comms *comms,
                    const struct lf_train_who *who, const struct lf_zero *zero, lf_err *err)
{
    const int inner = lf_zero_inner(zero, lf_axes_sharers(who));
    const struct lf_devcomm_axes axes = {.data = comms->data,
                                         .tensor = comms->tensor,
                                         .context = comms->context,
                                         .groups = inner < lf_axes_sharers(who)};
    int rc = lf_devcomm_open(dev, &axes, p->back, err);
    if (rc == 0 && inner < lf_axes_sharers(who))
        rc = lf_devcomm_groups(dev, inner, err);
    return rc;
}

/* Of a model that has a layout of its own, or joins the actor's. */
static int connect(lf_pg *p, lf_pg_model *m, lf_err *err)
{
    const enum lf_pg_place_of i = m ? place_of(p, m) : LF_PG_PLACES;
    struct lf_pg_place *l = m && i < LF_PG_PLACES && p->at[i].own ? &p->at[i] : NULL;
    const struct lf_zero none = {0};
    int rc =
        l ? open_dev(p, &l->dev, &l->comms, &l->who, m == p->generator ? &none : &p->c->zero, err)
          : 0;
    if (rc == 0 && m) {
        lf_devcomm_connect(l ? &l->dev : &p->dev, lf_pg_model_exec(m));
        lf_pg_model_share(m, lf_pg_comms(p, m)->context);
    }
    return rc;
}

int lf_pg_places_connect(lf_pg *p, lf_err *err)
{
    if (!p->run.comm)
        return 0;
    lf_pg_model *const all[] = {p->actor, p->critic, p->ref, p->generator};
    int rc = open_dev(p, &p->dev, &p->comms, &p->who, &p->c->zero, err);
    for (size_t i = 0; i < sizeof all / sizeof *all && rc == 0; i++)
        rc = connect(p, all[i], err);
    rc = lf_run_agree(&p->run, rc, err);
    if (rc == 0 && p->generator)
        rc = lf_reshard_create(&p->bring, p->run.comm, lf_pg_model_store(p->actor),
                               lf_pg_model_store(p->generator), err);
    return rc;
}

void lf_pg_places_disconnect(lf_pg *p, bool failed)
{
    lf_devcomm_close(&p->dev, failed);
    for (int i = 0; i < LF_PG_PLACES; i++)
        if (p->at[i].dev.back)
            lf_devcomm_close(&p->at[i].dev, failed);
}

void lf_pg_places_close(lf_pg *p)
{
    for (int i = 0; i < LF_PG_PLACES; i++)
        if (p->at[i].own)
            lf_axes_close(&p->at[i].comms);
    lf_axes_close(&p->comms);
}

/* ---- weights ---- */

int lf_pg_bring(lf_pg *p, lf_err *err)
{
    struct lf_reshard_moved moved;
    if (!p->generator)
        return lf_pg_model_hold(p->actor, err);
    if (p->fresh)
        return 0;
    const double t0 = lf_now_s();
    const struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    const int rc = lf_run_agree(&p->run, lf_reshard_run(p->bring, p->brought, &moved, err), err);
    lf_profile_end(p->c->profile, LF_LANE_STEP, "weights to the rollout", m);
    p->brought = p->fresh = rc == 0;
    p->moved += moved.received;
    p->move_s += lf_now_s() - t0;
    return rc;
}

/* ---- told ---- */

int lf_pg_places_sign(const lf_pg *p, json_t *fingerprint, lf_err *err)
{
    char key[32];
    for (int i = 0; i < LF_PG_PLACES; i++) {
        snprintf(key, sizeof key, "%s_tensor", names[i]);
        if (lf_pg_own_tensor(p, i) &&
            json_object_set_new(fingerprint, key, json_integer(p->at[i].axes.tensor)))
            return lf_fail(err, LF_ENOMEM, "layouts: out of memory");
    }
    return 0;
}

void lf_pg_places_log(const lf_pg *p)
{
    for (int i = 0; i < LF_PG_PLACES; i++)
        if (p->at[i].own)
            lf_run_log(&p->run, 2, "%s: data %d x tensor %d", names[i], p->at[i].who.data_ranks,
                       p->at[i].who.tensor_ranks);
}

double lf_pg_gpu_comm_bytes(const lf_pg *p)
{
    const struct lf_zero none = {0};
    double sum = lf_devcomm_gpu_bytes(&p->who, &p->c->zero, false);
    if (!lf_plan_target(lf_pg_model_get_plan(p->actor))->sm)
        return 0;
    for (int i = 0; i < LF_PG_PLACES; i++)
        if (p->at[i].own)
            sum += lf_devcomm_gpu_bytes(&p->at[i].who, i == LF_PG_ROLLOUT ? &none : &p->c->zero,
                                        false);
    return sum;
}

double lf_pg_places_bytes(const lf_pg *p)
{
    double sum = p->generator ? LF_RESHARD_BYTES : 0;
    for (int i = 0; i < LF_PG_PLACES; i++)
        if (p->at[i].own)
            sum += lf_axes_comm_bytes(&p->at[i].who);
    return sum;
}
