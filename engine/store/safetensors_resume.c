/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on with files that an earlier writer has completed. Such a file comes over as a second link
 * to NAME.tmp and is read once: its bytes must have the hash of the record, and give the hashes of
 * its tensors on the way.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/safetensors_priv.h"

#define READ_BYTES ((size_t)4 << 20)

static void add_number(lf_hash *h, int64_t v)
{
    char text[32];
    lf_hash_update(h, text, (size_t)snprintf(text, sizeof text, "%lld ", (long long)v));
}

/* Declarations, and how they are cut into files. */
static int make_key(char hex[LF_HASH_HEX], const lf_st_writer *w, const char *source, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    lf_hash_update(h, source, strlen(source) + 1);
    lf_hash_update(h, w->format, strlen(w->format) + 1);
    for (size_t i = 0; i < w->n; i++) {
        const struct lf_st_out_tensor *t = w->order[i];
        lf_hash_update(h, t->d.name, strlen(t->d.name) + 1);
        add_number(h, (int64_t)t->file);
        add_number(h, (int64_t)t->d.dtype);
        for (int k = 0; k < t->d.ndim; k++)
            add_number(h, t->d.shape[k]);
    }
    lf_hash_final(h, digest);
    lf_hash_destroy(h);
    lf_hash_hex(hex, digest);
    return 0;
}

struct reading {
    int fd;
    unsigned char *buf;
    off_t at;
    lf_tree_hash *file, *tensor;
};

/* The next n bytes of the file, into the hash of the file and, with tensor, of a tensor. */
static int read_part(struct reading *r, int64_t n, bool tensor, lf_err *err)
{
    int rc = 0;
    for (int64_t k; n > 0 && rc == 0; n -= k) {
        k = n < (int64_t)READ_BYTES ? n : (int64_t)READ_BYTES;
        rc = lf_io_pread_all(r->fd, r->buf, (size_t)k, r->at, "", err);
        if (rc == 0)
            rc = lf_tree_hash_update(r->file, r->buf, (size_t)k, err);
        if (rc == 0 && tensor)
            rc = lf_tree_hash_update(r->tensor, r->buf, (size_t)k, err);
        r->at += k;
    }
    return rc;
}

/* 0: the file is what the record says; its tensors' hashes are set. */
static int read_file(lf_st_writer *w, struct lf_st_out_file *f, struct reading *r, lf_err *err)
{
    struct stat st;
    lf_buf header;
    lf_buf_init(&header);
    int rc = lf_st_header_text(&header, w, f, err);
    int64_t want = (int64_t)header.len, bytes = 0;
    for (size_t i = f->first; i < f->end; i++)
        bytes += w->order[i]->bytes;
    lf_buf_fini(&header);
    if (rc == 0 && (fstat(r->fd, &st) < 0 || st.st_size != want + bytes))
        rc = LF_EFORMAT;
    if (rc == 0)
        rc = read_part(r, want, false, err);
    for (size_t i = f->first; i < f->end && rc == 0; i++) {
        rc = read_part(r, w->order[i]->bytes, w->hash_tensors, err);
        if (rc == 0 && w->hash_tensors)
            rc = lf_tree_hash_final(r->tensor, w->hashes[w->order[i] - w->tensors], err);
    }
    uint8_t digest[LF_HASH_BYTES];
    if (rc == 0)
        rc = lf_tree_hash_final(r->file, digest, err);
    if (rc == 0 && memcmp(digest, f->sha256, LF_HASH_BYTES) != 0)
        rc = LF_EFORMAT;
    f->bytes = want + bytes;
    w->reused += rc != 0 ? 0 : bytes;
    return rc;
}

static bool is_good(lf_st_writer *w, struct lf_st_out_file *f)
{
    lf_err why = LF_ERR_INIT;
    struct reading r = {.fd = open(f->tmp, O_RDONLY | O_CLOEXEC | O_NOFOLLOW),
                        .buf = lf_malloc(READ_BYTES, 1, NULL),
                        .file = lf_tree_hash_create(NULL),
                        .tensor = lf_tree_hash_create(NULL)};
    bool ok = r.fd >= 0 && r.buf && r.file && r.tensor && read_file(w, f, &r, &why) == 0;
    if (r.fd >= 0)
        close(r.fd);
    free(r.buf);
    lf_tree_hash_destroy(r.file);
    lf_tree_hash_destroy(r.tensor);
    return ok;
}

/* All links first, so that a run that is killed while it reads leaves them for the next. */
static void take_over(lf_st_writer *w, const char *from, lf_partial_part *parts)
{
    for (size_t i = 0; i < w->n_files; i++)
        parts[i].have =
            parts[i].have && lf_partial_link(from, w->dir, strrchr(w->files[i].tmp, '/') + 1);
    for (size_t i = 0; i < w->n_files; i++) {
        struct lf_st_out_file *f = &w->files[i];
        memcpy(f->sha256, parts[i].sha256, LF_HASH_BYTES);
        f->written = parts[i].have && is_good(w, f);
        if (parts[i].have && !f->written)
            unlink(f->tmp);
    }
}

int lf_st_resume_begin(lf_st_writer *w, const lf_resume *r, lf_err *err)
{
    char key[LF_HASH_HEX];
    const char *from = NULL;
    lf_partial_part *parts = lf_calloc(w->n_files, sizeof *parts, err);
    int rc = parts ? make_key(key, w, r->key, err) : LF_ENOMEM;
    if (rc == 0)
        lf_partial_find(&from, parts, w->n_files, r, key);
    if (rc == 0)
        rc = lf_partial_begin(&w->progress, w->dir, key, parts, w->n_files, err);
    if (rc == 0 && from)
        take_over(w, from, parts);
    free(parts);
    return rc;
}
