/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder from its checkpoint: see loaded.h.
 */
#include "engine/infer/loaded.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/model/weights.h"
#include "engine/store/ckpt.h"

/* The model that it is, and how long its sequences are. */
static int settle(lf_loaded *m, const struct lf_loaded_parts *p, lf_err *err)
{
    int rc = m->o.adapter ? lf_adapter_config_of(&m->adapter, m->o.adapter, err) : 0;
    if (rc == 0 && m->o.adapter && p->scores)
        rc = lf_adapter_model(&m->model, &m->adapter, err);
    if (rc != 0)
        return rc;
    if (lf_model_classifies(&m->model)) /* it reads no text */
        return 0;
    if (!m->o.max_context)
        m->o.max_context = m->model.max_positions;
    if (m->o.max_context < 1 || m->o.max_context > m->model.max_positions)
        return lf_fail(err, LF_EINVAL,
                       "a context of %lld tokens does not fit the model: it has %lld positions",
                       (long long)m->o.max_context, (long long)m->model.max_positions);
    return 0;
}

static int check_experts(const lf_loaded *m, lf_err *err)
{
    const int expert = m->o.with ? m->o.with->layout.expert : 1;
    if (expert <= 1)
        return 0;
    return m->model.experts && m->model.experts % expert == 0
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "expert = %d divides experts among ranks, and the model has %lld; %s",
                         expert, (long long)m->model.experts,
                         m->model.experts ? "take a divisor of their number" : "leave it out");
}

int lf_loaded_plan(lf_loaded *m, const struct lf_loaded_parts *p, lf_err *err)
{
    const struct lf_plan_opts po = {.target = lf_target_device(m->o.device),
                                    .threads = m->o.threads,
                                    .compute = m->o.compute,
                                    .mode = m->o.fast ? LF_FAST : LF_INVARIANT};
    int rc = settle(m, p, err);
    if (rc == 0)
        rc = lf_model_heads_fit(&m->model, po.target->head_dim, po.target->name, err);
    if (rc == 0)
        rc = check_experts(m, err);
    if (rc != 0)
        return rc;
    m->dec = lf_decoder_create(&m->model, m->o.max_context, err);
    m->ps = m->dec ? lf_pstore_create(err) : NULL;
    if (!m->ps)
        return err && err->rc ? err->rc : LF_EINVAL;
    rc = m->o.with ? lf_pstore_set_layout(m->ps, &m->o.with->layout, err) : 0;
    if (rc == 0)
        rc = lf_decoder_declare(m->dec, m->ps, err);
    if (rc == 0 && m->o.adapter && (rc = lf_decoder_adapt(m->dec, m->ps, &m->adapter, err)))
        lf_err_prefix(err, "%s", m->o.adapter);
    if (rc == 0 && !(m->plan = lf_plan_create(m->ps, &po, err)))
        rc = err && err->rc ? err->rc : LF_EINVAL;
    if (rc == 0)
        rc = p->chains(p->user, m, err);
    return rc != 0 ? rc : lf_plan_finish(m->plan, err);
}

/* The adapter upon the weights of dir. */
static int load_adapter(lf_loaded *m, const char *dir, const struct lf_loaded_parts *p, lf_err *err)
{
    char base[LF_HASH_HEX], *path = p->state ? lf_path_join(m->o.adapter, "state.json", err) : NULL;
    json_t *state = path ? lf_json_load_file(path, (size_t)64 << 20, err) : NULL;
    int rc = !p->state        ? 0
             : state          ? p->state(p->user, state, m->o.adapter, err)
             : err && err->rc ? err->rc
                              : LF_EFORMAT;
    memcpy(base, m->identity, sizeof base);
    if (rc == 0)
        rc = lf_adapter_load(m->ps, &m->adapter, m->o.adapter, &(struct lf_adapter_base){base, dir},
                             m->o.threads, m->identity, err);
    json_decref(state);
    free(path);
    return rc;
}

/* A plan of what the checkpoint has, and its memory. */
static int make(lf_loaded *m, const char *dir, const lf_ckpt *c, const struct lf_loaded_parts *p,
                lf_err *err)
{
    const struct lf_device_opts d = {.device = m->o.device,
                                     .rank = m->o.rank,
                                     .local_rank = m->o.local_rank,
                                     .threads = m->o.threads};
    const struct lf_exec_opts o = {.profile = m->o.profile, .label = m->o.label};
    lf_hash_hex(m->identity, lf_ckpt_identity(c));
    int rc = lf_weights_config(&m->model, c, err);
    const bool pictures =
        p->classes && (lf_model_classifies(&m->model) || lf_model_is_dual(&m->model));
    if (rc == 0 && !pictures && (rc = lf_model_need_text(&m->model, err)) != 0)
        lf_err_prefix(err, "%s", dir);
    if (rc == 0 && p->state)
        rc = p->state(p->user, lf_ckpt_state(c), dir, err);
    if (rc == 0 && (rc = lf_loaded_plan(m, p, err)))
        lf_err_prefix(err, "%s", dir);
    if (rc == 0 && !(m->back = lf_back_create(&d, err)))
        rc = LF_ENOTSUP;
    if (rc == 0 && !(m->exec = lf_exec_create(m->plan, m->back, &o, err)))
        rc = err && err->rc ? err->rc : LF_EINVAL;
    return rc;
}

static int take_averages(const lf_loaded *m, lf_ckpt *c, lf_err *err)
{
    return m->o.adapter ? lf_fail(err, LF_EINVAL,
                                  "weights = ema with an adapter: it was trained beside the "
                                  "weights of its base, not beside averages of them")
                        : lf_ckpt_averages(c, err);
}

int lf_loaded_open(lf_loaded *m, const char *dir, const struct lf_loaded_parts *p, lf_err *err)
{
    lf_ckpt *c = NULL;
    int rc = lf_ckpt_open(&c, dir, m->o.threads, err);
    if (rc == 0 && m->o.averages)
        rc = take_averages(m, c, err);
    if (rc == 0)
        rc = make(m, dir, c, p, err);
    if (m->o.with)
        rc = m->o.with->connect(m->o.with->user, rc, m->back, m->exec, err);
    if (rc == 0)
        rc = lf_weights_load_below(m->ps, m->model.output, c, LF_WEIGHTS_PREFIX, err);
    if (rc == 0 && m->o.adapter)
        rc = load_adapter(m, dir, p, err);
    lf_ckpt_close(c);
    return rc;
}

void lf_loaded_fini(lf_loaded *m)
{
    lf_exec_destroy(m->exec);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->dec);
}
