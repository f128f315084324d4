/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-convert: options, wiring, calls of engine/convert. An import makes OUT/checkpoint and OUT/tokenizer.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/convert/convert.h"
#include "stages/opts.h"
#include "stages/stage.h"

typedef struct convert {
    struct lf_convert_opts c;
    const char *out;
    int to;
    lf_progress progress;
} convert;

enum { TO_AUTO = 0, TO_CHECKPOINT };

static void warn(void *arg, const char *text)
{
    (void)arg;
    lf_log(1, "%s", text);
}

static void destroy(void *self)
{
    free(self);
}

static int setup(void **self, const lf_optset *o, lf_err *err)
{
    convert *v = lf_calloc(1, sizeof *v, err);
    if (!v)
        return LF_ENOMEM;
    *self = v;
    v->out = lf_optset_str(o, "out");
    v->to = lf_optset_choice(o, "to");
    v->c = (struct lf_convert_opts){.from = lf_optset_str(o, "from"),
                                    .dtype = lf_optset_choice(o, "dtype"),
                                    .file_bytes = lf_optset_int(o, "max_file"),
                                    .threads = lf_stage_threads(o),
                                    .stop = lf_stop_requested,
                                    .warn = warn,
                                    .arg = v};
    return 0;
}

static int plan(void *self, json_t *plan, lf_err *err)
{
    convert *v = self;
    json_t *notes = json_pack("[s]", "memory is a few MiB per thread, whatever the size of the model");
    (void)v;
    return notes && json_object_set_new(plan, "notes", notes) == 0 ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
}

/* Is the artifact there and whole? */
static int is_done(bool *done, const char *dir, lf_err *err)
{
    enum lf_artifact_state s = LF_ARTIFACT_ABSENT;
    int rc = lf_artifact_state(&s, dir, err);
    *done = s == LF_ARTIFACT_PRESENT;
    return rc;
}

static int import_weights(convert *v, const char *dir, lf_err *err)
{
    struct lf_convert_result r;
    char text[32];
    bool done = false;
    int rc = is_done(&done, dir, err);
    if (rc || done)
        return rc;
    v->c.out = dir;
    double t0 = lf_now_s();
    rc = lf_convert_import(&v->c, &r, err);
    if (rc)
        return rc;
    lf_log(2, "%s: %lld tensors of family %s, %s in %.1f s", dir, (long long)r.tensors, r.family,
           lf_fmt_bytes(text, sizeof text, (double)r.bytes), lf_now_s() - t0);
    return 0;
}

static int import_tokenizer(const convert *v, const char *dir, lf_err *err)
{
    bool done = false, has = false;
    int rc = is_done(&done, dir, err);
    if (rc || done)
        return rc;
    rc = lf_convert_tokenizer(v->c.from, dir, &has, err);
    if (!rc && !has)
        lf_log(1, "%s holds no tokenizer", v->c.from);
    return rc;
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    convert *v = self;
    enum lf_convert_form form = LF_FORM_UNKNOWN;
    (void)comm;
    int rc = v->out ? lf_convert_form_of(&form, v->c.from, err)
                    : lf_fail(err, LF_EINVAL, "give --out DIR to write results below");
    if (!rc && form != LF_FORM_HF)
        rc = lf_fail(err, LF_EINVAL, "%s is not a Hugging Face model: %s", v->c.from,
                     form == LF_FORM_UNKNOWN ? "there is no config.json" : lf_convert_form_name(form));
    char *ckpt = rc ? NULL : lf_path_join(v->out, "checkpoint", err),
         *tok = rc ? NULL : lf_path_join(v->out, "tokenizer", err);
    if (!rc && (!ckpt || !tok))
        rc = LF_ENOMEM;
    if (!rc)
        rc = import_tokenizer(v, tok, err);
    if (!rc)
        rc = import_weights(v, ckpt, err);
    free(ckpt);
    free(tok);
    return rc;
}

int main(int argc, char **argv)
{
    static const lf_stage stage = {&lf_convert_opts, NULL, setup, plan, run, destroy, false};
    return lf_stage_main(&stage, argc, argv);
}
