/* SPDX-License-Identifier: Apache-2.0
 *
 * See glue.h. */
#include "engine/text/corpus/glue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 64, MOST_CLASSES = 3 };

struct lf_glue_task {
    const char *name;
    const char *text[2]; /* names of columns; the second may be NULL */
    const char *label;
    const char *classes[MOST_CLASSES]; /* in words; NULL: in numbers */
    bool real;                         /* the label is a number, and no class */
    int bare_text,
        bare_label; /* columns of files of four columns that have no names; 0: none have */
};

#define ENTAILMENT                                                                                 \
    {                                                                                              \
        "entailment", "not_entailment"                                                             \
    }
static const struct lf_glue_task tasks[] = {
    {.name = "cola", .text = {"sentence"}, .label = "label", .bare_text = 3, .bare_label = 1},
    {.name = "sst2", .text = {"sentence"}, .label = "label"},
    {.name = "mrpc", .text = {"#1 String", "#2 String"}, .label = "Quality"},
    {.name = "qqp", .text = {"question1", "question2"}, .label = "is_duplicate"},
    {.name = "stsb", .text = {"sentence1", "sentence2"}, .label = "score", .real = true},
    {.name = "mnli",
     .text = {"sentence1", "sentence2"},
     .label = "gold_label",
     .classes = {"entailment", "neutral", "contradiction"}},
    {.name = "qnli", .text = {"question", "sentence"}, .label = "label", .classes = ENTAILMENT},
    {.name = "rte", .text = {"sentence1", "sentence2"}, .label = "label", .classes = ENTAILMENT},
    {.name = "wnli", .text = {"sentence1", "sentence2"}, .label = "label"}};
enum { TASKS = sizeof tasks / sizeof *tasks };

int lf_glue_set(lf_glue *g, const char *name, const char *between, lf_err *err)
{
    lf_buf known;
    *g = (lf_glue){.between = between ? between : "[SEP]"};
    if (!name)
        return between ? lf_fail(err, LF_EINVAL, "glue_between belongs to glue") : 0;
    for (size_t i = 0; i < TASKS; i++)
        if (strcmp(tasks[i].name, name) == 0) {
            g->task = &tasks[i];
            return 0;
        }
    lf_buf_init(&known);
    for (size_t i = 0; i < TASKS; i++)
        lf_buf_addf(&known, "%s%s", i ? ", " : "", tasks[i].name);
    int rc = lf_buf_check(&known, err);
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL, "glue = %.40s is none of its tasks: %s", name, known.data);
    lf_buf_fini(&known);
    return rc;
}

/* A column of a line. */
struct cell {
    const char *s;
    size_t n;
};

/* Cuts a line into columns; returns how many it has, of which MOST_COLUMNS are kept. */
static int cut(struct cell cell[MOST_COLUMNS], const char *line, size_t len)
{
    int n = 0;
    for (const char *at = line, *end = line + len;; n++) {
        const char *tab = memchr(at, '\t', (size_t)(end - at)), *to = tab ? tab : end;
        if (n < MOST_COLUMNS)
            cell[n] = (struct cell){at, (size_t)(to - at)};
        if (!tab)
            return n + 1;
        at = tab + 1;
    }
}

static bool is_word(const struct cell *c, const char *word)
{
    return c->n == strlen(word) && memcmp(c->s, word, c->n) == 0;
}

static int find_column(const struct cell *cell, int n, const char *name)
{
    for (int i = 0; name && i < n; i++)
        if (is_word(&cell[i], name))
            return i;
    return -1;
}

/* The first line of a file. Returns 1 when it is a row already. */
static int look(lf_glue *g, const struct cell *cell, int n, lf_err *err)
{
    const struct lf_glue_task *t = g->task;
    g->n = n;
    for (int i = 0; i < 2; i++)
        g->text[i] = find_column(cell, n, t->text[i]);
    g->label = find_column(cell, n, t->label);
    if (g->text[0] < 0 && t->bare_text && n == 4) {
        g->text[0] = t->bare_text;
        g->label = t->bare_label;
        return 1;
    }
    for (int i = 0; i < 2; i++)
        if (t->text[i] && g->text[i] < 0)
            return lf_fail(err, LF_EFORMAT,
                           "its first line names no column %s, which files of glue = %s have",
                           t->text[i], t->name);
    return 0;
}

/* LF_EFORMAT: the label is no class, or no number. */
static int add_label(const lf_glue *g, const struct cell *c, lf_buf *row, lf_err *err)
{
    const struct lf_glue_task *t = g->task;
    char text[64], *end = NULL;
    int k = 0;
    snprintf(text, sizeof text, "%.*s", (int)(c->n < 63 ? c->n : 63), c->s);
    while (k < MOST_CLASSES && t->classes[k] && !is_word(c, t->classes[k]))
        k++;
    if (t->classes[0] && k < MOST_CLASSES && t->classes[k]) {
        lf_buf_addf(row, ",\"label\":%d", k);
        return 0;
    }
    const double x = t->classes[0] ? (double)NAN : strtod(text, &end);
    if (!isfinite(x) || end == text || *end || strlen(text) != c->n ||
        (!t->real && strcmp(text, "0") != 0 && strcmp(text, "1") != 0))
        return lf_fail(err, LF_EFORMAT, "%s = '%s' is no label of glue = %s", t->label, text,
                       t->name);
    lf_buf_addf(row, ",\"label\":%.17g", x);
    return 0;
}

int lf_glue_row(lf_glue *g, const char *line, size_t len, uint64_t number, lf_buf *row, lf_err *err)
{
    struct cell cell[MOST_COLUMNS];
    const int n = cut(cell, line, len);
    int rc = n > MOST_COLUMNS ? lf_fail(err, LF_EFORMAT, "it has %d columns", n) : 0;
    if (rc == 0 && number == 1)
        rc = look(g, cell, n, err);
    if (rc < 0 || (rc == 0 && number == 1))
        return rc;
    if (n != g->n)
        return lf_fail(err, LF_EFORMAT, "it has %d columns, and the first line of the file has %d",
                       n, g->n);
    lf_buf_clear(row);
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_add(&text, cell[g->text[0]].s, cell[g->text[0]].n);
    if (g->task->text[1]) {
        lf_buf_adds(&text, g->between);
        lf_buf_add(&text, cell[g->text[1]].s, cell[g->text[1]].n);
    }
    rc = lf_buf_check(&text, err);
    if (rc == 0) {
        lf_buf_adds(row, "{\"prompt\":");
        lf_buf_add_json(row, text.data ? text.data : "", text.len);
    }
    if (rc == 0 && g->label >= 0)
        rc = add_label(g, &cell[g->label], row, err);
    lf_buf_addc(row, '}');
    lf_buf_fini(&text);
    rc = rc == 0 ? lf_buf_check(row, err) : rc;
    return rc < 0 ? rc : 1;
}
