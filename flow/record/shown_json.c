/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs and stages as --json shows them.
 */
#include "config.h"

#include "flow/record/shown.h"

#include "flow/record/parts.h"

const struct lf_fields lf_stage_shown_fields = LF_FIELDS_SHOWN(
    lf_stage_shown,
    LF_MEMBERS(lf_stage_shown, name, kind, state, reason, spec_id, attempts, segments),
    {LF_FIELD_BUF(lf_stage_shown, layout, "layout"), .opt = true},
    {LF_FIELD_SUB(lf_stage_shown, job, LF_FIELD_PART, &lf_job_said_fields)},
    {LF_FIELD_SUB(lf_stage_shown, adopted, LF_FIELD_PART, &lf_adopted_fields)},
    {LF_FIELD_SUB(lf_stage_shown, ended, LF_FIELD_PART, &lf_cut_short_fields)},
    LF_MEMBERS(lf_stage_shown, dir, attempt, epoch, log, n_warnings, warnings),
    {LF_FIELD_AS(lf_stage_shown, exit_code, "exit")}, LF_MEMBERS(lf_stage_shown, signal),
    {LF_FIELD_AS(lf_stage_shown, cls, "class")},
    LF_MEMBERS(lf_stage_shown, t_start, t_end, duration_s, step, steps, progress, steps_per_s,
               eta_s, metrics),
    LF_RECORD(lf_stage_shown, doing, lf_doing_fields));

const struct lf_fields lf_run_shown_fields = LF_FIELDS_SHOWN(
    lf_run_shown, LF_MEMBERS(lf_run_shown, run, name, short_name, state, rev, created, dir),
    LF_LIST(lf_run_shown, stages, lf_stage_shown_fields));

static const struct lf_fields start_fields = LF_FIELDS_SHOWN(
    lf_start_shown, LF_MEMBERS(lf_start_shown, attempt, epoch, dir, host, t_start, t_end, state),
    {LF_FIELD_AS(lf_start_shown, cls, "class")},
    LF_MEMBERS(lf_start_shown, reason, resume, accepted),
    LF_RECORD(lf_start_shown, resources, lf_resources_fields));

#define PLAN(m)           LF_FIELD_AS(lf_stage_whole, plan.m, #m)
#define PLAN_SUB(m, k, t) .key = #m, .type = (k), .at = offsetof(lf_stage_whole, plan.m), .sub = (t)
const struct lf_fields lf_stage_whole_fields = LF_FIELDS_SHOWN(
    lf_stage_whole, {LF_FIELD_SUB(lf_stage_whole, now, LF_FIELD_BASE, &lf_stage_shown_fields)},
    {PLAN(options)}, {PLAN(identity)}, {PLAN(numeric)}, {PLAN(operational)}, {PLAN(model)},
    {PLAN_SUB(inputs, LF_FIELD_LIST, &lf_doc_input_fields)}, {PLAN(after)}, {PLAN(deps)},
    {PLAN_SUB(exe, LF_FIELD_RECORD, &lf_exe_fields)},
    {PLAN_SUB(plan, LF_FIELD_RECORD, &lf_cost_fields)},
    {PLAN_SUB(adopted, LF_FIELD_RECORD, &lf_adopted_fields)}, {PLAN(time_limit_s)},
    {PLAN(memory_bytes)}, {PLAN(grace_s)},
    {PLAN_SUB(resources, LF_FIELD_RECORD, &lf_resources_fields)}, {PLAN(spec_version)},
    {.key = "incarnations",
     .type = LF_FIELD_LIST,
     .at = offsetof(lf_stage_whole, starts),
     .sub = &start_fields},
    LF_MEMBERS(lf_stage_whole, made_of),
    {LF_FIELD_SUBS(lf_stage_whole, outputs, LF_FIELD_NAMED, &lf_output_fields)},
    {LF_FIELD_SUBS(lf_stage_whole, read, LF_FIELD_ROWS, &lf_used_fields)},
    LF_MEMBERS(lf_stage_whole, result_dir), LF_RECORD(lf_stage_whole, closing, lf_closing_fields));
