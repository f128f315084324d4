/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of a start as JSON.
 */
#include "config.h"

#include "flow/record/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/fields.h"
#include "flow/record/parts.h"

/* ---- what several records contain ---- */

static const struct lf_field proc_rows[] = {
    {LF_FIELD_BUF(lf_proc_id, host, "host")},
    {LF_FIELD_BUF(lf_proc_id, boot_id, "boot")},
    {LF_FIELD_AS(lf_proc_id, pid_ns, "pidns")},
    {LF_FIELD(lf_proc_id, pid)},
    {LF_FIELD(lf_proc_id, start)},
};
const struct lf_fields lf_proc_fields = LF_FIELDS(lf_proc_id, proc_rows);

int lf_proc_load(lf_proc_id **out, const char *dir, const char *name, lf_err *err)
{
    return lf_fields_load(out, &lf_proc_fields, dir, name, err);
}

static const struct lf_field used_rows[] = {
    {LF_FIELD(struct lf_used, name)},
    {LF_FIELD(struct lf_used, path)},
    {LF_FIELD(struct lf_used, run), .opt = true},
    {LF_FIELD(struct lf_used, stage), .opt = true},
    {LF_FIELD(struct lf_used, attempt), .opt = true},
    {LF_FIELD(struct lf_used, epoch), .opt = true},
    {LF_FIELD(struct lf_used, spec_id), .opt = true},
    {LF_FIELD(struct lf_used, output), .opt = true},
    {LF_FIELD(struct lf_used, sha256), .opt = true},
};
const struct lf_fields lf_used_fields = LF_FIELDS(struct lf_used, used_rows);

void lf_used_free(struct lf_used *rows, size_t n)
{
    for (size_t i = 0; rows != NULL && i < n; i++)
        lf_fields_fini(&rows[i], &lf_used_fields);
    free(rows);
}

/* ---- epoch.N ---- */

static const struct lf_field handed_rows[] = {
    {LF_FIELD(struct lf_handed, rel)},     {LF_FIELD(struct lf_handed, path)},
    {LF_FIELD(struct lf_handed, attempt)}, {LF_FIELD(struct lf_handed, sha256), .opt = true},
    {LF_FIELD(struct lf_handed, grows)},   {LF_FIELD(struct lf_handed, taken)},
};
static const struct lf_fields handed_fields = LF_FIELDS(struct lf_handed, handed_rows);

static const struct lf_field claim_rows[] = {
    LF_FIELD_KIND("lf_epoch"),
    {LF_FIELD(struct lf_claim, lf_done), .opt = true},
    {LF_FIELD(struct lf_claim, kind)},
    {LF_FIELD(struct lf_claim, attempt)},
    {LF_FIELD(struct lf_claim, epoch)},
    {LF_FIELD(struct lf_claim, spec_id), .opt = true},
    {LF_FIELD_SUB(struct lf_claim, process, LF_FIELD_RECORD, &lf_proc_fields)},
    {LF_FIELD(struct lf_claim, token)},
    {LF_FIELD(struct lf_claim, t)},
    {LF_FIELD(struct lf_claim, jobid), .opt = true},
    {LF_FIELD(struct lf_claim, restarts), .opt = true, .none = LF_NO_RESTARTS},
    {LF_FIELD_SUBS(struct lf_claim, from, LF_FIELD_ROWS, &handed_fields), .opt = true},
    {LF_FIELD(struct lf_claim, staging), .opt = true},
};
static const struct lf_fields claim_fields = LF_FIELDS(struct lf_claim, claim_rows);

int lf_claim_load(struct lf_claim **out, const char *stage_dir, int epoch, lf_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "epoch.%d", epoch);
    return lf_fields_load(out, &claim_fields, stage_dir, name, err);
}

int lf_claim_publish(const char *stage_dir, const struct lf_claim *c, lf_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "epoch.%d", c->epoch);
    return lf_fields_publish(stage_dir, name, &claim_fields, c, err);
}

void lf_claim_free(struct lf_claim *c)
{
    lf_fields_free(c, &claim_fields);
}

void lf_handed_clear(struct lf_handed *row)
{
    lf_fields_fini(row, &handed_fields);
}

void lf_handed_free(struct lf_handed *rows, size_t n)
{
    for (size_t i = 0; rows != NULL && i < n; i++)
        lf_handed_clear(&rows[i]);
    free(rows);
}

/* ---- stage.json ---- */

static const struct lf_field started_rows[] = {
    LF_FIELD_KIND("lf_stage"),
    {LF_FIELD_SUB(struct lf_started, process, LF_FIELD_RECORD, &lf_proc_fields)},
    {LF_FIELD(struct lf_started, t)},
    {LF_FIELD(struct lf_started, resume)},
    {LF_FIELD_SUBS(struct lf_started, inputs, LF_FIELD_ROWS, &lf_used_fields)},
};
static const struct lf_fields started_fields = LF_FIELDS(struct lf_started, started_rows);

int lf_started_load(struct lf_started **out, const char *start_dir, lf_err *err)
{
    return lf_fields_load(out, &started_fields, start_dir, "stage.json", err);
}

int lf_started_publish(const char *start_dir, const struct lf_started *s, lf_err *err)
{
    return lf_fields_publish(start_dir, "stage.json", &started_fields, s, err);
}

void lf_started_free(struct lf_started *s)
{
    lf_fields_free(s, &started_fields);
}

/* ---- end.json ---- */

static const struct lf_field had_rows[] = {
    {LF_FIELD(struct lf_had, memory_bytes)},
    {LF_FIELD(struct lf_had, time_limit_s)},
    {LF_FIELD(struct lf_had, planned_memory_bytes)},
    {LF_FIELD(struct lf_had, planned_time_limit_s)},
};
static const struct lf_fields had_fields = LF_FIELDS(struct lf_had, had_rows);

static const struct lf_field pace_rows[] = {
    {LF_FIELD(struct lf_pace, spacing_s)},
    {LF_FIELD(struct lf_pace, save_s)},
};
static const struct lf_fields pace_fields = LF_FIELDS(struct lf_pace, pace_rows);

static const struct lf_field next_rows[] = {
    {LF_FIELD(struct lf_end_next, act)},
    {LF_FIELD(struct lf_end_next, exclude), .opt = true},
    {LF_FIELD(struct lf_end_next, memory_bytes), .opt = true},
    {LF_FIELD(struct lf_end_next, time_limit_s), .opt = true},
};
static const struct lf_fields next_fields = LF_FIELDS(struct lf_end_next, next_rows);

static const struct lf_field end_rows[] = {
    LF_FIELD_KIND("lf_end"),
    {LF_FIELD(struct lf_end, state)},
    {LF_FIELD_AS(struct lf_end, cls, "class")},
    {LF_FIELD(struct lf_end, reason)},
    {LF_FIELD(struct lf_end, t_start)},
    {LF_FIELD(struct lf_end, t_end)},
    {LF_FIELD_AS(struct lf_end, exit_code, "exit")},
    {LF_FIELD(struct lf_end, signal)},
    {LF_FIELD(struct lf_end, log)},
    {LF_FIELD(struct lf_end, n_warnings), .opt = true},
    {LF_FIELD(struct lf_end, warnings), .opt = true},
    {LF_FIELD(struct lf_end, step), .opt = true, .none = -1},
    {LF_FIELD_MAYBE(struct lf_end, gained)},
    {LF_FIELD_SUB(struct lf_end, pace, LF_FIELD_PART, &pace_fields), .opt = true},
    {LF_FIELD_SUB(struct lf_end, asked, LF_FIELD_PART, &had_fields), .opt = true},
    {LF_FIELD(struct lf_end, jobid), .opt = true},
    {LF_FIELD(struct lf_end, node), .opt = true},
    {LF_FIELD(struct lf_end, blame), .opt = true},
    {LF_FIELD_SUB(struct lf_end, next, LF_FIELD_PART, &next_fields), .opt = true},
    {LF_FIELD(struct lf_end, repaired), .opt = true},
};
static const struct lf_fields end_fields = LF_FIELDS(struct lf_end, end_rows);

int lf_end_load(struct lf_end **out, const char *start_dir, lf_err *err)
{
    return lf_fields_load(out, &end_fields, start_dir, "end.json", err);
}

int lf_end_publish(const char *start_dir, const struct lf_end *e, lf_err *err)
{
    return lf_fields_publish(start_dir, "end.json", &end_fields, e, err);
}

void lf_end_free(struct lf_end *e)
{
    lf_fields_free(e, &end_fields);
}

/* ---- done.json ---- */

static const struct lf_field output_rows[] = {
    {LF_FIELD(struct lf_output, path)},
    {LF_FIELD(struct lf_output, kind)},
    {LF_FIELD(struct lf_output, manifest_sha256)},
    {LF_FIELD(struct lf_output, bytes)},
    {LF_FIELD(struct lf_output, files)},
    {LF_FIELD(struct lf_output, meta)},
};
const struct lf_fields lf_output_fields = LF_FIELDS(struct lf_output, output_rows);

static const struct lf_field done_rows[] = {
    LF_FIELD_KIND("lf_done"),
    {LF_FIELD(struct lf_done, run)},
    {LF_FIELD(struct lf_done, stage)},
    {LF_FIELD(struct lf_done, attempt)},
    {LF_FIELD(struct lf_done, epoch)},
    {LF_FIELD(struct lf_done, token)},
    {LF_FIELD(struct lf_done, kind)},
    {LF_FIELD(struct lf_done, spec_id)},
    {LF_FIELD(struct lf_done, spec_version)},
    {LF_FIELD(struct lf_done, t_start)},
    {LF_FIELD(struct lf_done, t_end)},
    {LF_FIELD_SUBS(struct lf_done, outputs, LF_FIELD_NAMED, &lf_output_fields)},
    {LF_FIELD_SUBS(struct lf_done, inputs, LF_FIELD_ROWS, &lf_used_fields)},
    {LF_FIELD(struct lf_done, resume)},
    {LF_FIELD(struct lf_done, exe_sha256), .opt = true},
};
static const struct lf_fields done_fields = LF_FIELDS(struct lf_done, done_rows);

int lf_done_load(struct lf_done **out, const char *start_dir, lf_err *err)
{
    return lf_fields_load(out, &done_fields, start_dir, "done.json", err);
}

int lf_done_publish(const char *stage_dir, const struct lf_done *d, lf_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "epoch.%d", d->epoch + 1);
    return lf_fields_publish(stage_dir, name, &done_fields, d, err);
}

void lf_done_free(struct lf_done *d)
{
    lf_fields_free(d, &done_fields);
}

const struct lf_output *lf_done_output(const struct lf_done *d, const char *name)
{
    for (size_t i = 0; d != NULL && i < d->n_outputs; i++)
        if (strcmp(d->outputs[i].name, name) == 0)
            return &d->outputs[i];
    return NULL;
}

void lf_outputs_free(struct lf_output *rows, size_t n)
{
    for (size_t i = 0; rows != NULL && i < n; i++) {
        free((void *)(uintptr_t)rows[i].name);
        lf_fields_fini(&rows[i], &lf_output_fields);
    }
    free(rows);
}

/* ---- damaged.json ---- */

static const struct lf_field damaged_rows[] = {
    LF_FIELD_KIND("lf_damaged"),           {LF_FIELD(struct lf_damaged, output)},
    {LF_FIELD(struct lf_damaged, reason)}, {LF_FIELD(struct lf_damaged, t)},
    {LF_FIELD(struct lf_damaged, run)},    {LF_FIELD(struct lf_damaged, stage)},
};
static const struct lf_fields damaged_fields = LF_FIELDS(struct lf_damaged, damaged_rows);

int lf_damaged_load(struct lf_damaged **out, const char *start_dir, lf_err *err)
{
    return lf_fields_load(out, &damaged_fields, start_dir, "damaged.json", err);
}

int lf_damaged_publish(const char *start_dir, const struct lf_damaged *d, lf_err *err)
{
    return lf_fields_publish(start_dir, "damaged.json", &damaged_fields, d, err);
}

void lf_damaged_free(struct lf_damaged *d)
{
    lf_fields_free(d, &damaged_fields);
}
