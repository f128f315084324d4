/* SPDX-License-Identifier: Apache-2.0
 *
 * A round under way, on disk: framed records, each written when it is known, so that a process
 * killed anywhere loses only sequences it had not finished. The machine that wrote them reads them:
 * numbers are as they are in memory.
 *
 *     'H' key                              first
 *     'S' u32 index, n, ended, tokens [n], log-probabilities [n]
 *     'R' u32 index, scores f64 [n_sources]
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "engine/post/pg_priv.h"

char *lf_pg_rollout_path(const char *dir, int64_t round, const char *ending, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s/rollouts/step-%08lld%s", dir, (long long)round, ending);
    char *path = lf_buf_check(&b, err) ? NULL : lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return path;
}

static struct lf_pg_part_seq *slot(lf_pg_part *f, size_t index, lf_err *err)
{
    if (index >= f->cap) {
        size_t cap = f->cap ? f->cap : 64;
        while (cap <= index)
            cap *= 2;
        if (lf_realloc(&f->seq, cap, sizeof *f->seq, err))
            return NULL;
        memset(f->seq + f->cap, 0, (cap - f->cap) * sizeof *f->seq);
        f->cap = cap;
    }
    return &f->seq[index];
}

static int keep_sequence(lf_pg_part *f, size_t index, const void *tokens, const void *logprob,
                         size_t n, bool ended, lf_err *err)
{
    struct lf_pg_part_seq *s = slot(f, index, err);
    if (!s || s->there)
        return s ? 0 : LF_ENOMEM;
    s->tokens = lf_malloc(n + 1, sizeof *s->tokens, err);
    s->logprob = lf_malloc(n + 1, sizeof *s->logprob, err);
    s->score = lf_calloc(f->n_sources + 1, sizeof *s->score, err);
    if (!s->tokens || !s->logprob || !s->score)
        return LF_ENOMEM;
    memcpy(s->tokens, tokens, n * sizeof *s->tokens);
    memcpy(s->logprob, logprob, n * sizeof *s->logprob);
    s->n = (uint32_t)n;
    s->ended = ended;
    s->there = true;
    return 0;
}

struct reading {
    lf_pg_part *f;
    const char *key;
    int64_t records;
    bool same;
};

/* A record that is not what it should be ends the reading, as a torn one does: what is behind it is
 * generated again. */
static int on_record(void *ctx, const char *p, size_t n, int64_t offset, lf_err *err)
{
    struct reading *q = ctx;
    uint32_t head[3];
    (void)offset;
    if (q->records++ == 0) {
        q->same = n == LF_HASH_HEX && p[0] == 'H' && memcmp(p + 1, q->key, LF_HASH_HEX - 1) == 0;
        return q->same;
    }
    if (n >= 1 + sizeof head && p[0] == 'S') {
        memcpy(head, p + 1, sizeof head);
        size_t bytes = (size_t)head[1] * 4;
        if (head[0] > 1u << 28 || n != 1 + sizeof head + 2 * bytes)
            return 0;
        int rc = keep_sequence(q->f, head[0], p + 1 + sizeof head, p + 1 + sizeof head + bytes,
                               head[1], head[2] != 0, err);
        return rc != 0 ? rc : 1;
    }
    if (n == 1 + sizeof *head + q->f->n_sources * sizeof(double) && p[0] == 'R') {
        memcpy(head, p + 1, sizeof *head);
        if (head[0] >= q->f->cap || !q->f->seq[head[0]].there)
            return 0;
        memcpy(q->f->seq[head[0]].score, p + 1 + sizeof *head, q->f->n_sources * sizeof(double));
        q->f->seq[head[0]].scored = true;
        return 1;
    }
    return 0;
}

static int append(lf_pg_part *f, const lf_buf *b, lf_err *err)
{
    int rc = lf_buf_check(b, err);
    return rc != 0 || !f->w ? rc : lf_frame_append(f->w, b->data, b->len, err);
}

static int write_sequence(lf_pg_part *f, size_t index, const struct lf_pg_part_seq *s, lf_err *err)
{
    lf_buf b;
    uint32_t head[3] = {(uint32_t)index, s->n, s->ended};
    lf_buf_init(&b);
    lf_buf_addc(&b, 'S');
    lf_buf_add(&b, head, sizeof head);
    lf_buf_add(&b, s->tokens, s->n * sizeof *s->tokens);
    lf_buf_add(&b, s->logprob, s->n * sizeof *s->logprob);
    int rc = append(f, &b, err);
    lf_buf_fini(&b);
    return rc;
}

static int write_score(lf_pg_part *f, size_t index, const double *score, lf_err *err)
{
    lf_buf b;
    uint32_t at = (uint32_t)index;
    lf_buf_init(&b);
    lf_buf_addc(&b, 'R');
    lf_buf_add(&b, &at, sizeof at);
    lf_buf_add(&b, score, f->n_sources * sizeof *score);
    int rc = append(f, &b, err);
    lf_buf_fini(&b);
    return rc;
}

/* This start's own file: of this key, holding what is known so far. */
static int begin_own(lf_pg_part *f, const char *key, bool own, lf_err *err)
{
    char head[1 + LF_HASH_HEX];
    if (!own && unlink(f->path) != 0 && lf_io_exists(f->path))
        return lf_fail_errno(err, "%s", f->path);
    f->w = lf_frame_writer_open(f->path, err);
    if (!f->w)
        return err && err->rc ? err->rc : LF_EIO;
    if (own)
        return 0;
    snprintf(head, sizeof head, "H%s", key);
    int rc = lf_frame_append(f->w, head, LF_HASH_HEX, err);
    for (size_t i = 0; i < f->cap && rc == 0; i++) {
        if (f->seq[i].there)
            rc = write_sequence(f, i, &f->seq[i], err);
        if (rc == 0 && f->seq[i].scored)
            rc = write_score(f, i, f->seq[i].score, err);
    }
    return rc;
}

static int read_file(lf_pg_part *f, const lf_pg *p, const char *path, const char *key, bool *same,
                     lf_err *err)
{
    struct reading q = {f, key, 0, false};
    int64_t offset = 0;
    int rc = lf_frame_read(path, &offset, on_record, &q, err);
    if (rc == LF_EFORMAT) { /* damaged: what was read before stays good */
        lf_run_log(&p->run, 1, "%s", err->text);
        lf_err_clear(err);
        rc = 0;
        q.same = false;
    }
    *same = q.same;
    return rc;
}

typedef int (*on_path)(void *ctx, const char *path, lf_err *err);

/* fn for the files of all ranks in DIR/rollouts that are of this round, however many ranks there
 * were. */
static int each_part(const char *dir, int64_t round, void *ctx, on_path fn, lf_err *err)
{
    char *path = lf_pg_rollout_path(dir, round, ".part", err),
         *slash = path ? strrchr(path, '/') : NULL;
    if (!path)
        return LF_ENOMEM;
    *slash = '\0';
    DIR *d = opendir(path);
    int rc = 0;
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        if (strncmp(e->d_name, slash + 1, strlen(slash + 1)) != 0)
            continue;
        char *full = lf_path_join(path, e->d_name, err);
        rc = full ? fn(ctx, full, err) : LF_ENOMEM;
        free(full);
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

struct all_files {
    lf_pg_part *f;
    const lf_pg *p;
    const char *key;
    bool own; /* what this rank wrote under this key is among them, whole */
};

static int read_part(void *ctx, const char *path, lf_err *err)
{
    struct all_files *a = ctx;
    bool same;
    int rc = read_file(a->f, a->p, path, a->key, &same, err);
    if (rc == 0 && strcmp(path, a->f->path) == 0)
        a->own = same;
    return rc;
}

int lf_pg_part_open(lf_pg_part *f, const lf_pg *p, const char *key, lf_err *err)
{
    struct all_files a = {f, p, key, false};
    char ending[32] = ".part";
    if (p->run.rank)
        snprintf(ending, sizeof ending, ".part-%d", p->run.rank);
    *f = (lf_pg_part){.n_sources = p->n_sources,
                      .path = lf_pg_rollout_path(p->c->out, p->s.round + 1, ending, err)};
    int rc = f->path ? 0 : LF_ENOMEM;
    for (size_t i = 0; i <= p->c->n_resume_from && rc == 0; i++)
        rc = each_part(i < p->c->n_resume_from ? p->c->resume_from[i] : p->c->out, p->s.round + 1,
                       &a, read_part, err);
    rc = lf_run_agree(&p->run, rc, err); /* all have read before one writes */
    return rc != 0 || !lf_pg_speaks(p) ? rc : begin_own(f, key, a.own, err);
}

static int remove_part(void *ctx, const char *path, lf_err *err)
{
    (void)ctx;
    return unlink(path) != 0 && lf_io_exists(path) ? lf_fail_errno(err, "%s", path) : 0;
}

int lf_pg_part_remove(const lf_pg *p, int64_t round, lf_err *err)
{
    /* Not by a superseded start: a claim may list these parts and not the round that was published
     * after it, and where its attempt may not use them, they are nowhere else. */
    if (lf_fence_closed())
        return 0;
    return each_part(p->c->out, round, NULL, remove_part, err);
}

int lf_pg_part_know(lf_pg_part *f, size_t index, const void *tokens, const void *logprob, size_t n,
                    bool ended, lf_err *err)
{
    return keep_sequence(f, index, tokens, logprob, n, ended, err);
}

int lf_pg_part_add(lf_pg_part *f, size_t index, const int32_t *tokens, const float *logprob,
                   size_t n, bool ended, lf_err *err)
{
    int rc = keep_sequence(f, index, tokens, logprob, n, ended, err);
    return rc != 0 ? rc : write_sequence(f, index, &f->seq[index], err);
}

int lf_pg_part_score(lf_pg_part *f, size_t index, const double *score, lf_err *err)
{
    memcpy(f->seq[index].score, score, f->n_sources * sizeof *score);
    f->seq[index].scored = true;
    return write_score(f, index, score, err);
}

const struct lf_pg_part_seq *lf_pg_part_at(const lf_pg_part *f, size_t index)
{
    return index < f->cap && f->seq[index].there ? &f->seq[index] : NULL;
}

void lf_pg_part_close(lf_pg_part *f)
{
    lf_frame_writer_close(f->w, NULL);
    for (size_t i = 0; i < f->cap; i++) {
        free(f->seq[i].tokens);
        free(f->seq[i].logprob);
        free(f->seq[i].score);
    }
    free(f->seq);
    free(f->path);
    *f = (lf_pg_part){0};
}
