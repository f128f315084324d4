/* SPDX-License-Identifier: Apache-2.0
 *
 * Scoring and generating for documents, and their sample lines.
 *
 * Items go through the packed scorer, but for documents whose continuations have much in common:
 * these are scored over the paged cache of generation, where a common beginning is computed once
 * and continuations of one token behind the same context are one row. Both give the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/infer/tasks_priv.h"

#define SHARE_PAGES 2 /* full pages in common from which sharing is worth it */

/* ---- over the cache -------------------------------------------------------------------------- */

/* Items of documents from doc on, and the pictures of each. */
struct shared_items {
    const lf_tasks *t;
    size_t doc;
    const lf_score_item *v;
    const struct lf_gen_media *const *media;
    size_t n;
};

static struct shared_items items_of(const lf_tasks *t, size_t doc, size_t n)
{
    const size_t first = t->docs[doc].first_item;
    return (struct shared_items){t, doc, t->items + first, t->media + first, n};
}

/* "task/document" of item i, for messages. *doc is that of an item before it, at first in->doc. */
static const char *id_of(const struct shared_items *in, size_t i, size_t *doc, lf_arena *a,
                         lf_err *err)
{
    const eval_doc *d = in->t->docs, *first = d + in->doc;
    while (d[*doc].first_item + d[*doc].n_items <= first->first_item + i)
        ++*doc;
    return lf_arena_printf(a, err, "%s/%lld", in->t->tasks[d[*doc].task].name,
                           (long long)lf_tasks_doc_id(in->t, *doc));
}

static const void *pictures(const struct lf_gen_media *m)
{
    return m ? m->pictures : NULL;
}

/* Do two items differ in nothing but their one scored token? */
static bool same_row(const struct shared_items *in, size_t i, size_t k)
{
    const lf_score_item *a = &in->v[i], *b = &in->v[k];
    return pictures(in->media[i]) == pictures(in->media[k]) && a->n == b->n &&
           a->first + 1 == a->n && b->first + 1 == b->n &&
           memcmp(a->tokens, b->tokens, a->first * sizeof *a->tokens) == 0;
}

static size_t shared_tokens(const lf_score_item *a, const lf_score_item *b)
{
    size_t n = a->first < b->first ? a->first : b->first, i = 0;
    while (i < n && a->tokens[i] == b->tokens[i])
        i++;
    return i;
}

static bool worth_sharing(const lf_gen_model *g, const struct shared_items *in)
{
    const size_t n = in->n;
    size_t pages = 0;
    for (size_t i = 1; i < n; i++) {
        if (same_row(in, 0, i))
            return true;
        pages += shared_tokens(&in->v[0], &in->v[i]) / (size_t)g->page_tokens;
    }
    return n > 1 && pages >= SHARE_PAGES * (n - 1);
}

struct score_sink {
    const lf_score_item *items;
    lf_score *out;
    size_t *of; /* [jobs] first item of a job; the next ones follow */
    const lf_gen_job *jobs;
};

static int take_score(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    struct score_sink *k = arg;
    const lf_gen_job *j = r->job;
    size_t i = k->of[j - k->jobs];
    lf_score s = {0, true, 0};
    for (size_t at = j->prompt_first; at < j->n_prompt; at++) {
        if (lf_tasks_is_picture(j->media, at))
            continue;
        s.n++;
        s.ll += (double)r->prompt_logprobs[at];
        s.greedy = s.greedy && r->prompt_greedy[at];
    }
    k->out[i] = s;
    for (size_t a = 0; a < j->n_last; a++)
        k->out[i + 1 + a] =
            (lf_score){(double)r->last_logprobs[a], r->last_best == j->last_ids[a], 1};
    return 0;
}

/* Items one after the other; runs of them that differ in the last token alone are one job. */
static int score_shared(const lf_gen_model *g, const struct shared_items *in, lf_score *out,
                        bool (*stop)(void), lf_err *err)
{
    const lf_score_item *v = in->v;
    const size_t n = in->n;
    lf_gen_job *jobs = lf_calloc(n + 1, sizeof *jobs, err);
    size_t *of = lf_calloc(n + 1, sizeof *of, err), k = 0, doc = in->doc;
    int32_t *last = lf_calloc(n + 1, sizeof *last, err);
    lf_arena *ids = lf_arena_create(err);
    int rc = jobs && of && last && ids ? 0 : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < n; k++) {
        of[k] = i;
        jobs[k] = (lf_gen_job){.id = id_of(in, i, &doc, ids, err),
                               .prompt = v[i].tokens,
                               .n_prompt = v[i].n,
                               .media = in->media[i],
                               .params = LF_SAMPLE_DEFAULTS,
                               .prompt_logprobs = true,
                               .prompt_first = v[i].first,
                               .last_ids = last + i};
        for (i++; i < n && same_row(in, of[k], i); i++)
            last[of[k] + jobs[k].n_last++] = v[i].tokens[v[i].first];
        rc = jobs[k].id ? 0 : LF_ENOMEM;
    }
    if (rc == 0)
        rc = lf_gen_run(g,
                        &(struct lf_gen_work){.jobs = jobs,
                                              .n_jobs = k,
                                              .sink = take_score,
                                              .arg = &(struct score_sink){v, out, of, jobs},
                                              .stop = stop},
                        NULL, err);
    lf_arena_destroy(ids);
    free(jobs);
    free(of);
    free(last);
    return rc;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* What is left of a text: behind the last end of thinking; then cut at each of `until` in turn. */
static json_t *cut_text(const lf_tasks *t, const eval_gen *g, const char *text, size_t len)
{
    size_t think = t->think_end ? strlen(t->think_end) : 0;
    for (const char *p; think > 0 && (p = memmem(text, len, t->think_end, think)); text = p + think)
        len -= (size_t)(p + think - text);
    if (think > 0) {
        size_t skip = lf_lstrip_len(text, len);
        text += skip;
        len -= skip;
    }
    for (size_t i = 0; i < g->n_until; i++) {
        const char *p = g->until[i][0] ? memmem(text, len, g->until[i], strlen(g->until[i])) : NULL;
        if (p)
            len = (size_t)(p - text);
    }
    return json_stringn_nocheck(text, len);
}

struct text_sink {
    const lf_tasks *t;
    const eval_gen *const *gens; /* [jobs] */
    json_t **lists;              /* [jobs] where its text belongs */
    const lf_gen_job *jobs;
};

static int take_text(void *arg, const lf_gen_result *r, lf_err *err)
{
    struct text_sink *k = arg;
    size_t i = (size_t)(r->job - k->jobs);
    json_t *s = cut_text(k->t, k->gens[i], r->text, r->text_len);
    return s && json_array_append_new(k->lists[i], s) == 0
               ? 0
               : lf_fail(err, LF_ENOMEM, "out of memory");
}

/* texts[d - first]: of each request of document d the list of its texts. */
static int generate(const lf_tasks *t, const struct lf_eval_models *m, size_t first, size_t n,
                    json_t **texts, bool (*stop)(void), lf_err *err)
{
    size_t total = 0, k = 0;
    for (size_t d = first; d < first + n; d++)
        for (size_t g = 0; g < t->docs[d].n_gens; g++)
            total += (size_t)t->gens[t->docs[d].first_gen + g].repeats;
    if (total == 0)
        return 0;
    if (!m->gen)
        return lf_fail(err, LF_EINVAL,
                       "texts are to be generated, but there is no cache: batch is 0");
    lf_gen_job *jobs = lf_calloc(total, sizeof *jobs, err);
    const eval_gen **gens = lf_calloc(total, sizeof *gens, err);
    json_t **lists = lf_calloc(total, sizeof *lists, err);
    lf_arena *ids = lf_arena_create(err);
    int rc = jobs && gens && lists && ids ? 0 : LF_ENOMEM;
    for (size_t d = first; rc == 0 && d < first + n; d++) {
        const eval_doc *doc = &t->docs[d];
        if (doc->n_gens > 0)
            texts[d - first] = json_array();
        for (size_t g = 0; g < doc->n_gens && rc == 0; g++) {
            const eval_gen *e = &t->gens[doc->first_gen + g];
            char *id = lf_arena_printf(ids, err, "%s/%lld/%zu", t->tasks[doc->task].name,
                                       (long long)doc->id, g);
            json_t *list = json_array();
            json_array_append_new(texts[d - first], list);
            rc = id ? 0 : LF_ENOMEM;
            for (int64_t r = 0; r < e->repeats && rc == 0; r++) {
                gens[k] = e;
                lists[k] = list;
                jobs[k++] = (lf_gen_job){.id = id,
                                         .media = e->media,
                                         .sample = (uint32_t)r,
                                         .prompt = e->prompt,
                                         .n_prompt = e->n_prompt,
                                         .params = e->params,
                                         .max_tokens = e->max_tokens,
                                         .end = m->end,
                                         .n_end = m->n_end,
                                         .stop = e->until,
                                         .n_stop = e->n_until,
                                         .stop_text = LF_STOP_WHOLE,
                                         .seed = lf_sample_seed(m->seed, id, (uint32_t)r),
                                         .skip_special = true};
            }
        }
    }
    lf_gen_model model = *m->gen;
    if ((int64_t)lf_tokenizer_vocab_size(t->tok) < model.vocab)
        model.vocab =
            (int64_t)lf_tokenizer_vocab_size(t->tok); /* rows that no token names are not drawn */
    int32_t *starts =
        rc == 0 ? lf_arena_alloc(ids, lf_gen_source_room(jobs, total), sizeof *starts, err) : NULL;
    if (rc == 0 && !starts)
        rc = LF_ENOMEM;
    if (rc == 0)
        lf_gen_read_sources(&model, jobs, total, starts);
    if (rc == 0)
        rc = lf_gen_run(&model,
                        &(struct lf_gen_work){.tok = t->tok,
                                              .jobs = jobs,
                                              .n_jobs = total,
                                              .sink = take_text,
                                              .arg = &(struct text_sink){t, gens, lists, jobs},
                                              .stop = stop},
                        NULL, err);
    lf_arena_destroy(ids);
    free(jobs);
    free(gens);
    free(lists);
    return rc;
}

/* ---- sample lines ---------------------------------------------------------------------------- */

static void add_doubles(lf_buf *out, const char *name, const double *v, size_t n)
{
    lf_buf_addf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(out, i ? ",%.17g" : "%.17g", v[i]);
    lf_buf_addc(out, ']');
}

static void add_flags(lf_buf *out, const lf_score *s, size_t n)
{
    lf_buf_adds(out, ",\"greedy\":[");
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(out, i ? ",%d" : "%d", s[i].greedy);
    lf_buf_addc(out, ']');
}

/* What came of a document's requests; texts are added behind it. */
static void add_request_line(const eval_task *k, const eval_doc *d, const lf_score *s,
                             const double *ll, double sum, lf_buf *out)
{
    int type = lf_output_type_of(k);
    if (type == LF_OUT_ROLLING) {
        add_doubles(out, "ll", &sum, 1);
    } else if (type != LF_OUT_GENERATE) {
        add_doubles(out, "ll", ll, d->n_items);
        add_flags(out, s, d->n_items);
    }
}

static void add_line(const lf_tasks *t, size_t index, const lf_score *s, double *ll,
                     const json_t *texts, lf_buf *out)
{
    const eval_doc *d = &t->docs[index];
    const eval_task *k = &t->tasks[d->task];
    double sum = 0;
    bool greedy = true;
    for (size_t i = 0; i < d->n_items; i++) {
        ll[i] = s[i].ll;
        sum += s[i].ll;
        greedy = greedy && s[i].greedy;
    }
    lf_buf_adds(out, "{\"task\":");
    lf_buf_add_json(out, k->name, strlen(k->name));
    lf_buf_addf(out, ",\"doc_id\":%lld", (long long)lf_tasks_doc_id(t, index));
    if (k->kind == LF_TASK_REQUESTS) {
        add_request_line(k, d, s, ll, sum, out);
    } else if (k->kind == LF_TASK_ROLLING) {
        lf_buf_addf(out, ",\"ll\":%.17g,\"tokens\":%.0f,\"words\":%.0f,\"bytes\":%.0f", sum,
                    d->tokens, d->words, d->bytes);
    } else if (k->kind == LF_TASK_LAST_WORD) {
        lf_buf_addf(out, ",\"ll\":%.17g,\"acc\":%d", sum, greedy);
    } else {
        add_doubles(out, "ll", ll, d->n_items);
        add_flags(out, s, d->n_items);
        lf_buf_addf(out, ",\"gold\":%zu,\"acc\":%d,\"acc_norm\":%d,\"acc_bytes\":%d", d->gold,
                    lf_best_choice(ll, NULL, d->n_items) == d->gold,
                    lf_best_choice(ll, d->choice_chars, d->n_items) == d->gold,
                    lf_best_choice(ll, d->choice_bytes, d->n_items) == d->gold);
    }
    if (texts) {
        char *j = json_dumps(texts, JSON_COMPACT);
        lf_buf_adds(out, ",\"resps\":");
        lf_buf_adds(out, j ? j : "");
        out->failed = out->failed || !j;
        free(j);
    }
    lf_buf_adds(out, "}\n");
}

/* Items with pictures are scored over the cache, because the packed scorer sees none. */
static bool sees(const struct shared_items *in)
{
    for (size_t i = 0; i < in->n; i++)
        if (in->media[i])
            return true;
    return false;
}

static bool shares(const lf_tasks *t, const struct lf_eval_models *m, size_t doc)
{
    const eval_doc *d = &t->docs[doc];
    const struct shared_items in = items_of(t, doc, d->n_items);
    return sees(&in) || (m->gen && !m->gen->prefix && !m->gen->max_source && !m->no_sharing &&
                         worth_sharing(m->gen, &in));
}

/* Scores of the items of documents [first, first + n), s[0] of the first; documents of one kind
 * that stand together go together. */
static int score(const lf_tasks *t, const struct lf_eval_models *m, size_t first, size_t n,
                 lf_score *s, bool (*stop)(void), lf_err *err)
{
    size_t base = t->docs[first].first_item;
    int rc = 0;
    for (size_t d = first; d < first + n && rc == 0;) {
        const size_t first_doc = d;
        size_t at = t->docs[d].first_item, to = at;
        const bool share = shares(t, m, d);
        for (; d < first + n && shares(t, m, d) == share; d++)
            to = t->docs[d].first_item + t->docs[d].n_items;
        const struct shared_items in = items_of(t, first_doc, to - at);
        rc = share ? score_shared(m->gen, &in, s + (at - base), stop, err)
                   : lf_score_run(m->score, t->items + at, to - at, s + (at - base),
                                  &(struct lf_score_watch){.stop = stop}, err);
    }
    return rc;
}

int lf_tasks_score(lf_tasks *t, const struct lf_eval_models *m, size_t first, size_t n, lf_buf *out,
                   bool (*stop)(void), lf_err *err)
{
    if (n == 0)
        return 0;
    size_t from = t->docs[first].first_item,
           to = t->docs[first + n - 1].first_item + t->docs[first + n - 1].n_items;
    lf_score *s = lf_calloc(to - from + 1, sizeof *s, err);
    double *ll = lf_calloc(to - from + 1, sizeof *ll, err);
    json_t **texts = lf_calloc(n, sizeof *texts, err);
    int rc = s && ll && texts ? score(t, m, first, n, s, stop, err) : LF_ENOMEM;
    if (rc == 0)
        rc = generate(t, m, first, n, texts, stop, err);
    for (size_t i = first; rc == 0 && i < first + n; i++)
        add_line(t, i, s + (t->docs[i].first_item - from), ll, texts[i - first], out);
    for (size_t i = 0; texts && i < n; i++)
        json_decref(texts[i]);
    free(texts);
    free(ll);
    free(s);
    return rc != 0 ? rc : lf_buf_check(out, err);
}
