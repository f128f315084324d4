/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the inference stages; see infer_common.h.
 */
#include "stages/infer_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/infer/genconfig.h"
#include "engine/model/same_tokenizer.h"
#include "stages/adapter_in.h"
#include "stages/stage.h"

int lf_infer_strings(const char ***out, size_t *n, const lf_optset *o, const char *name,
                     lf_err *err)
{
    size_t count = lf_optset_count(o, name);
    const char **v = lf_calloc(count + 1, sizeof *v, err);
    if (!v)
        return LF_ENOMEM;
    for (size_t i = 0; i < count; i++)
        v[i] = lf_optset_str_at(o, name, i);
    *out = v;
    *n = count;
    return 0;
}

int lf_infer_tokenizer(lf_tokenizer **out, const char *path, lf_err *err)
{
    lf_tokenizer *t = lf_tokenizer_load(path, err);
    if (!t)
        return err && err->rc ? err->rc : LF_EFORMAT;
    *out = t;
    return 0;
}

int lf_infer_same_tokenizer(const char *checkpoint, const char *adapter, const lf_tokenizer *t,
                            const char *path, lf_err *err)
{
    int rc = lf_same_tokenizer(checkpoint, lf_tokenizer_sha256(t), path, err);
    return rc != 0 ? rc : lf_same_tokenizer(adapter, lf_tokenizer_sha256(t), path, err);
}

/* Is a processor's file beside the tokenizer? */
static bool beside_tokenizer(const char *dir)
{
    static const char *const names[] = {"preprocessor_config.json", "processor_config.json"};
    bool there = false;
    for (size_t i = 0; dir && i < sizeof names / sizeof *names; i++) {
        char *path = lf_path_join(dir, names[i], NULL);
        there = there || (path && lf_io_exists(path));
        free(path);
    }
    return there;
}

int lf_infer_eyes(lf_gen_eyes *out, bool *have, const char *processor, const char *tokenizer_path,
                  const lf_model_config *model, lf_err *err)
{
    if (!processor && !(model->vision.family && beside_tokenizer(tokenizer_path)))
        return 0;
    const int rc =
        lf_gen_eyes_load(out, processor ? processor : tokenizer_path, tokenizer_path, model, err);
    *have = rc == 0;
    return rc;
}

/* End tokens of generation_config.json. */
static int configured_end(int32_t *v, size_t *n, const lf_tokenizer *t, const char *dir,
                          lf_err *err)
{
    lf_gen_config c;
    int rc = lf_gen_config_read(&c, dir, false, err);
    for (size_t i = 0; i < c.n_eos && rc == 0; i++) {
        if (c.eos[i] >= (int64_t)lf_tokenizer_vocab_size(t))
            rc = lf_fail(err, LF_EFORMAT,
                         "%s/generation_config.json: eos_token_id is no token of the tokenizer",
                         dir);
        else
            v[(*n)++] = c.eos[i];
    }
    return rc;
}

int lf_infer_end_tokens(int32_t **out, size_t *n, const lf_tokenizer *t, const char *tokenizer_path,
                        const char *const *names, size_t n_names, lf_err *err)
{
    int32_t *v = lf_calloc(n_names + LF_GEN_CONFIG_MAX_EOS, sizeof *v, err);
    size_t count = 0;
    if (!v)
        return LF_ENOMEM;
    int rc =
        n_names == 0 && t && tokenizer_path ? configured_end(v, &count, t, tokenizer_path, err) : 0;
    if (rc != 0) {
        free(v);
        return rc;
    }
    for (size_t i = 0; i < n_names; i++) {
        int64_t id = t ? lf_tokenizer_find(t, names[i]) : -1;
        if (id < 0) {
            free(v);
            return lf_fail(err, LF_EINVAL, "eos: %s '%s'",
                           t ? "the tokenizer has no token" : "no tokenizer is given to find",
                           names[i]);
        }
        v[count++] = (int32_t)id;
    }
    if (n_names == 0 && count == 0 && t && lf_tokenizer_eos(t) >= 0)
        v[count++] = (int32_t)lf_tokenizer_eos(t);
    *out = v;
    *n = count;
    return 0;
}

int lf_infer_adapter(char **dir, lf_comm *comm, const char **adapter, const char *checkpoint,
                     const char *out, int threads, lf_err *err)
{
    int rc = *adapter ? lf_adapter_in(dir, comm, *adapter, checkpoint, out, threads, err) : 0;
    if (rc == 0 && *adapter)
        *adapter = *dir;
    return rc;
}

/* LF_ENOENT: not there yet, or its settings are known when it has been read in. */
static int adapter_there(const char *adapter, lf_err *err)
{
    struct lf_adapter_config ac;
    return !adapter                         ? 0
           : lf_adapter_in_is_peft(adapter) ? LF_ENOENT
                                            : lf_adapter_config_of(&ac, adapter, err);
}

int lf_infer_plan_config(lf_model_config *c, const char **missing, const char *checkpoint,
                         const char *adapter, bool classes, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    *missing = "sizes follow from the checkpoint, which does not exist yet";
    int rc = lf_runner_description(c, checkpoint, &e);
    if (rc == 0 && !(classes && (lf_model_classifies(c) || lf_model_is_dual(c))))
        rc = lf_model_need_text(c, &e);
    if (rc == 0) {
        *missing = "sizes follow from the adapter, which does not exist yet or is read in when the "
                   "run begins";
        rc = adapter_there(adapter, &e);
    }
    if (rc == 0)
        *missing = NULL;
    return rc == LF_ENOENT || rc == 0 ? 0 : lf_fail(err, rc, "%s", e.text);
}

int lf_infer_plan_note(json_t *out, const char *missing, lf_err *err)
{
    json_t *notes = json_pack("[s]", missing);
    return notes && json_object_set_new(out, "notes", notes) == 0
               ? 0
               : lf_fail(err, LF_ENOMEM, "out of memory");
}

int lf_infer_plan_unseen(json_t *out, const char *what, lf_err *err)
{
    char note[160];
    snprintf(
        note, sizeof note,
        "what pictures need follows from %s that are not all there yet: the bytes are those of "
        "texts",
        what);
    return lf_infer_plan_note(out, note, err);
}

bool lf_infer_there(const char *const *path, size_t n)
{
    bool all = true;
    for (size_t i = 0; i < n && all; i++)
        all = !path[i] || lf_io_exists(path[i]);
    return all;
}

int lf_infer_plan(json_t *out, const char *checkpoint, const struct lf_runner_opts *o, lf_err *err)
{
    lf_model_config c;
    const char *missing = NULL;
    int rc = lf_infer_plan_config(&c, &missing, checkpoint, o->adapter, false, err);
    if (rc != 0 || missing)
        return rc != 0 ? rc : lf_infer_plan_note(out, missing, err);
    json_t *p = lf_runner_plan(&c, o, err);
    if (!p)
        return err && err->rc ? err->rc : LF_EINVAL;
    rc = json_object_update_missing(out, p) == 0 ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(p);
    return rc;
}

static int lines_of(lf_lines **out, const char *artifact, const struct lf_lines_place *at,
                    size_t *n_kept, lf_err *err)
{
    int rc = 0;
    struct lf_lines_place below = *at;
    char **dirs = lf_calloc(at->n_from + 1, sizeof *dirs, err);
    if (!dirs)
        return LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < at->n_from; i++)
        if (!(dirs[i] = lf_path_join(at->from[i], artifact, err)))
            rc = LF_ENOMEM;
    below.from = (const char *const *)dirs;
    if (rc == 0)
        rc = lf_lines_open(out, &below, n_kept, err);
    for (size_t i = 0; i < at->n_from; i++)
        free(dirs[i]);
    free(dirs);
    return rc;
}

static bool first(const lf_comm *comm)
{
    return !comm || comm->rank == 0;
}

void lf_infer_tell_memory(const lf_comm *comm, const struct lf_plan_memory *m)
{
    char size[32];
    if (!first(comm))
        return;
    lf_log(2, "planned memory %s", lf_fmt_bytes(size, sizeof size, m->total));
    if (m->device > 0)
        lf_log(2, "planned GPU memory %s", lf_fmt_bytes(size, sizeof size, m->device));
}

int lf_infer_done(lf_comm *comm, const char *dir, bool *done, lf_err *err)
{
    enum lf_artifact_state state = LF_ARTIFACT_ABSENT;
    int rc = lf_stage_agree(comm, first(comm) ? lf_artifact_state(&state, dir, err) : 0, err);
    int64_t v = state == LF_ARTIFACT_PRESENT;
    if (rc == 0 && comm)
        rc = lf_comm_agree_max(comm, &v, err);
    *done = v != 0;
    return rc;
}

int lf_infer_lines(lf_comm *comm, lf_lines **out, const char *artifact,
                   const struct lf_lines_place *at, size_t *n_kept, lf_err *err)
{
    size_t kept = 0;
    int rc = first(comm) ? lines_of(out, artifact, at, &kept, err) : 0;
    rc = lf_stage_agree(comm, rc, err);
    int64_t v = (int64_t)kept;
    if (rc == 0 && comm)
        rc = lf_comm_agree_max(comm, &v, err);
    *n_kept = (size_t)v;
    return rc;
}

int lf_infer_gather(lf_comm *comm, lf_buf *text, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    if (!comm)
        return 0;
    int rc = lf_comm_gather_blobs(comm, text->data, text->len, &all, err);
    if (rc != 0)
        return rc;
    lf_buf_clear(text);
    if (comm->rank == 0)
        lf_buf_add(text, all.data, all.offset[comm->size]);
    lf_comm_blobs_fini(&all);
    return lf_buf_check(text, err);
}
