/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a frozen document (db/event.h): one of the run, one of each stage.
 */
#include "config.h"

#include <jansson.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/record/doc.h"
#include "flow/record/parts.h"

int lf_run_event_write(const char *run_dir, const char *run, const lf_run_event *e, lf_err *err)
{
    json_t *d = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", e->name, "project",
                          e->project, "config_sha256", e->config_sha256, "config_text",
                          e->config_text, "user", e->user, "host", e->host, "version", e->version);
    return lf_record_event(&(lf_origin){.dir = run_dir, .run = run}, "run", d, err);
}

static int add_producers(json_t *out, const lf_doc_input *in, lf_err *err)
{
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < in->refs.n; k++)
        rc = lf_json_push_new(out,
                              json_pack("{s:s, s:s, s:s}", "name", in->option, "stage",
                                        in->refs.v[k].stage, "output", in->refs.v[k].output),
                              err);
    return rc;
}

/* Producers by name, outside files by path and hash. */
static int add_input(json_t *out, const lf_doc_stage *st, const lf_doc_input *in, lf_err *err)
{
    const lf_texts *hashes = lf_lists_get(&st->spec.inputs, in->option);
    const size_t at = (size_t)in->index.v;
    const char *hash = hashes != NULL && at < hashes->n ? hashes->v[at] : NULL;
    if (in->refs.n > 0)
        return add_producers(out, in, err);
    if (hash == NULL || !lf_str_has_prefix(hash, "sha256:"))
        return 0;
    return lf_json_push_new(out,
                            json_pack("{s:s, s:s, s:s}", "name", in->option, "path", in->text,
                                      "sha256", hash + strlen("sha256:")),
                            err);
}

/* Options of all classes together. */
static int add_options(json_t *out, const lf_doc_stage *st, lf_err *err)
{
    const lf_pairs *const classes[] = {&st->identity, &st->numeric, &st->operational};
    int rc = 0;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; rc == 0 && i < classes[k]->n; i++)
            rc = lf_json_set_new(out, classes[k]->v[i].name, json_string(classes[k]->v[i].value),
                                 err);
    return rc;
}

static int add_names(json_t *out, const lf_texts *names, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < names->n; i++)
        rc = lf_json_push_new(out, json_string(names->v[i]), err);
    return rc;
}

int lf_stage_event_write(const char *dir, const char *run, int seq, const lf_doc_stage *st,
                         lf_err *err)
{
    json_t *outputs = json_array(), *options = json_object(), *inputs = json_array(),
           *after = json_array();
    int rc = outputs == NULL || options == NULL || inputs == NULL || after == NULL
                 ? lf_fail(err, LF_ENOMEM, "out of memory")
                 : 0;
    if (rc == 0)
        rc = add_names(outputs, &st->outputs, err);
    if (rc == 0)
        rc = add_options(options, st, err);
    for (size_t i = 0; rc == 0 && i < st->inputs.n; i++)
        rc = add_input(inputs, st, &st->inputs.v[i], err);
    if (rc == 0)
        rc = add_names(after, &st->deps, err);
    json_t *d =
        rc == 0 ? json_pack("{s:s, s:i, s:s, s:O, s:O, s:O, s:O, s:s*}", "kind", st->kind, "seq",
                            seq, "spec_id", st->spec_id, "outputs", outputs, "options", options,
                            "inputs", inputs, "after", after, "exe_sha256", st->exe.sha256)
                : NULL;
    if (d != NULL && st->spec_version.given)
        rc = lf_json_set_new(d, "spec_version", json_integer(st->spec_version.v), err);
    json_decref(outputs);
    json_decref(options);
    json_decref(inputs);
    json_decref(after);
    if (rc < 0) {
        json_decref(d);
        return rc;
    }
    return lf_record_event(&(lf_origin){.dir = dir, .run = run, .stage = st->name}, "stage", d,
                           err);
}
