/* SPDX-License-Identifier: Apache-2.0
 *
 * Provenance in words: see provenance.h.
 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/record/record.h"
#include "flow/record/units.h"
#include "flow/run/provenance.h"

/* A table that is being written: rows of a name and a text, of which the text is made in parts. */
struct rows {
    lf_pairs *out;
    lf_buf text;
    const lf_provenance *p;
    const lf_stage_view *s;
    int rc;
    lf_err *err;
};

/* Ends a row; one without text is left out. */
static void row(struct rows *r, const char *name)
{
    if (r->rc == 0 && r->text.len > 0)
        r->rc = lf_buf_check(&r->text, r->err);
    if (r->rc == 0 && r->text.len > 0)
        r->rc = lf_pairs_add(r->out, name, lf_text_clean(r->text.data), r->err);
    lf_buf_clear(&r->text);
}

static void part(struct rows *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parts of a row have commas between them. */
static void part(struct rows *r, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (r->text.len > 0)
        lf_buf_adds(&r->text, ", ");
    lf_buf_adds(&r->text, text);
}

static double number_of(const char *text)
{
    double v = NAN;
    return text != NULL && lf_parse_f64(&v, text, NULL) == 0 ? v : (double)NAN;
}

static bool positive(const char *text)
{
    return number_of(text) > 0;
}

static void model_rows(struct rows *r)
{
    char n[32];
    const lf_stage_view *v = r->s;
    const lf_provenance *p = r->p;
#define M(key) lf_provenance_model(p, v, key)
    if (M("family") != NULL)
        part(r, "%s", M("family"));
    if (v->plan->plan.parameters.given)
        part(r, "%s parameters", lf_fmt_value(n, sizeof n, v->plan->plan.parameters.v));
    row(r, "model");
    if (M("layers") != NULL)
        part(r, "%s layers", M("layers"));
    if (M("hidden") != NULL)
        part(r, "hidden %s", M("hidden"));
    if (M("heads") != NULL)
        part(r, "%s heads", M("heads"));
    if (M("kv_heads") != NULL && strcmp(M("kv_heads"), "0") != 0)
        part(r, "%s of keys and values", M("kv_heads"));
    if (positive(M("ffn")))
        part(r, "feed-forward %s", M("ffn"));
    if (positive(M("experts")))
        part(r, "%s experts, %s at a time", M("experts"),
             M("experts_per_token") != NULL ? M("experts_per_token") : "?");
    row(r, "shape");
    if (M("vocab") != NULL)
        part(r, "%s entries", M("vocab"));
    if (p->trained != NULL && p->trained->tokenizer_sha256 != NULL)
        part(r, "tokenizer %.12s", p->trained->tokenizer_sha256);
    else if (p->dataset != NULL && p->dataset->tokenizer_sha256 != NULL)
        part(r, "tokenizer %.12s", p->dataset->tokenizer_sha256);
    row(r, "vocabulary");
    if (M("max_positions") != NULL)
        part(r, "%s tokens", M("max_positions"));
    if (lf_provenance_option(p, v, "seq_length") != NULL)
        part(r, "trained on sequences of %s", lf_provenance_option(p, v, "seq_length"));
    row(r, "context");
#undef M
}

static void split_part(struct rows *r, const struct lf_split_said *q)
{
    char a[32], c[32], d[32];
    if (!q->tokens.given || q->tokens.v <= 0)
        return;
    part(r, "%s documents with %s tokens", lf_fmt_value(a, sizeof a, q->docs.v),
         lf_fmt_value(c, sizeof c, q->tokens.v));
    if (q->text_bytes.v > 0)
        part(r, "%s of text", lf_fmt_bytes(d, sizeof d, q->text_bytes.v));
}

static void data_rows(struct rows *r)
{
    const lf_dataset *d = r->p->dataset;
    for (size_t i = 0; d != NULL && i < d->sources.n && i < 6; i++)
        if (d->sources.v[i].path != NULL)
            part(r, "%s", d->sources.v[i].path);
    if (d != NULL && d->sources.n > 6)
        part(r, "%zu more", d->sources.n - 6);
    row(r, "text");
    if (d != NULL)
        split_part(r, &d->train);
    row(r, "corpus");
    if (d != NULL)
        split_part(r, &d->valid);
    row(r, "validation");
}

static void option_part(struct rows *r, const char *words, const char *name)
{
    const char *v = lf_provenance_option(r->p, r->s, name);
    if (v != NULL)
        part(r, "%s%s", words, v);
}

static void method_rows(struct rows *r)
{
    char n[32];
    const lf_provenance *p = r->p;
    const lf_trained *w = p->trained;
    option_part(r, "", "precision");
    if (r->text.len == 0 && w != NULL && w->fingerprint.compute != NULL)
        part(r, "%s", w->fingerprint.compute);
    option_part(r, "master weights ", "masters");
    option_part(r, "moments ", "moments");
    option_part(r, "numeric mode ", "numeric");
    row(r, "precision");
    if (w != NULL && w->optimizer.beta1.given)
        part(r, "AdamW, beta %.4g and %.4g, eps %.3g, weight decay %.4g, gradients clipped at %.4g",
             w->optimizer.beta1.v, w->optimizer.beta2.v, w->optimizer.eps.v,
             w->optimizer.weight_decay.v, w->optimizer.clip.v);
    row(r, "optimizer");
    if (w != NULL && w->schedule.peak.given && lf_schedule_word(w->schedule.kind.v) != NULL)
        part(r, "%s, %.4g after %s sequences of warm-up, %.4g at the end",
             lf_schedule_word(w->schedule.kind.v), w->schedule.peak.v,
             lf_fmt_value(n, sizeof n, w->schedule.warmup.v), w->schedule.min.v);
    else
        option_part(r, "", "lr");
    row(r, "learning rate");
    const char *batch = lf_provenance_option(p, r->s, "batch");
    if (batch != NULL)
        part(r, "%s sequences a step", batch);
    const double tokens = number_of(batch) * number_of(lf_provenance_option(p, r->s, "seq_length"));
    if (isfinite(tokens))
        part(r, "%s tokens", lf_fmt_value(n, sizeof n, tokens));
    option_part(r, "micro-batch ", "micro_batch");
    row(r, "batch");
}

static void hosts_part(struct rows *r, const lf_machines *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || lf_text_same(m->v[k].host, m->v[i].host);
        if (again || m->v[i].host == NULL)
            continue;
        if (n++ < 4)
            part(r, "%s", m->v[i].host);
    }
    if (n > 4)
        part(r, "%zu more", n - 4);
}

static void machine_rows(struct rows *r)
{
    const lf_provenance *p = r->p;
    const lf_machine *m = p->machines.n > 0 ? &p->machines.v[0] : NULL;
    const int64_t threads = lf_provenance_threads(p, r->s), ranks = lf_provenance_ranks(p, r->s);
    hosts_part(r, &p->machines);
    row(r, p->machines.n > 1 ? "hosts" : "host");
    if (m != NULL && m->processor != NULL)
        part(r, "%s", m->processor);
    if (p->trained != NULL && p->trained->fingerprint.kernels != NULL)
        part(r, "kernels %s", p->trained->fingerprint.kernels);
    else if (m != NULL && m->isa != NULL)
        part(r, "kernels %s", m->isa);
    row(r, "processor");
    if (m != NULL && m->gpu != NULL)
        part(r, "%lld x %s", (long long)ranks, m->gpu);
    else if (p->trained != NULL && p->trained->fingerprint.device != NULL)
        part(r, "%lld x %s", (long long)ranks, p->trained->fingerprint.device);
    row(r, "GPU");
    part(r, "%lld rank%s", (long long)ranks, ranks == 1 ? "" : "s");
    if (threads > 0)
        part(r, "%lld thread%s%s", (long long)threads, threads == 1 ? "" : "s",
             ranks > 1 ? " each" : "");
    row(r, "ranks");
}

static void code_row(struct rows *r, const lf_doc *plan)
{
    const lf_doc_exe *exe = &r->s->plan->exe;
    if (plan->version != NULL)
        part(r, "loong-flow %s", plan->version);
    if (exe->sha256 != NULL)
        part(r, "%s %.12s", exe->path != NULL ? exe->path : "executable", exe->sha256);
    row(r, "code");
}

int lf_provenance_words(lf_pairs *out, const lf_provenance *p, const lf_run_view *v,
                        const lf_stage_view *s, lf_err *err)
{
    struct rows r = {.out = out, .p = p, .s = s, .err = err};
    memset(out, 0, sizeof *out);
    out->given = true;
    lf_buf_init(&r.text);
    if (lf_provenance_trains(p, s)) {
        model_rows(&r);
        data_rows(&r);
        method_rows(&r);
    }
    if (p->dir != NULL)
        machine_rows(&r);
    code_row(&r, v->run.plan);
    lf_buf_fini(&r.text);
    if (r.rc < 0)
        lf_pairs_fini(out);
    return r.rc;
}
