/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-features: options, wiring, one call of the engine. Output: OUT/features.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/train/encode.h"
#include "stages/infer_common.h"
#include "stages/made_by.h"
#include "stages/opts.h"
#include "stages/stage.h"

struct features {
    const lf_optset *o;
    const char *out;
    const char **data, **earlier;
    size_t n_earlier;
    char **from; /* [n_earlier + 1] their artifacts, then that of out */
    struct lf_encode_opts run;
};

static void destroy(void *self)
{
    struct features *f = self;
    if (!f)
        return;
    for (size_t i = 0; f->from && i <= f->n_earlier; i++)
        free(f->from[i]);
    free(f->from);
    free(f->data);
    free(f->earlier);
    free(f);
}

static void say(int level, const char *text)
{
    lf_log(level, "%s", text);
}

/* Of the first rank, which begins it when the first picture is done. */
static lf_progress shown; /* the callback takes no pointer: a process runs one stage */

static void progress(double done, double total)
{
    if (shown.total <= 0)
        lf_progress_begin(&shown, "features", "pictures", 0, total);
    lf_progress_update(&shown, done);
}

static int read_paths(struct features *f, const lf_optset *o, lf_err *err)
{
    int rc = lf_infer_strings(&f->data, &f->run.n_data, o, "data", err);
    if (rc == 0)
        rc = lf_infer_strings(&f->earlier, &f->n_earlier, o, "resume_from", err);
    if (rc == 0 && !(f->from = lf_calloc(f->n_earlier + 1, sizeof *f->from, err)))
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && f->out && i <= f->n_earlier; i++)
        if (!(f->from[i] =
                  lf_path_join(i < f->n_earlier ? f->earlier[i] : f->out, "features", err)))
            rc = LF_ENOMEM;
    f->run.data = f->data;
    f->run.from = (const char *const *)f->from;
    f->run.n_from = f->n_earlier + 1;
    f->run.out = f->from ? f->from[f->n_earlier] : NULL;
    return rc;
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    struct features *f = lf_calloc(1, sizeof *f, err);
    if (!f)
        return LF_ENOMEM;
    *self = f;
    f->o = o;
    f->out = lf_optset_str(o, "out");
    f->run = (struct lf_encode_opts){.checkpoint = lf_optset_str(o, "checkpoint"),
                                     .averages = lf_optset_choice(o, "weights") == 1,
                                     .max_patches = lf_optset_int(o, "max_patches"),
                                     .max_tiles = lf_optset_int(o, "max_tiles"),
                                     .compute = lf_stage_precision(o),
                                     .numeric = lf_optset_choice(o, "numeric") == 1 ? LF_FAST
                                                                                    : LF_INVARIANT,
                                     .device = lf_stage_device(o),
                                     .threads = lf_stage_threads(o),
                                     .stop = lf_stop_requested,
                                     .log = say,
                                     .progress = progress};
    const int rc = read_paths(f, o, err);
    if (rc == 0 && !f->out && !lf_optset_bool(o, "plan"))
        return lf_fail(err, LF_EINVAL, "give --out, where the features go");
    return rc;
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct features *f = self;
    lf_err why = LF_ERR_INIT;
    json_t *p = NULL;
    int rc = lf_encode_plan(&p, &f->run, &why);
    if (rc == LF_ENOENT)
        return lf_infer_plan_note(out, "sizes follow from the checkpoint, which does not exist yet",
                                  err);
    if (rc != 0)
        return lf_fail(err, rc, "%s", why.text);
    rc = json_object_update_missing(out, p) == 0 ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(p);
    return rc;
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct features *f = self;
    const bool first = !comm || comm->rank == 0;
    bool done = false;
    int rc = first ? lf_made_already(&done, f->o, &lf_features_opts, f->out, "features", err) : 0;
    int64_t over = done;
    rc = lf_stage_agree(comm, rc, err);
    if (rc == 0 && comm)
        rc = lf_comm_agree_max(comm, &over, err);
    if (rc != 0 || over)
        return rc;
    shown = (lf_progress){0};
    rc = lf_encode_run(&f->run, comm, err);
    if (shown.total > 0)
        lf_progress_end(&shown);
    return rc;
}

int main(int argc, char **argv)
{
    const lf_stage stage = {.table = &lf_features_opts,
                            .setup = setup,
                            .plan = plan,
                            .run = run,
                            .destroy = destroy,
                            .ranks = true,
                            .continues = true};
    return lf_stage_main(&stage, argc, argv);
}
