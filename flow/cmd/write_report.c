/* SPDX-License-Identifier: Apache-2.0
 *
 * See write_report.h.
 */
#include "config.h"

#include "flow/cmd/write_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/table.h"
#include "flow/record/fields.h"
#include "flow/report/report.h"
#include "flow/run/asking.h"

enum { MOST_LOOKED_AT = 50 };

/* ---- tags and notes ---- */

struct mark {
    char *stage, *by, *text, *tag;
    lf_real t;
};
static const struct lf_fields mark_fields =
    LF_FIELDS_SHOWN(struct mark, LF_MEMBERS(struct mark, stage, by, text, tag, t));
typedef LF_ROWS(struct mark) mark_rows;

/* The ledger has them; without one the page does without. */
static void load_marks(mark_rows *tags, mark_rows *notes, const lf_project *p, const char *run)
{
    lf_err e = LF_ERR_INIT;
    lf_ledger *l = lf_ask_sync(NULL, p, false, &e) == 0 ? lf_ask_open(p, &e) : NULL;
    memset(tags, 0, sizeof *tags);
    memset(notes, 0, sizeof *notes);
    if (l == NULL || lf_fields_list(tags, &mark_fields, lf_ledger_tags(l, run, &e), &e) < 0 ||
        lf_fields_list(notes, &mark_fields, lf_ledger_notes(l, run, &e), &e) < 0)
        lf_log(1, "the page has no tags and notes: %s", e.text);
    lf_ledger_close(l);
}

static size_t add_marks(lf_report_mark *out, const mark_rows *rows, bool tag)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct mark *m = &rows->v[i];
        out[i] =
            (lf_report_mark){.stage = m->stage != NULL && m->stage[0] != '\0' ? m->stage : NULL,
                             .by = m->by,
                             .text = tag ? m->tag : m->text,
                             .t = m->t.v,
                             .tag = tag};
    }
    return rows->n;
}

/* What people said of the run, as the page wants it; *out is freed by the caller, what it names
 * belongs to tags and notes. */
static int list_marks(lf_report_mark **out, size_t *n, const mark_rows *tags,
                      const mark_rows *notes, lf_err *err)
{
    *out = lf_calloc(tags->n + notes->n + 1, sizeof **out, err);
    if (*out == NULL)
        return LF_ENOMEM;
    *n = add_marks(*out, tags, true);
    *n += add_marks(*out + *n, notes, false);
    return 0;
}

/* ---- the run before ---- */

/* The newest older run of a pipeline of the same name, among some; NULL: there is none. */
static const lf_run *run_before(const lf_run_list *l, const lf_run_view *v)
{
    size_t looked = 0;
    for (size_t i = 0; i < l->n && looked < MOST_LOOKED_AT; i++) {
        lf_run *r = &l->runs[i];
        if (strcmp(r->id, v->run.id) >= 0)
            continue;
        looked++;
        if (lf_run_load(r, NULL) == 0 && lf_text_same(r->plan->name, v->run.plan->name))
            return r;
    }
    return NULL;
}

/* ---- writing ---- */

static int put(const lf_buf *b, const char *path, lf_err *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return lf_fail(err, LF_EINVAL, "%s is a directory; name a file, such as %s%sreport.html",
                       path, path, lf_str_has_suffix(path, "/") ? "" : "/");
    if (strcmp(path, "-") != 0)
        return lf_io_replace(path, b->data, b->len, 0644, err);
    return fwrite(b->data, 1, b->len, stdout) == b->len && fflush(stdout) == 0
               ? 0
               : lf_fail_errno(err, "writing to standard output");
}

int lf_write_report(const lf_project *p, const lf_run_view *v, const char *path, int refresh_s,
                    lf_err *err)
{
    lf_buf b;
    lf_run_list runs = {.n = 0};
    mark_rows tags, notes;
    lf_report_mark *marks = NULL;
    lf_report r = {.view = v, .refresh_s = refresh_s};
    lf_buf_init(&b);
    load_marks(&tags, &notes, p, v->run.id);
    int rc = list_marks(&marks, &r.n_marks, &tags, &notes, err);
    r.marks = marks;
    if (rc == 0 && lf_run_list_load(&runs, p, NULL) == 0) /* else the page says nothing of it */
        r.before = run_before(&runs, v);
    if (rc == 0)
        rc = lf_report_html(&b, &r, err);
    if (rc == 0)
        rc = put(&b, path, err);
    free(marks);
    lf_fields_list_fini(&tags, &mark_fields);
    lf_fields_list_fini(&notes, &mark_fields);
    lf_run_list_fini(&runs);
    lf_buf_fini(&b);
    return rc;
}

int lf_write_comparison(const lf_run_view *const *views, size_t n,
                        const lf_opt_table *const *tables, const char *path, int refresh_s,
                        lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_report_several(&b, views, n, tables, refresh_s, err);
    if (rc == 0)
        rc = put(&b, path, err);
    lf_buf_fini(&b);
    return rc;
}

void lf_report_at_end(const lf_project *p, const lf_run_view *v, bool quiet)
{
    const char *path = v->run.plan->report;
    lf_err e = LF_ERR_INIT;
    if (path == NULL || path[0] == '\0') {
        if (!quiet)
            lf_say("a page about it: `loong-flow report`\n");
        return;
    }
    char *full = path[0] == '/' ? lf_strdup(path, &e) : lf_path_join(p->root, path, &e);
    if (full != NULL && lf_write_report(p, v, full, 0, &e) == 0) {
        if (!quiet)
            lf_say("report: %s\n", full);
    } else {
        lf_say_err("loong-flow: the report was not written: %s\n", e.text);
    }
    free(full);
}
