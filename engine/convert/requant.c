/* SPDX-License-Identifier: Apache-2.0
 *
 * Values to 8-bit floats in blocks: threads look at bands of blocks, or make their codes, and the
 * caller takes what they have made in its order. */
#include "engine/convert/requant.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

/* More are not faster: one thread hashes what they make. They bound memory, too. */
#define MOST_THREADS 4
#define MOST_CODES   ((int64_t)8 << 20) /* of a band, which are in memory for each thread */

/* Rows of a band that are in memory. */
struct rows {
    int64_t row, end, block; /* rows of all matrices, the first block */
    float *v;
    uint8_t *had;    /* codes that the tensor had; NULL: they follow */
    uint16_t *value; /* of each block of the band; NULL: those follow */
};

/* A pass over all blocks, some steps at a time. */
struct pass {
    struct lf_requant *q;
    const struct lf_requant_job *job;
    bool codes;                 /* they are made; else blocks are looked at */
    bool listed;                /* values of codes come from tables */
    int64_t height, each, most; /* rows of a step, steps of a matrix, rows at once */
    int64_t steps, next, taken; /* under the lock: steps begun, and taken by the caller */
    struct step {
        uint8_t *codes; /* of its rows */
        int64_t n;      /* of codes */
        bool made;
    } * step; /* [room], of number n in n % room */
    int64_t room;
    lf_err err; /* of a thread; rc 0: none */
    bool given_up;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static int64_t n_blocks(const struct lf_f8_grid *g)
{
    return g->matrices * g->down * g->across;
}

static int rows_init(struct rows *x, const struct pass *p, lf_err *err)
{
    const struct lf_requant *q = p->q;
    const int64_t n = p->most * q->grid.width;
    *x = (struct rows){
        .block = -1,
        .v = lf_malloc((size_t)n, sizeof *x->v, err),
        .had = q->codes ? lf_malloc((size_t)n, 1, err) : NULL,
        .value = p->listed ? lf_malloc((size_t)q->grid.across, 256 * sizeof *x->value, err) : NULL};
    return x->v && (x->had || !q->codes) && (x->value || !p->listed) ? 0 : LF_ENOMEM;
}

static void rows_fini(struct rows *x)
{
    free(x->v);
    free(x->had);
    free(x->value);
}

static int load(struct rows *x, const struct pass *p, lf_err *err)
{
    const struct lf_requant *q = p->q;
    const int64_t first = x->row * q->grid.width, n = (x->end - x->row) * q->grid.width;
    const int rc = lf_move_block(p->job->values, first, n, x->v, err);
    return rc == 0 && q->codes ? lf_ckpt_read_flat(q->ckpt, q->codes, first, n, x->had, err) : rc;
}

/* Each row of each block of the rows in memory. codes: of the first of them; NULL: look. */
static void work_rows(const struct pass *p, const struct rows *x, uint8_t *codes)
{
    const struct lf_f8_grid *g = &p->q->grid;
    for (int64_t i = 0; i < (x->end - x->row) * g->across; i++) {
        const int64_t b = i % g->across, c = b * g->cols, at = i / g->across * g->width + c,
                      n = c + g->cols < g->width ? g->cols : g->width - c;
        struct lf_f8_block *block = &p->q->blocks[x->block + b];
        const uint8_t *had = x->had ? x->had + at : NULL;
        if (codes)
            lf_f8_encode(block, codes + at, had, x->v + at, n);
        else
            lf_f8_look(block, x->value ? x->value + b * 256 : NULL, had, x->v + at, n);
    }
}

static int make_step(struct pass *p, struct rows *x, int64_t number, lf_err *err)
{
    const struct lf_f8_grid *g = &p->q->grid;
    struct step *s = &p->step[number % p->room];
    const int64_t matrix = number / p->each * g->height, in = number % p->each * p->height,
                  first = matrix + in,
                  end = matrix + (in + p->height < g->height ? in + p->height : g->height);
    int rc = 0;
    s->n = (end - first) * g->width;
    for (x->row = first; x->row < end && rc == 0; x->row = x->end) {
        const int64_t known = x->block;
        x->end = lf_f8_band(g, x->row, x->row + p->most < end ? x->row + p->most : end, &x->block);
        for (int64_t b = 0; b < g->across && x->value && x->block != known; b++)
            lf_f8_values(x->value + b * 256, p->q->blocks[x->block + b].scale);
        rc = load(x, p, err);
        if (rc == 0)
            work_rows(p, x, p->codes ? s->codes + (x->row - first) * g->width : NULL);
    }
    return rc;
}

/* The next step that has room; -1: there is none. */
static int64_t begin_step(struct pass *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->given_up && p->next < p->steps && p->next >= p->taken + p->room)
        pthread_cond_wait(&p->changed, &p->lock);
    const int64_t n = p->given_up || p->next == p->steps ? -1 : p->next++;
    pthread_mutex_unlock(&p->lock);
    return n;
}

static void end_step(struct pass *p, int64_t number, const lf_err *err)
{
    pthread_mutex_lock(&p->lock);
    if (number >= 0)
        p->step[number % p->room].made = true;
    if (err->rc && !p->err.rc)
        p->err = *err;
    p->given_up = p->given_up || err->rc;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void *make_steps(void *arg)
{
    struct pass *p = arg;
    struct rows x;
    lf_err err = LF_ERR_INIT;
    int64_t n = -1;
    int rc = rows_init(&x, p, &err);
    while (rc == 0 && (n = begin_step(p)) >= 0) {
        rc = make_step(p, &x, n, &err);
        if (rc == 0)
            end_step(p, n, &err);
    }
    if (rc != 0)
        end_step(p, -1, &err);
    rows_fini(&x);
    return NULL;
}

/* Waits for a step. NULL: a thread has failed. */
static struct step *wait_step(struct pass *p, int64_t number)
{
    struct step *s = &p->step[number % p->room];
    pthread_mutex_lock(&p->lock);
    while (!s->made && !p->err.rc)
        pthread_cond_wait(&p->changed, &p->lock);
    const bool made = s->made;
    pthread_mutex_unlock(&p->lock);
    return made ? s : NULL;
}

/* All steps in their order. */
static int take_steps(struct pass *p, lf_err *err)
{
    const struct lf_requant_job *job = p->job;
    int rc = 0;
    for (int64_t i = 0; i < p->steps && rc == 0; i++) {
        struct step *s = wait_step(p, i);
        if (!s)
            return lf_fail(err, p->err.rc, "%s", p->err.text);
        if (p->codes)
            rc = lf_st_writer_put(job->to, s->codes, (size_t)s->n, err);
        if (rc == 0)
            rc = job->between(job->arg, p->codes ? s->n : 0, err);
        pthread_mutex_lock(&p->lock);
        s->made = false;
        p->taken++;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    return rc;
}

/* Signals stay with the threads of the caller. */
static int start(struct pass *p, pthread_t *threads, int *n, lf_err *err)
{
    const int most = (int)(p->steps < p->room - 1 ? p->steps : p->room - 1);
    sigset_t all, old;
    int e = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (*n < most && !e) {
        e = pthread_create(&threads[*n], NULL, make_steps, p);
        *n += !e;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return *n ? 0
              : lf_fail(err, LF_ENOMEM, "cannot start a thread that makes 8-bit floats: %s",
                        strerror(e));
}

/* Steps are of whole bands, so that no two threads look at one block; where those are too high, as
 * where a block is a whole matrix, of parts of them, and one thread looks. Returns how many may. */
static int divide(struct pass *p)
{
    const struct lf_f8_grid *g = &p->q->grid;
    const int threads = p->job->threads < MOST_THREADS ? p->job->threads : MOST_THREADS;
    const int64_t band = g->rows < g->height ? g->rows : g->height;
    const bool fits = band <= MOST_CODES / g->width;
    p->most = p->job->step / g->width > 0 ? p->job->step / g->width : 1;
    p->height = !fits ? p->most : p->most > band ? p->most / band * band : band;
    p->height = p->height < g->height ? p->height : g->height;
    p->each = g->height / p->height + (g->height % p->height != 0);
    p->steps = g->matrices * p->each;
    return threads > 1 && (fits || p->codes) ? threads : 1;
}

static int run_pass(struct pass *p, lf_err *err)
{
    pthread_t thread[MOST_THREADS];
    struct step step[MOST_THREADS + 1] = {0};
    int n = 0, rc = 0;
    p->step = step;
    p->room = divide(p) + 1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    for (int64_t i = 0; i < p->room && p->codes && rc == 0; i++)
        if (!(step[i].codes = lf_malloc((size_t)(p->height * p->q->grid.width), 1, err)))
            rc = LF_ENOMEM;
    rc = rc != 0 ? rc : start(p, thread, &n, err);
    rc = rc != 0 ? rc : take_steps(p, err);
    if (rc != 0)
        end_step(p, -1, &(lf_err){.rc = rc});
    while (n > 0)
        pthread_join(thread[--n], NULL);
    for (int64_t i = 0; i < p->room; i++)
        free(step[i].codes);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    return rc;
}

/* ---- what the blocks are ---- */

/* Blocks with the scales that they had. */
static int begin(struct lf_requant *q, lf_err *err)
{
    const int64_t n = n_blocks(&q->grid);
    void *had = q->scales ? lf_malloc((size_t)n, sizeof(float), err) : NULL;
    q->blocks = lf_calloc((size_t)n, sizeof *q->blocks, err);
    int rc = q->blocks && (had || !q->scales) ? 0 : LF_ENOMEM;
    if (rc == 0 && had)
        rc = lf_ckpt_read_flat(q->ckpt, q->scales, 0, n, had, err);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        struct lf_f8_block *b = &q->blocks[i];
        b->changed = !had;
        b->scale = had ? lf_f8_scale_of(q->type, had, i) : 0;
        b->by = 1 / b->scale;
    }
    free(had);
    return rc;
}

/* Are values of codes to be looked up: are there scales with which codes do not follow? */
static bool is_listed(const struct lf_requant *q)
{
    bool plain = true;
    for (int64_t i = 0; i < n_blocks(&q->grid) && plain && q->scales; i++)
        plain = lf_f8_scale_is_plain(q->blocks[i].scale);
    return q->scales && (q->codes || !plain);
}

static int look(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    struct pass p = {.q = q, .job = job, .err = LF_ERR_INIT};
    int rc = begin(q, err);
    if (rc == 0) {
        p.listed = is_listed(q);
        rc = run_pass(&p, err);
    }
    for (int64_t i = 0; i < n_blocks(&q->grid) && rc == 0; i++)
        lf_f8_settle(&q->blocks[i], q->type);
    return rc;
}

static int know(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    return q->blocks ? 0 : look(q, job, err);
}

static void done(struct lf_requant *q)
{
    if (++q->written == 2)
        lf_requant_fini(q);
}

/* ---- what goes out ---- */

int lf_requant_scales(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    const int64_t n = n_blocks(&q->grid), size = (int64_t)lf_st_dtype_bytes(q->type);
    int rc = know(q, job, err);
    char *out = rc == 0 ? lf_malloc((size_t)n, (size_t)size, err) : NULL;
    if (rc == 0 && !out)
        rc = LF_ENOMEM;
    if (rc == 0 && q->scales) /* of old ones each bit counts, whatever it means */
        rc = lf_ckpt_read_flat(q->ckpt, q->scales, 0, n, out, err);
    for (int64_t i = 0; i < n && rc == 0; i++)
        if (q->blocks[i].changed)
            lf_f8_scale_put(q->type, out, i, q->blocks[i].scale);
    if (rc == 0)
        rc = lf_st_writer_put(job->to, out, (size_t)(n * size), err);
    if (rc == 0)
        rc = job->between(job->arg, n * size, err);
    free(out);
    done(q);
    return rc;
}

int lf_requant_codes(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    struct pass p = {.q = q, .job = job, .codes = true, .err = LF_ERR_INIT};
    int rc = know(q, job, err);
    atomic_store(&job->values->nonfinite, 0); /* of this pass alone */
    if (rc == 0)
        rc = run_pass(&p, err);
    done(q);
    return rc;
}

void lf_requant_fini(struct lf_requant *q)
{
    free(q->blocks);
    q->blocks = NULL;
}
