/* SPDX-License-Identifier: Apache-2.0
 *
 * Tree hashes of many files by several threads. The unit of work is a leaf (64 MiB), or as many
 * leaves as a vector register has lanes (sha_lanes.h), so one large file keeps every thread busy as
 * well as many small ones do.
 */
#include "engine/base/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sha_lanes.h"
#include "engine/base/sys.h"

#define READ_BYTES  ((size_t)1 << 20)
#define MAX_THREADS 64

struct hashing {
    const char *dir;
    lf_artifact_hash_job *jobs;
    size_t n_jobs;
    size_t *first_leaf; /* [n_jobs + 1] */
    uint8_t (*leaves)[LF_HASH_BYTES];
    int lanes;    /* leaves that one thread hashes at once: 16, 8, or 0 for one after the other */
    size_t batch; /* leaves that a thread takes */
    atomic_size_t next; /* leaf */
    atomic_bool failed;
    pthread_mutex_t lock; /* guards err */
    lf_err err;
};

static size_t leaf_count(int64_t bytes)
{
    return ((size_t)bytes + LF_HASH_LEAF - 1) / LF_HASH_LEAF;
}

static int hash_leaf(const struct hashing *h, size_t job, size_t leaf, lf_hash *sha, uint8_t *buf,
                     uint8_t *digest, lf_err *err)
{
    const lf_artifact_hash_job *j = &h->jobs[job];
    size_t at = leaf * LF_HASH_LEAF, left = (size_t)j->bytes - at;
    int fd = lf_artifact_open_file(h->dir, j->path, err), rc = 0;
    if (fd < 0)
        return fd;
    left = left < LF_HASH_LEAF ? left : LF_HASH_LEAF;
    while (left && rc == 0) {
        size_t n = left < READ_BYTES ? left : READ_BYTES;
        if ((rc = lf_io_pread_all(fd, buf, n, (off_t)at, j->path, err)) == 0)
            lf_hash_update(sha, buf, n);
        at += n;
        left -= n;
    }
    close(fd);
    lf_hash_final(sha, digest);
    return rc;
}

/* Which file a leaf belongs to: the last one whose first leaf is not above it. Files without leaves
 * are passed over. */
static size_t job_of(const struct hashing *h, size_t leaf)
{
    size_t lo = 0, hi = h->n_jobs;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (h->first_leaf[mid] <= leaf)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- several leaves at once ---- */

#define LANE_BYTES ((size_t)128 << 10)

/* Full leaves first .. first + n of the list, n <= lanes, read side by side: in one lane of the
 * hash each (lanes without a leaf of their own repeat lane 0). buf: lanes * LANE_BYTES. */
static int hash_lanes(struct hashing *h, const size_t *leaf, int n, int lanes, uint8_t *buf,
                      lf_err *err)
{
    int fd[LF_SHA_MAX_LANES], rc = 0, open_fds = 0;
    size_t job[LF_SHA_MAX_LANES];
    uint8_t out[LF_SHA_MAX_LANES][LF_HASH_BYTES];
    lf_sha_lanes s;
    lf_sha_lanes_init(&s, lanes);
    for (; open_fds < n && rc == 0; open_fds += rc == 0) {
        job[open_fds] = job_of(h, leaf[open_fds]);
        fd[open_fds] = lf_artifact_open_file(h->dir, h->jobs[job[open_fds]].path, err);
        rc = fd[open_fds] < 0 ? fd[open_fds] : 0;
    }
    for (size_t at = 0; at < LF_HASH_LEAF && rc == 0; at += LANE_BYTES) {
        for (int k = 0; k < n && rc == 0; k++)
            rc = lf_io_pread_all(fd[k], buf + (size_t)k * LANE_BYTES, LANE_BYTES,
                                 (off_t)((leaf[k] - h->first_leaf[job[k]]) * LF_HASH_LEAF + at),
                                 h->jobs[job[k]].path, err);
        if (rc == 0)
            lf_sha_lanes_update(&s, buf, LANE_BYTES, LANE_BYTES);
    }
    while (open_fds > 0)
        close(fd[--open_fds]);
    if (rc < 0)
        return rc;
    lf_sha_lanes_final(&s, out);
    for (int k = 0; k < n; k++)
        memcpy(h->leaves[leaf[k]], out[k], LF_HASH_BYTES);
    return 0;
}

static bool is_full(const struct hashing *h, size_t leaf)
{
    size_t job = job_of(h, leaf);
    return (size_t)h->jobs[job].bytes - (leaf - h->first_leaf[job]) * LF_HASH_LEAF >= LF_HASH_LEAF;
}

/* Leaves [from, to): the full ones in lanes when there are enough to pay (a quarter of the lanes),
 * the others alone. */
static int hash_batch(struct hashing *h, size_t from, size_t to, lf_hash *sha, uint8_t *buf,
                      lf_err *err)
{
    size_t full[LF_SHA_MAX_LANES];
    int n = 0, rc = 0;
    for (size_t i = from; i < to; i++)
        if (is_full(h, i))
            full[n++] = i;
    int lanes = n > 8 ? h->lanes : h->lanes ? 8 : 0;
    bool wide = lanes && n > lanes / 4;
    if (wide)
        rc = hash_lanes(h, full, n, lanes, buf, err);
    for (size_t i = from; i < to && rc == 0; i++) {
        size_t job = job_of(h, i);
        if (!wide || !is_full(h, i))
            rc = hash_leaf(h, job, i - h->first_leaf[job], sha, buf, h->leaves[i], err);
    }
    return rc;
}

static void *hash_thread(void *arg)
{
    struct hashing *h = arg;
    lf_err err = LF_ERR_INIT;
    lf_hash *sha = lf_hash_create(&err);
    uint8_t *buf = lf_malloc(
        READ_BYTES > LF_SHA_MAX_LANES * LANE_BYTES ? READ_BYTES : LF_SHA_MAX_LANES * LANE_BYTES, 1,
        &err);
    int rc = sha && buf ? 0 : LF_ENOMEM;
    size_t n = h->first_leaf[h->n_jobs], i;
    while (rc == 0 && !atomic_load(&h->failed) && (i = atomic_fetch_add(&h->next, h->batch)) < n)
        rc = hash_batch(h, i, n - i < h->batch ? n : i + h->batch, sha, buf, &err);
    if (rc < 0) {
        atomic_store(&h->failed, true);
        pthread_mutex_lock(&h->lock);
        if (h->err.rc == 0)
            h->err = err;
        pthread_mutex_unlock(&h->lock);
    }
    free(buf);
    lf_hash_destroy(sha);
    return NULL;
}

static int measure(struct hashing *h, lf_err *err)
{
    for (size_t i = 0; i < h->n_jobs; i++) {
        struct stat st;
        int fd = lf_artifact_open_file(h->dir, h->jobs[i].path, err);
        if (fd < 0)
            return fd;
        int rc = fstat(fd, &st) < 0
                     ? lf_fail_errno(err, "cannot stat %s/%s", h->dir, h->jobs[i].path)
                     : 0;
        close(fd);
        if (rc < 0)
            return rc;
        h->jobs[i].bytes = (int64_t)st.st_size;
        h->first_leaf[i + 1] = h->first_leaf[i] + leaf_count(h->jobs[i].bytes);
    }
    return 0;
}

static int roots(struct hashing *h, lf_err *err)
{
    lf_hash *sha = lf_hash_create(err);
    if (!sha)
        return LF_ENOMEM;
    for (size_t i = 0; i < h->n_jobs; i++) {
        uint8_t le[8];
        for (int k = 0; k < 8; k++)
            le[k] = (uint8_t)((uint64_t)h->jobs[i].bytes >> (8 * k));
        lf_hash_update(sha, "lf-tree-1", strlen("lf-tree-1"));
        lf_hash_update(sha, le, sizeof le);
        lf_hash_update(sha, h->leaves[h->first_leaf[i]],
                       leaf_count(h->jobs[i].bytes) * LF_HASH_BYTES);
        lf_hash_final(sha, h->jobs[i].sha256);
    }
    lf_hash_destroy(sha);
    return 0;
}

int lf_artifact_hash_files(const char *dir, lf_artifact_hash_job *jobs, size_t n, int threads,
                           lf_err *err)
{
    struct hashing h = {.dir = dir, .jobs = jobs, .n_jobs = n, .err = LF_ERR_INIT};
    pthread_t tid[MAX_THREADS];
    size_t started = 0;
    int rc = LF_ENOMEM;
    pthread_mutex_init(&h.lock, NULL);
    if (!(h.first_leaf = lf_calloc(n + 1, sizeof *h.first_leaf, err)) ||
        (rc = measure(&h, err)) < 0)
        goto out;
    size_t leaves = h.first_leaf[n], want = threads > 0 ? (size_t)threads : (size_t)lf_ncpu();
    if (!(h.leaves = lf_calloc(leaves + 1, LF_HASH_BYTES, err))) {
        rc = LF_ENOMEM;
        goto out;
    }
    want = want > MAX_THREADS ? MAX_THREADS : want;
    want = want > leaves ? leaves : want;
    h.lanes = lf_sha_lanes_best();
    h.batch = want ? (leaves + want - 1) / want : 1;
    h.batch = !h.lanes ? 1 : h.batch > (size_t)h.lanes ? (size_t)h.lanes : h.batch;
    /* The calling thread is one of them; a thread that cannot be started is only a slower run. */
    for (size_t i = 1; i < want; i++)
        if (pthread_create(&tid[started], NULL, hash_thread, &h) == 0)
            started++;
    hash_thread(&h);
    for (size_t i = 0; i < started; i++)
        pthread_join(tid[i], NULL);
    rc = h.err.rc ? lf_fail(err, h.err.rc, "%s", h.err.text) : roots(&h, err);
out:
    pthread_mutex_destroy(&h.lock);
    free(h.leaves);
    free(h.first_leaf);
    return rc;
}

int lf_artifact_check_hashes(const lf_artifact *a, const char *dir, int threads, lf_err *err)
{
    int rc = lf_artifact_check_lengths(a, dir, err);
    if (rc < 0)
        return rc;
    lf_artifact_hash_job *jobs = lf_calloc(a->n_files, sizeof *jobs, err);
    if (!jobs)
        return LF_ENOMEM;
    for (size_t i = 0; i < a->n_files; i++)
        jobs[i].path = a->files[i].path;
    rc = lf_artifact_hash_files(dir, jobs, a->n_files, threads, err);
    for (size_t i = 0; i < a->n_files && rc == 0; i++)
        if (jobs[i].bytes != a->files[i].bytes ||
            memcmp(jobs[i].sha256, a->files[i].sha256, LF_HASH_BYTES) != 0)
            rc = lf_fail(err, LF_EFORMAT,
                         "%s/%s: its bytes do not match the hash in the manifest (damaged file)",
                         dir, a->files[i].path);
    free(jobs);
    return rc;
}
