/* SPDX-License-Identifier: Apache-2.0
 *
 * status --all: the runs of a project, filtered, with the settings and values in which they differ.
 */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/compare.h"
#include "flow/cmd/status_all.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"
#include "flow/sched/describe.h"
#include "flow/sched/sched.h"

static const lf_column run_cols[] = {
    {"label", "RUN", false, false},       {"state", "STATE", false, false},
    {"stages_text", "DONE", true, false}, {"created_text", "CREATED", false, false},
    {"tags_text", "TAGS", false, false},  {"run", "ID", false, true},
    {"name", "NAME", false, true},        {"rev", "REV", true, true},
    {"dir", "DIRECTORY", false, true},
};
static const lf_format run_formats[] = {{"ids", "run"}, {"where", "label,state,dir"}, {NULL, NULL}};
enum { N_RUN_COLS = sizeof run_cols / sizeof run_cols[0] };

struct filter {
    const char *states; /* comma-separated, NULL: any */
    double since;       /* 0: any */
    const char *tag;
    lf_lists tags;  /* of each run; empty when the ledger does not tell */
    lf_pairs known; /* run: state, of those whose work is over, by the ledger */
};

/* "2d" ago, or a date with or without a time, local. */
static int parse_since(double *out, const char *text, lf_err *err)
{
    int64_t ago = 0;
    struct tm tm = {.tm_isdst = -1};
    char rest = 0;
    int n = sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%c", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &rest);
    if (n >= 3 && n <= 6 && tm.tm_mon >= 1 && tm.tm_mon <= 12 && tm.tm_mday >= 1 &&
        tm.tm_mday <= 31 && tm.tm_year >= 1970) {
        tm.tm_year -= 1900;
        tm.tm_mon--;
        *out = (double)mktime(&tm);
        return 0;
    }
    if (lf_parse_duration(&ago, text, NULL) < 0 || ago < 0)
        return lf_fail(err, LF_EINVAL,
                       "--since %s: a date such as 2026-11-22 or 2026-11-22T13:00, or a time ago "
                       "such as 2d or 12h",
                       text);
    *out = lf_wall_s() - (double)ago;
    return 0;
}

static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

static int check_states(const char *list, lf_err *err)
{
    const char *names[9];
    for (int i = 0; i < 9; i++)
        names[i] = lf_state_name((enum lf_state)i);
    for (const char *p = list; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL) {
        char word[32];
        bool ok = false;
        snprintf(word, sizeof word, "%.*s", (int)(strcspn(p, ",") < 31 ? strcspn(p, ",") : 31), p);
        for (int i = 0; i < 9; i++)
            ok = ok || strcmp(names[i], word) == 0;
        const char *near = ok ? NULL : lf_nearest(word, names, 9);
        if (!ok)
            return lf_fail(err, LF_EINVAL, "--state: there is no state \"%s\"%s%s%s", word,
                           near != NULL ? "; did you mean " : "",
                           near != NULL ? near
                                        : "; waiting, pending, running, done, failed, cancelled, "
                                          "purged, unknown, ended",
                           near != NULL ? "?" : "");
    }
    return 0;
}

/* What the ledger says of a run, or of a tag of it. */
struct said {
    char *run, *tag, *state;
};
static const struct lf_fields said_fields =
    LF_FIELDS(struct said, LF_MEMBERS(struct said, run, tag, state));
typedef LF_ROWS(struct said) said_list;

/* What the ledger knows, read as it is. Nothing is lost without it but time, and tags. */
static void ask_ledger(struct filter *f, const lf_project *p)
{
    lf_err e = LF_ERR_INIT;
    said_list tags = {.n = 0}, runs = {.n = 0};
    lf_ledger *l = lf_ask_open(p, &e);
    if (l != NULL)
        (void)lf_fields_list(&tags, &said_fields, lf_ledger_tags(l, NULL, &e), &e);
    if (l != NULL && f->states != NULL)
        (void)lf_fields_list(&runs, &said_fields, lf_ledger_runs(l, NULL, &e), &e);
    for (size_t i = 0; i < tags.n; i++) {
        lf_texts *of = lf_lists_add(&f->tags, tags.v[i].run, &e);
        if (of != NULL)
            (void)lf_texts_add(of, tags.v[i].tag, &e);
    }
    for (size_t i = 0; i < runs.n; i++)
        if (in_list("done,failed,cancelled", runs.v[i].state))
            (void)lf_pairs_set(&f->known, runs.v[i].run, runs.v[i].state, &e);
    lf_fields_list_fini(&tags, &said_fields);
    lf_fields_list_fini(&runs, &said_fields);
    lf_ledger_close(l);
}

/* May the run's state be taken from the ledger to pass it over? Not when somebody has touched it
 * lately. */
static bool passed_over(const struct filter *f, const lf_run *r)
{
    char hint[PATH_MAX];
    const char *state = lf_pairs_get(&f->known, r->id);
    if (f->tag != NULL) {
        const lf_texts *tags = lf_lists_get(&f->tags, r->id);
        if (tags == NULL || !lf_texts_has(tags, f->tag))
            return true;
    }
    if (f->since > 0 && lf_ulid_time(r->id) < f->since)
        return true;
    /* done: its files may have been purged since */
    if (f->states == NULL || state == NULL || in_list(f->states, state) ||
        (strcmp(state, "done") == 0 && in_list(f->states, "purged")))
        return false;
    return lf_path_set(hint, NULL, "%s/changed/%s", r->data, r->id) == 0 && !lf_io_exists(hint);
}

/* A run of the list, which owns what it points to. */
struct run_row {
    lf_run_shown r;
    char label[80]; /* its short name, or its id */
    char stages_text[48], created_text[21];
    char *tags_text;
    lf_texts tags;
    lf_pairs settings; /* where they are not the defaults (flow/run/settings.h) */
};
static const struct lf_fields run_fields = LF_FIELDS_SHOWN(
    struct run_row, {LF_FIELD_SUB(struct run_row, r, LF_FIELD_BASE, &lf_run_shown_fields)},
    {LF_FIELD_BUF(struct run_row, label, "label")},
    {LF_FIELD_BUF(struct run_row, stages_text, "stages_text")},
    {LF_FIELD_BUF(struct run_row, created_text, "created_text")},
    LF_MEMBERS(struct run_row, tags_text, tags, settings));
struct run_list {
    LF_ROWS(struct run_row) runs;
    const lf_cmd *c;
};
static const struct lf_fields list_fields =
    LF_FIELDS(struct run_list, LF_LIST(struct run_list, runs, run_fields));

static int add_run_texts(struct run_row *row, const struct filter *f, const lf_cmd *c, lf_err *err)
{
    const lf_texts *tags = lf_lists_get(&f->tags, row->r.run);
    size_t done = 0;
    for (size_t i = 0; i < row->r.stages.n; i++)
        done += strcmp(row->r.stages.v[i].state, "done") == 0;
    snprintf(row->label, sizeof row->label, "%s",
             row->r.short_name != NULL ? row->r.short_name : row->r.run);
    snprintf(row->stages_text, sizeof row->stages_text, "%zu/%zu", done, row->r.stages.n);
    lf_cmd_time(row->created_text, c, row->r.created.v);
    if (tags == NULL)
        return 0;
    lf_buf text;
    lf_buf_init(&text);
    for (size_t i = 0; i < tags->n; i++)
        lf_buf_addf(&text, "%s%s", i > 0 ? "," : "", tags->v[i]);
    int rc = lf_buf_check(&text, err);
    if (rc == 0)
        rc = lf_text_set(&row->tags_text, text.data, "tags", err);
    lf_buf_fini(&text);
    return rc == 0 ? lf_texts_copy(&row->tags, tags, err) : rc;
}

/* In one of the states that are wanted. */
static int add_row(struct run_list *list, const struct filter *f, const lf_run_shown *run,
                   const lf_doc *plan, lf_err *err)
{
    if (f->states != NULL && !in_list(f->states, run->state))
        return 0;
    struct run_row *row = lf_rows_add(&list->runs, sizeof *row, err);
    int rc = row == NULL ? LF_ENOMEM : lf_fields_copy(&row->r, run, &lf_run_shown_fields, err);
    if (rc == 0)
        rc = lf_settings_of(&row->settings, plan, err);
    return rc == 0 ? add_run_texts(row, f, list->c, err) : rc;
}

/* Takes the run. */
static int add_run(struct run_list *list, const struct filter *f, lf_run *run, lf_err *err)
{
    lf_run_view v;
    lf_run_shown o = {.run = NULL};
    int rc = lf_view_load(&v, run, err);
    if (rc < 0)
        return rc;
    rc = lf_sched_overlay(&v, false, err);
    if (rc == 0)
        rc = lf_describe_run(&o, &v, err);
    if (rc == 0)
        rc = add_row(list, f, &o, v.run.plan, err);
    lf_run_shown_fini(&o);
    lf_view_fini(&v);
    return rc;
}

static int collect(struct run_list *list, const struct filter *f, lf_run_list *l, size_t max,
                   lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->n && (max == 0 || list->runs.n < max); i++)
        /* A run that cannot be loaded is one of a submit that died before it had frozen it. */
        if (!passed_over(f, &l->runs[i]) && lf_run_load(&l->runs[i], NULL) == 0)
            rc = add_run(list, f, &l->runs[i], err);
    return rc;
}

/* ---- the columns of many ---- */

enum { MAX_SIDE = 40 };

/* The table of runs: the fixed columns, and those in which runs are compared. */
struct run_view {
    const struct run_list *list;
    lf_comparison *side;
    lf_column cols[N_RUN_COLS + MAX_SIDE];
    size_t n_cols;
    char titles[MAX_SIDE][64];
    lf_texts names;   /* settings in which the runs differ */
    lf_texts keys;    /* of the columns that are compared */
    size_t room;      /* characters left for them on the screen */
    size_t left;      /* differing settings without room */
    const char *next; /* the first of these */
    size_t *order;    /* which run of the list stands in a row */
};

static bool is_run_col(const char *key)
{
    bool is = false;
    for (size_t i = 0; i < N_RUN_COLS; i++)
        is = is || strcmp(run_cols[i].key, key) == 0;
    return is;
}

static char *run_cell(const void *rows, size_t row, const char *key, lf_err *err)
{
    const struct run_view *v = rows;
    size_t i = v->order[row];
    return is_run_col(key) ? lf_fields_cell(&v->list->runs.v[i], &run_fields, key, err)
                           : lf_comparison_cell(v->side, i, key, err);
}

/* What a column takes on the screen, with the gap before it. 0: no memory. */
static size_t width_of(const struct run_view *v, const char *key, const char *title)
{
    size_t w = lf_text_width(title);
    for (size_t i = 0; i < v->list->runs.n; i++) {
        char *s = run_cell(v, i, key, NULL);
        if (s == NULL)
            return 0;
        w = lf_text_width(s) > w ? lf_text_width(s) : w;
        free(s);
    }
    return w + 2;
}

/* "lr" of "train.lr" when no other column that is compared ends so. */
static const char *short_title(const lf_texts *all, const char *key)
{
    const char *dot = strchr(key, '.');
    for (size_t i = 0; dot != NULL && i < all->n; i++)
        if (strcmp(all->v[i], key) != 0 && lf_str_has_suffix(all->v[i], dot))
            return key;
    return dot != NULL ? dot + 1 : key;
}

static int add_side(struct run_view *v, const char *key, const char *title, bool hidden,
                    lf_err *err)
{
    size_t k = v->keys.n;
    if (k == MAX_SIDE || lf_texts_has(&v->keys, key))
        return 0;
    int rc = lf_texts_add(&v->keys, key, err);
    if (rc < 0)
        return rc;
    snprintf(v->titles[k], sizeof v->titles[k], "%s", title);
    v->cols[v->n_cols++] = (lf_column){v->keys.v[k], v->titles[k], true, hidden};
    return 0;
}

static void title_of(char *buf, size_t cap, const struct run_view *v, const char *key)
{
    if (strcmp(key, "last") == 0 || strcmp(key, "best") == 0)
        lf_comparison_title(buf, cap, v->side, key);
    else
        snprintf(buf, cap, "%s", lf_texts_has(&v->names, key) ? short_title(&v->names, key) : key);
}

/* A column that the user named takes its room even where there is none. */
static int add_named(struct run_view *v, const char *key, bool hidden, lf_err *err)
{
    char title[64];
    title_of(title, sizeof title, v, key);
    size_t w = width_of(v, key, title);
    if (!lf_texts_has(&v->keys, key))
        v->room -= w < v->room ? w : v->room;
    return add_side(v, key, title, hidden, err);
}

/* One that was not named is there as long as there is room. */
static int add_chosen(struct run_view *v, const char *key, bool setting, lf_err *err)
{
    char title[64];
    title_of(title, sizeof title, v, key);
    size_t w = width_of(v, key, title);
    if (lf_texts_has(&v->keys, key))
        return 0;
    if (w > v->room || v->keys.n == MAX_SIDE) {
        v->next = setting && v->left == 0 ? key : v->next;
        v->left += setting;
        return 0;
    }
    v->room -= w;
    return add_side(v, key, title, false, err);
}

/* The loss, what the rows are sorted by, and then settings that differ. */
static int add_differing(struct run_view *v, const char *by, lf_err *err)
{
    static const char *const judged[] = {"last", "best"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++)
        if (lf_comparison_has(v->side, judged[i]))
            rc = add_chosen(v, judged[i], false, err);
    if (rc == 0 && by != NULL && !is_run_col(by))
        rc = add_named(v, by, false, err);
    for (size_t i = 0; rc == 0 && i < v->names.n; i++)
        rc = add_chosen(v, v->names.v[i], true, err);
    return rc;
}

static int no_such_column(const struct run_view *v, const char *option, const char *word,
                          lf_err *err)
{
    const char *names[N_RUN_COLS + 400];
    size_t n = 0;
    lf_texts more = {.n = 0};
    for (; n < N_RUN_COLS; n++)
        names[n] = run_cols[n].key;
    int rc = lf_comparison_names(&more, v->side, err);
    for (size_t i = 0; i < more.n && i < 400; i++)
        names[n++] = more.v[i];
    const char *near = lf_nearest(word, names, n);
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL,
                     "%s: no run shown has a column, setting or metric \"%s\"%s%s%s", option, word,
                     near != NULL ? "; did you mean " : "; `--columns help` lists them",
                     near != NULL ? near : "", near != NULL ? "?" : "");
    lf_texts_fini(&more);
    return rc;
}

/* Settings and metrics that the list of columns names. */
static int add_asked(struct run_view *v, const char *spec, lf_err *err)
{
    char copy[4096], *save = NULL;
    int rc = 0;
    snprintf(copy, sizeof copy, "%s", spec[0] == '+' ? spec + 1 : spec);
    for (char *w = strtok_r(copy, ", ", &save); rc == 0 && w != NULL;
         w = strtok_r(NULL, ", ", &save)) {
        bool named = strcmp(w, "default") == 0 || strcmp(w, "all") == 0 || strcmp(w, "help") == 0;
        w[strcspn(w, "%:")] = '\0';
        for (const lf_format *f = run_formats; f->name != NULL; f++)
            named = named || strcmp(f->name, w) == 0;
        if (named || is_run_col(w))
            continue;
        rc = lf_comparison_has(v->side, w) ? add_named(v, w, true, err)
                                           : no_such_column(v, "--columns", w, err);
    }
    return rc;
}

/* Tags come last, and only where there are some. spec, by: the words of --columns and --sort. */
static int choose_columns(struct run_view *v, const char *spec, const char *by, lf_err *err)
{
    lf_column tags = {NULL, NULL, false, true};
    bool tagged = false;
    size_t used = 0, width = lf_screen_width() + 2; /* behind the last column is no gap */
    for (size_t i = 0; i < v->list->runs.n; i++)
        tagged = tagged || v->list->runs.v[i].tags.n > 0;
    for (size_t i = 0; i < N_RUN_COLS; i++) {
        lf_column col = run_cols[i];
        bool is_tags = strcmp(col.key, "tags_text") == 0;
        col.hidden = col.hidden || (is_tags && !tagged);
        used += col.hidden ? 0 : width_of(v, col.key, col.title);
        if (is_tags)
            tags = col;
        else
            v->cols[v->n_cols++] = col;
    }
    v->room = width > used ? width - used : 0;
    int rc = lf_comparison_settings(&v->names, v->side, err);
    if (rc == 0 && spec != NULL)
        rc = add_asked(v, spec, err);
    if (rc == 0)
        rc = add_differing(v, by, err);
    v->cols[v->n_cols++] = tags;
    return rc;
}

/* Before qsort_r: where two rows stand by a column. Runs without a value come last, and what is
 * equal stays newest first. */
struct sorting {
    const struct run_view *v;
    const char *key;
    bool down;
};

static int text_order(const struct sorting *s, size_t x, size_t y)
{
    char *a = is_run_col(s->key) ? lf_fields_cell(&s->v->list->runs.v[x], &run_fields, s->key, NULL)
                                 : lf_comparison_cell(s->v->side, x, s->key, NULL);
    char *b = is_run_col(s->key) ? lf_fields_cell(&s->v->list->runs.v[y], &run_fields, s->key, NULL)
                                 : lf_comparison_cell(s->v->side, y, s->key, NULL);
    int order = a != NULL && b != NULL ? strcmp(a, b) : 0;
    free(a);
    free(b);
    return order;
}

static int by_column(const void *a, const void *b, void *user)
{
    const struct sorting *s = user;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    bool fixed = is_run_col(s->key);
    double p = fixed ? (double)NAN : lf_comparison_number(s->v->side, x, s->key);
    double q = fixed ? (double)NAN : lf_comparison_number(s->v->side, y, s->key);
    int order = 0;
    if (isnan(p) != isnan(q))
        return isnan(p) ? 1 : -1;
    if (isnan(p))
        order = text_order(s, x, y);
    else
        order = p < q ? -1 : p > q;
    if (order == 0)
        return x < y ? -1 : x > y;
    return s->down ? -order : order;
}

/* "best", "-second.lr": by a column, with '-' the largest first. */
static int sort_rows(struct run_view *v, const char *by, lf_err *err)
{
    const size_t n = v->list->runs.n;
    v->order = lf_calloc(n + 1, sizeof *v->order, err);
    if (v->order == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        v->order[i] = i;
    if (by == NULL)
        return 0;
    struct sorting s = {.v = v, .key = by[0] == '-' ? by + 1 : by, .down = by[0] == '-'};
    if (!is_run_col(s.key) && !lf_comparison_has(v->side, s.key) && n > 0)
        return no_such_column(v, "--sort", s.key, err);
    qsort_r(v->order, n, sizeof *v->order, by_column, &s);
    return 0;
}

static int show_table(const lf_cmd *c, const struct run_list *list, lf_comparison *side,
                      lf_err *err)
{
    const char *spec = lf_optset_str(c->opts, "columns"), *by = lf_optset_str(c->opts, "sort");
    struct run_view v = {.list = list, .side = side, .keys = {.given = true}};
    int rc = sort_rows(&v, by, err);
    if (rc == 0)
        rc = choose_columns(&v, spec, by != NULL && by[0] == '-' ? by + 1 : by, err);
    const lf_table t = {v.cols, v.n_cols, run_formats};
    if (rc == 0)
        rc = lf_table_cells(&t, &(lf_cells){.n = list->runs.n, .cell = run_cell, .rows = &v}, spec,
                            err);
    if (rc == 0 && spec != NULL && strcmp(spec, "help") == 0)
        puts("also a setting STAGE.OPTION or model.KEY, and a metric: METRIC, STAGE.METRIC, "
             "min.METRIC, max.METRIC");
    /* The table may go to a program, so the remark has another way. */
    if (rc == 0 && v.left > 0 && (spec == NULL || spec[0] == '+'))
        lf_say_err("%zu more settings differ: -o +%s shows the next one, a wider terminal all\n",
                   v.left, v.next);
    lf_texts_fini(&v.names);
    lf_texts_fini(&v.keys);
    free(v.order);
    return rc;
}

static int show_runs(const lf_cmd *c, const struct run_list *list, const lf_project *p, lf_err *err)
{
    if (c->json && lf_optset_is_set(c->opts, "sort"))
        return lf_fail(err, LF_EINVAL, "--sort is for the table; JSON has the newest run first");
    if (c->json)
        return lf_cmd_print(list, &list_fields, err);
    lf_compared_run *runs = lf_calloc(list->runs.n + 1, sizeof *runs, err);
    if (runs == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < list->runs.n; i++)
        runs[i] = (lf_compared_run){&list->runs.v[i].r, &list->runs.v[i].settings};
    lf_comparison *side = lf_comparison_open(runs, list->runs.n, p, c->tables, err);
    int rc = side != NULL ? show_table(c, list, side, err) : LF_ENOMEM;
    lf_comparison_close(side);
    free(runs);
    return rc;
}

int lf_cmd_status_all(lf_cmd *c, const lf_project *p, lf_err *err)
{
    const char *since = lf_optset_str(c->opts, "since");
    struct filter f = {.states = lf_optset_str(c->opts, "state"),
                       .tag = lf_optset_str(c->opts, "tag")};
    lf_run_list l = {NULL, 0, 0};
    struct run_list list = {.runs = {.n = 0}, .c = c};
    int rc = since != NULL ? parse_since(&f.since, since, err) : 0;
    if (rc == 0 && f.states != NULL)
        rc = check_states(f.states, err);
    if (rc == 0)
        rc = lf_run_list_load(&l, p, err);
    if (rc == 0) {
        ask_ledger(&f, p);
        rc = collect(&list, &f, &l, (size_t)lf_optset_int(c->opts, "lines"), err);
    }
    lf_run_list_fini(&l);
    if (rc == 0)
        rc = show_runs(c, &list, p, err);
    lf_fields_fini(&list, &list_fields);
    lf_lists_fini(&f.tags);
    lf_pairs_fini(&f.known);
    return rc;
}
