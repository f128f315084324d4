/* SPDX-License-Identifier: Apache-2.0
 *
 * gc: what may be deleted, and with --yes its deletion. Kept are: results of the newest complete
 * runs, of runs that are named, tagged or have a note, of the best runs by a metric, and every
 * result that a kept run took over; everything of a run that is not complete (its checkpoints are
 * what resume needs); and anything whose state is unknown. Deleted are outputs only: all of other
 * complete runs (they become "purged"), and in kept complete runs those of starts that are
 * not the result. Records, logs and metrics are small and stay, so history and lineage do too. What
 * a submit that was killed has left (leftover.h) goes whole.
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
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"
#include "flow/run/gone.h"
#include "flow/run/leftover.h"
#include "flow/run/sync.h"
#include "flow/sched/drive.h"

static const lf_opt gc_rows[] = {
    LF_CMD_COMMON,
    {.name = "keep_runs",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .def = "5",
     .help = "complete runs to keep whole, newest first"},
    {.name = "keep",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "a run to keep, may be repeated"},
    {.name = "keep_best",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "METRIC[:min|max][=N]: keep the N runs whose last value is best, may be repeated"},
    {.name = "keep_marked",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "yes",
     .help = "delete also of runs that have a tag or a note"},
    {.name = "older_than",
     .type = LF_OPT_DURATION,
     LF_OPT_COMMAND,
     .help = "only of runs made so long ago or longer"},
    {.name = "dry_run",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "only show what would be deleted, and how much; the default"},
    {.name = "yes", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no", .help = "delete it"},
};
LF_CMD_TABLE(gc, "show what may be deleted, delete it with --yes", gc_rows);

/* What is kept and why: run id and reason; the first reason counts. */
static int keep_run(lf_pairs *keep, const char *run, const char *why, lf_err *err)
{
    return lf_pairs_get(keep, run) == NULL ? lf_pairs_add(keep, run, why, err) : 0;
}

/* A word that names no run is an error: what it was meant to keep would be deleted. */
static int keep_named(lf_pairs *keep, const lf_cmd *c, const lf_project *p, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < lf_optset_count(c->opts, "keep"); i++) {
        lf_run run;
        rc = lf_run_find(&run, p, lf_optset_str_at(c->opts, "keep", i), err);
        if (rc < 0)
            return lf_err_prefix(err, "--keep");
        rc = keep_run(keep, run.id, "named", err);
        lf_run_fini(&run);
    }
    return rc;
}

/* ---- what the ledger knows: marks and metrics ---- */

/* What the ledger says of a run. */
struct said {
    char *run, *tag;
    double last;
};
static const struct lf_fields said_fields =
    LF_FIELDS(struct said, LF_MEMBERS(struct said, run, tag, last));
typedef LF_ROWS(struct said) said_list;

static int keep_marked(lf_pairs *keep, lf_ledger *l, lf_err *err)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        said_list rows = {.n = 0};
        rc = lf_fields_list(&rows, &said_fields,
                            i == 0 ? lf_ledger_tags(l, NULL, err) : lf_ledger_notes(l, NULL, err),
                            err);
        for (size_t k = 0; rc == 0 && k < rows.n; k++) {
            char why[160];
            const char *tag = rows.v[k].tag;
            snprintf(why, sizeof why, "%s%s", i == 0 ? "tagged " : "has a note",
                     tag != NULL ? tag : "");
            rc = keep_run(keep, rows.v[k].run, why, err);
        }
        lf_fields_list_fini(&rows, &said_fields);
    }
    return rc;
}

/* "val_loss", "score:max", "val_loss=3" */
static int parse_best(char *key, size_t cap, bool *max, int64_t *n, const char *word, lf_err *err)
{
    const char *eq = strrchr(word, '='), *end = eq != NULL ? eq : word + strlen(word),
               *colon = NULL;
    for (const char *q = word; q < end; q++)
        colon = *q == ':' ? q : colon;
    const char *stop = colon != NULL ? colon : end;
    size_t side = colon != NULL ? (size_t)(end - colon - 1) : 0;
    *n = 1;
    *max = side == 3 && strncmp(colon + 1, "max", 3) == 0;
    bool ok = stop > word && (size_t)(stop - word) < cap &&
              (colon == NULL || *max || (side == 3 && strncmp(colon + 1, "min", 3) == 0)) &&
              (eq == NULL || (lf_parse_i64(n, eq + 1, NULL) == 0 && *n > 0));
    if (!ok)
        return lf_fail(err, LF_EINVAL,
                       "--keep-best %s: METRIC[:min|max][=N], such as val_loss or score:max=3",
                       word);
    snprintf(key, cap, "%.*s", (int)(stop - word), word);
    return 0;
}

static int keep_best(lf_pairs *keep, lf_ledger *l, const char *word, lf_err *err)
{
    char key[200], why[260];
    bool max = false;
    int64_t n = 1;
    int rc = parse_best(key, sizeof key, &max, &n, word, err);
    said_list rows = {.n = 0};
    if (rc == 0)
        rc = lf_fields_list(&rows, &said_fields, lf_ledger_best(l, key, max, n, err), err);
    if (rc == 0 && rows.n == 0)
        rc = lf_fail(err, LF_ENOENT, "--keep-best %s: no run has a metric of this name", word);
    for (size_t i = 0; rc == 0 && i < rows.n; i++) {
        snprintf(why, sizeof why, "%s %s of all: %.6g", max ? "highest" : "lowest", key,
                 rows.v[i].last);
        rc = keep_run(keep, rows.v[i].run, why, err);
    }
    lf_fields_list_fini(&rows, &said_fields);
    return rc;
}

/* Marks and metrics are known to the ledger; when it cannot be read, nothing may be called
 * unmarked. */
static int ask_ledger(lf_pairs *keep, const lf_cmd *c, const lf_project *p, lf_err *err)
{
    bool marked = lf_optset_bool(c->opts, "keep_marked");
    size_t n = lf_optset_count(c->opts, "keep_best");
    if (!marked && n == 0)
        return 0;
    lf_texts roots = {.n = 0};
    int rc = lf_ask_roots(&roots, p, err);
    bool no_runs = roots.n == 0;
    lf_texts_fini(&roots);
    if (rc < 0 || no_runs) /* then there is nothing to be marked, and perhaps no ledger yet */
        return rc;
    rc = lf_ask_sync(NULL, p, true, err);
    lf_ledger *l = rc == 0 ? lf_ask_open(p, err) : NULL;
    if (l == NULL)
        return lf_err_prefix(err, "gc must ask the ledger which runs are marked (or best)");
    if (marked)
        rc = keep_marked(keep, l, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = keep_best(keep, l, lf_optset_str_at(c->opts, "keep_best", i), err);
    lf_ledger_close(l);
    return rc;
}

/* ---- what the directories say ---- */

static double tree_bytes(const char *path, int depth)
{
    struct stat st;
    if (depth > 40 || lstat(path, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return st.st_nlink > 1
                   ? 0
                   : (double)st.st_blocks * 512.0; /* a file with other links gives nothing back */
    double sum = 0;
    DIR *d = opendir(path);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char sub[PATH_MAX];
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            lf_path_set(sub, NULL, "%s/%s", path, e->d_name) == 0)
            sum += tree_bytes(sub, depth + 1);
    }
    if (d != NULL)
        closedir(d);
    return sum;
}

static int propose(lf_removables *list, const lf_run *run, const lf_start *inc, const char *path,
                   const char *why, lf_err *err)
{
    const lf_removable found = {.path = path,
                                .data = run->data,
                                .why = why,
                                .bytes = tree_bytes(path, 0),
                                .run = run->id,
                                .run_dir = run->dir,
                                .outputs = inc->done != NULL ? inc->done->outputs : NULL,
                                .n_outputs = inc->done != NULL ? inc->done->n_outputs : 0};
    return lf_removables_add(list, &found, err);
}

static int protect_adopted(lf_pairs *keep, const lf_run_view *v, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        const char *id = v->stages[i].plan->adopted.run;
        char why[80];
        snprintf(why, sizeof why, "run %.26s took results from it", v->run.id);
        if (id != NULL && v->stages[i].result == NULL)
            rc = keep_run(keep, id, why, err);
    }
    return rc;
}

/* A purged stage whose newest start has not committed is being made again: its checkpoints
 * are needed. */
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

static int propose_outputs(lf_removables *list, const lf_run_view *v, bool all, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < v->n; i++)
        for (size_t k = 0; rc == 0 && k < v->stages[i].n_incs; k++) {
            const lf_start *inc = &v->stages[i].incs[k];
            char out[PATH_MAX];
            if ((!all && inc->done != NULL) || lf_path_set(out, NULL, "%s/out", inc->dir) < 0 ||
                !lf_io_exists(out))
                continue;
            rc = propose(list, &v->run, inc, out,
                         all ? "of a complete run older than those kept"
                             : "of an attempt whose stage was completed by another one",
                         err);
        }
    return rc;
}

/* Why a complete run is kept on its own account; NULL: it is not. */
static const char *reason_to_keep(const lf_cmd *c, const lf_run_view *v, int64_t left)
{
    if (left > 0)
        return "one of the newest";
    if (lf_optset_is_set(c->opts, "older_than") &&
        lf_wall_s() - v->run.plan->created.v < (double)lf_optset_int(c->opts, "older_than"))
        return "too young";
    return NULL;
}

/* One run: is it kept; if so, what of others does it stand on? list non-NULL: what of it may go. */
static int look_at(lf_pairs *keep, lf_removables *list, const lf_cmd *c, lf_run *run, int64_t *left,
                   lf_err *err)
{
    lf_run_view v;
    if (lf_run_load(run, NULL) < 0)
        return 0;                        /* something is wrong with it: not ours to delete */
    int rc = lf_view_load(&v, run, err); /* takes the run */
    if (rc < 0)
        return rc;
    bool whole = complete(&v);
    const char *why = whole ? reason_to_keep(c, &v, *left) : "not complete";
    if (why != NULL)
        rc = keep_run(keep, v.run.id, why, err);
    bool kept = lf_pairs_get(keep, v.run.id) != NULL;
    if (whole && *left > 0)
        (*left)--;
    if (rc == 0 && kept && list == NULL)
        rc = protect_adopted(keep, &v, err);
    if (rc == 0 && list != NULL && (!kept || whole))
        rc = propose_outputs(list, &v, !kept, err);
    lf_view_fini(&v);
    return rc;
}

static int pass_over(lf_pairs *keep, lf_removables *list, const lf_cmd *c, const lf_project *p,
                     lf_err *err)
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

/* A kept run may have taken results from an older run, or a newer one (an old run resumed with new
 * settings), and that one from others: look until no more are found, then propose. */
static int survey(lf_pairs *keep, lf_removables *list, const lf_cmd *c, const lf_project *p,
                  const char *lock_path, bool locked, lf_err *err)
{
    int rc = keep_named(keep, c, p, err);
    if (rc == 0)
        rc = ask_ledger(keep, c, p, err);
    for (size_t before = 1, n = 0; rc == 0 && before != n; n = keep->n) {
        before = keep->n;
        rc = pass_over(keep, NULL, c, p, err);
    }
    if (rc == 0)
        rc = pass_over(keep, list, c, p, err);
    /* A freeze that is at work looks like one that was killed. */
    if (rc == 0 && (locked || !lf_lock_held(lock_path)))
        rc = lf_leftovers(list, p, err);
    return rc;
}

/* The ledger hears of it first: an artifact that is called gone and is still there is a smaller lie
 * than the reverse. */
static int delete_one(const lf_project *p, const lf_removable *o, lf_err *err)
{
    const char *rel = o->path + strlen(o->data) + 1;
    const lf_origin from = {.dir = o->run_dir, .run = o->run};
    char path[PATH_MAX];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->n_outputs; i++) {
        const struct lf_output *out = &o->outputs[i];
        rc = lf_path_set(path, err, "%.*s/%s", (int)(strlen(rel) - strlen("/out")), rel,
                         out->path != NULL ? out->path : out->name);
        if (rc == 0)
            rc = lf_event_gone(&from, path, "gc", err);
    }
    if (rc == 0)
        rc = lf_io_remove_tree(o->path, err);
    return rc == 0 && o->half_run != NULL ? lf_sync_forget(p, o->half_run, err) : rc;
}

static void say_kept(const lf_pairs *keep)
{
    for (size_t i = 0; i < keep->n; i++)
        lf_say("keeps run %s: %s\n", keep->v[i].name, keep->v[i].value);
}

/* Delete, or only tell of, what the survey found; *data is the root that the ledger has to hear
 * of. */
static int go_through(const lf_cmd *c, const lf_project *p, const lf_removables *list, bool yes,
                      double *sum, char data[PATH_MAX], lf_err *err)
{
    char b[32];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        const lf_removable *o = &list->v[i];
        rc = yes ? delete_one(p, o, err) : 0;
        lf_path_set(data, NULL, "%s", o->data);
        if (rc < 0)
            break;
        *sum += o->bytes;
        if (!c->json)
            lf_say("%s %10s  %s\n           %s\n", yes ? "deleted" : "would delete",
                   lf_fmt_bytes(b, sizeof b, o->bytes), o->path, o->why);
    }
    return rc;
}

struct cleaned {
    bool deleted;
    double bytes;
    lf_removables paths;
    lf_pairs kept;
};
static const struct lf_fields cleaned_fields = LF_FIELDS(
    struct cleaned, LF_MEMBERS(struct cleaned, deleted, bytes),
    LF_LIST(struct cleaned, paths, lf_removable_fields), LF_MEMBERS(struct cleaned, kept));

static int gc_locked(lf_cmd *c, const lf_project *p, struct cleaned *g, char data[PATH_MAX],
                     lf_err *err)
{
    bool yes = lf_optset_bool(c->opts, "yes");
    char lock_path[PATH_MAX], b[32];
    int rc = lf_path_set(lock_path, err, "%s/submit.lock",
                         p->dot); /* no run is made or changed meanwhile */
    if (rc == 0)
        rc = survey(&g->kept, &g->paths, c, p, lock_path, false, err);
    lf_lock_opts lo = {.purpose = "loong-flow gc", .wait_s = 10.0, .ttl_s = 0};
    lf_lock *lock = rc == 0 && yes ? lf_lock_acquire(lock_path, &lo, err) : NULL;
    if (rc == 0 && yes && lock == NULL)
        return err->rc != 0 ? err->rc : LF_EBUSY;
    if (lock != NULL) { /* what it said before the lock may have changed */
        lf_removables_fini(&g->paths);
        lf_pairs_fini(&g->kept);
        rc = survey(&g->kept, &g->paths, c, p, lock_path, true, err);
    }
    lf_err gone = LF_ERR_INIT;
    if (rc == 0 && lf_gone_data(p, &gone) < 0)
        lf_say_err("loong-flow: %s\n", gone.text);
    if (rc == 0 && !c->json)
        say_kept(&g->kept);
    if (rc == 0)
        rc = go_through(c, p, &g->paths, yes, &g->bytes, data, err);
    lf_lock_release(lock);
    g->deleted = yes;
    if (rc == 0 && c->json)
        return lf_cmd_print(g, &cleaned_fields, err);
    if (rc == 0)
        printf("%s in all%s\n", lf_fmt_bytes(b, sizeof b, g->bytes),
               yes || g->bytes <= 0 ? "" : "; --yes deletes it");
    return rc;
}

static int gc_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    char data[PATH_MAX] = "";
    bool yes = lf_optset_bool(c->opts, "yes");
    if (yes && lf_optset_bool(c->opts, "dry_run"))
        return lf_fail(err, LF_EINVAL, "--yes and --dry-run say the opposite");
    struct cleaned g = {.bytes = 0};
    int rc = gc_locked(c, p, &g, data, err);
    lf_removables_fini(&g.paths);
    lf_pairs_fini(&g.kept);
    if (yes && data[0] != '\0' && lf_sync(p, data, NULL, NULL) < 0)
        lf_say_err("loong-flow: the ledger was not updated; `loong-flow ledger sync` does it\n");
    return rc;
}

static int run_gc(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, gc_on, err);
}

const lf_cmd_def lf_cmd_gc = {.table = &gc_table, .words = "", .max_words = 0, .run = run_gc};
