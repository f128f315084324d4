/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators: choice of the transport, splitting, and the calls that are made of others. The
 * calls themselves begin in call.c; the moving of bytes is the transports' (self.c, ucx.c with
 * coll.c, nccl.c).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/comm/comm_priv.h"
#include "engine/comm/watch.h"

/* ---- making and ending ---- */

static void job_destroy(struct lf_comm_job *job)
{
    if (!job)
        return;
    lf_watch_destroy(job->watch);
    free(job->peer);
    free(job);
}

/* Seconds, 0: no watchdog, negative: err is set. */
static double patience(const struct lf_comm_opts *o, lf_err *err)
{
    const char *text = getenv("LF_COMM_PATIENCE");
    double s = 40;
    if (o->patience_s > 0)
        return o->patience_s;
    if (text && strcmp(text, "off") == 0)
        return 0;
    if (text && (lf_parse_f64(&s, text, NULL) || s < 2)) {
        lf_fail(err, LF_EINVAL, "LF_COMM_PATIENCE=%s: seconds, at least 2, or off", text);
        return -1;
    }
    return s;
}

static struct lf_comm_job *job_create(lf_boot *boot, const struct lf_comm_opts *o, lf_err *err)
{
    double s = patience(o, err);
    if (s < 0)
        return NULL;
    struct lf_comm_job *job = lf_calloc(1, sizeof *job, err);
    if (!job)
        return NULL;
    job->boot = boot;
    job->next_id = 1;
    job->peer = lf_calloc((size_t)lf_boot_info(boot)->size, sizeof *job->peer, err);
    job->watch = job->peer ? lf_watch_create(job, s, o->fatal, o->fatal_arg, err) : NULL;
    if (!job->watch) {
        job_destroy(job);
        return NULL;
    }
    return job;
}

lf_comm *lf_comm_on_gpus(lf_comm *host, const struct lf_comm_gpus *o, lf_err *err)
{
    return lf_comm_nccl_create(host, o, err);
}

lf_comm *lf_comm_on_gpus_part(lf_comm *whole, lf_comm *host, lf_err *err)
{
    return lf_comm_nccl_part(whole, host, err);
}

void lf_comm_on_gpus_destroy(lf_comm *c)
{
    if (!c)
        return;
    lf_comm_drop_requests(c);
    c->ops->destroy(c); /* not its host */
}

void lf_comm_on_gpus_abort(lf_comm *c)
{
    if (!c)
        return;
    lf_comm_drop_requests(c);
    lf_comm_nccl_abort(c);
}

static lf_comm *create_many(lf_boot *boot, const struct lf_comm_opts *o, bool nccl, lf_err *err)
{
    struct lf_comm_job *job = job_create(boot, o, err);
    lf_comm *c = job ? lf_comm_ucx_create(job, err) : NULL;
    if (!c) {
        job_destroy(job);
        return NULL;
    }
    if (nccl) {
        lf_comm *n = lf_comm_nccl_create(c, &(struct lf_comm_gpus){.device = o->device}, err);
        if (!n)
            lf_comm_destroy(c);
        c = n;
    }
    return c;
}

lf_comm *lf_comm_create_with(lf_boot *boot, const struct lf_comm_opts *opts, lf_err *err)
{
    static const char *const names[] = {"auto", "self", "ucx", "nccl"};
    const struct lf_comm_opts none = {0};
    const struct lf_comm_opts *o = opts ? opts : &none;
    const char *t = o->transport ? o->transport : getenv("LF_COMM");
    const int size = lf_boot_info(boot)->size;
    size_t k = 0;
    t = t && t[0] ? t : "auto";
    while (k < 4 && strcmp(t, names[k]) != 0)
        k++;
    if (k == 4) {
        lf_fail(err, LF_EINVAL,
                "there is no transport \"%s\" between ranks; auto, self, ucx or nccl", t);
        return NULL;
    }
    if (k == 1 && size != 1) {
        lf_fail(err, LF_EINVAL, "transport self is for one rank, there are %d", size);
        return NULL;
    }
    lf_comm *c = size > 1 ? create_many(boot, o, k == 3, err) : lf_comm_self_create(err);
    if (c)
        c->local_rank = lf_boot_info(boot)->local_rank;
    if (c && size == 1 && k == 3) {
        lf_comm *n = lf_comm_nccl_create(c, &(struct lf_comm_gpus){.device = o->device}, err);
        if (!n)
            lf_comm_destroy(c);
        c = n;
    }
    return c;
}

lf_comm *lf_comm_create(lf_boot *boot, lf_err *err)
{
    return lf_comm_create_with(boot, NULL, err);
}

void lf_comm_destroy(lf_comm *c)
{
    if (!c)
        return;
    struct lf_comm_job *job = c->id == 0 ? c->job : NULL;
    int *world = c->world;
    lf_comm *host = c->host != c ? c->host : NULL;
    lf_comm_drop_requests(c);
    c->ops->destroy(c);
    free(world);
    if (host)
        lf_comm_destroy(host); /* the world's host communicator has the job */
    else
        job_destroy(job);
}

/* ---- the watchdog's notes ---- */

static struct lf_watch *watch_of(const lf_comm *c)
{
    return c->job ? c->job->watch : NULL;
}

void lf_comm_step(lf_comm *c, int64_t step)
{
    if (watch_of(c))
        lf_watch_step(watch_of(c), step);
}

void lf_comm_pass(lf_comm *c, int32_t micro, bool backward)
{
    if (watch_of(c))
        lf_watch_pass(watch_of(c), micro, backward);
}

void lf_comm_end_job(lf_comm *c, const char *text)
{
    if (watch_of(c))
        lf_watch_end(watch_of(c), text);
}

void lf_comm_phase(lf_comm *c, const char *name, double limit_s)
{
    if (watch_of(c))
        lf_watch_phase(watch_of(c), name, limit_s);
}

static int by_cpus(const void *a, const void *b)
{
    const struct lf_comm_peer *const *x = a, *const *y = b;
    return ((*x)->cpus > (*y)->cpus) - ((*x)->cpus < (*y)->cpus);
}

int lf_comm_crowded(const struct lf_comm_peer *peer, int n, int me, lf_err *err)
{
    const struct lf_comm_peer **here = lf_calloc((size_t)n, sizeof *here, err);
    int ranks = 0;
    int64_t cpus = 0;
    if (!here)
        return LF_ENOMEM;
    for (int r = 0; r < n; r++)
        if (peer[r].boot == peer[me].boot)
            here[ranks++] = &peer[r];
    qsort(here, (size_t)ranks, sizeof *here, by_cpus); /* equal sets side by side */
    for (int i = 0; i < ranks; i++)
        if (i == 0 || here[i]->cpus != here[i - 1]->cpus)
            cpus += here[i]->n_cpus;
    free(here);
    return ranks > cpus;
}

const char *lf_comm_peer_host(const lf_comm *c, int rank)
{
    return c->job ? c->job->peer[lf_comm_world_rank(c, rank)].host : "";
}

int64_t lf_comm_peer_pid(const lf_comm *c, int rank)
{
    return c->job ? c->job->peer[lf_comm_world_rank(c, rank)].pid : -1;
}

/* ---- made of others ---- */

void lf_comm_part(size_t n, int size, int rank, size_t *first, size_t *count)
{
    size_t s = (size_t)size, r = (size_t)rank, even = n / s, more = n % s;
    *first = r * even + (r < more ? r : more);
    *count = even + (r < more);
}

int lf_comm_gather_blobs(lf_comm *c, const void *mine, size_t len, struct lf_comm_blobs *out,
                         lf_err *err)
{
    lf_comm *h = c->host;
    const size_t p = (size_t)h->size;
    struct lf_comm_blobs b = {NULL, lf_calloc(p + 1, sizeof *b.offset, err)};
    int64_t *lens = lf_calloc(p, sizeof *lens, err);
    size_t *bytes = lf_calloc(p, sizeof *bytes, err);
    int rc = b.offset && lens && bytes ? 0 : LF_ENOMEM;
    if (rc == 0) {
        for (size_t r = 0; r < p; r++)
            bytes[r] = sizeof *lens;
        lens[h->rank] = (int64_t)len;
        rc = lf_comm_all_gather(h, lens, bytes, err);
    }
    for (size_t r = 0; rc == 0 && r < p; r++) {
        bytes[r] = (size_t)lens[r];
        if (lens[r] < 0)
            rc = lf_fail(err, LF_ECOMM, "rank %zu announces a blob of %lld bytes", r,
                         (long long)lens[r]);
        else if (!lf_size_add(&b.offset[r + 1], b.offset[r], bytes[r]))
            rc = lf_fail(err, LF_EINVAL, "blobs of %zu ranks overflow", p);
    }
    if (rc == 0 && !(b.data = lf_malloc(1, b.offset[p], err)))
        rc = LF_ENOMEM;
    if (rc == 0) {
        if (len)
            memcpy(b.data + b.offset[h->rank], mine, len);
        rc = lf_comm_all_gather(h, b.data, bytes, err);
    }
    free(lens);
    free(bytes);
    if (rc != 0)
        lf_comm_blobs_fini(&b);
    else
        *out = b;
    return rc;
}

void lf_comm_blobs_fini(struct lf_comm_blobs *b)
{
    free(b->data);
    free(b->offset);
    *b = (struct lf_comm_blobs){0};
}

int lf_comm_agree_max(lf_comm *c, int64_t *value, lf_err *err)
{
    return lf_comm_all_reduce(c->host, value, 1, LF_COMM_I64, LF_COMM_MAX, err);
}

int lf_comm_agree_ok(lf_comm *c, int rc, lf_err *err)
{
    int64_t worst =
        rc != 0 ? c->size - c->rank : 0; /* the lowest rank that failed has the largest */
    int r = lf_comm_agree_max(c, &worst, err);
    if (rc != 0)
        return rc;
    if (r || !worst)
        return r;
    int who = c->size - (int)worst;
    return lf_fail(err, LF_ECOMM, "rank %d (%s, pid %lld) failed", who, lf_comm_peer_host(c, who),
                   (long long)lf_comm_peer_pid(c, who));
}

int lf_comm_agree_stop(lf_comm *c, int rc, lf_err *err)
{
    if (!c)
        return rc;
    int64_t v[] = {rc == LF_EINTR, rc != 0 && rc != LF_EINTR};
    int failed = lf_comm_all_reduce(c, v, 2, LF_COMM_I64, LF_COMM_MAX, rc != 0 ? NULL : err);
    if (failed)
        return rc != 0 ? rc : failed;
    if (v[1])
        return lf_comm_agree_ok(c, rc == LF_EINTR ? 0 : rc, err);
    return v[0] && rc == 0 ? lf_fail(err, LF_EINTR, "another rank was asked to stop") : rc;
}

/* ---- splitting ---- */

struct ticket {
    int64_t color, key, next_id;
};

struct place {
    int64_t key;
    int rank;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Ranks of c with my color, in the order of (key, rank). Returns their number, or a failure. */
static int choose_members(const lf_comm *c, const struct ticket *t, int *members, lf_err *err)
{
    struct place *p = lf_calloc((size_t)c->size, sizeof *p, err);
    int n = 0;
    if (!p)
        return LF_ENOMEM;
    for (int r = 0; r < c->size; r++)
        if (t[r].color == t[c->rank].color)
            p[n++] = (struct place){t[r].key, r};
    qsort(p, (size_t)n, sizeof *p, by_place);
    for (int i = 0; i < n; i++)
        members[i] = p[i].rank;
    free(p);
    return n;
}

lf_comm *lf_comm_part_of(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err)
{
    int *world = lf_calloc((size_t)n, sizeof *world, err);
    if (!world)
        return NULL;
    for (int i = 0; i < n; i++)
        world[i] = lf_comm_world_rank(c, members[i]);
    lf_comm *s = c->ops->split(c, members, n, me, id, err);
    if (!s) {
        free(world);
        return NULL;
    }
    s->rank = me;
    s->size = n;
    s->world = world;
    s->id = id;
    s->job = c->job;
    return s;
}

static lf_comm *make_part(lf_comm *c, const int *members, int n, uint32_t id, lf_err *err)
{
    int me = 0;
    while (members[me] != c->rank)
        me++;
    return lf_comm_part_of(c, members, n, me, id, err);
}

lf_comm *lf_comm_split(lf_comm *c, int color, int key, lf_err *err)
{
    const size_t p = (size_t)c->size;
    struct ticket *t = lf_calloc(p, sizeof *t, err);
    size_t *bytes = lf_calloc(p, sizeof *bytes, err);
    int *members = lf_calloc(p, sizeof *members, err);
    lf_comm *s = NULL;
    if (!t || !bytes || !members)
        goto out;
    for (size_t r = 0; r < p; r++)
        bytes[r] = sizeof *t;
    t[c->rank] = (struct ticket){color, key, c->job ? (int64_t)c->job->next_id : 1};
    if (lf_comm_all_gather(c->host, t, bytes, err))
        goto out;
    /* An id that none of these ranks has used. Groups of other colors use it too; they have no
     * member in common. */
    int64_t id = 1;
    for (size_t r = 0; r < p; r++)
        id = t[r].next_id > id ? t[r].next_id : id;
    if (c->job)
        c->job->next_id = (uint32_t)id + 1;
    const int n = color >= 0 ? choose_members(c, t, members, err) : 0;
    if (n > 0)
        s = make_part(c, members, n, (uint32_t)id, err);
out:
    free(t);
    free(bytes);
    free(members);
    return s;
}
