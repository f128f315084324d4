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
#include "flow/record/record.h"

#define PLAN_MAX_BYTES ((size_t)16 << 20)

/* A row of a form: the member `m` of JSON is the field `m` of the struct. The type of the field is
 * checked: a text is a char *, and so on. */
#define CHECKED(S, m, T) (offsetof(S, m) + 0 * sizeof((T *)0 == &((S *)0)->m))
#define TEXT(S, m)       .name = #m, .type = LF_FORM_TEXT, .at = CHECKED(S, m, char *)
#define INT(S, m)        .name = #m, .type = LF_FORM_INT, .at = CHECKED(S, m, lf_int)
#define REAL(S, m)       .name = #m, .type = LF_FORM_REAL, .at = CHECKED(S, m, lf_real)
#define FLAG(S, m)       .name = #m, .type = LF_FORM_FLAG, .at = CHECKED(S, m, lf_flag)
#define TEXTS(S, m)      .name = #m, .type = LF_FORM_TEXTS, .at = CHECKED(S, m, lf_texts)
#define PAIRS(S, m)      .name = #m, .type = LF_FORM_PAIRS, .at = CHECKED(S, m, lf_pairs)
#define LISTS(S, m)      .name = #m, .type = LF_FORM_LISTS, .at = CHECKED(S, m, lf_lists)
#define OBJECT(S, m, f)  .name = #m, .type = LF_FORM_OBJECT, .at = offsetof(S, m), .form = (f)
#define OBJECTS(S, m, f) .name = #m, .type = LF_FORM_OBJECTS, .at = offsetof(S, m), .form = (f)
#define NEEDED           .needed = true

#define FORM(S, rows, given_at)                                                                    \
    {                                                                                              \
        .fields = (rows), .n = sizeof(rows) / sizeof((rows)[0]), .size = sizeof(S),                \
        .given = (given_at), .more = CHECKED(S, more, json_t *)                                    \
    }

static const lf_form_field ref_fields[] = {
    {TEXT(lf_doc_ref, stage)},
    {TEXT(lf_doc_ref, output)},
};
static const lf_form ref_form = FORM(lf_doc_ref, ref_fields, LF_FORM_NONE);

static const lf_form_field input_fields[] = {
    {TEXT(lf_doc_input, option), NEEDED}, {INT(lf_doc_input, index)},
    {TEXT(lf_doc_input, text), NEEDED},   {OBJECTS(lf_doc_input, refs, &ref_form), NEEDED},
    {FLAG(lf_doc_input, identity)},       {FLAG(lf_doc_input, word)},
};
static const lf_form input_form = FORM(lf_doc_input, input_fields, LF_FORM_NONE);

static const lf_form_field carry_fields[] = {
    {TEXT(lf_doc_carry, pattern), NEEDED},
    {FLAG(lf_doc_carry, grows)},
};
static const lf_form carry_form = {.fields = carry_fields,
                                   .n = 2,
                                   .size = sizeof(lf_doc_carry),
                                   .given = LF_FORM_NONE,
                                   .more = LF_FORM_NONE,
                                   .list = true};

static const lf_form_field gpus_fields[] = {
    {INT(struct lf_gpus, n)},
    {TEXT(struct lf_gpus, type)},
};
static const lf_form gpus_form = FORM(struct lf_gpus, gpus_fields, offsetof(struct lf_gpus, given));

static const lf_form_field resources_fields[] = {
    {INT(lf_resources, nodes)},
    {INT(lf_resources, ranks)},
    {INT(lf_resources, cpus)},
    {INT(lf_resources, memory_bytes)},
    {INT(lf_resources, time_limit_s)},
    {INT(lf_resources, grace_s)},
    {OBJECT(lf_resources, gpus, &gpus_form)},
    {INT(lf_resources, gpu_memory)},
    {TEXT(lf_resources, partition)},
    {TEXT(lf_resources, account)},
    {TEXT(lf_resources, qos)},
    {TEXT(lf_resources, constraint)},
    {TEXT(lf_resources, reservation)},
    {TEXT(lf_resources, mail)},
    {TEXT(lf_resources, launcher)},
    {TEXT(lf_resources, chain)},
    {FLAG(lf_resources, exclusive)},
    {TEXTS(lf_resources, mail_type)},
    {TEXTS(lf_resources, modules)},
    {TEXTS(lf_resources, prologue)},
    {TEXTS(lf_resources, extra)},
    {TEXTS(lf_resources, rank_prefix)},
    {TEXTS(lf_resources, exclude)},
    {INT(lf_resources, links)},
    {INT(lf_resources, max_segments)},
    {INT(lf_resources, max_walltime)},
    {INT(lf_resources, stall_segments)},
    {INT(lf_resources, retries)},
    {INT(lf_resources, memory_max)},
    {INT(lf_resources, time_max)},
};
static const lf_form resources_form =
    FORM(lf_resources, resources_fields, offsetof(lf_resources, given));

static const lf_form_field spec_fields[] = {
    {TEXT(lf_spec, kind)},    {INT(lf_spec, spec_version)}, {PAIRS(lf_spec, options)},
    {LISTS(lf_spec, inputs)}, {PAIRS(lf_spec, model)},
};
static const lf_form spec_form = FORM(lf_spec, spec_fields, offsetof(lf_spec, given));

static const lf_form_field exe_fields[] = {
    {TEXT(lf_doc_exe, path)},
    {TEXT(lf_doc_exe, sha256)},
};
static const lf_form exe_form = FORM(lf_doc_exe, exe_fields, offsetof(lf_doc_exe, given));

static const lf_form_field adopted_fields[] = {
    {TEXT(lf_adopted, run)},  {TEXT(lf_adopted, stage)},   {INT(lf_adopted, attempt)},
    {INT(lf_adopted, epoch)}, {TEXT(lf_adopted, spec_id)},
};
static const lf_form adopted_form = FORM(lf_adopted, adopted_fields, offsetof(lf_adopted, given));

static const lf_form_field bytes_fields[] = {
    {REAL(struct lf_cost_bytes, total)},
    {REAL(struct lf_cost_bytes, device)},
};
static const lf_form bytes_form =
    FORM(struct lf_cost_bytes, bytes_fields, offsetof(struct lf_cost_bytes, given));

static const lf_form_field cost_fields[] = {
    {REAL(lf_cost, steps)},
    {REAL(lf_cost, flops_per_step)},
    {REAL(lf_cost, disk_bytes)},
    {OBJECT(lf_cost, bytes, &bytes_form)},
};
static const lf_form cost_form = FORM(lf_cost, cost_fields, offsetof(lf_cost, given));

static const lf_form_field stage_fields[] = {
    {TEXT(lf_doc_stage, name), NEEDED},
    {TEXT(lf_doc_stage, kind), NEEDED},
    {INT(lf_doc_stage, spec_version)},
    {TEXT(lf_doc_stage, path)},
    {INT(lf_doc_stage, line)},
    {INT(lf_doc_stage, column)},
    {LISTS(lf_doc_stage, options), NEEDED},
    {PAIRS(lf_doc_stage, types), NEEDED},
    {PAIRS(lf_doc_stage, identity), NEEDED},
    {PAIRS(lf_doc_stage, numeric), NEEDED},
    {PAIRS(lf_doc_stage, operational), NEEDED},
    {PAIRS(lf_doc_stage, renamed)},
    {OBJECTS(lf_doc_stage, inputs, &input_form), NEEDED},
    {TEXTS(lf_doc_stage, after)},
    {TEXTS(lf_doc_stage, deps), NEEDED},
    {TEXTS(lf_doc_stage, outputs), NEEDED},
    {FLAG(lf_doc_stage, any_output)},
    {OBJECTS(lf_doc_stage, carry, &carry_form)},
    {PAIRS(lf_doc_stage, model)},
    {INT(lf_doc_stage, time_limit_s)},
    {INT(lf_doc_stage, memory_bytes)},
    {INT(lf_doc_stage, grace_s)},
    {TEXT(lf_doc_stage, rerun_on)},
    {OBJECT(lf_doc_stage, resources, &resources_form)},
    {OBJECT(lf_doc_stage, spec, &spec_form), NEEDED},
    {TEXT(lf_doc_stage, spec_id), NEEDED},
    {OBJECT(lf_doc_stage, exe, &exe_form)},
    {OBJECT(lf_doc_stage, adopted, &adopted_form)},
    {OBJECT(lf_doc_stage, plan, &cost_form)},
    {REAL(lf_doc_stage, estimate_s)},
};
static const lf_form stage_form = FORM(lf_doc_stage, stage_fields, LF_FORM_NONE);

static const lf_form_field site_fields[] = {
    {INT(lf_site, poll_s)},    {INT(lf_site, timeout_s)},     {INT(lf_site, grace_lost_s)},
    {INT(lf_site, settle_s)},  {INT(lf_site, submit_wait_s)}, {PAIRS(lf_site, commands)},
    {TEXT(lf_site, chain)},    {TEXT(lf_site, launcher)},     {TEXT(lf_site, templates)},
    {TEXTS(lf_site, exclude)}, {TEXTS(lf_site, trust)},
};
static const lf_form site_form = FORM(lf_site, site_fields, offsetof(lf_site, given));

static const lf_form_field doc_fields[] = {
    {INT(lf_doc, lf_plan)},
    {TEXT(lf_doc, run)},
    {TEXT(lf_doc, project_id)},
    {TEXT(lf_doc, user)},
    {TEXT(lf_doc, host)},
    {TEXT(lf_doc, version)},
    {INT(lf_doc, rev)},
    {REAL(lf_doc, created)},
    {TEXT(lf_doc, name), NEEDED},
    {TEXT(lf_doc, description)},
    {TEXT(lf_doc, data_dir), NEEDED},
    {TEXT(lf_doc, scheduler)},
    {TEXT(lf_doc, share)},
    {TEXT(lf_doc, pipeline)},
    {INT(lf_doc, jobs)},
    {FLAG(lf_doc, isolated)},
    {OBJECT(lf_doc, site, &site_form)},
    {OBJECT(lf_doc, loong_flow, &exe_form)},
    {OBJECTS(lf_doc, stages, &stage_form), NEEDED},
};
static const lf_form doc_form = FORM(lf_doc, doc_fields, LF_FORM_NONE);

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
    lf_form_fini(d, &doc_form);
    free(d);
}

static int read_doc(lf_doc **out, json_t *o, const char *what, lf_err *err)
{
    lf_doc *d = lf_doc_new(err);
    int rc = d == NULL ? LF_ENOMEM : lf_form_read(d, &doc_form, o, what, err);
    if (rc < 0) { /* what was read is freed, and the holder with it */
        free(d);
        return rc;
    }
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
    json_t *o = lf_doc_json(d, err);
    int rc = o == NULL ? LF_ENOMEM : lf_record_publish(dir, "plan.json", o, err);
    json_decref(o);
    return rc;
}

lf_doc *lf_doc_copy(const lf_doc *d, lf_err *err)
{
    lf_doc *copy = NULL;
    json_t *o = lf_doc_json(d, err);
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
    json_t *o = lf_doc_json(d, NULL), *stages = json_object_get(o, "stages");
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
    memset(out, 0, sizeof *out);
    return lf_form_copy(out, from, &resources_form, err);
}

bool lf_resources_same(const lf_resources *a, const lf_resources *b)
{
    json_t *x = lf_form_json(a, &resources_form, NULL), *y = lf_form_json(b, &resources_form, NULL);
    bool same = x != NULL && y != NULL && json_equal(x, y) == 1;
    json_decref(x);
    json_decref(y);
    return same;
}

void lf_resources_fini(lf_resources *r)
{
    lf_form_fini(r, &resources_form);
}

int lf_spec_copy(lf_spec *out, const lf_spec *from, lf_err *err)
{
    memset(out, 0, sizeof *out);
    return lf_form_copy(out, from, &spec_form, err);
}

void lf_spec_fini(lf_spec *s)
{
    lf_form_fini(s, &spec_form);
}

int lf_cost_parse(lf_cost *out, const char *text, size_t len, const char *what, lf_err *err)
{
    memset(out, 0, sizeof *out);
    json_t *o = lf_json_load_text(text, len, what, err);
    if (o == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    int rc = lf_form_read(out, &cost_form, o, what, err);
    json_decref(o);
    return rc;
}

int lf_cost_copy(lf_cost *out, const lf_cost *from, lf_err *err)
{
    memset(out, 0, sizeof *out);
    return lf_form_copy(out, from, &cost_form, err);
}

void lf_cost_fini(lf_cost *c)
{
    lf_form_fini(c, &cost_form);
}

int lf_adopted_copy(lf_adopted *out, const lf_adopted *from, lf_err *err)
{
    memset(out, 0, sizeof *out);
    return lf_form_copy(out, from, &adopted_form, err);
}

void lf_adopted_fini(lf_adopted *a)
{
    lf_form_fini(a, &adopted_form);
}

void lf_site_fini(lf_site *s)
{
    lf_form_fini(s, &site_form);
}

char *lf_spec_text(const lf_spec *s, lf_err *err)
{
    json_t *o = lf_spec_json(s, err);
    char *text = o != NULL ? lf_json_dump(o, err) : NULL;
    json_decref(o);
    return text;
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

json_t *lf_doc_json(const lf_doc *d, lf_err *err)
{
    return lf_form_json(d, &doc_form, err);
}

json_t *lf_doc_stage_json(const lf_doc_stage *s, lf_err *err)
{
    return lf_form_json(s, &stage_form, err);
}

json_t *lf_cost_json(const lf_cost *c, lf_err *err)
{
    return lf_form_json(c, &cost_form, err);
}

json_t *lf_adopted_json(const lf_adopted *a, lf_err *err)
{
    return lf_form_json(a, &adopted_form, err);
}

json_t *lf_resources_json(const lf_resources *r, lf_err *err)
{
    return lf_form_json(r, &resources_form, err);
}

json_t *lf_spec_json(const lf_spec *s, lf_err *err)
{
    return lf_form_json(s, &spec_form, err);
}

int lf_resources_read(lf_resources *out, json_t *o, const char *what, lf_err *err)
{
    return json_is_object(o) ? lf_form_read(out, &resources_form, o, what, err) : 0;
}

int lf_spec_read(lf_spec *out, json_t *o, const char *what, lf_err *err)
{
    return json_is_object(o) ? lf_form_read(out, &spec_form, o, what, err) : 0;
}
