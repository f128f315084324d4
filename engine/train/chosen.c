/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a run with pipeline_cost = measured cuts its model: as the checkpoint says that it goes on
 * from, or by what the layers take here. Before the plan.
 */
#include <stdlib.h>

#include "engine/train/cost.h"
#include "engine/train/loop_priv.h"

/* The record of the newest checkpoint that can be read, of all starts; owned. NULL: there is none.
 * Damage is for the search of resume.c to tell. */
static json_t *newest_record(const lf_trainer *t, const char *const *dirs, size_t n, lf_err *err)
{
    struct lf_ckpt_search how = {.out_dirs = dirs, .n = n, .max_step = -1};
    json_t *record = NULL;
    bool over = false;
    while (!record && !over) {
        char *dir = NULL;
        lf_ckpt *ck = NULL;
        int64_t step = 0;
        if (lf_ckpt_find_newest(&dir, &step, &how, err) != 0 || !dir)
            break;
        over = step == 0;
        how.max_step = step - 1;
        if (lf_ckpt_open_checked(&ck, dir, LF_CKPT_CHECK_READS, t->c->threads, NULL) == 0) {
            record = json_incref(json_object_get(lf_ckpt_state(ck), "pipeline_cost"));
            over = true;
        }
        lf_ckpt_close(ck);
        free(dir);
    }
    return record;
}

/* Rank 0. */
static int look_for_record(const lf_trainer *t, json_t **record, lf_err *err)
{
    const size_t n = t->c->n_resume_from;
    const char **dirs = lf_calloc(n + 1, sizeof *dirs, err);
    lf_err why = LF_ERR_INIT;
    if (!dirs)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        dirs[i] = t->c->resume_from[i];
    dirs[n] = t->c->out;
    *record = newest_record(t, dirs, n + 1, &why);
    free(dirs);
    return why.rc ? lf_fail(err, why.rc, "%s", why.text) : 0;
}

/* The mean over all ranks, which measure at once, as they compute at once. Collective. */
static int take_mean(struct lf_train_costs *k, const lf_trainer *t, lf_err *err)
{
    enum { N = sizeof(struct lf_train_cost) / sizeof(double) };
    double *v = (double *)(void *)k->part;
    const size_t n = (size_t)k->n * N;
    const int rc = lf_comm_all_reduce(t->run.comm, v, n, LF_COMM_F64, LF_COMM_SUM, err);
    for (size_t i = 0; i < n; i++)
        v[i] /= t->run.ranks;
    return rc;
}

static int measure(lf_trainer *t, lf_err *err)
{
    lf_run_phase(&t->run, "measuring the layers");
    lf_train_log(t, 2, "pipeline: measuring what the layers take (pipeline_cost = measured)");
    int rc = lf_train_agree(
        t, lf_train_cost_measure(&t->costs, t->c, &t->mc, &t->who, t->run.comm, err), err);
    if (rc == 0)
        rc = take_mean(&t->costs, t, err);
    lf_run_phase(&t->run, "setting up");
    return rc;
}

int lf_train_choose_cut(lf_trainer *t, lf_err *err)
{
    json_t *record = NULL;
    int rc = 0, known = 0;
    if (!t->c->axes.measured)
        return 0;
    rc = lf_train_agree(t, lf_train_first_rank(t) ? look_for_record(t, &record, err) : 0, err);
    if (rc == 0)
        rc = lf_run_share_json(&t->run, &record, err);
    if (rc == 0 && record) {
        known = lf_train_costs_read(&t->costs, record, &t->c->axes, &t->who,
                                    (int)lf_model_depth(&t->mc), err);
        rc = known < 0 ? known : 0;
    }
    json_decref(record);
    rc = lf_train_agree(t, rc, err);
    if (rc == 0 && known != 1)
        rc = measure(t, err);
    if (rc != 0)
        return rc;
    t->own = *t->c;
    t->own.costs = &t->costs;
    t->c = &t->own;
    return 0;
}
