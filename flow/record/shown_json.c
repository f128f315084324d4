/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs and stages as --json shows them.
 */
#include "config.h"

#include "flow/record/shown.h"

#include "flow/record/parts.h"

static const struct lf_field stage_rows[] = {
    {LF_FIELD(lf_stage_shown, name)},
    {LF_FIELD(lf_stage_shown, kind)},
    {LF_FIELD(lf_stage_shown, state)},
    {LF_FIELD(lf_stage_shown, reason)},
    {LF_FIELD(lf_stage_shown, spec_id)},
    {LF_FIELD(lf_stage_shown, attempts)},
    {LF_FIELD(lf_stage_shown, segments)},
    {LF_FIELD_SUB(lf_stage_shown, job, LF_FIELD_PART, &lf_job_said_fields)},
    {LF_FIELD_SUB(lf_stage_shown, adopted, LF_FIELD_PART, &lf_adopted_fields)},
    {LF_FIELD(lf_stage_shown, dir)},
    {LF_FIELD(lf_stage_shown, attempt)},
    {LF_FIELD(lf_stage_shown, epoch)},
    {LF_FIELD(lf_stage_shown, log)},
    {LF_FIELD(lf_stage_shown, n_warnings)},
    {LF_FIELD(lf_stage_shown, warnings)},
    {LF_FIELD_AS(lf_stage_shown, exit_code, "exit")},
    {LF_FIELD(lf_stage_shown, signal)},
    {LF_FIELD_AS(lf_stage_shown, cls, "class")},
    {LF_FIELD(lf_stage_shown, t_start)},
    {LF_FIELD(lf_stage_shown, t_end)},
    {LF_FIELD(lf_stage_shown, duration_s)},
    {LF_FIELD(lf_stage_shown, step)},
    {LF_FIELD(lf_stage_shown, steps)},
    {LF_FIELD(lf_stage_shown, progress)},
    {LF_FIELD(lf_stage_shown, steps_per_s)},
    {LF_FIELD(lf_stage_shown, eta_s)},
    {LF_FIELD(lf_stage_shown, metrics)},
};
const struct lf_fields lf_stage_shown_fields = LF_FIELDS_SHOWN(lf_stage_shown, stage_rows);

static const struct lf_field run_rows[] = {
    {LF_FIELD(lf_run_shown, run)},
    {LF_FIELD(lf_run_shown, name)},
    {LF_FIELD(lf_run_shown, state)},
    {LF_FIELD(lf_run_shown, rev)},
    {LF_FIELD(lf_run_shown, created)},
    {LF_FIELD(lf_run_shown, dir)},
    {LF_FIELD_SUB(lf_run_shown, stages, LF_FIELD_LIST, &lf_stage_shown_fields)},
};
const struct lf_fields lf_run_shown_fields = LF_FIELDS_SHOWN(lf_run_shown, run_rows);

static const struct lf_field start_rows[] = {
    {LF_FIELD(lf_start_shown, attempt)},
    {LF_FIELD(lf_start_shown, epoch)},
    {LF_FIELD(lf_start_shown, dir)},
    {LF_FIELD(lf_start_shown, host)},
    {LF_FIELD(lf_start_shown, t_start)},
    {LF_FIELD(lf_start_shown, t_end)},
    {LF_FIELD(lf_start_shown, state)},
    {LF_FIELD_AS(lf_start_shown, cls, "class")},
    {LF_FIELD(lf_start_shown, reason)},
    {LF_FIELD(lf_start_shown, resume)},
    {LF_FIELD(lf_start_shown, accepted)},
    {LF_FIELD_SUB(lf_start_shown, resources, LF_FIELD_RECORD, &lf_resources_fields)},
};
static const struct lf_fields start_fields = LF_FIELDS_SHOWN(lf_start_shown, start_rows);

#define PLAN(m)           LF_FIELD_AS(lf_stage_whole, plan.m, #m)
#define PLAN_SUB(m, k, t) .key = #m, .type = (k), .at = offsetof(lf_stage_whole, plan.m), .sub = (t)
static const struct lf_field whole_rows[] = {
    {LF_FIELD_SUB(lf_stage_whole, now, LF_FIELD_BASE, &lf_stage_shown_fields)},
    {PLAN(options)},
    {PLAN(identity)},
    {PLAN(numeric)},
    {PLAN(operational)},
    {PLAN(model)},
    {PLAN_SUB(inputs, LF_FIELD_LIST, &lf_doc_input_fields)},
    {PLAN(after)},
    {PLAN(deps)},
    {PLAN_SUB(exe, LF_FIELD_RECORD, &lf_exe_fields)},
    {PLAN_SUB(plan, LF_FIELD_RECORD, &lf_cost_fields)},
    {PLAN_SUB(adopted, LF_FIELD_RECORD, &lf_adopted_fields)},
    {PLAN(time_limit_s)},
    {PLAN(memory_bytes)},
    {PLAN(grace_s)},
    {PLAN_SUB(resources, LF_FIELD_RECORD, &lf_resources_fields)},
    {PLAN(spec_version)},
    {.key = "incarnations",
     .type = LF_FIELD_LIST,
     .at = offsetof(lf_stage_whole, starts),
     .sub = &start_fields},
    {LF_FIELD_SUBS(lf_stage_whole, outputs, LF_FIELD_NAMED, &lf_output_fields)},
    {LF_FIELD_SUBS(lf_stage_whole, read, LF_FIELD_ROWS, &lf_used_fields)},
    {LF_FIELD(lf_stage_whole, result_dir)},
};
const struct lf_fields lf_stage_whole_fields = LF_FIELDS_SHOWN(lf_stage_whole, whole_rows);
