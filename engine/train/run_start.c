/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a run begins: the newest good checkpoint of this start and of those before it, whether it
 * is of this run, and whether what follows can be the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/train/laid.h"
#include "engine/train/run.h"

/* ---- damaged ones ---- */

/* The fence is not looked at: a superseded start moves only what is below its own out and is
 * damaged, which nobody could go on from. What a newer start has taken of it has its own names. */
int lf_run_set_aside(const lf_run *r, const char *dir, bool *moved, lf_err *err)
{
    const size_t n = strlen(r->c.out);
    const bool own = strncmp(dir, r->c.out, n) == 0 && dir[n] == '/';
    if (moved)
        *moved = own;
    if (!own)
        return 0;
    lf_buf to;
    lf_buf_init(&to);
    int rc = 0;
    for (int i = 1; i == 1 || (rc == 0 && lf_io_exists(to.data)); i++) {
        lf_buf_clear(&to);
        lf_buf_addf(&to, i == 1 ? "%s.broken" : "%s.broken-%d", dir, i);
        rc = lf_buf_check(&to, err);
    }
    if (rc == 0 && rename(dir, to.data) != 0)
        rc = lf_fail_errno(err, "setting aside the damaged %s", dir);
    lf_buf_fini(&to);
    return rc;
}

/* For the reports of lf_ckpt_find_newest. */
struct reports {
    const lf_run *r;
    lf_err err; /* the first failure of setting one aside */
};

static int pass_over(const lf_run *r, const char *dir, const char *text, bool *moved, lf_err *err)
{
    lf_run_log(r, 1, "passing over %s: %s", dir, text);
    return lf_run_set_aside(r, dir, moved, err);
}

static void report(void *user, const char *dir, const char *text)
{
    struct reports *s = user;
    lf_err why = LF_ERR_INIT;
    if (pass_over(s->r, dir, text, NULL, &why) != 0 && !s->err.rc)
        s->err = why;
}

/* out and the resume_from directories, oldest first; *dirs is owned. */
static int all_outs(const lf_run *r, const char ***dirs, lf_err *err)
{
    const size_t n = r->c.n_resume_from;
    *dirs = lf_calloc(n + 1, sizeof(**dirs), err);
    if (!*dirs)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        (*dirs)[i] = r->c.resume_from[i];
        if (!lf_io_exists((*dirs)[i]))
            return lf_fail(err, LF_ENOENT, "resume_from = %s does not exist", (*dirs)[i]);
    }
    (*dirs)[n] = r->c.out;
    return 0;
}

/* Of a run of an adapter that is over, "checkpoint" is the merged model: what it was made of stands
 * beside it. */
static int open_at(const lf_run *r, const char *dir, enum lf_ckpt_check check, lf_ckpt **ck,
                   lf_err *err)
{
    int rc = lf_ckpt_open_checked(ck, dir, check, r->c.threads, err);
    if (rc != 0 || !r->c.adapter || !json_object_get(lf_ckpt_state(*ck), "merged"))
        return rc;
    lf_ckpt_close(*ck);
    *ck = NULL;
    char *path = lf_path_join(dir, "../adapter", err);
    rc = path ? lf_ckpt_open_checked(ck, path, check, r->c.threads, err) : LF_ENOMEM;
    free(path);
    return rc == LF_ENOENT ? lf_fail(err, LF_EFORMAT, "%s: the adapter beside it is gone", dir)
                           : rc;
}

/* Where each rank reads what it needs, it checks that. */
static enum lf_ckpt_check newest_check(const lf_run *r)
{
    return lf_run_in_parts(r) ? LF_CKPT_CHECK_STRUCTURE : LF_CKPT_CHECK_ALL;
}

/* An earlier start may have one of the same step where this one is set aside. */
int lf_run_pass_over(lf_run *r, struct lf_run_search *s, const char *text, lf_err *err)
{
    bool moved = false;
    const int rc = pass_over(r, s->dir, text, &moved, err);
    s->over = s->step == 0 && !moved;
    s->max_step = moved ? s->step : s->step - 1;
    return rc;
}

int lf_run_pass_over_all(lf_run *r, struct lf_run_search *s, const lf_err *why, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    int rc =
        lf_comm_gather_blobs(r->comm, why->text, why->rc ? strlen(why->text) + 1 : 0, &all, err);
    for (int k = 0; k < r->ranks && rc == 0 && lf_run_first(r); k++)
        if (all.offset[k] < all.offset[k + 1]) {
            all.data[all.offset[k + 1] - 1] = '\0';
            rc = lf_run_pass_over(r, s, all.data + all.offset[k], err);
            break;
        }
    lf_comm_blobs_fini(&all);
    return lf_run_agree(r, rc, err);
}

int lf_run_open_to_read(const lf_run *r, lf_ckpt **ck, const char *dir, lf_err *err)
{
    const enum lf_ckpt_check check = !lf_run_in_parts(r) ? LF_CKPT_CHECK_ALL
                                     : lf_run_first(r)   ? LF_CKPT_CHECK_STRUCTURE
                                                         : LF_CKPT_CHECK_READS;
    return lf_ckpt_open_checked(ck, dir, check, r->c.threads, err);
}

static int look(struct lf_run_search *s, struct reports *reports, const char *const *dirs,
                lf_err *err)
{
    const struct lf_ckpt_search how = {.out_dirs = dirs,
                                       .n = reports->r->c.n_resume_from + 1,
                                       .max_step = s->max_step,
                                       .report = report,
                                       .user = reports};
    free(s->dir);
    s->dir = NULL;
    const int rc = s->over ? 0 : lf_ckpt_find_newest(&s->dir, &s->step, &how, err);
    return rc == 0 && reports->err.rc ? lf_fail(err, reports->err.rc, "%s", reports->err.text) : rc;
}

int lf_run_newest(lf_run *r, struct lf_run_search *s, lf_ckpt **ck, lf_err *err)
{
    struct reports reports = {.r = r, .err = LF_ERR_INIT};
    const char **dirs = NULL;
    *ck = NULL;
    int rc = all_outs(r, &dirs, err);
    while (rc == 0 && !*ck) {
        lf_err why = LF_ERR_INIT;
        rc = look(s, &reports, dirs, err);
        if (rc < 0 || !s->dir)
            break;
        rc = open_at(r, s->dir, newest_check(r), ck, &why);
        if (rc == LF_EFORMAT)
            rc = lf_run_pass_over(r, s, why.text, err);
        else if (rc != 0)
            rc = lf_fail(err, rc, "%s", why.text);
    }
    if (rc >= 0 && !*ck && r->c.n_resume_from)
        lf_run_log(r, 1, "no earlier start left a checkpoint: beginning at step 0");
    free(dirs);
    return rc < 0 ? rc : 0;
}

int lf_run_final(lf_run *r, lf_ckpt **ck, char **dir, lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    lf_err why = LF_ERR_INIT;
    *ck = NULL;
    *dir = lf_path_join(r->c.out, "checkpoint", err);
    int rc = *dir ? lf_artifact_state(&st, *dir, &why) : LF_ENOMEM;
    if (rc == 0 && st != LF_ARTIFACT_ABSENT)
        rc = st == LF_ARTIFACT_PRESENT ? open_at(r, *dir, LF_CKPT_CHECK_ALL, ck, &why) : LF_EFORMAT;
    if (rc == LF_EFORMAT) {
        lf_run_log(r, 1, "making %s again: %s", *dir, why.text);
        return lf_run_set_aside(r, *dir, NULL, err);
    }
    return rc && *dir ? lf_fail(err, rc, "%s", why.text) : rc;
}

/* ---- of this run? ---- */

int lf_run_check_adapter(const lf_run *r, const lf_ckpt *ck, const char *dir, lf_err *err)
{
    const json_t *was = json_object_get(lf_ckpt_state(ck), "adapter");
    const char *base = json_string_value(json_object_get(lf_ckpt_state(ck), "base"));
    const bool merged = json_object_get(lf_ckpt_state(ck), "merged") != NULL;
    if (!r->c.adapter)
        return was || merged
                   ? lf_fail(err, LF_EINVAL,
                             "%s is of an adapter; give lora_rank and the rest as they were", dir)
                   : 0;
    if (!was)
        return lf_fail(err, LF_EINVAL,
                       "%s is a checkpoint of whole weights, this run is of an adapter (lora_rank)",
                       dir);
    json_t *is = lf_adapter_to_json(r->c.adapter, err);
    int rc = is ? 0 : LF_ENOMEM;
    if (rc == 0 && !json_equal(was, is))
        rc = lf_fail(
            err, LF_EINVAL,
            "%s is of an adapter with other settings (lora_rank, lora_alpha, lora_targets ...)",
            dir);
    if (rc == 0 && r->base[0] && (!base || strcmp(base, r->base) != 0))
        rc = lf_fail(err, LF_EINVAL, "%s is an adapter of other weights than init_from = %s", dir,
                     r->c.init_from);
    json_decref(is);
    return rc;
}

/* ---- bitwise? ---- */

/* One thing that may differ: "isa was x, is y" is added to out when it does. */
void lf_run_difference(json_t *was, json_t *is, const char *prefix, const char *key, lf_buf *out)
{
    if (was && json_equal(was, is))
        return;
    char *a = was ? json_dumps(was, JSON_ENCODE_ANY) : NULL,
         *b = is ? json_dumps(is, JSON_ENCODE_ANY) : NULL;
    lf_buf_addf(out, "%s%s%s was %s, is %s", out->len ? "; " : "", prefix, key,
                a ? a : "not recorded", b ? b : "none");
    free(a);
    free(b);
}

void lf_run_differences(json_t *was, json_t *is, const char *prefix, lf_buf *out)
{
    const char *key;
    json_t *v;
    json_object_foreach(is, key, v)
        lf_run_difference(json_object_get(was, key), v, prefix, key, out);
    json_object_foreach(was, key, v) if (is && !json_object_get(is, key))
        lf_run_difference(v, NULL, prefix, key, out);
}

/* What computed: where ranks divide nothing a checkpoint does not say so. */
static void fingerprint_differences(const json_t *was, const json_t *is, lf_buf *out)
{
    json_t *a = lf_laid_whole(was), *b = lf_laid_whole(is);
    lf_run_differences(a, b, "", out);
    json_decref(a);
    json_decref(b);
}

static double number_or_zero(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : 0;
}

/* What differs between two states that the bits of what follows depend on. A member that a stage
 * does not have is in neither. */
static void why_not_bitwise(const json_t *was, const json_t *is, lf_buf *why)
{
    static const struct {
        const char *name, *prefix;
    } objects[] = {
        {"optimizer", ""}, {"schedule", "schedule "}, {"objective", ""}, {"settings", ""}};
    static const char *const optional[] = {"neftune_alpha"}; /* numbers, 0 where they are absent */
    fingerprint_differences(json_object_get(was, "fingerprint"), json_object_get(is, "fingerprint"),
                            why);
    for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++)
        lf_run_differences(json_object_get(was, objects[i].name),
                           json_object_get(is, objects[i].name), objects[i].prefix, why);
    if (json_object_get(is, "batch"))
        lf_run_difference(json_object_get(was, "batch"), json_object_get(is, "batch"), "", "batch",
                          why);
    for (size_t i = 0; i < sizeof(optional) / sizeof(*optional); i++) {
        const double a = number_or_zero(was, optional[i]), b = number_or_zero(is, optional[i]);
        if (a < b || a > b)
            lf_buf_addf(why, "%s%s was %g, is %g", why->len ? "; " : "", optional[i], a, b);
    }
}

int lf_run_resumed(lf_run *r, const json_t *was, const json_t *is, const char *dir, const char *at,
                   lf_err *err)
{
    lf_buf why;
    lf_buf_init(&why);
    why_not_bitwise(was, is, &why);
    int rc = lf_buf_check(&why, err);
    const json_t *old = json_object_get(was, "history");
    if (rc == 0 && json_is_array(old)) {
        json_decref(r->history);
        r->history = json_deep_copy(old);
    }
    json_t *h = json_pack("{s:O,s:b,s:s}", "step", json_object_get(is, "step"), "bitwise",
                          why.len == 0, "why", why.len ? why.data : "");
    if (rc == 0 && (!r->history || !h || json_array_append(r->history, h)))
        rc = lf_fail(err, LF_ENOMEM, "history of the run: out of memory");
    json_decref(h);
    if (rc == 0 && why.len)
        lf_run_log(r, 1, "continuing from %s at %s, but perhaps not bitwise: %s", dir, at,
                   why.data);
    else if (rc == 0)
        lf_run_log(r, 2, "continuing bitwise from %s at %s", dir, at);
    lf_buf_fini(&why);
    return rc;
}
