/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of a start as JSON.
 */
#include "config.h"

#include "flow/record/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/base/mem.h"
#include "flow/record/fields.h"
#include "flow/record/parts.h"

/* ---- what several records contain ---- */

const struct lf_fields lf_proc_fields =
    LF_FIELDS(lf_proc_id, {LF_FIELD_BUF(lf_proc_id, host, "host")},
              {LF_FIELD_BUF(lf_proc_id, boot_id, "boot")},
              {LF_FIELD_AS(lf_proc_id, pid_ns, "pidns")}, LF_MEMBERS(lf_proc_id, pid, start));

int lf_proc_load(lf_proc_id **out, const char *dir, const char *name, lf_err *err)
{
    return lf_fields_load(out, &lf_proc_fields, dir, name, err);
}

const struct lf_fields lf_used_fields =
    LF_FIELDS(struct lf_used, LF_MEMBERS(struct lf_used, name, path),
              LF_MEMBERS_OPT(struct lf_used, run, stage, attempt, epoch, spec_id, output, sha256,
                             ended_at_step));

void lf_used_free(struct lf_used *rows, size_t n)
{
    for (size_t i = 0; rows != NULL && i < n; i++)
        lf_fields_fini(&rows[i], &lf_used_fields);
    free(rows);
}

/* ---- epoch.N ---- */

static const struct lf_fields handed_fields =
    LF_FIELDS(struct lf_handed, LF_MEMBERS(struct lf_handed, rel, path, attempt),
              LF_MEMBERS_OPT(struct lf_handed, sha256), LF_MEMBERS(struct lf_handed, grows, taken));

static const struct lf_fields claim_fields = LF_FIELDS(
    struct lf_claim, LF_FIELD_KIND("lf_epoch"), LF_MEMBERS_OPT(struct lf_claim, lf_done),
    LF_MEMBERS(struct lf_claim, kind, attempt, epoch), LF_MEMBERS_OPT(struct lf_claim, spec_id),
    LF_RECORD(struct lf_claim, process, lf_proc_fields), LF_MEMBERS(struct lf_claim, token, t),
    LF_MEMBERS_OPT(struct lf_claim, jobid),
    {LF_FIELD(struct lf_claim, restarts), .opt = true, .none = LF_NO_RESTARTS},
    {LF_FIELD_SUBS(struct lf_claim, from, LF_FIELD_ROWS, &handed_fields), .opt = true},
    LF_MEMBERS_OPT(struct lf_claim, staging));

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

static const struct lf_fields started_fields = LF_FIELDS(
    struct lf_started, LF_FIELD_KIND("lf_stage"),
    LF_RECORD(struct lf_started, process, lf_proc_fields), LF_MEMBERS(struct lf_started, t, resume),
    {LF_FIELD_SUBS(struct lf_started, inputs, LF_FIELD_ROWS, &lf_used_fields)});

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

static const struct lf_fields had_fields =
    LF_FIELDS(struct lf_had, LF_MEMBERS(struct lf_had, memory_bytes, time_limit_s,
                                        planned_memory_bytes, planned_time_limit_s));

static const struct lf_fields pace_fields =
    LF_FIELDS(struct lf_pace, LF_MEMBERS(struct lf_pace, spacing_s, save_s));

static const struct lf_fields next_fields =
    LF_FIELDS(struct lf_end_next, LF_MEMBERS(struct lf_end_next, act),
              LF_MEMBERS_OPT(struct lf_end_next, exclude, memory_bytes, time_limit_s));

const struct lf_fields lf_cut_short_fields = LF_FIELDS(
    struct lf_cut_short, LF_MEMBERS(struct lf_cut_short, ended_at_step, at, of, unit, by));

void lf_cut_short_free(struct lf_cut_short *c)
{
    lf_fields_free(c, &lf_cut_short_fields);
}

/* 1234567 as "1,234,567". */
static const char *with_commas(char buf[32], int64_t n)
{
    char digits[24];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%lld", (long long)(n < 0 ? 0 : n)), k = 0;
    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            buf[k++] = ',';
        buf[k++] = digits[i];
    }
    buf[k] = '\0';
    return buf;
}

const char *lf_cut_short_text(char *buf, size_t cap, const struct lf_cut_short *c)
{
    char at[32], of[32];
    const bool rounds = c->unit != NULL && strcmp(c->unit, "rounds") == 0;
    snprintf(buf, cap, "ended at %s%s of %s%s", rounds ? "round " : "", with_commas(at, c->at),
             with_commas(of, c->of),
             c->by != NULL && strcmp(c->by, "hours") == 0 ? " by its hours" : "");
    return buf;
}

int lf_output_take_meta(struct lf_output *o, json_t *meta, lf_err *err)
{
    const json_t *each = json_object_get(meta, "tensors");
    o->meta = meta;
    if (!json_is_array(each) && !json_is_object(each))
        return 0;
    const size_t n = json_is_array(each) ? json_array_size(each) : json_object_size(each);
    return json_object_set_new(meta, "tensors", json_integer((json_int_t)n)) != 0
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

int lf_output_ended(struct lf_cut_short **out, const struct lf_output *o, lf_err *err)
{
    json_t *ended = json_object_get(o->meta, "ended");
    *out = NULL;
    if (!json_is_object(ended))
        return 0;
    struct lf_cut_short *c = lf_calloc(1, sizeof *c, err);
    int rc = c == NULL ? LF_ENOMEM : lf_fields_read(c, &lf_cut_short_fields, ended, o->name, err);
    if (rc == 0 && c->ended_at_step > 0)
        *out = c;
    else
        lf_cut_short_free(c);
    return rc;
}

static const struct lf_fields impatient_fields =
    LF_FIELDS(struct lf_impatient, LF_MEMBERS(struct lf_impatient, at, of, stale, best_step, unit,
                                              metric, measurements));

/* "patience: no better valid_loss for 3 validations, ended at 12 of 60 (best at step 6)" */
static const char *impatient_text(char *buf, size_t cap, const struct lf_output *o)
{
    struct lf_impatient e = {.at = 0};
    char at[32], of[32];
    json_t *said = json_object_get(o->meta, "out_of_patience");
    if (!json_is_object(said) || lf_fields_read(&e, &impatient_fields, said, o->name, NULL) < 0)
        return NULL;
    const bool rounds = e.unit != NULL && strcmp(e.unit, "rounds") == 0,
               whole = e.at > 0 && e.metric != NULL && e.measurements != NULL;
    if (whole)
        snprintf(buf, cap, "patience: no better %.40s for %lld %.20s, ended at %s%s of %s",
                 e.metric, (long long)e.stale, e.measurements, rounds ? "round " : "",
                 with_commas(at, e.at), with_commas(of, e.of));
    const size_t n = whole ? strlen(buf) : 0;
    if (whole && e.best_step > 0)
        snprintf(buf + n, cap - n, " (best at step %s)", with_commas(at, e.best_step));
    lf_fields_fini(&e, &impatient_fields);
    return whole ? buf : NULL;
}

const char *lf_output_short_text(char *buf, size_t cap, const struct lf_output *o)
{
    struct lf_cut_short *c = NULL;
    const bool cut = lf_output_ended(&c, o, NULL) == 0 && c != NULL;
    if (cut)
        lf_cut_short_text(buf, cap, c);
    lf_cut_short_free(c);
    return cut ? buf : impatient_text(buf, cap, o);
}

const char *lf_done_short_text(char *buf, size_t cap, const struct lf_done *d)
{
    const char *text = NULL;
    if (d != NULL && d->ended != NULL)
        return lf_cut_short_text(buf, cap, d->ended);
    for (size_t i = 0; text == NULL && d != NULL && i < d->n_outputs; i++)
        text = impatient_text(buf, cap, &d->outputs[i]);
    return text;
}

static const struct lf_fields end_fields = LF_FIELDS(
    struct lf_end, LF_FIELD_KIND("lf_end"), LF_MEMBERS(struct lf_end, state),
    {LF_FIELD_AS(struct lf_end, cls, "class")}, LF_MEMBERS(struct lf_end, reason, t_start, t_end),
    {LF_FIELD_AS(struct lf_end, exit_code, "exit")}, LF_MEMBERS(struct lf_end, signal, log),
    LF_MEMBERS_OPT(struct lf_end, n_warnings, warnings),
    {LF_FIELD(struct lf_end, step), .opt = true, .none = -1},
    {LF_FIELD_MAYBE(struct lf_end, gained)},
    {LF_FIELD_SUB(struct lf_end, pace, LF_FIELD_PART, &pace_fields), .opt = true},
    {LF_FIELD_SUB(struct lf_end, asked, LF_FIELD_PART, &had_fields), .opt = true},
    LF_MEMBERS_OPT(struct lf_end, jobid, node, blame),
    {LF_FIELD_SUB(struct lf_end, next, LF_FIELD_PART, &next_fields), .opt = true},
    {LF_FIELD_SUB(struct lf_end, ended, LF_FIELD_PART, &lf_cut_short_fields), .opt = true},
    LF_MEMBERS_OPT(struct lf_end, repaired));

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

const struct lf_fields lf_output_fields =
    LF_FIELDS(struct lf_output,
              LF_MEMBERS(struct lf_output, path, kind, manifest_sha256, bytes, files, meta));

static const struct lf_fields done_fields = LF_FIELDS(
    struct lf_done, LF_FIELD_KIND("lf_done"),
    LF_MEMBERS(struct lf_done, run, stage, attempt, epoch, token, kind, spec_id, spec_version,
               t_start, t_end),
    {LF_FIELD_SUBS(struct lf_done, outputs, LF_FIELD_NAMED, &lf_output_fields)},
    {LF_FIELD_SUBS(struct lf_done, inputs, LF_FIELD_ROWS, &lf_used_fields)},
    LF_MEMBERS(struct lf_done, resume), LF_MEMBERS_OPT(struct lf_done, exe_sha256),
    {LF_FIELD_SUB(struct lf_done, ended, LF_FIELD_PART, &lf_cut_short_fields), .opt = true});

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

static const struct lf_fields damaged_fields =
    LF_FIELDS(struct lf_damaged, LF_FIELD_KIND("lf_damaged"),
              LF_MEMBERS(struct lf_damaged, output, reason, t, run, stage));

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
