/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks go round: the caller fills block n, the writer and the hasher each take 0, 1, 2, ... in
 * order. A block is free again when both are past it. Invariants, under the lock: wrote <= filled,
 * hashed <= filled, filled - min(wrote, hashed) <= LF_SINK_BLOCKS - 1 (one block is being filled).
 */
#include "engine/store/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"

struct lf_sink {
    int fd;
    char *path;
    unsigned char *mem; /* LF_SINK_BLOCKS blocks */
    size_t len[LF_SINK_BLOCKS];
    size_t at;     /* bytes in the block being filled */
    int64_t bytes; /* put so far */
    lf_tree_hash *hash;
    pthread_t writer, hasher;
    int started; /* threads that run */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t filled, wrote, hashed; /* blocks */
    bool ended;                     /* no more blocks will come */
    lf_err err;                     /* of a thread; rc 0: none */
};

/* Wait for block number n; false when there will be none (or the other thread has failed). */
static bool wait_filled(lf_sink *k, uint64_t n)
{
    pthread_mutex_lock(&k->lock);
    while (k->filled <= n && !k->ended && !k->err.rc)
        pthread_cond_wait(&k->changed, &k->lock);
    bool have = k->filled > n && !k->err.rc;
    pthread_mutex_unlock(&k->lock);
    return have;
}

static void done_with(lf_sink *k, uint64_t *counter, const lf_err *err)
{
    pthread_mutex_lock(&k->lock);
    (*counter)++;
    if (err->rc && !k->err.rc)
        k->err = *err;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

static void *write_blocks(void *arg)
{
    lf_sink *k = arg;
    lf_err err = LF_ERR_INIT;
    off_t at = 0;
    for (uint64_t n = 0; !err.rc && wait_filled(k, n); n++) {
        size_t b = n % LF_SINK_BLOCKS;
        if (lf_io_pwrite_all(k->fd, k->mem + b * LF_SINK_BLOCK, k->len[b], at, k->path, &err) == 0)
            (void)sync_file_range(k->fd, at, (off_t)k->len[b],
                                  SYNC_FILE_RANGE_WRITE); /* a hint; fsync comes later */
        at += (off_t)k->len[b];
        done_with(k, &k->wrote, &err);
    }
    return NULL;
}

static void *hash_blocks(void *arg)
{
    lf_sink *k = arg;
    lf_err err = LF_ERR_INIT;
    for (uint64_t n = 0; !err.rc && wait_filled(k, n); n++) {
        size_t b = n % LF_SINK_BLOCKS;
        lf_tree_hash_update(k->hash, k->mem + b * LF_SINK_BLOCK, k->len[b], &err);
        done_with(k, &k->hashed, &err);
    }
    return NULL;
}

/* Signals stay with the threads of the caller. */
static int start(lf_sink *k, lf_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&k->writer, NULL, write_blocks, k);
    if (!e) {
        k->started = 1;
        e = pthread_create(&k->hasher, NULL, hash_blocks, k);
        k->started += !e;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e ? lf_fail(err, LF_ENOMEM, "cannot start a thread that writes %s: %s", k->path,
                       strerror(e))
             : 0;
}

int lf_sink_create(lf_sink **out, const char *path, mode_t mode, lf_err *err)
{
    lf_sink *k = lf_calloc(1, sizeof *k, err);
    if (!k)
        return LF_ENOMEM;
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->changed, NULL);
    k->fd = -1;
    int rc = LF_ENOMEM;
    if (!(k->path = lf_strdup(path, err)) ||
        !(k->mem = lf_malloc(LF_SINK_BLOCKS, LF_SINK_BLOCK, err)) ||
        !(k->hash = lf_tree_hash_create(err)))
        goto out;
    rc = 0;
    k->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (k->fd < 0)
        rc = lf_fail_errno(err, "cannot create %s", path);
    else
        rc = start(k, err);
out:
    if (rc < 0)
        lf_sink_destroy(k);
    else
        *out = k;
    return rc;
}

/* Hand the block being filled to the threads, and wait for another one. */
static int next_block(lf_sink *k, lf_err *err)
{
    pthread_mutex_lock(&k->lock);
    k->len[k->filled % LF_SINK_BLOCKS] = k->at;
    k->filled++;
    k->at = 0;
    pthread_cond_broadcast(&k->changed);
    while (!k->err.rc &&
           (k->filled - k->wrote >= LF_SINK_BLOCKS || k->filled - k->hashed >= LF_SINK_BLOCKS))
        pthread_cond_wait(&k->changed, &k->lock);
    lf_err e = k->err;
    pthread_mutex_unlock(&k->lock);
    return e.rc ? lf_fail(err, e.rc, "%s", e.text) : 0;
}

int lf_sink_room(lf_sink *k, void **room, size_t *n, lf_err *err)
{
    int rc = k->at == LF_SINK_BLOCK ? next_block(k, err) : 0;
    if (rc == 0) {
        *room = k->mem + k->filled % LF_SINK_BLOCKS * LF_SINK_BLOCK + k->at;
        *n = LF_SINK_BLOCK - k->at;
    }
    return rc;
}

void lf_sink_add(lf_sink *k, size_t n)
{
    if (n > LF_SINK_BLOCK - k->at)
        LF_BUG("%zu bytes added to a block with room for %zu", n, LF_SINK_BLOCK - k->at);
    k->at += n;
    k->bytes += (int64_t)n;
}

int lf_sink_put(lf_sink *k, const void *data, size_t n, lf_err *err)
{
    const unsigned char *p = data;
    int rc = 0;
    while (n && rc == 0) {
        void *room;
        size_t have;
        rc = lf_sink_room(k, &room, &have, err);
        if (rc == 0) {
            size_t m = n < have ? n : have;
            memcpy(room, p, m);
            lf_sink_add(k, m);
            p += m;
            n -= m;
        }
    }
    return rc;
}

static void stop(lf_sink *k)
{
    pthread_mutex_lock(&k->lock);
    k->ended = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    if (k->started > 0)
        pthread_join(k->writer, NULL);
    if (k->started > 1)
        pthread_join(k->hasher, NULL);
    k->started = 0;
}

static void release(lf_sink *k)
{
    if (k->fd >= 0)
        close(k->fd);
    lf_tree_hash_destroy(k->hash);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    free(k->mem);
    free(k->path);
    free(k);
}

int lf_sink_finish(lf_sink *k, int64_t *bytes, uint8_t sha256[LF_HASH_BYTES], lf_err *err)
{
    int64_t n = k->bytes;
    uint8_t sum[LF_HASH_BYTES];
    int rc = k->at ? next_block(k, err) : 0;
    stop(k);
    if (rc == 0 && k->err.rc)
        rc = lf_fail(err, k->err.rc, "%s", k->err.text);
    if (rc == 0)
        rc = lf_tree_hash_final(k->hash, sum, err);
    if (rc == 0)
        rc = lf_io_fsync(k->fd, k->path, err);
    if (rc == 0) {
        int fd = k->fd;
        k->fd = -1;
        if (close(fd) < 0) {
            rc = lf_fail_errno(err, "cannot close %s", k->path);
            unlink(k->path);
        }
    } else {
        unlink(k->path);
    }
    if (rc == 0) {
        *bytes = n;
        memcpy(sha256, sum, sizeof sum);
    }
    release(k);
    return rc;
}

void lf_sink_destroy(lf_sink *k)
{
    int e = errno;
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    if (!k->err.rc)
        lf_fail(&k->err, LF_EINTR, "given up"); /* what is still in blocks need not be written */
    pthread_mutex_unlock(&k->lock);
    stop(k);
    if (k->fd >= 0)
        unlink(k->path);
    release(k);
    errno = e;
}
