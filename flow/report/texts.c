/* SPDX-License-Identifier: Apache-2.0
 *
 * What models wrote: results of generation with their prompts, and samples during training.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/record/made.h"
#include "flow/record/record.h"
#include "flow/report/report.h"
#include "flow/run/samples.h"

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
    char dir[PATH_MAX]; /* where the paths of pictures begin, as for lf-generate; "": here */
};

/* The line of the file that a result belongs to, NULL: there is none. lf-generate calls a request
 * without an id by its line: "line-7". */
static const lf_text_line *asked(const struct prompts *p, const char *id)
{
    size_t number = 0;
    int end = 0;
    if (id == NULL)
        return NULL;
    const bool by_line = sscanf(id, "line-%zu%n", &number, &end) == 1 && id[end] == '\0';
    for (size_t i = 0; i < p->file.n; i++) {
        const lf_text_line *l = &p->file.v[i];
        if (l->id != NULL ? lf_text_same(l->id, id) : by_line && l->number == number)
            return l;
    }
    return NULL;
}

static const lf_texts *images_of(const struct prompts *p, const lf_text_line *l)
{
    const lf_text_line *request = l->images.n == 0 ? asked(p, l->id) : NULL;
    return request != NULL ? &request->images : &l->images;
}

static const char *prompt_of(const struct prompts *p, const char *id)
{
    int n = 0, end = 0;
    const lf_text_line *request = asked(p, id);
    if (request != NULL)
        return request->prompt;
    if (id != NULL && p->given != NULL && sscanf(id, "prompt-%d%n", &n, &end) == 1 &&
        id[end] == '\0' && n >= 1 && (size_t)n <= p->given->n)
        return p->given->v[n - 1];
    return NULL;
}

static void sample(lf_buf *b, const lf_text_line *l, const struct prompts *p)
{
    const char *prompt = l->prompt != NULL ? l->prompt : prompt_of(p, l->id);
    lf_buf_adds(b, "<figure class=\"sample\"><figcaption class=\"dim\">");
    lf_html_text(b, l->id != NULL ? l->id : "");
    if (l->sample.v > 0 && l->answer == NULL)
        lf_buf_addf(b, ", sample %lld", (long long)l->sample.v + 1);
    if (l->answer != NULL) {
        lf_buf_adds(b, ", ");
        lf_html_text(b, l->answer);
    }
    if (l->score.given)
        lf_buf_addf(b, ", score %.4f", l->score.v);
    if (prompt == NULL && l->prompt_tokens.given)
        lf_buf_addf(b, ", behind a prompt of %lld tokens", (long long)l->prompt_tokens.v);
    if (l->finish_reason != NULL) {
        lf_buf_adds(b, ", ended by ");
        lf_html_text(b, strcmp(l->finish_reason, "length") == 0 ? "its length" : l->finish_reason);
    }
    lf_buf_adds(b, "</figcaption>");
    lf_report_pictures(b, images_of(p, l), p->dir[0] != '\0' ? p->dir : NULL);
    lf_buf_adds(b, "<pre>");
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

/* The path of an input as the stage had it, NULL: there is none. */
static const char *input_of(const struct lf_done *done, const char *name)
{
    for (size_t i = 0; done != NULL && i < done->n_inputs; i++)
        if (lf_text_same(done->inputs[i].name, name) && done->inputs[i].path != NULL)
            return done->inputs[i].path;
    return NULL;
}

static int load_prompts(struct prompts *p, const lf_facts_stage *s, lf_err *err)
{
    size_t more;
    const struct lf_done *done = s->view->result_done;
    int rc = 0;
    memset(p, 0, sizeof *p);
    p->given = lf_lists_get(&s->view->plan->options, "prompt");
    const char *prompts = input_of(done, "prompts"), *media = input_of(done, "media_dir");
    if (prompts != NULL)
        rc = lf_text_lines_load(&p->file, &more, prompts, 100000, err);
    const char *slash = prompts != NULL ? strrchr(prompts, '/') : NULL;
    if (rc == 0 && media != NULL)
        rc = lf_path_set(p->dir, err, "%s", media);
    else if (rc == 0 && slash != NULL)
        rc = lf_path_set(p->dir, err, "%.*s", (int)(slash - prompts), prompts);
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

static size_t end_of_step(const lf_text_lines *l, size_t from)
{
    size_t to = from;
    while (to < l->n && l->v[to].step.v == l->v[from].step.v)
        to++;
    return to;
}

/* Where each step begins among the lines; *n: how many there are. Owned. */
static size_t *begins_of(const lf_text_lines *l, size_t *n, lf_err *err)
{
    size_t *at = lf_calloc(l->n + 1, sizeof *at, err);
    *n = 0;
    for (size_t i = 0; at != NULL && i < l->n; i = end_of_step(l, i))
        at[(*n)++] = i;
    return at;
}

static void step_samples(lf_buf *b, const lf_text_lines *l, size_t from, bool open)
{
    const struct prompts none = {.given = NULL};
    const size_t to = end_of_step(l, from), n = to - from < SAMPLES ? to - from : SAMPLES;
    lf_buf_addf(b, "<details%s><summary>at step %lld</summary>\n", open ? " open" : "",
                (long long)l->v[from].step.v);
    samples(b, &(lf_text_lines){.v = l->v + from, .n = n}, to - from - n, &none);
    lf_buf_adds(b, "</details>\n");
}

/* The newest samples are open; of many steps some are shown, evenly spread. */
static int show_steps(lf_buf *b, const lf_text_lines *l, lf_err *err)
{
    size_t total, *at = begins_of(l, &total, err);
    const size_t n = total < STEPS ? total : STEPS;
    for (size_t i = 0; at != NULL && i < n; i++)
        step_samples(b, l, at[n > 1 ? (n - 1 - i) * (total - 1) / (n - 1) : total - 1], i == 0);
    if (at != NULL && total > n)
        lf_buf_addf(b, "<p class=\"dim\">%zu steps of %zu; samples.jsonl has all.</p>\n", n, total);
    free(at);
    return at != NULL ? 0 : LF_ENOMEM;
}

static int training_samples(lf_buf *b, bool *any, const lf_facts_stage *s, lf_err *err)
{
    lf_text_lines lines = {.n = 0};
    int rc = lf_samples_records(&lines, s->view, err);
    if (rc == 0 && lines.n > 0) {
        lf_buf_adds(b, *any ? "" : "<h2>Texts</h2>\n");
        *any = true;
        lf_buf_adds(b, "<h3>");
        lf_html_text(b, s->view->plan->name);
        lf_buf_adds(b, ", samples while it trained</h3>\n");
        rc = show_steps(b, &lines, err);
    }
    lf_text_lines_fini(&lines);
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
