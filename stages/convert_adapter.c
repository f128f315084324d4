/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-convert on adapters: see convert_adapter.h. */
#include "stages/convert_adapter.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/sys.h"
#include "engine/model/merge.h"
#include "stages/made_by.h"
#include "stages/opts.h"
#include "stages/stage.h"

#define PROBE_TOKENS 64
/* of the largest logit; bf16 rounds every weight, so there the number is told and not judged */
#define PROBE_F32 1e-5

int lf_convert_is_adapter(bool *yes, const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, "state.json", err);
    json_t *state = path ? lf_json_load_file(path, (size_t)64 << 20, err) : NULL;
    *yes = json_is_object(json_object_get(state, "adapter"));
    json_decref(state);
    free(path);
    return state ? 0 : err && err->rc ? err->rc : LF_EFORMAT;
}

static int need_base(const struct convert_adapter *v, lf_err *err)
{
    return v->base
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "%s is an adapter: give base = the checkpoint of the weights it is for",
                         v->from);
}

/* The place of an artifact, and whether it is there already. */
static int place(char **dir, bool *done, const struct convert_adapter *v, const char *name,
                 lf_err *err)
{
    *dir = lf_path_join(v->out, name, err);
    int rc = *dir ? lf_io_mkdirs(v->out, 0777, err) : LF_ENOMEM;
    return rc < 0 ? rc : lf_made_already(done, v->o, &lf_convert_opts, v->out, name, err);
}

static void report(const char *dir, const struct lf_convert_result *r)
{
    char size[32];
    lf_log(2, "%s: %lld tensors, family %s, %s", dir, (long long)r->tensors, r->family,
           lf_fmt_bytes(size, sizeof size, (double)r->bytes));
}

static int files(const struct convert_adapter *v, const char *name, lf_err *err,
                 int (*make)(const struct lf_peft_opts *o, struct lf_convert_result *res,
                             lf_err *err))
{
    struct lf_convert_result r;
    char *dir = NULL;
    bool done = false;
    int rc = place(&dir, &done, v, name, err);
    if (rc == 0 && !done) {
        const struct lf_peft_opts o = {
            .from = v->from, .out = dir, .base = v->base, .threads = v->threads};
        rc = make(&o, &r, err);
        if (rc == 0)
            report(dir, &r);
    }
    free(dir);
    return rc;
}

int lf_convert_adapter_import(const struct convert_adapter *v, lf_err *err)
{
    int rc = need_base(v, err);
    return rc != 0 ? rc : files(v, "adapter", err, lf_peft_import);
}

int lf_convert_adapter_export(const struct convert_adapter *v, lf_err *err)
{
    return files(v, "peft", err, lf_peft_export);
}

static int compare(const struct convert_adapter *v, const char *dir, lf_err *err)
{
    double d = 0;
    int rc = lf_adapter_probe(v->base, v->from, dir, PROBE_TOKENS, v->threads, &d, err);
    if (rc != 0)
        return rc;
    const bool good = v->bf16 || d <= PROBE_F32;
    printf(
        "%s: logits of the merged model and of base with adapter differ by %.3g of the largest%s\n",
        good ? "MERGED" : "DIFFERENT", d, v->bf16 ? " (bf16)" : "");
    if (fflush(stdout) != 0)
        return lf_fail_errno(err, "writing to standard output");
    if (good)
        return 0;
    rc = lf_artifact_remove(dir, err);
    return rc != 0
               ? rc
               : lf_fail(err, LF_ENUMERIC,
                         "the merged model is not what it was made of: logits differ by %.3g", d);
}

int lf_convert_adapter_merge(const struct convert_adapter *v, lf_err *err)
{
    char *dir = NULL;
    bool done = false;
    int rc = need_base(v, err);
    if (rc == 0)
        rc = place(&dir, &done, v, "checkpoint", err);
    if (rc == 0 && !done) {
        const struct lf_merge_opts o = {.base = v->base,
                                        .adapter = v->from,
                                        .out = dir,
                                        .bf16 = v->bf16,
                                        .threads = v->threads};
        rc = lf_adapter_merge(&o, NULL, err);
        if (rc == 0)
            rc = compare(v, dir, err);
    }
    free(dir);
    return rc;
}
