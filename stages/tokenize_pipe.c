/* SPDX-License-Identifier: Apache-2.0
 *
 * One reader, several workers, the calling thread as the sink, over a ring of batches. Batch k goes
 * through
 *   EMPTY -(reader)-> FULL -(a worker)-> TAKEN -> DONE -(sink, in order of k)-> EMPTY
 * and every field of a batch belongs to the one thread whose turn it is, so the one lock is held
 * for state changes only. Results do not depend on threads, because the sink sees records in the
 * order in which they were read.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/mem.h"
#include "stages/tokenize_priv.h"

#define BATCH_BYTES   ((size_t)512 << 10)
#define BATCH_RECORDS 4096

enum { EMPTY, FULL, TAKEN, DONE };

typedef struct ring {
    tok_pipe p; /* a copy: a reader that is left behind outlives the caller's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tok_batch *slots;
    size_t n;
    uint64_t read, taken, sunk; /* batches so far */
    bool read_all, quit, reader_gone;
    lf_err read_err;
    int read_rc;
    int next_worker;
} ring;

void lf_tokenize_where(char *buf, size_t cap, const lf_corpus *c, const tok_batch *b, size_t i)
{
    size_t n;
    const lf_corpus_source *src = lf_corpus_sources(c, &n);
    const tok_record *r = &b->recs[i];
    snprintf(buf, cap, "%s%s%s:%llu", src[r->source].path, r->member ? ": " : "",
             r->member ? b->names.data + r->member - 1 : "", (unsigned long long)r->line);
}

static int add_record(tok_batch *b, const lf_corpus_record *r, lf_err *err)
{
    int rc = lf_grow(&b->recs, &b->cap, b->n, sizeof(*b->recs), err);
    if (rc != 0)
        return rc;
    tok_record *t = &b->recs[b->n];
    *t = (tok_record){.at = b->raw.len,
                      .len = r->len,
                      .form = r->form,
                      .source = r->source,
                      .line = r->line,
                      .passed = r->passed,
                      .folder = r->folder};
    if (r->member) {
        t->member = b->names.len + 1;
        lf_buf_add(&b->names, r->member, strlen(r->member) + 1);
    }
    lf_buf_add(&b->raw, r->raw, r->len);
    b->n++;
    rc = lf_buf_check(&b->raw, err);
    return rc == 0 ? lf_buf_check(&b->names, err) : rc;
}

typedef struct reading {
    uint64_t ordinal, bytes;
    bool end;
} reading;

/* Fill one batch. On an error the records before it stay in the batch. */
static int fill(const tok_pipe *p, reading *r, tok_batch *b, const bool *quit, lf_err *err)
{
    lf_buf_clear(&b->raw);
    lf_buf_clear(&b->names);
    b->n = 0;
    const size_t most = p->batch_records ? p->batch_records : BATCH_RECORDS;
    while (!r->end && b->raw.len < BATCH_BYTES && b->n < most) {
        lf_corpus_record rec;
        if (p->max_docs && r->ordinal >= p->max_docs) {
            r->end = true;
            break;
        }
        int rc = lf_corpus_next(p->corpus, &rec, err);
        if (rc <= 0) {
            r->end = true;
            return rc;
        }
        if (r->ordinal < p->start.skip_to) {
            r->ordinal++;
            if (__atomic_load_n(quit, __ATOMIC_RELAXED)) {
                r->end = true;
                break;
            }
            continue;
        }
        if (p->max_bytes && r->bytes + rec.len > p->max_bytes) {
            r->end = true;
            break;
        }
        r->bytes += rec.len;
        if (b->n == 0)
            b->first = r->ordinal;
        r->ordinal++;
        rc = add_record(b, &rec, err);
        if (rc != 0)
            return rc;
    }
    b->bytes_done = lf_corpus_bytes_done(p->corpus);
    return 0;
}

static void *reader_main(void *arg)
{
    ring *g = arg;
    reading r = {.ordinal = g->p.start.ordinal, .bytes = g->p.bytes_before};
    int rc = lf_corpus_seek(g->p.corpus, g->p.start.source, &g->read_err);
    for (bool more = rc == 0; more;) {
        pthread_mutex_lock(&g->lock);
        while (!g->quit && g->read - g->sunk >= g->n)
            pthread_cond_wait(&g->changed, &g->lock);
        more = !g->quit;
        tok_batch *b = &g->slots[g->read % g->n];
        pthread_mutex_unlock(&g->lock);
        if (!more)
            break;
        rc = fill(&g->p, &r, b, &g->quit, &g->read_err);
        more = rc == 0 && !r.end;
        pthread_mutex_lock(&g->lock);
        if (b->n >
            /* records before an error are worked on: the first error in order is the one told */
            0) {
            b->state = FULL;
            b->index = g->read++;
        }
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_lock(&g->lock);
    g->read_rc = rc;
    g->read_all = true;
    g->reader_gone = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static void *worker_main(void *arg)
{
    ring *g = arg;
    pthread_mutex_lock(&g->lock);
    int me = g->next_worker++;
    while (!g->quit) {
        if (g->taken == g->read) {
            if (g->read_all)
                break;
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        tok_batch *b = &g->slots[g->taken++ % g->n];
        b->state = TAKEN;
        pthread_mutex_unlock(&g->lock);
        lf_err_clear(&b->err);
        bool mine = g->p.ranks <= 1 || b->index % (uint64_t)g->p.ranks == (uint64_t)g->p.rank;
        b->rc = mine ? g->p.work(g->p.ctx, me, b, &b->err) : 0;
        pthread_mutex_lock(&g->lock);
        b->state = DONE;
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* The next batch in order when it is done, or whatever is in its slot when a stop was asked for;
 * NULL: all are sunk. */
static tok_batch *wait_next(ring *g)
{
    tok_batch *b = NULL;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        b = &g->slots[g->sunk % g->n];
        if ((g->sunk < g->read && b->state == DONE) || lf_stop_requested())
            break;
        if (g->read_all && g->sunk == g->read) {
            b = NULL;
            break;
        }
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_sec += 1; /* look for a stop request even when nothing moves */
        pthread_cond_timedwait(&g->changed, &g->lock, &ts);
    }
    pthread_mutex_unlock(&g->lock);
    return b;
}

static int sink_loop(ring *g, lf_err *err)
{
    const tok_pipe *p = &g->p;
    lf_progress prog;
    int64_t total = lf_corpus_total_bytes(p->corpus);
    int64_t begun = 0;
    size_t n;
    const lf_corpus_source *src = lf_corpus_sources(p->corpus, &n);
    for (size_t i = 0; i < p->start.source && i < n; i++)
        begun += src[i].bytes > 0 ? src[i].bytes : 0;
    lf_progress_begin(&prog, p->what, "bytes read", (double)begun, (double)total);
    int rc = 0;
    while (rc == 0) {
        tok_batch *b = wait_next(g);
        if (!b)
            break;
        if (lf_stop_requested()) {
            rc = lf_fail(err, LF_EINTR, "stopped on request");
            break;
        }
        rc = b->rc;
        if (rc != 0 && err)
            *err = b->err;
        if (rc == 0 && p->sink)
            rc = p->sink(p->sink_ctx, b, err);
        if (rc == 0)
            lf_progress_update(&prog, (double)b->bytes_done);
        pthread_mutex_lock(&g->lock);
        b->state = EMPTY;
        g->sunk++;
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
    }
    if (rc == 0 && g->read_rc != 0) {
        rc = g->read_rc;
        if (err)
            *err = g->read_err;
    }
    if (rc == 0) {
        prog.done = (double)lf_corpus_bytes_done(p->corpus); /* the reader is through */
        lf_progress_end(&prog);
    }
    return rc;
}

static void free_ring(ring *g)
{
    for (size_t i = 0; g->slots && i < g->n; i++) {
        tok_batch *b = &g->slots[i];
        lf_buf_fini(&b->raw);
        lf_buf_fini(&b->names);
        lf_buf_fini(&b->mask);
        lf_buf_fini(&b->rest);
        lf_buf_fini(&b->pics);
        lf_buf_fini(&b->pic_bytes);
        lf_ids_fini(&b->ids);
        free(b->recs);
        free(b->docs);
    }
    free(g->slots);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g);
}

/* A reader that waits for standard input cannot be woken; after a second it is left to the end of
 * the process, which is near: only a stop or a failure comes here early. False: the ring and the
 * corpus must stay. */
static bool join_reader(ring *g, pthread_t reader)
{
    struct timespec ts;
    if (lf_corpus_total_bytes(g->p.corpus) >= 0) {
        pthread_join(reader, NULL);
        return true;
    }
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += 1;
    pthread_mutex_lock(&g->lock);
    while (!g->reader_gone && pthread_cond_timedwait(&g->changed, &g->lock, &ts) == 0)
        ;
    bool gone = g->reader_gone;
    pthread_mutex_unlock(&g->lock);
    if (gone)
        pthread_join(reader, NULL);
    else
        pthread_detach(reader);
    return gone;
}

int lf_tokenize_pipe(const tok_pipe *p, lf_err *err)
{
    ring *g = lf_calloc(1, sizeof(*g), err);
    pthread_t *threads = lf_calloc((size_t)p->threads, sizeof(*threads), err);
    pthread_t reader;
    int n_threads = 0, rc = 0;
    if (!g || !threads) {
        free(g);
        free(threads);
        return LF_ENOMEM;
    }
    g->p = *p;
    g->n = (size_t)p->threads * 2 + 2;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->slots = lf_calloc(g->n, sizeof(*g->slots), err);
    if (!g->slots) {
        free_ring(g);
        free(threads);
        return LF_ENOMEM;
    }
    for (size_t i = 0; i < g->n; i++) {
        lf_buf_init(&g->slots[i].raw);
        lf_buf_init(&g->slots[i].names);
        lf_buf_init(&g->slots[i].mask);
        lf_buf_init(&g->slots[i].rest);
        lf_buf_init(&g->slots[i].pics);
        lf_buf_init(&g->slots[i].pic_bytes);
    }
    bool started = pthread_create(&reader, NULL, reader_main, g) == 0;
    while (started && n_threads < p->threads &&
           pthread_create(&threads[n_threads], NULL, worker_main, g) == 0)
        n_threads++;
    if (!started || n_threads == 0)
        rc = lf_fail(err, LF_EIO, "cannot start threads");
    else
        rc = sink_loop(g, err);
    pthread_mutex_lock(&g->lock);
    __atomic_store_n(&g->quit, true, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    bool gone = !started || join_reader(g, reader);
    if (gone)
        free_ring(g);
    else
        *p->reader_left = true;
    return rc;
}
