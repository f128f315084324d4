/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of lf-vocab: read by one thread in batches, worked on by all. Documents are pieces of some
 * kilobytes that end with a line, so that a held-out share of one long file is spread over it.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "stages/vocab_priv.h"

#define DOC_BYTES   4096
#define BATCH_BYTES ((size_t)4 << 20)
#define DOC_MAX     ((size_t)256 << 20)

typedef struct doc {
    size_t at, len;
    enum lf_corpus_form form;
} doc;

typedef struct pass {
    const vocab *v;
    lf_corpus_args args;
    enum vocab_share share;
    lf_buf raw;
    doc *docs;
    size_t n, cap;
    /* of each thread */
    lf_tok_state **old, **grown; /* grown NULL: counting */
    lf_word_counts **words;
    vocab_measure *sums;
    lf_buf *texts;
} pass;

static lf_corpus_args corpus_args(const vocab *v, const char *const *paths, size_t n)
{
    return (lf_corpus_args){.inputs = paths,
                            .markup = true,
                            .n_inputs = n,
                            .format = LF_CORPUS_AUTO,
                            .split = LF_CORPUS_SIZE,
                            .text_field = v->text_field,
                            .columns = &v->text_field,
                            .n_columns = 1,
                            .doc_bytes = DOC_BYTES,
                            .max_doc_bytes = DOC_MAX,
                            .any_bytes = v->any_bytes,
                            .strict = v->strict};
}

int lf_vocab_sources(const vocab *v, const char *const *paths, size_t n, lf_buf *out, lf_err *err)
{
    lf_corpus_args a = corpus_args(v, paths, n);
    lf_corpus *c = NULL;
    size_t count;
    int rc = n ? lf_corpus_open(&c, &a, err) : 0;
    if (rc != 0 || n == 0)
        return rc;
    const lf_corpus_source *src = lf_corpus_sources(c, &count);
    for (size_t i = 0; i < count && rc == 0; i++) {
        if (src[i].bytes < 0)
            rc = lf_fail(err, LF_EINVAL,
                         "standard input is read once, and texts are read twice here; name files");
        lf_buf_addf(out, "%zu %s %lld\n", strlen(src[i].label), src[i].label,
                    (long long)src[i].bytes);
    }
    lf_corpus_close(c);
    return rc == 0 ? lf_buf_check(out, err) : rc;
}

/* Does this document belong to the share? By its content alone. */
static int belongs(const pass *p, const lf_buf *text, bool *yes, lf_err *err)
{
    uint8_t d[LF_HASH_BYTES];
    *yes = true;
    if (p->share == VOCAB_ALL || !(p->v->held_out > 0))
        return 0;
    int rc = lf_hash_buf(d, text->data, text->len, err);
    uint64_t h = 0;
    for (int i = 0; i < 8; i++)
        h = h << 8 | d[i];
    bool held = (double)h < p->v->held_out * 18446744073709551616.0;
    *yes = held == (p->share == VOCAB_HELD_OUT);
    return rc;
}

static int measure(pass *p, int t, const lf_buf *text, lf_err *err)
{
    lf_ids a = {0}, b = {0};
    unsigned flags = LF_TOK_SPECIAL_TEXT | (p->v->strict ? LF_TOK_STRICT : 0u);
    int rc = lf_tokenizer_encode(p->old[t], text->data, text->len, flags, &a, NULL, err);
    if (rc == 0)
        rc = lf_tokenizer_encode(p->grown[t], text->data, text->len, flags, &b, NULL, err);
    if (rc == 0) {
        vocab_measure *m = &p->sums[t];
        m->docs++;
        m->bytes += text->len;
        m->before += a.n;
        m->after += b.n;
        m->changed += a.n != b.n || (a.n && memcmp(a.v, b.v, a.n * sizeof(*a.v)) != 0);
    }
    lf_ids_fini(&a);
    lf_ids_fini(&b);
    return rc;
}

static int work(pass *p, int t, size_t i, lf_err *err)
{
    const doc *d = &p->docs[i];
    lf_buf *text = &p->texts[t];
    bool yes = false;
    int rc = lf_corpus_text(
        &p->args, &(lf_corpus_record){.raw = p->raw.data + d->at, .len = d->len, .form = d->form},
        "a text", text, NULL, err);
    if (rc == 0 && text->len > 0)
        rc = belongs(p, text, &yes, err);
    if (rc != 0 || !yes)
        return rc;
    if (p->grown)
        return measure(p, t, text, err);
    return lf_grower_count(p->v->g, p->words[t], p->old[t], text->data, text->len, p->v->strict,
                           err);
}

static int work_batch(pass *p, int threads, lf_err *err)
{
    int failed = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        lf_err e = LF_ERR_INIT;
        int rc = 0;
        for (size_t i = (size_t)t; i < p->n && rc == 0; i += (size_t)threads)
            rc = work(p, t, i, &e);
        if (rc != 0) {
#pragma omp critical
            if (failed == 0)
                failed = lf_fail(err, rc, "%s", e.text);
        }
    }
    p->n = 0;
    lf_buf_clear(&p->raw);
    return failed;
}

static int add_doc(pass *p, const lf_corpus_record *r, lf_err *err)
{
    int rc = lf_grow(&p->docs, &p->cap, p->n, sizeof(*p->docs), err);
    if (rc != 0)
        return rc;
    p->docs[p->n++] = (doc){p->raw.len, r->len, r->form};
    lf_buf_add(&p->raw, r->raw, r->len);
    return lf_buf_check(&p->raw, err);
}

static int read_all(pass *p, const char *what, lf_err *err)
{
    lf_corpus *c = NULL;
    lf_corpus_record r;
    lf_progress bar;
    int rc = lf_corpus_open(&c, &p->args, err), more = 0;
    if (rc != 0)
        return rc;
    lf_progress_begin(&bar, what, "B", 0, (double)lf_corpus_total_bytes(c));
    while (rc == 0 && (more = lf_corpus_next(c, &r, err)) == 1) {
        rc = add_doc(p, &r, err);
        if (rc == 0 && p->raw.len >= BATCH_BYTES)
            rc = work_batch(p, p->v->threads, err);
        lf_progress_update(&bar, (double)lf_corpus_bytes_done(c));
        if (rc == 0 && lf_stop_requested())
            rc = lf_fail(err, LF_EINTR, "stopped on request");
    }
    rc = rc == 0 && more < 0 ? more : rc;
    if (rc == 0)
        rc = work_batch(p, p->v->threads, err);
    if (rc == 0)
        lf_progress_end(&bar);
    lf_corpus_close(c);
    return rc;
}

static int open_pass(pass *p, bool count, lf_err *err)
{
    size_t n = (size_t)p->v->threads;
    p->old = lf_calloc(n, sizeof(*p->old), err);
    p->texts = lf_calloc(n, sizeof(*p->texts), err);
    p->sums = lf_calloc(n, sizeof(*p->sums), err);
    p->words = count ? lf_calloc(n, sizeof(*p->words), err) : NULL;
    p->grown = count ? NULL : lf_calloc(n, sizeof(*p->grown), err);
    lf_buf_init(&p->raw);
    if (!p->old || !p->texts || !p->sums || (!p->words && !p->grown))
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        lf_buf_init(&p->texts[i]);
    for (size_t i = 0; i < n; i++) {
        if (!(p->old[i] = lf_tok_state_create(lf_grower_base(p->v->g), err)))
            return LF_ENOMEM;
        if (count && !(p->words[i] = lf_word_counts_create(err)))
            return LF_ENOMEM;
        if (!count && !(p->grown[i] = lf_tok_state_create(p->v->grown, err)))
            return LF_ENOMEM;
    }
    return 0;
}

static void close_pass(pass *p)
{
    for (int i = 0; i < p->v->threads; i++) {
        if (p->old)
            lf_tok_state_destroy(p->old[i]);
        if (p->grown)
            lf_tok_state_destroy(p->grown[i]);
        if (p->words)
            lf_word_counts_destroy(p->words[i]);
        if (p->texts)
            lf_buf_fini(&p->texts[i]);
    }
    free(p->old);
    free(p->grown);
    free(p->words);
    free(p->texts);
    free(p->sums);
    free(p->docs);
    lf_buf_fini(&p->raw);
}

int lf_vocab_words(const vocab *v, lf_word_counts **out, lf_err *err)
{
    pass p = {.v = v, .args = corpus_args(v, v->text, v->n_text), .share = VOCAB_LEARN};
    *out = NULL;
    if (v->n_text == 0)
        return 0;
    int rc = open_pass(&p, true, err);
    if (rc == 0)
        rc = read_all(&p, "counting words", err);
    for (int i = 1; i < v->threads && rc == 0; i++)
        rc = lf_word_counts_merge(p.words[0], p.words[i], err);
    if (rc == 0 && lf_word_counts_size(p.words[0]) == 0)
        rc = lf_fail(err, LF_EINVAL, "the new text holds nothing to learn from");
    if (rc == 0) {
        *out = p.words[0];
        p.words[0] = NULL;
    }
    close_pass(&p);
    return rc;
}

int lf_vocab_measure(vocab_measure *m, const vocab *v, const char *const *paths, size_t n,
                     enum vocab_share share, lf_err *err)
{
    pass p = {.v = v, .args = corpus_args(v, paths, n), .share = share};
    *m = (vocab_measure){0};
    if (n == 0)
        return 0;
    int rc = open_pass(&p, false, err);
    if (rc == 0)
        rc = read_all(&p, "measuring", err);
    for (int i = 0; i < v->threads && rc == 0; i++) {
        m->docs += p.sums[i].docs;
        m->bytes += p.sums[i].bytes;
        m->before += p.sums[i].before;
        m->after += p.sums[i].after;
        m->changed += p.sums[i].changed;
    }
    close_pass(&p);
    return rc;
}
