/* SPDX-License-Identifier: Apache-2.0
 *
 * gc: what may be deleted, and with --yes its deletion. Kept are: results of the newest runs, every result that a kept run
 * took over, everything of a run that is not complete (its checkpoints are what resume needs), and anything whose state
 * is unknown. Deleted are outputs only: all of old complete runs (they become "purged"), and in kept complete runs those
 * of incarnations that are not the result. Records, logs and metrics are small and stay, so history and lineage do too.
 */
#include "config.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmds.h"
#include "flow/drive.h"
#include "flow/record.h"

static const lf_opt gc_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_ROW("keep_runs", LF_OPT_INT, 0, "5", NULL, "complete runs to keep whole, newest first"),
    LF_CMD_ROW("keep", LF_OPT_STR, LF_OPT_REPEAT, NULL, NULL, "a run to keep, may be repeated"),
    LF_CMD_ROW("yes", LF_OPT_BOOL, 0, "no", NULL, "delete; without it the plan is printed"),
};
LF_CMD_TABLE(gc, "show what may be deleted, delete it with --yes", gc_rows);

static double tree_bytes(const char *path, int depth)
{
    struct stat st;
    if (depth > 40 || lstat(path, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return st.st_nlink > 1 ? 0 : (double)st.st_blocks * 512.0; /* a file with other links gives nothing back */
    double sum = 0;
    DIR *d = opendir(path);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char sub[PATH_MAX];
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && lf_path_set(sub, NULL, "%s/%s", path, e->d_name) == 0)
            sum += tree_bytes(sub, depth + 1);
    }
    if (d != NULL)
        closedir(d);
    return sum;
}

static bool named(const lf_cmd *c, const char *id)
{
    for (size_t i = 0; i < lf_optset_count(c->opts, "keep"); i++) {
        const char *k = lf_optset_str_at(c->opts, "keep", i);
        size_t n = strlen(k);
        if (n >= 4 && n <= strlen(id) && (strncmp(id, k, n) == 0 || strcmp(id + strlen(id) - n, k) == 0))
            return true;
    }
    return false;
}

static void propose(json_t *list, const lf_run *run, const lf_incarnation *inc, const char *path, const char *why)
{
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:O*}", "run", run->id, "run_dir", run->dir, "path",
                                          path, "data", run->data, "why", why, "bytes", tree_bytes(path, 0), "outputs",
                                          json_object_get(inc->done, "outputs")));
}

static void protect_adopted(json_t *keep, const lf_run_view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        const char *id = json_string_value(json_object_get(json_object_get(v->stages[i].stage, "adopted"), "run"));
        if (id != NULL && v->stages[i].result == NULL)
            json_object_set_new(keep, id, json_true());
    }
}

/* A purged stage whose newest incarnation has not committed is being made again: its checkpoints are needed. */
static bool complete(const lf_run_view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        if (s->state != LF_STATE_DONE &&
            (s->state != LF_STATE_PURGED || (s->n_incs > 0 && s->incs[s->n_incs - 1].done == NULL)))
            return false;
    }
    return true;
}

static void propose_outputs(json_t *list, const lf_run_view *v, bool all)
{
    for (size_t i = 0; i < v->n; i++)
        for (size_t k = 0; k < v->stages[i].n_incs; k++) {
            const lf_incarnation *inc = &v->stages[i].incs[k];
            char out[PATH_MAX];
            if ((!all && inc->done != NULL) || lf_path_set(out, NULL, "%s/out", inc->dir) < 0 ||
                !lf_io_exists(out))
                continue;
            propose(list, &v->run, inc, out, all ? "of a complete run older than those kept"
                                                 : "of an attempt whose stage was completed by another one");
        }
}

/* One run: is it kept; if so, what of others does it stand on? list non-NULL: what of it may go. */
static int look_at(json_t *keep, json_t *list, const lf_cmd *c, lf_run *run, int64_t *left, lf_err *err)
{
    lf_run_view v;
    if (lf_run_load(run, NULL) < 0)
        return 0; /* something is wrong with it: not ours to delete */
    int rc = lf_view_load(&v, run, err); /* takes the run */
    if (rc < 0)
        return rc;
    bool whole = complete(&v);
    bool kept = !whole || *left > 0 || json_object_get(keep, v.run.id) != NULL || named(c, v.run.id);
    if (whole && *left > 0)
        (*left)--;
    if (kept && list == NULL)
        protect_adopted(keep, &v);
    if (list != NULL && (!kept || whole))
        propose_outputs(list, &v, !kept);
    lf_view_fini(&v);
    return 0;
}

static int pass_over(json_t *keep, json_t *list, const lf_cmd *c, const lf_project *p, lf_err *err)
{
    int64_t left = lf_optset_int(c->opts, "keep_runs");
    lf_run_list runs;
    int rc = lf_run_list_load(&runs, p, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < runs.n; i++)
        rc = look_at(keep, list, c, &runs.runs[i], &left, err);
    lf_run_list_fini(&runs);
    return rc;
}

/* A kept run may have taken results from an older run, or a newer one (an old run resumed with new settings), and that one
 * from others: look until no more are found, then propose. */
static int survey(json_t *list, const lf_cmd *c, const lf_project *p, lf_err *err)
{
    json_t *keep = json_object();
    int rc = keep == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    for (size_t before = 1, n = 0; rc == 0 && before != n; n = json_object_size(keep)) {
        before = json_object_size(keep);
        rc = pass_over(keep, NULL, c, p, err);
    }
    if (rc == 0)
        rc = pass_over(keep, list, c, p, err);
    json_decref(keep);
    return rc;
}

/* The ledger hears of it first: an artifact that is called gone and is still there is a smaller lie than the reverse. */
static int delete_one(const json_t *o, lf_err *err)
{
    const char *path = json_string_value(json_object_get(o, "path")), *data = json_string_value(json_object_get(o, "data"));
    const char *run = json_string_value(json_object_get(o, "run")), *k;
    const char *rel = path + strlen(data) + 1;
    json_t *out;
    int rc = 0;
    json_object_foreach(json_object_get(o, "outputs"), k, out) if (rc == 0)
    {
        const char *sub = json_string_value(json_object_get(out, "path"));
        json_t *d = json_pack("{s:o, s:s}", "path", json_sprintf("%.*s/%s", (int)(strlen(rel) - strlen("/out")), rel,
                                                                 sub != NULL ? sub : k), "why", "gc");
        rc = lf_record_event(json_string_value(json_object_get(o, "run_dir")), run, NULL, 0, 0, "gone", d, err);
    }
    return rc == 0 ? lf_io_remove_tree(path, err) : rc;
}

static int gc_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    json_t *list = json_array();
    bool yes = lf_optset_bool(c->opts, "yes");
    char lock_path[PATH_MAX], b[32];
    lf_lock *lock = NULL;
    int rc = lf_path_set(lock_path, err, "%s/lock", p->dot);
    lf_lock_opts lo = {.purpose = "loong-flow gc", .wait_s = 10.0, .ttl_s = 0};
    if (rc == 0 && yes && (lock = lf_lock_acquire(lock_path, &lo, err)) == NULL)
        rc = err->rc != 0 ? err->rc : LF_EBUSY;
    if (rc == 0)
        rc = survey(list, c, p, err);
    double sum = 0;
    char data[PATH_MAX] = "";
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        if (yes)
            rc = delete_one(o, err);
        if (rc < 0)
            break;
        sum += json_number_value(json_object_get(o, "bytes"));
        if (!c->json)
            printf("%s %10s  %s\n           %s\n", yes ? "deleted" : "would delete",
                   lf_fmt_bytes(b, sizeof b, json_number_value(json_object_get(o, "bytes"))),
                   json_string_value(json_object_get(o, "path")), json_string_value(json_object_get(o, "why")));
        lf_path_set(data, NULL, "%s", json_string_value(json_object_get(o, "data")));
    }
    lf_lock_release(lock);
    if (rc == 0 && c->json)
        return lf_cmd_print_json(json_pack("{s:b, s:f, s:o}", "deleted", (int)yes, "bytes", sum, "paths", list), err);
    if (rc == 0)
        printf("%s in all%s\n", lf_fmt_bytes(b, sizeof b, sum), yes || sum <= 0 ? "" : "; --yes deletes it");
    json_decref(list);
    if (rc == 0 && yes && data[0] != '\0' && lf_sync(p, data, NULL, NULL) < 0)
        fputs("loong-flow: the ledger was not updated; `loong-flow ledger sync` does it\n", stderr);
    return rc;
}

static int run_gc(lf_cmd *c, lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = gc_on(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_gc = {.table = &gc_table, .words = "", .max_words = 0, .run = run_gc};
