/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint tensors from the parameter store, and back. */
#include "engine/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/layout.h"
#include "engine/model/electra.h"

static const enum lf_pkind stored[] = {LF_P_MASTER, LF_P_M, LF_P_V, LF_P_EMA};
#define N_STORED 4
#define BLOCK    1048576 /* elements that are read at once, or a leaf where that has more */
/* of the buffers of all threads that read */
#define TEAM_BYTES ((size_t)64 << 20)

/* The kind of the store that holds what a checkpoint has as stored[j]. */
static enum lf_pkind held(const lf_pstore *ps, int i, size_t j)
{
    return stored[j] == LF_P_MASTER ? lf_pstore_weights(ps, i) : stored[j];
}

/* One kind of tensor i. Its data is what this rank keeps, where memory is bound. */
static void describe(lf_ckpt_tensor *t, const lf_pstore *ps, int i, size_t j)
{
    struct lf_pview v = {0};
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    (void)lf_pstore_view(ps, i, held(ps, i, j), &v);
    t->kind = lf_pkind_name(stored[j]);
    t->ndim = d->ndim;
    t->data = v.data;
    for (int k = 0; k < d->ndim; k++)
        t->shape[k] = d->dims[k];
    if (!lf_pstore_on_host(ps)) {
        t->fetch = lf_pstore_fetch;
        memcpy(&t->user, &ps, sizeof ps); /* handed back as const */
    }
}

const lf_ckpt_entry *lf_weights_entry(const lf_pstore *ps, int i, const lf_ckpt *c,
                                      const char *prefix)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    lf_buf name;
    lf_buf_init(&name);
    lf_buf_addf(&name, "%s%s", prefix, d->name);
    const lf_ckpt_entry *e =
        lf_buf_check(&name, NULL) == 0 ? lf_ckpt_find(c, name.data, "weight") : NULL;
    lf_buf_fini(&name);
    bool same = e && e->ndim == d->ndim && (e->dtype == LF_H5_F32 || e->dtype == LF_H5_BF16);
    for (int k = 0; same && k < d->ndim; k++)
        same = e->shape[k] == d->dims[k];
    return same ? e : NULL;
}

/* The part of a tensor that is copied from a checkpoint. */
struct copied {
    const lf_ckpt *from;
    const lf_ckpt_entry *e;
    int64_t lo[LF_CKPT_MAX_DIMS], hi[LF_CKPT_MAX_DIMS], first; /* hi all 0: all of it */
};

/* lf_ckpt_tensor's fill. */
static int copy_part(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct copied *c = user;
    const int64_t flat[] = {c->first + first, c->first + first + n};
    const bool box = c->hi[0] > 0;
    return lf_ckpt_read_part(c->from, c->e, box ? c->lo : NULL, box ? c->hi : NULL, flat, dst, err);
}

static int describe_copied(lf_ckpt_tensor *t, const lf_pstore *ps, int i,
                           const struct lf_weights_what *w, lf_arena *a, lf_err *err)
{
    const lf_ckpt *from = w->from ? w->from[i] : NULL;
    struct copied *c = lf_arena_alloc(a, 1, sizeof *c, err);
    if (!c)
        return LF_ENOMEM;
    *c = (struct copied){.from = from, .e = from ? lf_weights_entry(ps, i, from, w->prefix) : NULL};
    if (from && !c->e)
        return lf_fail(err, LF_EINVAL, "%s: no weight %s as the model has it", lf_ckpt_dir(from),
                       t->name);
    describe(t, ps, i, 0);
    t->dtype = c->e ? c->e->dtype : LF_H5_F32; /* a plan, whose checkpoint is not there yet */
    t->data = NULL;
    t->fetch = NULL;
    t->fill = copy_part;
    t->user = c;
    return 0;
}

static int tensors_of(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps, bool adapter,
                      const struct lf_weights_what *w, lf_arena *a, lf_err *err)
{
    int count = lf_pstore_count(ps);
    lf_ckpt_tensor *t = lf_arena_alloc(a, (size_t)count * N_STORED, sizeof(*t), err);
    if (!t)
        return LF_ENOMEM;
    size_t k = 0;
    for (int i = 0; i < count; i++) {
        if (lf_pstore_desc(ps, i)->adapter != adapter)
            continue;
        char *name = lf_arena_printf(a, err, "%s%s", w->prefix, lf_pstore_desc(ps, i)->name);
        if (!name)
            return LF_ENOMEM;
        for (size_t j = 0; j < (w->moments ? N_STORED : 1); j++) {
            const size_t bytes = lf_pstore_planned(ps, i, held(ps, i, j));
            if (j == 0 && (lf_pstore_desc(ps, i)->elsewhere || (w->from && w->from[i]))) {
                t[k] = (lf_ckpt_tensor){.name = name};
                const int rc = describe_copied(&t[k++], ps, i, w, a, err);
                if (rc != 0)
                    return rc;
                continue;
            }
            if (!bytes && stored[j] != LF_P_MASTER)
                continue; /* frozen, or balanced and not optimized */
            const enum lf_dtype type = lf_pstore_type(ps, held(ps, i, j));
            if (!bytes || (type != LF_F32 && type != LF_BF16))
                return lf_fail(err, LF_EINVAL, "%s has no weights in f32 or bf16 in memory to save",
                               name);
            t[k] = (lf_ckpt_tensor){.name = name, .dtype = type == LF_F32 ? LF_H5_F32 : LF_H5_BF16};
            describe(&t[k++], ps, i, j);
        }
    }
    *out = t;
    *n = k;
    return 0;
}

static size_t whole_bytes(const lf_pstore *ps, int i, enum lf_pkind kind)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    size_t n = lf_dtype_size(lf_pstore_type(ps, kind));
    for (int k = 0; k < d->ndim; k++)
        n *= (size_t)d->dims[k];
    return lf_pstore_planned(ps, i, kind) ? n : 0;
}

/* Of the weights of tensor i as a checkpoint has them. */
static size_t saved_bytes(const lf_pstore *ps, int i, const lf_ckpt *from)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    const lf_ckpt_entry *e = from ? lf_weights_entry(ps, i, from, LF_WEIGHTS_PREFIX) : NULL;
    size_t n = e ? lf_h5_type_bytes(e->dtype) : sizeof(float);
    if (!e && !d->elsewhere)
        return whole_bytes(ps, i, lf_pstore_weights(ps, i));
    for (int k = 0; k < d->ndim; k++)
        n *= (size_t)d->dims[k];
    return n;
}

size_t lf_weights_bytes(const lf_pstore *ps, bool adapter, const lf_ckpt *const *from)
{
    size_t sum = 0;
    for (int i = 0; i < lf_pstore_count(ps); i++)
        if (lf_pstore_desc(ps, i)->adapter == adapter)
            sum += saved_bytes(ps, i, from ? from[i] : NULL) + whole_bytes(ps, i, LF_P_M) +
                   whole_bytes(ps, i, LF_P_V) + whole_bytes(ps, i, LF_P_EMA);
    return sum;
}

int lf_weights_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps,
                       const struct lf_weights_what *what, lf_arena *a, lf_err *err)
{
    return tensors_of(out, n, ps, false, what, a, err);
}

int lf_weights_adapter_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps,
                               const char *prefix, bool moments, lf_arena *a, lf_err *err)
{
    const struct lf_weights_what what = {.prefix = prefix, .moments = moments};
    return tensors_of(out, n, ps, true, &what, a, err);
}

/* ---- what each rank writes ---- */

static void written(const lf_ckpt_tensor *t, const struct lf_weights_share *s,
                    struct lf_pstore_share *w)
{
    const int i = lf_pstore_find(s->ps, t->name + strlen(s->prefix));
    size_t j = 0;
    while (strcmp(t->kind, lf_pkind_name(stored[j])) != 0)
        j++;
    lf_pstore_written(s->ps, i, held(s->ps, i, j), w);
}

/* Where rank r's share of a box begins: all boxes that every rank of the data axis has and that
 * this rank's place on the tensor axis writes stand one behind the other, this one at byte `at` of
 * `all`, and are cut into equal parts, at ends of leaves. */
static int64_t share_begin(const lf_ckpt_tensor *t, size_t at, size_t all, int r, int ranks)
{
    const size_t bound = r == ranks ? all : all / (size_t)ranks * (size_t)r;
    const int64_t n = bound <= at ? 0 : (int64_t)((bound - at) / lf_h5_type_bytes(t->dtype));
    return lf_ckpt_cut(t->ndim, t->shape, t->lo, t->hi, n);
}

static void set_box(lf_ckpt_tensor *t, const struct lf_pstore_share *w)
{
    memcpy(t->lo, w->box.lo, sizeof w->box.lo);
    memcpy(t->hi, w->box.hi, sizeof w->box.hi);
}

static size_t shared_size(const lf_ckpt_tensor *t, const struct lf_pstore_share *w)
{
    return w->shared && w->owner ? (size_t)w->flat[1] * lf_h5_type_bytes(t->dtype) : 0;
}

/* The ranks that divide a kind of tensors among them, and their bytes. */
struct dealt {
    size_t all, at; /* bytes of all tensors, and of those that were dealt */
    int divide;     /* successive ranks that have other tensors of the kind: experts */
    int ranks;      /* of those with the same ones */
    int fold;       /* so many successive ones are one rank of the data axis */
};

static int fold_of(const struct lf_weights_share *s)
{
    return s->fold > 1 ? s->fold : 1;
}

/* Adds what each rank has of a tensor of `size` bytes. */
static void add_shares(double *bytes, const lf_ckpt_tensor *t, size_t size, const struct dealt *d)
{
    const size_t part = d->all / (size_t)d->ranks, last = (size_t)d->ranks - 1;
    /* those whose bounds lie before its end and behind its begin */
    for (size_t r = part && d->at / part < last ? d->at / part : last;
         size > 0 && r <= last && (r == last || part * r < d->at + size); r++) {
        const int64_t n = share_begin(t, d->at, d->all, (int)r + 1, d->ranks) -
                          share_begin(t, d->at, d->all, (int)r, d->ranks);
        for (size_t k = r * (size_t)d->divide; k < (r + 1) * (size_t)d->divide; k++)
            if (k % (size_t)d->fold == 0) /* of its ranks the first is meant */
                bytes[k / (size_t)d->fold] += (double)n * (double)lf_h5_type_bytes(t->dtype);
    }
}

void lf_weights_shared_bytes(double *bytes, const lf_ckpt_tensor *t, size_t n,
                             const struct lf_weights_share *s)
{
    const int expert = s->expert > 1 ? s->expert : 1;
    struct dealt d[2] = {
        {.divide = 1, .ranks = s->ranks, .fold = 1},
        {.divide = expert, .ranks = s->ranks * fold_of(s) / expert, .fold = fold_of(s)}};
    struct lf_pstore_share w;
    for (size_t i = 0; i < n; i++) {
        written(&t[i], s, &w);
        d[w.experts].all += shared_size(&t[i], &w);
    }
    for (size_t i = 0; i < n; i++) {
        lf_ckpt_tensor one = t[i];
        written(&one, s, &w);
        set_box(&one, &w);
        const size_t size = shared_size(&one, &w);
        add_shares(bytes, &one, size, &d[w.experts]);
        d[w.experts].at += size;
    }
}

/* What is copied is what this rank writes. */
static void cut_copied(const lf_ckpt_tensor *t)
{
    struct copied *c = t->user;
    memcpy(c->lo, t->lo, sizeof c->lo);
    memcpy(c->hi, t->hi, sizeof c->hi);
    c->first = t->flat[0];
}

void lf_weights_share(lf_ckpt_tensor *t, size_t *n, const struct lf_weights_share *s)
{
    /* of what all ranks have, and of experts, which some of them have */
    size_t all[2] = {0}, at[2] = {0}, kept = 0;
    struct lf_pstore_share w;
    for (size_t i = 0; i < *n; i++) {
        written(&t[i], s, &w);
        set_box(&t[i], &w);
        all[w.experts] += shared_size(&t[i], &w);
    }
    for (size_t i = 0; i < *n; i++) {
        const size_t size = lf_h5_type_bytes(t[i].dtype);
        written(&t[i], s, &w);
        if (w.shared && w.owner) {
            const size_t bytes = shared_size(&t[i], &w), from = at[w.experts], of = all[w.experts];
            const int divide = w.experts ? s->expert : 1, fold = w.experts ? fold_of(s) : 1,
                      rank = (s->rank * fold + (w.experts ? s->fold_rank : 0)) / divide,
                      ranks = s->ranks * fold / divide;
            w.flat[0] = share_begin(&t[i], from, of, rank, ranks);
            w.flat[1] = share_begin(&t[i], from, of, rank + 1, ranks);
            at[w.experts] += bytes;
            if (t[i].data)
                t[i].data = (const char *)t[i].data + (size_t)w.flat[0] * size;
        } else if (s->copy)
            w.flat[1] = w.flat[0];
        if (w.flat[0] == w.flat[1])
            continue;
        t[kept] = t[i];
        memcpy(t[kept].flat, w.flat, sizeof w.flat);
        if (t[kept].fill)
            cut_copied(&t[kept]);
        kept++;
    }
    *n = kept;
}

/* ---- reading ---- */

static void shape_text(lf_buf *b, const int64_t *dims, int n)
{
    for (int i = 0; i < n; i++)
        lf_buf_addf(b, "%s%lld", i ? ", " : "[", (long long)dims[i]);
    lf_buf_addc(b, ']');
}

static int check_shape(const lf_ckpt_entry *e, const struct lf_param_desc *d, const char *where,
                       lf_err *err)
{
    bool same = e->ndim == d->ndim;
    for (int i = 0; i < d->ndim && same; i++)
        same = e->shape[i] == d->dims[i];
    if (same)
        return 0;
    lf_buf b;
    lf_buf_init(&b);
    shape_text(&b, e->shape, e->ndim);
    lf_buf_adds(&b, " there, but the model wants ");
    shape_text(&b, d->dims, d->ndim);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL, "%s: %s is %s", where, e->name, b.data);
    lf_buf_fini(&b);
    return rc;
}

/* What this rank needs of the weights (LF_P_MASTER: masters and copies) or of a moment. */
static void needed(const lf_pstore *ps, int i, enum lf_pkind kind, int64_t range[2])
{
    int64_t copy[2];
    lf_pstore_own(ps, i, kind, range);
    if (kind != LF_P_MASTER)
        return;
    lf_pstore_own(ps, i, LF_P_COPY, copy);
    if (copy[0] == copy[1])
        return;
    if (range[0] == range[1] || copy[0] < range[0])
        range[0] = copy[0];
    if (copy[1] > range[1])
        range[1] = copy[1];
}

/* Some elements of a kind of tensor i, which one thread reads, checks and writes at once. */
struct job {
    int i;
    enum lf_pkind kind;
    const lf_ckpt_entry *e;
    const int64_t *lo, *hi; /* of this rank's box; NULL: it has the whole tensor */
    int64_t part[2];        /* of it */
};

/* The end of the block that begins at element `at` and is read at once: that of a leaf, so that no
 * leaf is read and hashed twice. */
static int64_t block_end(const struct job *j, int64_t at, int64_t end)
{
    int64_t next = at;
    for (int64_t n = BLOCK; next <= at; n *= 2)
        next = n < end - at ? lf_ckpt_cut(j->e->ndim, j->e->shape, j->lo, j->hi, at + n) : end;
    return next < end ? next : end;
}

struct jobs {
    struct job *v;
    size_t n, cap;
    size_t most; /* bytes of the largest */
};

/* What this rank needs of an entry. One for nothing where that is nothing: whether there is such a
 * kind is the store's to say. */
static int add_jobs(struct jobs *l, const lf_pstore *ps, const lf_ckpt *c, struct job j,
                    lf_err *err)
{
    if (j.e->dtype != LF_H5_F32 && j.e->dtype != LF_H5_BF16)
        return lf_fail(err, LF_EFORMAT, "%s: %s (%s) is %s; weights and moments are f32 or bf16",
                       lf_ckpt_dir(c), j.e->name, j.e->kind, lf_h5_type_name(j.e->dtype));
    int64_t all[2];
    j.lo = j.hi = NULL;
    lf_pstore_divided(ps, j.i, &j.lo, &j.hi);
    needed(ps, j.i, j.kind, all);
    j.part[1] = all[0];
    do {
        const int rc = lf_grow(&l->v, &l->cap, l->n, sizeof *l->v, err);
        if (rc != 0)
            return rc;
        j.part[0] = j.part[1];
        j.part[1] = j.part[0] < all[1] ? block_end(&j, j.part[0], all[1]) : j.part[0];
        const size_t bytes = (size_t)(j.part[1] - j.part[0]) * lf_h5_type_bytes(j.e->dtype);
        l->most = bytes > l->most ? bytes : l->most;
        l->v[l->n++] = j;
    } while (j.part[1] < all[1]);
    return 0;
}

/* Reading and hashing is the work; the store is written by one at a time. */
static int run_job(lf_pstore *ps, const lf_ckpt *c, const struct job *j, void *buf, lf_err *err)
{
    const enum lf_dtype type = j->e->dtype == LF_H5_F32 ? LF_F32 : LF_BF16;
    int rc = lf_ckpt_read_part(c, j->e, j->lo, j->hi, j->part, buf, err);
#pragma omp critical(lf_weights_write)
    if (rc == 0)
        rc = lf_pstore_write_part(ps, j->i, j->kind, type, buf, j->part, err);
    return rc;
}

/* The threads that the checkpoint was opened for, as far as their buffers stay small. */
static int team_of(const lf_ckpt *c, const struct jobs *l)
{
    const size_t fit = TEAM_BYTES / (l->most + 1) + 1, threads = (size_t)lf_ckpt_threads(c),
                 most = fit < l->n ? fit : l->n;
    return (int)(threads < most ? threads : most);
}

/* Of several failures the first in the order of the jobs is told, whoever came to it. */
static int run_jobs(lf_pstore *ps, const lf_ckpt *c, const struct jobs *l, lf_err *err)
{
    size_t failed = l->n;
    lf_err why = LF_ERR_INIT;
    if (!l->n)
        return 0;
#pragma omp parallel num_threads(team_of(c, l))
    {
        lf_err mine = LF_ERR_INIT;
        void *buf = lf_malloc(l->most + 1, 1, &mine);
#pragma omp for schedule(dynamic, 1)
        for (size_t k = 0; k < l->n; k++) {
            size_t before;
#pragma omp atomic read
            before = failed;
            if (k > before || (buf && run_job(ps, c, &l->v[k], buf, &mine) == 0))
                continue;
#pragma omp critical(lf_weights_failed)
            if (k < failed) {
                why = mine;
#pragma omp atomic write
                failed = k;
            }
            lf_err_clear(&mine);
        }
        free(buf);
    }
    return failed < l->n ? lf_fail(err, why.rc, "%s", why.text) : 0;
}

int lf_weights_read(lf_pstore *ps, int i, const lf_ckpt *c, const lf_ckpt_entry *e,
                    enum lf_pkind kind, lf_err *err)
{
    struct jobs l = {0};
    int rc = add_jobs(&l, ps, c, (struct job){.i = i, .kind = kind, .e = e}, err);
    if (rc == 0)
        rc = run_jobs(ps, c, &l, err);
    free(l.v);
    return rc;
}

/* Which tensors of a store a checkpoint fills. blind: it has none of encoder and projector. */
enum part { BASE, TRUNK, ADAPTER, VISION, GENERATOR };
struct from {
    enum part part;
    bool blind;
    bool pooler; /* below labels: the pooler of a model with nsp_head is theirs */
    bool alone;  /* store or file lacks the generator (electra.h), which then is the store's */
};

bool lf_weights_is_vision(const char *name)
{
    return strncmp(name, "vision.", 7) == 0;
}

bool lf_weights_is_sight(const char *name)
{
    return lf_weights_is_vision(name) || strncmp(name, "projector.", 10) == 0 ||
           strncmp(name, "dual.", 5) == 0;
}

bool lf_weights_is_head(const char *name)
{
    return strncmp(name, "head.", 5) == 0 || strcmp(name, "score.weight") == 0 ||
           strncmp(name, "labels.", 7) == 0 || strncmp(name, "label_in.", 9) == 0 ||
           strncmp(name, "classes.", 8) == 0 || strncmp(name, "nsp.", 4) == 0;
}

bool lf_weights_is_generator(const char *name)
{
    return strncmp(name, LF_ELECTRA_STACK, sizeof LF_ELECTRA_STACK - 1) == 0;
}

/* What labels of texts are read by, and pairs of texts (nsp.c). */
static bool is_pooler(const char *name)
{
    return strncmp(name, "label_in.", 9) == 0;
}

/* Is it of a head that stays the store's? */
static bool leaves(const char *name, const struct from *f)
{
    return f->part == TRUNK && lf_weights_is_head(name) && !(f->pooler && is_pooler(name));
}

/* The transform before a head over the vocabulary, which other heads read or do without. */
static bool is_transform(const char *name)
{
    return strncmp(name, "head_in.", 8) == 0 || strncmp(name, "head_norm.", 10) == 0;
}

/* Is a tensor of the store there for this part of it? What is trained whole beside an adapter
 * begins as the base's. */
static bool fills(const struct lf_param_desc *d, const struct from *f)
{
    if (d->elsewhere || leaves(d->name, f) ||
        (f->part == VISION && !lf_weights_is_vision(d->name)) ||
        (f->part == GENERATOR && !lf_weights_is_generator(d->name)) ||
        (f->blind && lf_weights_is_sight(d->name)) ||
        (f->alone && lf_weights_is_generator(d->name)))
        return false;
    return d->adapter == (f->part == ADAPTER) || d->whole;
}

/* Is a tensor of the file of no interest? */
static bool passed_over(const char *name, const struct from *f)
{
    return leaves(name, f) || (f->part == VISION && !lf_weights_is_vision(name)) ||
           (f->alone && lf_weights_is_generator(name));
}

/* What a model has for its generator is a model in a file of its own. */
static const char *name_in_file(const struct lf_param_desc *d, const struct from *f)
{
    return d->name + (f->part == GENERATOR ? sizeof LF_ELECTRA_STACK - 1 : 0);
}

/* Every tensor of the file under prefix must be one of the store's. */
static int check_visited(const lf_pstore *ps, const struct from *f, const lf_ckpt *c,
                         const char *prefix, lf_err *err)
{
    size_t skip = strlen(prefix);
    if (lf_pstore_has_part(ps) || f->part == GENERATOR) /* others are elsewhere */
        return 0;
    for (size_t i = 0; i < lf_ckpt_n_entries(c); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
        if (strncmp(e->name, prefix, skip) != 0 || passed_over(e->name + skip, f))
            continue;
        const int at = lf_pstore_find(ps, e->name + skip);
        if (at < 0 && f->part == TRUNK && is_transform(e->name + skip))
            continue;
        if (at >= 0 && lf_pstore_desc(ps, at)->elsewhere)
            continue;
        if (at < 0 || !fills(lf_pstore_desc(ps, at), f))
            return lf_fail(err, LF_EINVAL, "%s: %s is not a tensor of this model", lf_ckpt_dir(c),
                           e->name);
    }
    return 0;
}

static const char *why_missing(enum lf_pkind kind)
{
    return kind == LF_P_MASTER ? ""
           : kind == LF_P_EMA  ? ": it was saved by a run without ema. Leave ema out, or begin a "
                                 "stage with init_from that checkpoint"
                               : ": it was frozen when that was saved. Freeze it here too, or "
                                 "train it in a stage whose init_from is that checkpoint";
}

static int load_all(lf_pstore *ps, const struct from *f, const lf_ckpt *c, const char *prefix,
                    bool moments, lf_err *err)
{
    struct jobs l = {0};
    int rc = check_visited(ps, f, c, prefix, err);
    for (int i = 0; i < lf_pstore_count(ps) && rc == 0; i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        if (!fills(d, f))
            continue;
        lf_buf name;
        lf_buf_init(&name);
        lf_buf_addf(&name, "%s%s", prefix, name_in_file(d, f));
        rc = lf_buf_check(&name, err);
        for (size_t j = 0;
             j < (moments && !d->frozen && !(d->balance_rate > 0) ? N_STORED : 1) && rc == 0; j++) {
            const lf_ckpt_entry *e = lf_ckpt_find(c, name.data, lf_pkind_name(stored[j]));
            if (stored[j] == LF_P_EMA && !lf_pstore_planned(ps, i, LF_P_EMA))
                continue; /* this run keeps none */
            if (!e)
                rc = lf_fail(err, LF_EINVAL, "%s holds no %s of %s%s", lf_ckpt_dir(c),
                             lf_pkind_name(stored[j]), name.data, why_missing(stored[j]));
            if (rc == 0)
                rc = check_shape(e, d, lf_ckpt_dir(c), err);
            if (rc == 0)
                rc = add_jobs(&l, ps, c, (struct job){.i = i, .kind = stored[j], .e = e}, err);
        }
        lf_buf_fini(&name);
    }
    if (rc == 0)
        rc = run_jobs(ps, c, &l, err);
    free(l.v);
    return rc;
}

static bool has_generator(const lf_pstore *ps)
{
    return lf_pstore_find(ps, LF_ELECTRA_STACK "head.bias") >= 0;
}

int lf_weights_load(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments, lf_err *err)
{
    const struct from f = {.part = BASE, .alone = !has_generator(ps)};
    return load_all(ps, &f, c, prefix, moments, err);
}

/* Are the labels of c those of the store, and read the same way? */
static bool same_labels(const lf_pstore *ps, const lf_model_config *is)
{
    const int at = lf_pstore_find(ps, "labels.weight");
    return at < 0 || (lf_pstore_desc(ps, at)->dims[0] == is->labels &&
                      (lf_pstore_find(ps, "labels.bias") >= 0) == is->label_bias &&
                      (lf_pstore_find(ps, "label_in.weight") >= 0) == lf_model_label_inner(is));
}

int lf_weights_load_below(lf_pstore *ps, int output, const lf_ckpt *c, const char *prefix,
                          lf_err *err)
{
    lf_model_config is;
    int rc = lf_weights_config(&is, c, err);
    const struct from f = {
        is.output == output && (output != LF_OUTPUT_LABELS || same_labels(ps, &is)) ? BASE : TRUNK,
        !is.vision.family, lf_model_tells_pairs(&is) && lf_pstore_find(ps, "label_in.weight") >= 0,
        !is.generator_layers || !has_generator(ps)};
    return rc != 0 ? rc : load_all(ps, &f, c, prefix, false, err);
}

int lf_weights_load_generator(lf_pstore *ps, const lf_ckpt *c, const char *prefix, lf_err *err)
{
    return load_all(ps, &(struct from){.part = GENERATOR}, c, prefix, false, err);
}

static int no_encoder(const lf_ckpt *c, lf_err *err)
{
    return lf_fail(err, LF_EINVAL, "%s: the model sees no pictures, so it has no encoder",
                   lf_ckpt_dir(c));
}

int lf_weights_load_vision(lf_pstore *ps, const lf_ckpt *c, const char *prefix, lf_err *err)
{
    lf_model_config is;
    int rc = lf_weights_config(&is, c, err);
    if (rc == 0 && !is.vision.family)
        rc = no_encoder(c, err);
    return rc != 0 ? rc : load_all(ps, &(struct from){.part = VISION}, c, prefix, false, err);
}

int lf_weights_load_adapter(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments,
                            lf_err *err)
{
    return load_all(ps, &(struct from){.part = ADAPTER}, c, prefix, moments, err);
}

/* Members vision.* of a description, in the order of its keys. */
static void hash_description(lf_hash *h, json_t *model)
{
    const char *key;
    json_t *v;
    json_object_foreach(model, key, v)
    {
        const char *text = lf_weights_is_vision(key) ? json_string_value(v) : NULL;
        if (!text)
            continue;
        lf_hash_update(h, key, strlen(key) + 1);
        lf_hash_update(h, text, strlen(text) + 1);
    }
}

static void hash_entry(lf_hash *h, const lf_ckpt_entry *e, size_t skip)
{
    char text[64];
    lf_hash_update(h, e->name + skip, strlen(e->name + skip) + 1);
    snprintf(text, sizeof text, "%s", lf_h5_type_name(e->dtype));
    lf_hash_update(h, text, strlen(text) + 1);
    for (int k = 0; k < e->ndim; k++) {
        snprintf(text, sizeof text, "%lld", (long long)e->shape[k]);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    lf_hash_update(h, lf_ckpt_tensor_hash(e), LF_HASH_BYTES);
}

int lf_encoder_identity(char hex[LF_HASH_HEX], const lf_ckpt *c, const char *prefix, lf_err *err)
{
    const size_t skip = strlen(prefix);
    uint8_t digest[LF_HASH_BYTES];
    lf_model_config mc;
    int rc = lf_weights_config(&mc, c, err);
    if (rc == 0 && !mc.vision.family)
        rc = no_encoder(c, err);
    json_t *model = rc == 0 ? lf_model_config_to_json(&mc, err) : NULL;
    lf_hash *h = model ? lf_hash_create(err) : NULL;
    if (!h) {
        json_decref(model);
        return rc != 0 ? rc : LF_ENOMEM;
    }
    lf_hash_update(h, "lf-encoder-1", sizeof "lf-encoder-1");
    hash_description(h, model);
    for (size_t i = 0; i < lf_ckpt_n_entries(c); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
        if (strcmp(e->kind, "weight") == 0 && strncmp(e->name, prefix, skip) == 0 &&
            lf_weights_is_vision(e->name + skip))
            hash_entry(h, e, skip);
    }
    lf_hash_final(h, digest);
    lf_hash_destroy(h);
    json_decref(model);
    lf_hash_hex(hex, digest);
    return 0;
}

int lf_weights_config(lf_model_config *out, const lf_ckpt *c, lf_err *err)
{
    json_t *o = NULL;
    int rc = lf_json_get_object(&o, lf_ckpt_state(c), "model", true, lf_ckpt_dir(c), err);
    return rc != 0 ? rc : lf_model_config_from_json(out, o, lf_ckpt_dir(c), err);
}
