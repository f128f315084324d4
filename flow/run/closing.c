/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of a stage for people.
 */
#include "config.h"

#include "flow/run/closing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/record/fields.h"
#include "flow/record/record.h"
#include "flow/run/series.h"

#define LOSS_MEMORY 0.98 /* as engine/train/step.c, whose last line says the same number */
#define TEXTS       2    /* that are shown */
#define TEXT_LINES  3    /* of each */
#define TEXT_WIDTH  76

/* ---- numbers ---- */

/* First and last mean of a key over the records; not given where no record has it. */
static void add_course(lf_real *first, lf_real *last, const lf_metric_rows *rows, const char *key)
{
    double sum = 0, weight = 0, v;
    for (size_t i = 0; i < rows->n; i++) {
        if (!lf_raw_number(&v, rows->v[i].values, key))
            continue;
        if (!first->given)
            *first = lf_real_of(v);
        sum = LOSS_MEMORY * sum + v;
        weight = LOSS_MEMORY * weight + 1;
    }
    if (weight > 0)
        *last = lf_real_of(sum / weight);
}

static void add_training(lf_closing *c, const lf_metric_rows *rows)
{
    double v, rate, step_s, tokens = 0, seconds = 0;
    add_course(&c->first_loss, &c->loss, rows, "loss");
    add_course(&c->first_reward, &c->reward, rows, "reward");
    for (size_t i = 0; i < rows->n; i++) {
        const lf_metric_row *r = &rows->v[i];
        if (lf_raw_number(&v, r->values, "valid_loss")) {
            c->valid_loss = lf_real_of(v);
            if (!c->best_valid_loss.given || v < c->best_valid_loss.v) {
                c->best_valid_loss = lf_real_of(v);
                c->best_step = lf_int_of((int64_t)r->step.v);
            }
        }
        if (!lf_raw_number(&rate, r->values, "tokens_per_s"))
            continue;
        if (!lf_raw_number(&step_s, r->values, "step_s"))
            step_s = 1;
        tokens += rate * step_s;
        seconds += step_s;
    }
    if (seconds > 0)
        c->tokens_per_s = lf_real_of(tokens / seconds);
}

static int add_metrics(lf_closing *c, const lf_stage_view *s)
{
    lf_metric_rows rows;
    if (lf_metrics_records(&rows, s, NULL) < 0)
        return 0;
    lf_real loss = {.given = false}, last = {.given = false};
    add_course(&loss, &last, &rows, "loss");
    if (loss.given)
        add_training(c, &rows);
    lf_metric_rows_fini(&rows);
    return 0;
}

/* ---- texts ---- */

/* The id of a prompt among the settings is prompt-K. */
static int add_prompt(lf_sample *x, const lf_doc_stage *plan, lf_err *err)
{
    const lf_texts *prompts = lf_lists_get(&plan->options, "prompt");
    int k = 0;
    char rest;
    if (x->id == NULL || x->prompt != NULL || prompts == NULL ||
        sscanf(x->id, "prompt-%d%c", &k, &rest) != 1 || k < 1 || (size_t)k > prompts->n)
        return 0;
    return lf_text_set(&x->prompt, prompts->v[k - 1], "prompt", err);
}

static int add_texts(lf_closing *c, const lf_stage_view *s, const char *rel, lf_err *err)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/%s/out.jsonl", s->result_dir, rel) < 0)
        return 0;
    int rc = lf_closing_add_texts(c, path, TEXTS, err);
    for (size_t i = 0; rc == 0 && i < c->samples.n; i++)
        rc = add_prompt(&c->samples.v[i], s->plan, err);
    return rc;
}

/* ---- all of it ---- */

/* An import was compared with the numbers of a file, or the pipeline says that it need not be. An
 * export is not compared with anything. */
static void add_verified(lf_closing *c, const lf_doc_stage *plan)
{
    const lf_texts *verify = lf_lists_get(&plan->options, "verify");
    if (verify != NULL && verify->n == 1)
        c->verified = lf_flag_of(strcmp(verify->v[0], "none") != 0);
}

static int add_outputs(lf_closing *c, const lf_stage_view *s, lf_err *err)
{
    const bool converts = strcmp(s->plan->kind, "convert") == 0;
    const struct lf_done *done = s->result_done;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < done->n_outputs; i++) {
        const struct lf_output *o = &done->outputs[i];
        const bool weights = o->kind != NULL &&
                             (strcmp(o->kind, "checkpoint") == 0 || strcmp(o->kind, "model") == 0);
        if (weights && !converts) /* of training its metrics speak */
            continue;
        rc = lf_closing_add_output(c, o, err);
        if (rc == 0 && o->kind != NULL && strcmp(o->kind, "text") == 0 && o->path != NULL)
            rc = add_texts(c, s, o->path, err);
    }
    if (converts && c->tensors.given)
        add_verified(c, s->plan);
    return rc;
}

int lf_closing_of(lf_closing *out, const lf_stage_view *s, lf_err *err)
{
    memset(out, 0, sizeof *out);
    int rc = add_metrics(out, s);
    if (rc == 0 && s->state == LF_STATE_DONE && s->result_done != NULL && s->result_dir != NULL)
        rc = add_outputs(out, s, err);
    out->given = out->loss.given || out->documents.given || out->pictures.given ||
                 out->scores.n > 0 || out->results.given || out->tensors.given;
    if (rc < 0 || !out->given)
        lf_closing_fini(out);
    return rc;
}

/* ---- in words ---- */

static const char *sep(const lf_buf *b)
{
    return b->len > 0 ? ", " : "";
}

static void word_training(lf_buf *b, const lf_closing *c)
{
    char t[32];
    if (c->loss.given)
        lf_buf_addf(b, "loss %.4g -> %.4g", c->first_loss.v, c->loss.v);
    if (c->reward.given)
        lf_buf_addf(b, "%sreward %.4g -> %.4g", sep(b), c->first_reward.v, c->reward.v);
    if (c->valid_loss.given)
        lf_buf_addf(b, "%svalidation %.4g", sep(b), c->valid_loss.v);
    if (c->valid_loss.given && c->best_valid_loss.v < c->valid_loss.v)
        lf_buf_addf(b, " (best %.4g at step %lld)", c->best_valid_loss.v,
                    (long long)c->best_step.v);
    else if (c->valid_loss.given)
        lf_buf_adds(b, " (the best)");
    if (c->tokens_per_s.given)
        lf_buf_addf(b, "%s%s tokens/s", sep(b), lf_fmt_count(t, sizeof t, c->tokens_per_s.v));
}

static void word_rest(lf_buf *b, const lf_closing *c)
{
    char t[32];
    if (c->documents.given)
        lf_buf_addf(b, "%s%s documents, ", sep(b),
                    lf_fmt_count(t, sizeof t, (double)c->documents.v));
    if (c->documents.given)
        lf_buf_addf(b, "%s tokens", lf_fmt_count(t, sizeof t, (double)c->tokens.v));
    if (c->bytes_per_token.given)
        lf_buf_addf(b, ", %.3g bytes a token", c->bytes_per_token.v);
    if (c->pictures.given)
        lf_buf_addf(b, "%s%s picture%s", sep(b), lf_fmt_count(t, sizeof t, (double)c->pictures.v),
                    c->pictures.v == 1 ? "" : "s");
    if (c->results.given)
        lf_buf_addf(b, "%s%lld text%s", sep(b), (long long)c->results.v,
                    c->results.v == 1 ? "" : "s");
    if (c->refused.given)
        lf_buf_addf(b, ", %lld of them could not be made", (long long)c->refused.v);
    if (c->tensors.given)
        lf_buf_addf(b, "%s%lld tensors", sep(b), (long long)c->tensors.v);
    if (c->family != NULL)
        lf_buf_addf(b, ", family %s", c->family);
    if (c->verified.given)
        lf_buf_adds(b, c->verified.v ? ", verified" : ", not verified (verify = none)");
}

static int add_line(lf_texts *out, lf_buf *b, lf_err *err)
{
    int rc = lf_buf_check(b, err);
    if (rc == 0)
        rc = lf_texts_add(out, lf_text_clean(b->data), err);
    lf_buf_clear(b);
    return rc;
}

/* The wider of two columns, so that values stand below each other. */
static int word_scores(lf_texts *out, lf_buf *b, const lf_closing *c, lf_err *err)
{
    int rc = 0, task = 0, metric = 0;
    for (size_t i = 0; i < c->scores.n; i++) {
        const lf_score *s = &c->scores.v[i];
        task = (int)strlen(s->task) > task ? (int)strlen(s->task) : task;
        metric = (int)strlen(s->metric) > metric ? (int)strlen(s->metric) : metric;
    }
    for (size_t i = 0; rc == 0 && i < c->scores.n; i++) {
        const lf_score *s = &c->scores.v[i];
        lf_buf_addf(b, "%-*s  %-*s  %10.5g", task, s->task, metric, s->metric, s->value.v);
        if (s->error.given && isfinite(s->error.v))
            lf_buf_addf(b, " +- %.2g", s->error.v);
        rc = add_line(out, b, err);
    }
    return rc;
}

/* How many bytes of a text make the next line: up to a newline, or to the last blank before the
 * width; a word that is longer is cut between two characters. */
static size_t line_of(const char *text)
{
    size_t n = strcspn(text, "\n"), width = 0, blank = 0, i = 0;
    for (; i < n && width <= TEXT_WIDTH; i++) {
        width += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (text[i] == ' ' && i > 0)
            blank = i;
    }
    if (width <= TEXT_WIDTH)
        return n;
    i = blank > 0 ? blank : i - 1;
    while (i > 1 && ((unsigned char)text[i] & 0xC0) == 0x80)
        i--;
    return i;
}

/* The prompt, or what else the text is known by, as one line. */
static void word_name(lf_buf *b, const lf_sample *x)
{
    const char *name = x->prompt != NULL ? x->prompt : x->id != NULL ? x->id : "text";
    const size_t n = line_of(name);
    lf_buf_addf(b, "[%.*s%s]", (int)n, name, name[n] != '\0' ? " ..." : "");
}

static int word_text(lf_texts *out, lf_buf *b, const lf_sample *x, lf_err *err)
{
    word_name(b, x);
    int rc = add_line(out, b, err), lines = 0;
    const char *at = x->failed != NULL ? x->failed : x->text != NULL ? x->text : "";
    at += strspn(at, "\n");
    for (; rc == 0 && *at != '\0' && lines < TEXT_LINES; lines++) {
        const size_t n = line_of(at);
        const char *next = at + n;
        next += strspn(next, lines + 1 < TEXT_LINES ? " \n" : "\n");
        const bool more = lines + 1 == TEXT_LINES && *next != '\0';
        lf_buf_addf(b, "  %.*s%s", (int)n, at, more ? " ..." : "");
        rc = add_line(out, b, err);
        at = next;
    }
    return rc;
}

int lf_closing_words(lf_texts *out, const lf_closing *c, lf_err *err)
{
    lf_buf b;
    *out = (lf_texts){.given = true};
    lf_buf_init(&b);
    word_training(&b, c);
    word_rest(&b, c);
    int rc = add_line(out, &b, err);
    if (rc == 0)
        rc = word_scores(out, &b, c, err);
    for (size_t i = 0; rc == 0 && i < c->samples.n; i++)
        rc = word_text(out, &b, &c->samples.v[i], err);
    lf_buf_fini(&b);
    if (rc < 0)
        lf_texts_fini(out);
    return rc;
}
