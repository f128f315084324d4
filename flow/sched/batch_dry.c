/* SPDX-License-Identifier: Apache-2.0
 *
 * What a batch command would send, without asking or writing anything.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/record/fields.h"
#include "flow/record/record.h"
#include "flow/sched/batch_priv.h"

static int dry_stage(lf_dry_stages *rows, lf_batch_work *w, size_t i, lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    lf_stage_view *s = &w->view.stages[i];
    char path[PATH_MAX], id[128] = "", dir[PATH_MAX];
    int n = (int)s->n_attempts + 1;
    int rc = lf_path_set(dir, err, "%s/%s", w->run->dir, lf_batch_name(w, i));
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/script.%d", dir, n);
    lf_dry_stage *row = rc == 0 ? lf_rows_add(rows, sizeof *row, err) : NULL;
    if (row == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    row->after.given = row->commands.given = true;
    rc = lf_batch_after(&row->after, w, i, err);
    if (rc == 0)
        rc = lf_batch_behind(&row->behind, w, i, err);
    for (int k = 1; rc == 0 && k <= l->n_links; k++) {
        lf_texts *argv = lf_rows_add(&row->commands, sizeof *argv, err);
        lf_submit_req req = {.run = w->run,
                             .stage = s->plan,
                             .resources = &l->resources,
                             .attempt = n,
                             .token = "TOKEN",
                             .project = w->b->project->root,
                             .stage_dir = dir,
                             .script = path,
                             .link = k,
                             .n_links = l->n_links,
                             .prev = k > 1 ? id : NULL,
                             .after = &row->after,
                             .behind = &row->behind};
        req.held = k == 1 && row->after.n == 0 && row->behind.n == 0 &&
                   (w->b->submitter->can & LF_CAN_HOLD) != 0;
        rc = argv == NULL ? LF_ENOMEM
                          : w->b->submitter->command(w->self, &req, l->script.data, argv, err);
        if (k < l->n_links || l->n_links > 1)
            snprintf(id, sizeof id, "JOB(%s.%d)", lf_batch_name(w, i), k);
        else
            snprintf(id, sizeof id, "JOB(%s)", lf_batch_name(w, i));
    }
    if (rc == 0)
        rc = (l->job = lf_job_rec_new(err)) != NULL ? lf_texts_add(&l->job->ids, id, err)
                                                    : LF_ENOMEM;
    if (rc == 0)
        rc = lf_text_set(&row->stage, lf_batch_name(w, i), "stage", err);
    if (rc == 0)
        rc = lf_text_set(&row->script, l->script.data, "script", err);
    return rc == 0 ? lf_text_set(&row->script_sha256, l->sha, "script_sha256", err) : rc;
}

static const struct lf_fields command_fields = LF_FIELDS_BARE(
    lf_texts, {.key = "argv", .type = LF_FIELD_TEXTS}, /* the row itself is the list */);
const struct lf_fields lf_dry_stage_fields = LF_FIELDS_SHOWN(
    lf_dry_stage, LF_MEMBERS(lf_dry_stage, stage), LF_LIST(lf_dry_stage, commands, command_fields),
    LF_MEMBERS(lf_dry_stage, script, script_sha256, after, behind));

void lf_dry_stages_fini(lf_dry_stages *l)
{
    lf_fields_list_fini(l, &lf_dry_stage_fields);
}

static int dry(lf_dry_stages *rows, lf_batch_work *w, lf_err *err)
{
    int rc = lf_select_stages(w->selected, &w->view, &w->b->select, err);
    lf_batch_clear(w);
    if (rc == 0)
        rc = lf_batch_plan(w, err);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        if (w->lanes[i].act != LF_LANE_SUBMIT)
            continue;
        rc = lf_batch_render(w, i, err);
        if (rc == 0)
            rc = dry_stage(rows, w, i, err);
    }
    return rc;
}

int lf_batch_dry_run(lf_dry_stages *out, const lf_batch *b, const lf_run_view *view,
                     bool run_exists, lf_err *err)
{
    lf_batch_work w;
    lf_run run = view->run;
    char name[] = "RUN";
    memset(out, 0, sizeof *out);
    out->given = true;
    memset(&w, 0, sizeof w);
    if (!run_exists) {
        run.dir = name;
        run.rev = 1;
    }
    w.b = b;
    w.run = &run;
    w.view = *view; /* borrowed: not released here */
    w.lanes = lf_calloc(view->n + 1, sizeof *w.lanes, err);
    w.selected = lf_calloc(view->n + 1, sizeof *w.selected, err);
    int rc = w.lanes == NULL || w.selected == NULL ? LF_ENOMEM : 0;
    if (rc == 0)
        rc = b->submitter->open(&w.self, &run.plan->site, err);
    if (rc == 0) {
        rc = dry(out, &w, err);
        b->submitter->close(w.self);
    }
    lf_batch_fini(&w);
    if (rc < 0)
        lf_dry_stages_fini(out);
    return rc;
}
