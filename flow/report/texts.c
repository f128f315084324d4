/* SPDX-License-Identifier: Apache-2.0
 *
 * What models wrote: results of generation with their prompts, and samples during training.
 */
#include "config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/made.h"
#include "flow/record/record.h"
#include "flow/report/report.h"

enum { SHOWN = 20, TEXT_BYTES = 4000, STEPS = 12, SAMPLES = 8 };

/* A text with its end cut off between two characters. */
static void cut_text(lf_buf *b, const char *text)
{
    char part[TEXT_BYTES + 1];
    size_t n = strlen(text);
    if (n <= TEXT_BYTES) {
        lf_html_text(b, text);
        return;
    }
    n = TEXT_BYTES;
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    snprintf(part, sizeof part, "%.*s", (int)n, text);
    lf_html_text(b, part);
    lf_buf_addf(b, "<span class=\"dim\"> ... %zu bytes more</span>", strlen(text) - n);
}

/* ---- prompts ---- */

struct prompts {
    const lf_texts *given; /* of the option prompt: "prompt-1" is the first */
    lf_text_lines file;
};

static const char *prompt_of(const struct prompts *p, const char *id)
{
    int n = 0, end = 0;
    for (size_t i = 0; id != NULL && i < p->file.n; i++)
        if (lf_text_same(p->file.v[i].id, id))
            return p->file.v[i].prompt;
    if (id != NULL && p->given != NULL && sscanf(id, "prompt-%d%n", &n, &end) == 1 &&
        id[end] == '\0' && n >= 1 && (size_t)n <= p->given->n)
        return p->given->v[n - 1];
    return NULL;
}

static void sample(lf_buf *b, const lf_text_line *l, const struct prompts *p)
{
    const char *prompt = prompt_of(p, l->id);
    lf_buf_adds(b, "<figure class=\"sample\"><figcaption class=\"dim\">");
    lf_html_text(b, l->id != NULL ? l->id : "");
    if (l->sample.v > 0)
        lf_buf_addf(b, ", sample %lld", (long long)l->sample.v + 1);
    if (prompt == NULL && l->prompt_tokens.given)
        lf_buf_addf(b, ", behind a prompt of %lld tokens", (long long)l->prompt_tokens.v);
    if (l->finish_reason != NULL) {
        lf_buf_adds(b, ", ended by ");
        lf_html_text(b, strcmp(l->finish_reason, "length") == 0 ? "its length" : l->finish_reason);
    }
    lf_buf_adds(b, "</figcaption><pre>");
    if (prompt != NULL) {
        lf_buf_adds(b, "<b class=\"prompt\">");
        cut_text(b, prompt);
        lf_buf_adds(b, "</b>");
    }
    cut_text(b, l->text != NULL ? l->text : "");
    lf_buf_adds(b, "</pre></figure>\n");
}

static void samples(lf_buf *b, const lf_text_lines *l, size_t more, const struct prompts *p)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].text != NULL)
            sample(b, &l->v[i], p);
    if (more > 0)
        lf_buf_addf(b, "<p class=\"dim\">%zu more are in the file.</p>\n", more);
}

/* ---- results of a stage ---- */

static int load_prompts(struct prompts *p, const lf_facts_stage *s, lf_err *err)
{
    size_t more;
    const struct lf_done *done = s->view->result_done;
    int rc = 0;
    memset(p, 0, sizeof *p);
    p->given = lf_lists_get(&s->view->plan->options, "prompt");
    for (size_t i = 0; done != NULL && rc == 0 && p->file.n == 0 && i < done->n_inputs; i++)
        if (lf_text_same(done->inputs[i].name, "prompts") && done->inputs[i].path != NULL)
            rc = lf_text_lines_load(&p->file, &more, done->inputs[i].path, 100000, err);
    return rc;
}

static int result_texts(lf_buf *b, bool *any, const lf_facts_stage *s, lf_err *err)
{
    const struct lf_done *done = s->view->result_done;
    int rc = 0;
    for (size_t i = 0; done != NULL && rc == 0 && i < done->n_outputs; i++) {
        char path[PATH_MAX];
        lf_text_lines lines = {.n = 0};
        struct prompts prompts = {.given = NULL};
        size_t more = 0;
        if (!lf_text_same(done->outputs[i].kind, "text"))
            continue;
        rc = lf_path_set(path, err, "%s/%s/out.jsonl", s->from.dir, done->outputs[i].path);
        if (rc == 0)
            rc = lf_text_lines_load(&lines, &more, path, SHOWN, err);
        if (rc == 0 && lines.n > 0)
            rc = load_prompts(&prompts, s, err);
        if (rc == 0 && lines.n > 0) {
            lf_buf_adds(b, *any ? "" : "<h2>Texts</h2>\n");
            *any = true;
            lf_html_in(b, "h3", "", s->view->plan->name);
            samples(b, &lines, more, &prompts);
        }
        lf_text_lines_fini(&prompts.file);
        lf_text_lines_fini(&lines);
    }
    return rc;
}

/* ---- samples during training ---- */

struct at_step {
    long step;
    char *path;
};
typedef LF_ROWS(struct at_step) steps_of;

static int is_step(const struct dirent *e)
{
    return strncmp(e->d_name, "step-", 5) == 0 && strlen(e->d_name) > 11 &&
           strcmp(e->d_name + strlen(e->d_name) - 6, ".jsonl") == 0;
}

/* A later start writes what comes behind the step where it begins, so a list that goes back ends
 * there. */
static int add_step(steps_of *out, long step, const char *path, lf_err *err)
{
    while (out->n > 0 && out->v[out->n - 1].step >= step)
        free(out->v[--out->n].path);
    struct at_step *row = lf_rows_add(out, sizeof *row, err);
    if (row == NULL)
        return LF_ENOMEM;
    row->step = step;
    return lf_text_set(&row->path, path, "path", err);
}

static int list_steps(steps_of *out, const char *start_dir, lf_err *err)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct dirent **names = NULL;
    int rc = lf_path_set(dir, err, "%s/out/samples", start_dir);
    int n = rc == 0 ? scandir(dir, &names, is_step, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = lf_path_set(path, err, "%s/%s", dir, names[i]->d_name);
        if (rc == 0)
            rc = add_step(out, strtol(names[i]->d_name + 5, NULL, 10), path, err);
        free(names[i]);
    }
    free(names);
    return rc;
}

static int step_samples(lf_buf *b, const struct at_step *at, bool open, const struct prompts *p,
                        lf_err *err)
{
    lf_text_lines lines;
    size_t more;
    int rc = lf_text_lines_load(&lines, &more, at->path, SAMPLES, err);
    if (rc < 0)
        return rc;
    lf_buf_addf(b, "<details%s><summary>at step %ld</summary>\n", open ? " open" : "", at->step);
    samples(b, &lines, more, p);
    lf_buf_adds(b, "</details>\n");
    lf_text_lines_fini(&lines);
    return 0;
}

/* The newest samples are open; of many steps some are shown, evenly spread. */
static int show_steps(lf_buf *b, const lf_facts_stage *s, const steps_of *steps, lf_err *err)
{
    char path[PATH_MAX];
    size_t more, n = steps->n < STEPS ? steps->n : STEPS;
    struct prompts p = {.given = NULL};
    int rc = lf_path_set(path, err, "%s/out/samples/prompts.jsonl", s->from.dir);
    if (rc == 0)
        rc = lf_text_lines_load(&p.file, &more, path, 1000, err);
    if (rc == 0 && p.file.n == 0)
        rc = load_prompts(&p, s, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        size_t at = n > 1 ? (n - 1 - i) * (steps->n - 1) / (n - 1) : steps->n - 1;
        rc = step_samples(b, &steps->v[at], i == 0, &p, err);
    }
    lf_text_lines_fini(&p.file);
    return rc;
}

static int training_samples(lf_buf *b, bool *any, const lf_facts_stage *s, lf_err *err)
{
    steps_of steps = {.n = 0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->view->n_incs; i++)
        rc = list_steps(&steps, s->view->incs[i].dir, err);
    if (rc == 0 && s->view->n_incs == 0 && s->from.dir != NULL)
        rc = list_steps(&steps, s->from.dir, err);
    if (rc == 0 && steps.n > 0) {
        lf_buf_adds(b, *any ? "" : "<h2>Texts</h2>\n");
        *any = true;
        lf_buf_adds(b, "<h3>");
        lf_html_text(b, s->view->plan->name);
        lf_buf_addf(b, ", samples while it trained</h3>\n");
        rc = show_steps(b, s, &steps, err);
    }
    for (size_t i = 0; i < steps.n; i++)
        free(steps.v[i].path);
    free(steps.v);
    return rc;
}

int lf_report_texts(lf_buf *b, const lf_facts *f, lf_err *err)
{
    bool any = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->n; i++) {
        rc = result_texts(b, &any, &f->stages[i], err);
        if (rc == 0)
            rc = training_samples(b, &any, &f->stages[i], err);
    }
    return rc;
}
