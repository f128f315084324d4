/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 through libcrypto's EVP interface, and the tree hash built from it.
 */
#include "engine/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"

struct lf_hash {
    EVP_MD_CTX *ctx;
};

/* After a successful first initialisation the software digest has no way to fail. */
static void must(int ok, const char *what)
{
    if (ok != 1)
        LF_BUG("libcrypto: %s failed", what);
}

lf_hash *lf_hash_create(lf_err *err)
{
    lf_hash *h = lf_calloc(1, sizeof *h, err);
    if (!h)
        return NULL;
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
        lf_fail(err, LF_ENOTSUP, "libcrypto gives no SHA-256");
        lf_hash_destroy(h);
        return NULL;
    }
    return h;
}

void lf_hash_destroy(lf_hash *h)
{
    if (!h)
        return;
    int saved = errno;
    EVP_MD_CTX_free(h->ctx);
    free(h);
    errno = saved;
}

void lf_hash_update(lf_hash *h, const void *data, size_t n)
{
    must(EVP_DigestUpdate(h->ctx, data, n), "update");
}

void lf_hash_final(lf_hash *h, uint8_t out[LF_HASH_BYTES])
{
    must(EVP_DigestFinal_ex(h->ctx, out, NULL), "final");
    must(EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL), "init");
}

void lf_hash_hex(char out[LF_HASH_HEX], const uint8_t digest[LF_HASH_BYTES])
{
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < LF_HASH_BYTES; i++) {
        out[2 * i] = hex[digest[i] >> 4];
        out[2 * i + 1] = hex[digest[i] & 15];
    }
    out[2 * LF_HASH_BYTES] = '\0';
}

int lf_hash_buf(uint8_t out[LF_HASH_BYTES], const void *data, size_t n, lf_err *err)
{
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    lf_hash_update(h, data, n);
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    return 0;
}

int lf_tree_hash_root(uint8_t out[LF_HASH_BYTES], uint64_t bytes, const uint8_t *leaves,
                      size_t n_leaves, lf_err *err)
{
    uint8_t len[8];
    if (n_leaves != bytes / LF_HASH_LEAF + (bytes % LF_HASH_LEAF != 0))
        return lf_fail(err, LF_EINVAL, "%zu leaves do not make %llu bytes", n_leaves,
                       (unsigned long long)bytes);
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    for (int i = 0; i < 8; i++)
        len[i] = (uint8_t)(bytes >> (8 * i));
    lf_hash_update(h, "lf-tree-1", 9);
    lf_hash_update(h, len, sizeof len);
    lf_hash_update(h, leaves, n_leaves * LF_HASH_BYTES);
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    return 0;
}

struct lf_tree_hash {
    lf_hash *leaf;
    size_t in_leaf; /* bytes in the open leaf */
    uint64_t bytes;
    uint8_t (*leaves)[LF_HASH_BYTES];
    size_t n, cap;
};

lf_tree_hash *lf_tree_hash_create(lf_err *err)
{
    lf_tree_hash *h = lf_calloc(1, sizeof *h, err);
    if (h && !(h->leaf = lf_hash_create(err))) {
        free(h);
        h = NULL;
    }
    return h;
}

void lf_tree_hash_destroy(lf_tree_hash *h)
{
    if (!h)
        return;
    lf_hash_destroy(h->leaf);
    free(h->leaves);
    free(h);
}

static int close_leaf(lf_tree_hash *h, lf_err *err)
{
    int rc = lf_grow(&h->leaves, &h->cap, h->n, sizeof *h->leaves, err);
    if (rc < 0)
        return rc;
    lf_hash_final(h->leaf, h->leaves[h->n++]);
    h->in_leaf = 0;
    return 0;
}

int lf_tree_hash_update(lf_tree_hash *h, const void *data, size_t n, lf_err *err)
{
    const uint8_t *p = data;
    while (n) {
        size_t take = LF_HASH_LEAF - h->in_leaf;
        if (take > n)
            take = n;
        lf_hash_update(h->leaf, p, take);
        h->in_leaf += take;
        h->bytes += take;
        p += take;
        n -= take;
        if (h->in_leaf == LF_HASH_LEAF) {
            int rc = close_leaf(h, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

int lf_tree_hash_final(lf_tree_hash *h, uint8_t out[LF_HASH_BYTES], lf_err *err)
{
    int rc = h->in_leaf ? close_leaf(h, err) : 0;
    if (rc == 0)
        rc = lf_tree_hash_root(out, h->bytes, h->leaves ? h->leaves[0] : NULL, h->n, err);
    if (rc == 0) {
        h->bytes = 0;
        h->n = 0;
    }
    return rc;
}

enum { READ_CHUNK = 1 << 20 };

static int hash_leaf_of_file(uint8_t out[LF_HASH_BYTES], int fd, int64_t at, int64_t bytes,
                             const char *path, lf_err *err)
{
    int rc = 0;
    lf_hash *h = lf_hash_create(err);
    uint8_t *chunk = h ? lf_malloc(READ_CHUNK, 1, err) : NULL;
    if (!chunk)
        rc = LF_ENOMEM;
    while (rc == 0 && bytes > 0) {
        size_t n = bytes < READ_CHUNK ? (size_t)bytes : READ_CHUNK;
        rc = lf_io_pread_all(fd, chunk, n, (off_t)at, path, err);
        if (rc == 0)
            lf_hash_update(h, chunk, n);
        at += (int64_t)n;
        bytes -= (int64_t)n;
    }
    if (rc == 0)
        lf_hash_final(h, out);
    free(chunk);
    lf_hash_destroy(h);
    return rc;
}

int lf_tree_hash_file(uint8_t out[LF_HASH_BYTES], int64_t *bytes, const char *path, lf_err *err)
{
    struct stat st;
    int rc = 0;
    uint8_t(*leaves)[LF_HASH_BYTES] = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open %s", path);
    if (fstat(fd, &st) < 0) {
        rc = lf_fail_errno(err, "cannot look at %s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = lf_fail(err, LF_EINVAL, "%s is not a regular file", path);
        goto out;
    }
    int64_t total = st.st_size, leaf = (int64_t)LF_HASH_LEAF;
    int64_t n = total / leaf + (total % leaf != 0);
    if ((leaves = lf_calloc((size_t)n, sizeof *leaves, err)) == NULL) {
        rc = LF_ENOMEM;
        goto out;
    }
#pragma omp parallel for schedule(dynamic, 1) if (n > 1)
    for (int64_t i = 0; i < n; i++) {
        lf_err mine = LF_ERR_INIT;
        int64_t at = i * leaf, len = total - at < leaf ? total - at : leaf;
        int r = hash_leaf_of_file(leaves[i], fd, at, len, path, &mine);
        if (r < 0) {
#pragma omp critical(lf_tree_hash_file)
            if (rc == 0) {
                rc = r;
                if (err && err->rc == 0)
                    *err = mine;
            }
        }
    }
    if (rc == 0)
        rc = lf_tree_hash_root(out, (uint64_t)total, n ? leaves[0] : NULL, (size_t)n, err);
    if (rc == 0 && bytes)
        *bytes = total;
out:
    free(leaves);
    close(fd);
    return rc;
}
