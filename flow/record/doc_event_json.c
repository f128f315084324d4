/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a frozen document (db/event.h): one of the run, one of each stage.
 */
#include "config.h"

#include <jansson.h>
#include <stdlib.h>
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

/* A producer by name, or a file from outside by path and hash. */
struct event_input {
    char *name, *stage, *output, *path;
    const char *sha256;
};
static const struct lf_fields input_fields = LF_FIELDS_SHOWN(
    struct event_input, LF_MEMBERS(struct event_input, name, stage, output, path, sha256));

struct stage_event {
    const char *kind, *spec_id, *exe_sha256;
    int seq;
    lf_texts outputs, after;
    lf_pairs options; /* of all classes together */
    LF_ROWS(struct event_input) inputs;
    lf_int spec_version;
};
static const struct lf_fields stage_fields =
    LF_FIELDS_SHOWN(struct stage_event,
                    LF_MEMBERS(struct stage_event, kind, spec_id, exe_sha256, seq, outputs, after,
                               options, spec_version),
                    LF_LIST(struct stage_event, inputs, input_fields));

static int add_input(struct stage_event *e, const struct event_input *in, lf_err *err)
{
    struct event_input *row = lf_rows_add(&e->inputs, sizeof *row, err);
    if (row != NULL)
        *row = *in;
    return row != NULL ? 0 : LF_ENOMEM;
}

static int add_inputs(struct stage_event *e, const lf_doc_stage *st, const lf_doc_input *in,
                      lf_err *err)
{
    const lf_texts *hashes = lf_lists_get(&st->spec.inputs, in->option);
    const size_t at = (size_t)in->index.v;
    const char *hash = hashes != NULL && at < hashes->n ? hashes->v[at] : NULL;
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < in->refs.n; k++)
        rc = add_input(e,
                       &(struct event_input){.name = in->option,
                                             .stage = in->refs.v[k].stage,
                                             .output = in->refs.v[k].output},
                       err);
    if (in->refs.n > 0 || hash == NULL || !lf_str_has_prefix(hash, "sha256:"))
        return rc;
    return add_input(e,
                     &(struct event_input){
                         .name = in->option, .path = in->text, .sha256 = hash + strlen("sha256:")},
                     err);
}

int lf_stage_event_write(const char *dir, const char *run, int seq, const lf_doc_stage *st,
                         lf_err *err)
{
    const lf_pairs *const classes[] = {&st->identity, &st->numeric, &st->operational};
    struct stage_event e = {.kind = st->kind,
                            .spec_id = st->frozen_id,
                            .exe_sha256 = st->exe.sha256,
                            .seq = seq,
                            .outputs = st->outputs,
                            .after = st->deps,
                            .options = {.given = true},
                            .inputs = {.given = true},
                            .spec_version = st->spec_version};
    int rc = 0;
    e.outputs.given = e.after.given = true;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; rc == 0 && i < classes[k]->n; i++)
            rc = lf_pairs_set(&e.options, classes[k]->v[i].name, classes[k]->v[i].value, err);
    for (size_t i = 0; rc == 0 && i < st->inputs.n; i++)
        rc = add_inputs(&e, st, &st->inputs.v[i], err);
    if (rc == 0)
        rc = lf_record_event(&(lf_origin){.dir = dir, .run = run, .stage = st->name}, "stage",
                             lf_fields_json(&e, &stage_fields, err), err);
    lf_pairs_fini(&e.options);
    free(e.inputs.v);
    return rc;
}
