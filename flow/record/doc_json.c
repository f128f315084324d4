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

#define RECORD(S, m, t) LF_FIELD_SUB(S, m, LF_FIELD_RECORD, t)
#define LIST(S, m, t)   LF_FIELD_SUB(S, m, LF_FIELD_LIST, t)
#define NEEDED          .needed = true

static const struct lf_field ref_rows[] = {
    {LF_FIELD(lf_doc_ref, stage)},
    {LF_FIELD(lf_doc_ref, output)},
};
static const struct lf_fields ref_fields = LF_FIELDS_KEPT(lf_doc_ref, ref_rows, LF_FIELD_NONE);

static const struct lf_field input_rows[] = {
    {LF_FIELD(lf_doc_input, option), NEEDED}, {LF_FIELD(lf_doc_input, index)},
    {LF_FIELD(lf_doc_input, text), NEEDED},   {LIST(lf_doc_input, refs, &ref_fields), NEEDED},
    {LF_FIELD(lf_doc_input, identity)},       {LF_FIELD(lf_doc_input, word)},
};
const struct lf_fields lf_doc_input_fields =
    LF_FIELDS_KEPT(lf_doc_input, input_rows, LF_FIELD_NONE);

static const struct lf_field carry_rows[] = {
    {LF_FIELD(lf_doc_carry, pattern), NEEDED},
    {LF_FIELD(lf_doc_carry, grows)},
};
static const struct lf_fields carry_fields = {LF_FIELDS_TABLE(lf_doc_carry, carry_rows),
                                              .given = LF_FIELD_NONE, .more = LF_FIELD_NONE,
                                              .strict = true, .list = true};

static const struct lf_field gpus_rows[] = {
    {LF_FIELD(struct lf_gpus, n)},
    {LF_FIELD(struct lf_gpus, type)},
};
static const struct lf_fields gpus_fields =
    LF_FIELDS_KEPT(struct lf_gpus, gpus_rows, offsetof(struct lf_gpus, given));

static const struct lf_field resources_rows[] = {
    {LF_FIELD(lf_resources, nodes)},
    {LF_FIELD(lf_resources, ranks)},
    {LF_FIELD(lf_resources, cpus)},
    {LF_FIELD(lf_resources, memory_bytes)},
    {LF_FIELD(lf_resources, time_limit_s)},
    {LF_FIELD(lf_resources, grace_s)},
    {RECORD(lf_resources, gpus, &gpus_fields)},
    {LF_FIELD(lf_resources, gpu_memory)},
    {LF_FIELD(lf_resources, partition)},
    {LF_FIELD(lf_resources, account)},
    {LF_FIELD(lf_resources, qos)},
    {LF_FIELD(lf_resources, constraint)},
    {LF_FIELD(lf_resources, reservation)},
    {LF_FIELD(lf_resources, mail)},
    {LF_FIELD(lf_resources, launcher)},
    {LF_FIELD(lf_resources, chain)},
    {LF_FIELD(lf_resources, exclusive)},
    {LF_FIELD(lf_resources, mail_type)},
    {LF_FIELD(lf_resources, modules)},
    {LF_FIELD(lf_resources, prologue)},
    {LF_FIELD(lf_resources, extra)},
    {LF_FIELD(lf_resources, rank_prefix)},
    {LF_FIELD(lf_resources, exclude)},
    {LF_FIELD(lf_resources, links)},
    {LF_FIELD(lf_resources, max_segments)},
    {LF_FIELD(lf_resources, max_walltime)},
    {LF_FIELD(lf_resources, stall_segments)},
    {LF_FIELD(lf_resources, retries)},
    {LF_FIELD(lf_resources, memory_max)},
    {LF_FIELD(lf_resources, time_max)},
};
const struct lf_fields lf_resources_fields =
    LF_FIELDS_KEPT(lf_resources, resources_rows, offsetof(lf_resources, given));

static const struct lf_field spec_rows[] = {
    {LF_FIELD(lf_spec, kind)},   {LF_FIELD(lf_spec, spec_version)}, {LF_FIELD(lf_spec, options)},
    {LF_FIELD(lf_spec, inputs)}, {LF_FIELD(lf_spec, model)},
};
const struct lf_fields lf_spec_fields =
    LF_FIELDS_KEPT(lf_spec, spec_rows, offsetof(lf_spec, given));

static const struct lf_field exe_rows[] = {
    {LF_FIELD(lf_doc_exe, path)},
    {LF_FIELD(lf_doc_exe, sha256)},
};
const struct lf_fields lf_exe_fields =
    LF_FIELDS_KEPT(lf_doc_exe, exe_rows, offsetof(lf_doc_exe, given));

static const struct lf_field adopted_rows[] = {
    {LF_FIELD(lf_adopted, run)},   {LF_FIELD(lf_adopted, stage)},   {LF_FIELD(lf_adopted, attempt)},
    {LF_FIELD(lf_adopted, epoch)}, {LF_FIELD(lf_adopted, spec_id)},
};
const struct lf_fields lf_adopted_fields =
    LF_FIELDS_KEPT(lf_adopted, adopted_rows, offsetof(lf_adopted, given));

static const struct lf_field bytes_rows[] = {
    {LF_FIELD(struct lf_cost_bytes, params)},    {LF_FIELD(struct lf_cost_bytes, grads)},
    {LF_FIELD(struct lf_cost_bytes, optimizer)}, {LF_FIELD(struct lf_cost_bytes, activations)},
    {LF_FIELD(struct lf_cost_bytes, workspace)}, {LF_FIELD(struct lf_cost_bytes, offloaded)},
    {LF_FIELD(struct lf_cost_bytes, host)},      {LF_FIELD(struct lf_cost_bytes, total)},
    {LF_FIELD(struct lf_cost_bytes, device)},
};
static const struct lf_fields bytes_fields =
    LF_FIELDS_KEPT(struct lf_cost_bytes, bytes_rows, offsetof(struct lf_cost_bytes, given));

static const struct lf_field comm_rows[] = {
    {LF_FIELD(struct lf_cost_comm, bytes_per_step)},
    {LF_FIELD(struct lf_cost_comm, messages_per_step)},
};
static const struct lf_fields comm_fields =
    LF_FIELDS_KEPT(struct lf_cost_comm, comm_rows, offsetof(struct lf_cost_comm, given));

static const struct lf_field cost_rows[] = {
    {LF_FIELD(lf_cost, parameters)},
    {LF_FIELD(lf_cost, steps)},
    {LF_FIELD(lf_cost, tokens)},
    {LF_FIELD(lf_cost, flops_per_step)},
    {LF_FIELD(lf_cost, disk_bytes)},
    {LF_FIELD(lf_cost, ranks)},
    {RECORD(lf_cost, bytes, &bytes_fields)},
    {RECORD(lf_cost, comm, &comm_fields)},
    {LF_FIELD(lf_cost, notes)},
};
const struct lf_fields lf_cost_fields =
    LF_FIELDS_KEPT(lf_cost, cost_rows, offsetof(lf_cost, given));

static const struct lf_field stage_rows[] = {
    {LF_FIELD(lf_doc_stage, name), NEEDED},
    {LF_FIELD(lf_doc_stage, kind), NEEDED},
    {LF_FIELD(lf_doc_stage, spec_version)},
    {LF_FIELD(lf_doc_stage, path)},
    {LF_FIELD(lf_doc_stage, line)},
    {LF_FIELD(lf_doc_stage, column)},
    {LF_FIELD(lf_doc_stage, options), NEEDED},
    {LF_FIELD(lf_doc_stage, types), NEEDED},
    {LF_FIELD(lf_doc_stage, identity), NEEDED},
    {LF_FIELD(lf_doc_stage, numeric), NEEDED},
    {LF_FIELD(lf_doc_stage, operational), NEEDED},
    {LF_FIELD(lf_doc_stage, renamed)},
    {LIST(lf_doc_stage, inputs, &lf_doc_input_fields), NEEDED},
    {LF_FIELD(lf_doc_stage, after)},
    {LF_FIELD(lf_doc_stage, deps), NEEDED},
    {LF_FIELD(lf_doc_stage, outputs), NEEDED},
    {LF_FIELD(lf_doc_stage, any_output)},
    {LIST(lf_doc_stage, carry, &carry_fields)},
    {LF_FIELD(lf_doc_stage, model)},
    {LF_FIELD(lf_doc_stage, time_limit_s)},
    {LF_FIELD(lf_doc_stage, memory_bytes)},
    {LF_FIELD(lf_doc_stage, grace_s)},
    {LF_FIELD(lf_doc_stage, rerun_on)},
    {RECORD(lf_doc_stage, resources, &lf_resources_fields)},
    {RECORD(lf_doc_stage, spec, &lf_spec_fields), NEEDED},
    {LF_FIELD(lf_doc_stage, spec_id), NEEDED},
    {RECORD(lf_doc_stage, exe, &lf_exe_fields)},
    {RECORD(lf_doc_stage, adopted, &lf_adopted_fields)},
    {RECORD(lf_doc_stage, plan, &lf_cost_fields)},
    {LF_FIELD(lf_doc_stage, estimate_s)},
};
const struct lf_fields lf_doc_stage_fields =
    LF_FIELDS_KEPT(lf_doc_stage, stage_rows, LF_FIELD_NONE);

static const struct lf_field site_rows[] = {
    {LF_FIELD(lf_site, poll_s)},        {LF_FIELD(lf_site, timeout_s)},
    {LF_FIELD(lf_site, grace_lost_s)},  {LF_FIELD(lf_site, settle_s)},
    {LF_FIELD(lf_site, submit_wait_s)}, {LF_FIELD(lf_site, commands)},
    {LF_FIELD(lf_site, chain)},         {LF_FIELD(lf_site, launcher)},
    {LF_FIELD(lf_site, templates)},     {LF_FIELD(lf_site, exclude)},
    {LF_FIELD(lf_site, trust)},
};
static const struct lf_fields site_fields =
    LF_FIELDS_KEPT(lf_site, site_rows, offsetof(lf_site, given));

static const struct lf_field doc_rows[] = {
    {LF_FIELD(lf_doc, lf_plan)},
    {LF_FIELD(lf_doc, run)},
    {LF_FIELD(lf_doc, project_id)},
    {LF_FIELD(lf_doc, user)},
    {LF_FIELD(lf_doc, host)},
    {LF_FIELD(lf_doc, version)},
    {LF_FIELD(lf_doc, rev)},
    {LF_FIELD(lf_doc, created)},
    {LF_FIELD(lf_doc, name), NEEDED},
    {LF_FIELD(lf_doc, description)},
    {LF_FIELD(lf_doc, data_dir), NEEDED},
    {LF_FIELD(lf_doc, scheduler)},
    {LF_FIELD(lf_doc, share)},
    {LF_FIELD(lf_doc, pipeline)},
    {LF_FIELD(lf_doc, jobs)},
    {LF_FIELD(lf_doc, isolated)},
    {RECORD(lf_doc, site, &site_fields)},
    {RECORD(lf_doc, loong_flow, &lf_exe_fields)},
    {LIST(lf_doc, stages, &lf_doc_stage_fields), NEEDED},
};
const struct lf_fields lf_doc_fields = LF_FIELDS_KEPT(lf_doc, doc_rows, LF_FIELD_NONE);

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
    static const char *const head[] = {"lf_plan", "run",  "rev",     "project_id", "created",
                                       "user",    "host", "version", "description"};
    static const char *const stage[] = {"path", "line", "column", "plan", "estimate_s"};
    json_t *o = lf_fields_json(d, &lf_doc_fields, NULL), *stages = json_object_get(o, "stages");
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        json_object_del(o, head[i]);
    for (size_t i = 0; i < json_array_size(stages); i++)
        for (size_t k = 0; k < sizeof stage / sizeof stage[0]; k++)
            json_object_del(json_array_get(stages, i), stage[k]);
    return o;
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
