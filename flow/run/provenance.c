/* SPDX-License-Identifier: Apache-2.0
 *
 * See provenance.h.
 */
#include "config.h"

#include "flow/run/provenance.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"

static const char *dir_of(const lf_stage_view *s)
{
    if (s->result_dir != NULL)
        return s->result_dir;
    return s->n_incs > 0 ? s->incs[s->n_incs - 1].dir : NULL;
}

/* ---- the model ---- */

static int is_step(const struct dirent *e)
{
    return strncmp(e->d_name, "step-", 5) == 0;
}

/* Checkpoints of a stage that has no result; numbers have leading zeros, so names sort by step. */
static int newest_checkpoint(lf_trained **out, const char *dir, lf_err *err)
{
    char list[PATH_MAX], path[PATH_MAX];
    struct dirent **names = NULL;
    int rc = lf_path_set(list, err, "%s/out/checkpoints", dir);
    int n = rc == 0 ? scandir(list, &names, is_step, alphasort) : 0;
    for (int i = n - 1; i >= 0; i--) {
        if (rc == 0 && *out == NULL)
            rc = lf_path_set(path, err, "%s/%s", list, names[i]->d_name);
        if (rc == 0 && *out == NULL)
            rc = lf_trained_load(out, path, err);
        free(names[i]);
    }
    free(names);
    return rc;
}

static int load_trained(lf_provenance *p, const lf_stage_view *s, lf_err *err)
{
    char path[PATH_MAX];
    const struct lf_done *done = s->result_done;
    int rc = 0;
    for (size_t i = 0; done != NULL && rc == 0 && p->trained == NULL && i < done->n_outputs; i++) {
        rc = lf_path_set(path, err, "%s/%s", p->dir, done->outputs[i].path);
        if (rc == 0)
            rc = lf_trained_load(&p->trained, path, err);
    }
    return rc == 0 && p->trained == NULL ? newest_checkpoint(&p->trained, p->dir, err) : rc;
}

/* ---- the dataset ---- */

static int dataset_of_stage(lf_dataset **out, const lf_run_view *v, const lf_doc_ref *ref,
                            lf_err *err)
{
    const lf_stage_view *from = lf_view_stage(v, ref->stage);
    const struct lf_done *done = from != NULL ? from->result_done : NULL;
    int rc = 0;
    for (size_t i = 0; done != NULL && rc == 0 && *out == NULL && i < done->n_outputs; i++)
        if (lf_text_same(done->outputs[i].kind, "shards"))
            rc = lf_dataset_of(out, done->outputs[i].meta, err);
    return rc;
}

/* The first dataset among the inputs: of a stage of this run, or at the path that it read. */
static int load_dataset(lf_provenance *p, const lf_run_view *v, const lf_stage_view *s, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && p->dataset == NULL && i < s->plan->inputs.n; i++) {
        const lf_doc_input *in = &s->plan->inputs.v[i];
        for (size_t k = 0; rc == 0 && p->dataset == NULL && k < in->refs.n; k++)
            rc = dataset_of_stage(&p->dataset, v, &in->refs.v[k], err);
    }
    const struct lf_done *done = s->result_done;
    for (size_t i = 0; done != NULL && rc == 0 && p->dataset == NULL && i < done->n_inputs; i++)
        if (lf_text_same(done->inputs[i].name, "data"))
            rc = lf_dataset_load(&p->dataset, done->inputs[i].path, err);
    return rc;
}

/* ---- all of it ---- */

int lf_provenance_load(lf_provenance *out, const lf_run_view *v, const lf_stage_view *s,
                       lf_err *err)
{
    lf_provenance p = {.dir = dir_of(s)};
    const lf_doc_stage *st = s->plan;
    *out = p;
    if (p.dir == NULL)
        return 0;
    int rc = lf_machines_load(&p.machines, p.dir, err);
    for (size_t i = 0; rc == 0 && p.options.n == 0 && i < st->outputs.n; i++)
        rc = lf_made_options_load(&p.options, p.dir, st->outputs.v[i], err);
    if (rc == 0)
        rc = load_trained(&p, s, err);
    if (rc == 0)
        rc = load_dataset(&p, v, s, err);
    if (rc < 0)
        lf_provenance_fini(&p);
    else
        *out = p;
    return rc;
}

void lf_provenance_fini(lf_provenance *p)
{
    lf_machines_fini(&p->machines);
    lf_pairs_fini(&p->options);
    lf_trained_free(p->trained);
    lf_dataset_free(p->dataset);
    memset(p, 0, sizeof *p);
}

const char *lf_provenance_option(const lf_provenance *p, const lf_stage_view *s, const char *name)
{
    const char *v = lf_pairs_get(&p->options, name);
    const lf_texts *given = lf_lists_get(&s->plan->options, name);
    if (v != NULL)
        return v;
    return given != NULL && given->n > 0 ? given->v[0] : NULL;
}

const char *lf_provenance_model(const lf_provenance *p, const lf_stage_view *s, const char *name)
{
    const char *v = p->trained != NULL ? lf_pairs_get(&p->trained->model, name) : NULL;
    return v != NULL ? v : lf_pairs_get(&s->plan->model, name);
}

static int64_t whole_option(const lf_provenance *p, const lf_stage_view *s, const char *name)
{
    int64_t n = 0;
    const char *v = lf_provenance_option(p, s, name);
    return v != NULL && lf_parse_i64(&n, v, NULL) == 0 ? n : 0;
}

int64_t lf_provenance_threads(const lf_provenance *p, const lf_stage_view *s)
{
    if (p->machines.n > 0 && p->machines.v[0].threads.given)
        return p->machines.v[0].threads.v;
    if (p->trained != NULL && p->trained->fingerprint.threads.given)
        return p->trained->fingerprint.threads.v;
    const int64_t given = whole_option(p, s, "threads");
    return given > 0 ? given : s->plan->resources.cpus.v;
}

int64_t lf_provenance_ranks(const lf_provenance *p, const lf_stage_view *s)
{
    if (p->machines.n > 0)
        return (int64_t)p->machines.n;
    if (p->trained != NULL && p->trained->fingerprint.ranks.given)
        return p->trained->fingerprint.ranks.v;
    const lf_resources *r = &s->plan->resources;
    return lf_int_or(r->ranks, 1) * lf_int_or(r->nodes, 1);
}

bool lf_provenance_trains(const lf_provenance *p, const lf_stage_view *s)
{
    return s->plan->plan.parameters.given || (p->trained != NULL && p->trained->step.given);
}

/* ---- core time ---- */

/* Of a start whose ranks left no word: what its stage was given. */
static int64_t threads_asked(const lf_stage_view *s)
{
    const lf_provenance none = {.dir = NULL};
    return lf_provenance_threads(&none, s) * lf_provenance_ranks(&none, s);
}

static double seconds_of(const lf_stage_view *s, size_t k)
{
    const double begin = lf_inc_begin(&s->incs[k]), end = lf_inc_end(&s->incs[k]);
    const bool runs = s->state == LF_STATE_RUNNING && k + 1 == s->n_incs;
    return begin <= 0 ? 0 : end > begin ? end - begin : runs ? lf_wall_s() - begin : 0;
}

int lf_core_time_of(lf_core_time *out, const lf_stage_view *s, lf_err *err)
{
    bool held = s->n_incs > 0, used = s->n_incs > 0;
    double held_s = 0, used_s = 0;
    int rc = 0;
    memset(out, 0, sizeof *out);
    for (size_t k = 0; rc == 0 && k < s->n_incs; k++) {
        lf_machines m;
        int64_t threads = 0;
        rc = lf_machines_load(&m, s->incs[k].dir, err);
        if (rc < 0)
            break;
        used = used && m.n > 0;
        for (size_t i = 0; i < m.n; i++) {
            threads += m.v[i].threads.v;
            used = used && m.v[i].cpu_s.given;
            used_s += m.v[i].cpu_s.v;
        }
        if (threads == 0)
            threads = threads_asked(s);
        held = held && threads > 0;
        held_s += (double)threads * seconds_of(s, k);
        lf_machines_fini(&m);
    }
    if (rc == 0 && held)
        out->held_s = lf_real_of(held_s);
    if (rc == 0 && used)
        out->used_s = lf_real_of(used_s);
    return rc;
}
