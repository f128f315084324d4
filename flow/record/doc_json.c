/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan document from and to JSON.
 */
#include "config.h"

#include "flow/record/doc.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "flow/record/parts.h"

#define PLAN_MAX_BYTES ((size_t)16 << 20)

static const struct lf_fields ref_fields =
    LF_FIELDS_KEPT(lf_doc_ref, LF_MEMBERS(lf_doc_ref, stage, output));

const struct lf_fields lf_doc_input_fields = LF_FIELDS_KEPT(
    lf_doc_input, LF_MEMBERS_NEEDED(lf_doc_input, option), LF_MEMBERS(lf_doc_input, index),
    LF_MEMBERS_NEEDED(lf_doc_input, text), LF_LIST(lf_doc_input, refs, ref_fields, .needed = true),
    LF_MEMBERS(lf_doc_input, identity, word));

static const struct lf_fields carry_fields = {
    LF_FIELDS_TABLE(lf_doc_carry, LF_FIELD_NONE, LF_FIELD_NONE,
                    LF_MEMBERS_NEEDED(lf_doc_carry, pattern), LF_MEMBERS(lf_doc_carry, grows)),
    .strict = true, .list = true};

static const struct lf_fields gpus_fields =
    LF_FIELDS_PART(struct lf_gpus, LF_MEMBERS(struct lf_gpus, n, type));

const struct lf_fields lf_resources_fields = LF_FIELDS_PART(
    lf_resources, LF_MEMBERS(lf_resources, nodes, ranks, cpus, memory_bytes, time_limit_s, grace_s),
    LF_RECORD(lf_resources, gpus, gpus_fields),
    LF_MEMBERS(lf_resources, gpu_memory, partition, account, qos, constraint, reservation, mail,
               launcher, chain, exclusive, mail_type, modules, prologue, extra, rank_prefix,
               exclude, links, max_segments, max_walltime, stall_segments, retries, memory_max,
               time_max));

const struct lf_fields lf_spec_fields =
    LF_FIELDS_PART(lf_spec, LF_MEMBERS(lf_spec, kind, spec_version, options, inputs, model));

const struct lf_fields lf_exe_fields =
    LF_FIELDS_PART(lf_doc_exe, LF_MEMBERS(lf_doc_exe, path, sha256));

const struct lf_fields lf_adopted_fields =
    LF_FIELDS_PART(lf_adopted, LF_MEMBERS(lf_adopted, run, stage, attempt, epoch, spec_id));

static const struct lf_fields bytes_fields = LF_FIELDS_PART(
    struct lf_cost_bytes,
    LF_MEMBERS(struct lf_cost_bytes, params, grads, optimizer, activations, workspace, inputs,
               state, cache, offloaded, host, total, device, communicators, rank));

static const struct lf_fields comm_fields = LF_FIELDS_PART(
    struct lf_cost_comm,
    LF_MEMBERS(struct lf_cost_comm, bytes_per_step, messages_per_step, bytes_per_round,
               rollout_bytes_most, tensor_bytes_per_step, tensor_messages_per_step,
               context_bytes_per_step, context_messages_per_step, pipeline_bytes_per_step,
               pipeline_messages_per_step, expert_bytes_per_step, expert_messages_per_step));

static const struct lf_fields axes_fields =
    LF_FIELDS_PART(struct lf_cost_axes, LF_MEMBERS(struct lf_cost_axes, pipeline, data, context,
                                                   tensor, sequence, expert));

static const struct lf_fields rank_fields = LF_FIELDS_KEPT(
    struct lf_cost_rank, LF_MEMBERS(struct lf_cost_rank, layers, total, micro_batches, forward_s,
                                    backward_input_s, backward_weight_s, update_s));

static const struct lf_fields pipeline_fields =
    LF_FIELDS_PART(struct lf_cost_pipeline, LF_LIST(struct lf_cost_pipeline, ranks, rank_fields),
                   LF_MEMBERS(struct lf_cost_pipeline, schedule, idle_share, step_s, message_bytes,
                              tied_bytes, drawing));

const struct lf_fields lf_cost_fields =
    LF_FIELDS_PART(lf_cost,
                   LF_MEMBERS(lf_cost, parameters, steps, tokens, flops_per_step, disk_bytes,
                              measured_flops, ranks),
                   LF_RECORD(lf_cost, bytes, bytes_fields), LF_RECORD(lf_cost, comm, comm_fields),
                   LF_RECORD(lf_cost, axes, axes_fields),
                   LF_RECORD(lf_cost, pipeline, pipeline_fields), LF_MEMBERS(lf_cost, notes));

const struct lf_fields lf_doc_stage_fields = LF_FIELDS_KEPT(
    lf_doc_stage, LF_MEMBERS_NEEDED(lf_doc_stage, name, kind),
    LF_MEMBERS(lf_doc_stage, spec_version, path, line, column),
    LF_MEMBERS_NEEDED(lf_doc_stage, options, types, identity, numeric, operational),
    LF_MEMBERS(lf_doc_stage, renamed),
    LF_LIST(lf_doc_stage, inputs, lf_doc_input_fields, .needed = true),
    LF_MEMBERS(lf_doc_stage, after), LF_MEMBERS_NEEDED(lf_doc_stage, deps, outputs),
    LF_MEMBERS(lf_doc_stage, any_output), LF_LIST(lf_doc_stage, carry, carry_fields),
    LF_MEMBERS(lf_doc_stage, model, time_limit_s, memory_bytes, grace_s, rerun_on),
    LF_RECORD(lf_doc_stage, resources, lf_resources_fields),
    LF_RECORD(lf_doc_stage, spec, lf_spec_fields, .needed = true),
    {LF_FIELD_AS(lf_doc_stage, frozen_id, "spec_id"), .needed = true},
    LF_RECORD(lf_doc_stage, exe, lf_exe_fields),
    LF_RECORD(lf_doc_stage, adopted, lf_adopted_fields), LF_MEMBERS(lf_doc_stage, isolated),
    LF_RECORD(lf_doc_stage, plan, lf_cost_fields), LF_MEMBERS(lf_doc_stage, estimate_s));

static const struct lf_fields site_fields = LF_FIELDS_PART(
    lf_site, LF_MEMBERS(lf_site, poll_s, timeout_s, grace_lost_s, settle_s, submit_wait_s, commands,
                        chain, launcher, templates, exclude, trust));

static const struct lf_fields sweep_child_fields =
    LF_FIELDS_KEPT(lf_sweep_child, LF_MEMBERS_NEEDED(lf_sweep_child, number, settings, stages));

const struct lf_fields lf_sweep_fields =
    LF_FIELDS_PART(lf_sweep,
                   LF_MEMBERS(lf_sweep, axes, seeds, max_parallel, metric_stage, metric, goal,
                              max_core_hours, rungs, keep),
                   LF_LIST(lf_sweep, children, sweep_child_fields, .needed = true));

const struct lf_fields lf_doc_fields = LF_FIELDS_KEPT(
    lf_doc,
    LF_MEMBERS(lf_doc, lf_plan, run, short_name, project_id, user, host, version, rev, created),
    LF_MEMBERS_NEEDED(lf_doc, name), LF_MEMBERS(lf_doc, description),
    LF_MEMBERS_NEEDED(lf_doc, data_dir),
    LF_MEMBERS(lf_doc, scheduler, share, pipeline, jobs, on_end, on_fail, on_time_limit_s, report,
               isolated),
    LF_RECORD(lf_doc, site, site_fields), LF_RECORD(lf_doc, loong_flow, lf_exe_fields),
    LF_RECORD(lf_doc, sweep, lf_sweep_fields),
    LF_LIST(lf_doc, stages, lf_doc_stage_fields, .needed = true));

/* ---- the document ---- */

lf_doc *lf_doc_new(lf_err *err)
{
    lf_doc *d = lf_calloc(1, sizeof *d, err);
    if (d != NULL)
        d->holders = 1;
    return d;
}

lf_doc *lf_doc_hold(lf_doc *d)
{
    d->holders++;
    return d;
}

void lf_doc_free(lf_doc *d)
{
    if (d == NULL || --d->holders > 0)
        return;
    lf_names_fini(&d->names);
    for (size_t i = 0; i < d->stages.n; i++) {
        free(d->stages.v[i].spec_id);
        free(d->stages.v[i].elsewhere);
        lf_spec_fini(&d->stages.v[i].settled);
    }
    lf_fields_fini(d, &lf_doc_fields);
    free(d);
}

static int read_doc(lf_doc **out, json_t *o, const char *what, lf_err *err)
{
    lf_doc *d = lf_doc_new(err);
    int rc = d == NULL ? LF_ENOMEM : lf_fields_read(d, &lf_doc_fields, o, what, err);
    if (rc < 0) { /* what was read is freed */
        free(d);
        return rc;
    }
    d->holders = 1; /* no member of the file */
    rc = lf_doc_index(d, err);
    for (size_t i = 0; rc == 0 && i < d->stages.n; i++)
        rc = lf_text_set(&d->stages.v[i].spec_id, d->stages.v[i].frozen_id, "spec_id", err);
    if (rc < 0)
        lf_doc_free(d);
    else
        *out = d;
    return rc;
}

int lf_doc_load(lf_doc **out, const char *path, lf_err *err)
{
    json_t *o = lf_json_load_file(path, PLAN_MAX_BYTES, err);
    if (o == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    int rc = read_doc(out, o, path, err);
    json_decref(o);
    return rc;
}

int lf_doc_write(const lf_doc *d, const char *dir, lf_err *err)
{
    return lf_fields_publish(dir, "plan.json", &lf_doc_fields, d, err);
}

lf_doc *lf_doc_copy(const lf_doc *d, lf_err *err)
{
    lf_doc *copy = NULL;
    json_t *o = lf_fields_json(d, &lf_doc_fields, err);
    if (o != NULL)
        (void)read_doc(&copy, o, "a copy", err); /* NULL says that it failed */
    json_decref(o);
    return copy;
}

int lf_doc_index(lf_doc *d, lf_err *err)
{
    lf_names_fini(&d->names);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < d->stages.n; i++)
        rc = lf_names_put(&d->names, d->stages.v[i].name, "", i, err);
    return rc;
}

lf_doc_stage *lf_doc_find(const lf_doc *d, const char *name)
{
    size_t i = d != NULL && name != NULL ? lf_names_find(&d->names, name, "") : LF_NAMES_NONE;
    return i != LF_NAMES_NONE ? &d->stages.v[i] : NULL;
}

/* ---- comparing ---- */

/* What of a document makes a revision. */
static json_t *essence(const lf_doc *d)
{
    static const char *const head[] = {"lf_plan", "run",  "short_name", "rev",     "project_id",
                                       "created", "user", "host",       "version", "description"};
    static const char *const stage[] = {"path", "line", "column", "plan", "estimate_s"};
    json_t *o = lf_fields_json(d, &lf_doc_fields, NULL), *stages = json_object_get(o, "stages");
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        json_object_del(o, head[i]);
    for (size_t i = 0; i < json_array_size(stages); i++)
        for (size_t k = 0; k < sizeof stage / sizeof stage[0]; k++)
            json_object_del(json_array_get(stages, i), stage[k]);
    return o;
}

char *lf_doc_stage_text(const lf_doc_stage *st, lf_err *err)
{
    /* `options` is what was written, which may say the same in other words; what it means is in the
     * classes and the inputs. */
    static const char *const place[] = {"name", "path", "line", "column", "options"};
    json_t *o = lf_fields_json(st, &lf_doc_stage_fields, err);
    for (size_t i = 0; i < sizeof place / sizeof place[0]; i++)
        json_object_del(o, place[i]);
    char *text = o != NULL ? json_dumps(o, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (o != NULL && text == NULL)
        lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(o);
    return text;
}

bool lf_doc_same(const lf_doc *a, const lf_doc *b)
{
    json_t *x = essence(a), *y = essence(b);
    bool same = x != NULL && y != NULL && json_equal(x, y) == 1;
    json_decref(x);
    json_decref(y);
    return same;
}

/* ---- parts ---- */

int lf_resources_copy(lf_resources *out, const lf_resources *from, lf_err *err)
{
    return lf_fields_copy(out, from, &lf_resources_fields, err);
}

bool lf_resources_same(const lf_resources *a, const lf_resources *b)
{
    return lf_fields_same(a, b, &lf_resources_fields);
}

void lf_resources_fini(lf_resources *r)
{
    lf_fields_fini(r, &lf_resources_fields);
}

int lf_spec_copy(lf_spec *out, const lf_spec *from, lf_err *err)
{
    return lf_fields_copy(out, from, &lf_spec_fields, err);
}

void lf_spec_fini(lf_spec *s)
{
    lf_fields_fini(s, &lf_spec_fields);
}

int lf_cost_parse(lf_cost *out, const char *text, size_t len, const char *what, lf_err *err)
{
    return lf_fields_parse(out, &lf_cost_fields, text, len, what, err);
}

int lf_cost_copy(lf_cost *out, const lf_cost *from, lf_err *err)
{
    return lf_fields_copy(out, from, &lf_cost_fields, err);
}

void lf_cost_fini(lf_cost *c)
{
    lf_fields_fini(c, &lf_cost_fields);
}

int lf_adopted_copy(lf_adopted *out, const lf_adopted *from, lf_err *err)
{
    return lf_fields_copy(out, from, &lf_adopted_fields, err);
}

void lf_adopted_fini(lf_adopted *a)
{
    lf_fields_fini(a, &lf_adopted_fields);
}

void lf_sweep_fini(lf_sweep *s)
{
    lf_fields_fini(s, &lf_sweep_fields);
}

void lf_sweep_child_fini(lf_sweep_child *c)
{
    lf_fields_fini(c, &sweep_child_fields);
}

void lf_site_fini(lf_site *s)
{
    lf_fields_fini(s, &site_fields);
}

char *lf_spec_text(const lf_spec *s, lf_err *err)
{
    return lf_fields_text(s, &lf_spec_fields, err);
}

char *lf_site_commands_text(const lf_site *s)
{
    json_t *o = json_object();
    bool ok = o != NULL;
    for (size_t i = 0; ok && i < s->commands.n; i++)
        ok =
            json_object_set_new(o, s->commands.v[i].name, json_string(s->commands.v[i].value)) == 0;
    char *text = !ok                 ? NULL
                 : s->commands.given ? json_dumps(o, JSON_SORT_KEYS)
                                     : lf_strdup("", NULL);
    json_decref(o);
    return text;
}
