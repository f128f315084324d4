/* SPDX-License-Identifier: Apache-2.0
 *
 * The readers' copy. `<ledger>.pub` holds the blocks that changed since a whole copy
 * `<ledger>.pub-<token>` was made, and that copy's name. It is replaced by rename after each
 * change, so a reader sees one state or the next, takes no lock and waits for nobody; and one event
 * in a ledger of hundreds of megabytes costs a few blocks. When too many blocks have changed, a new
 * whole copy is made.
 *
 * The snapshot may be extended only when it is of the very state this session began with: it names
 * the ledger's inode and SQLite's change counter, which moves with every session that writes.
 * Anything else makes a new whole copy.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger_priv.h"
#include "engine/base/frame.h"
#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

static const char MAGIC[8] = "lfsnap1";
#define BYTE_ORDER_MARK UINT64_C(0x0102030405060708)
enum { COPY_CHUNK = 1 << 20, BLOCKS_MIN = 64, BLOCKS_MAX = 4096, OPEN_TRIES = 5 };
#define SNAPSHOT_MAX ((size_t)BLOCKS_MAX * (LF_BLOCK + 4) + 4096)

/* The beginning of the snapshot file, in the byte order of who wrote it; then n block numbers, then
 * n blocks. */
struct head {
    char magic[8];
    uint64_t order, size, n, counter, inode, device;
    char base[64]; /* name beside the ledger */
    uint32_t crc;  /* of everything, with zero here */
    uint32_t unused;
};

static char *named(const lf_ledger *l, const char *suffix, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s%s", l->path, suffix);
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int lf_snapshot_counter(lf_ledger *l, uint64_t *out, lf_err *err)
{
    unsigned char b[4] = {0};
    int rc =
        lf_written_read(&l->written, b, sizeof b, 24, err); /* sqlite.org/fileformat.html, 1.3.7 */
    *out = (uint64_t)b[0] << 24 | (uint64_t)b[1] << 16 | (uint64_t)b[2] << 8 | b[3];
    return rc;
}

static const struct head *head_of(const lf_buf *b)
{
    return (const struct head *)(const void *)b->data;
}
static const uint32_t *blocks_of(const lf_buf *b)
{
    return (const uint32_t *)(const void *)(b->data + sizeof(struct head));
}

static uint32_t crc_of(const char *data, size_t n)
{
    struct head h;
    memcpy(&h, data, sizeof h);
    h.crc = 0;
    return lf_crc32c(lf_crc32c(0, &h, sizeof h), data + sizeof h, n - sizeof h);
}

static bool is_whole(const lf_buf *b)
{
    if (b->len < sizeof(struct head))
        return false;
    const struct head *h = head_of(b);
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0 || h->order != BYTE_ORDER_MARK ||
        h->n > BLOCKS_MAX || b->len != sizeof *h + h->n * (sizeof(uint32_t) + LF_BLOCK) ||
        !memchr(h->base, '\0', sizeof h->base) || strchr(h->base, '/') ||
        crc_of(b->data, b->len) != h->crc)
        return false;
    for (uint64_t i = 1; i < h->n; i++)
        if (blocks_of(b)[i] <= blocks_of(b)[i - 1])
            return false;
    return true;
}

/* The present snapshot file; false when there is none that is whole. */
static bool load(lf_buf *b, const char *pub)
{
    return lf_io_read_file(pub, SNAPSHOT_MAX, b, NULL) == 0 && is_whole(b);
}

/* ---- writing ---- */

static int write_base(lf_ledger *l, const char *path, mode_t mode, int64_t size, lf_err *err)
{
    unsigned char *chunk = lf_malloc(COPY_CHUNK, 1, err);
    int fd = chunk ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode) : -1;
    int rc = !chunk ? LF_ENOMEM : fd < 0 ? lf_fail_errno(err, "cannot make %s", path) : 0;
    if (rc == 0 && fchmod(fd, mode) < 0)
        rc = lf_fail_errno(err, "cannot set the mode of %s", path);
    for (int64_t at = 0; rc == 0 && at < size; at += COPY_CHUNK) {
        int n = size - at < COPY_CHUNK ? (int)(size - at) : COPY_CHUNK;
        rc = lf_written_read(&l->written, chunk, n, at, err);
        if (rc == 0)
            rc = lf_io_write_all(fd, chunk, (size_t)n, path, err);
    }
    if (rc == 0)
        rc = lf_io_fsync(
            fd, path,
            err); /* no checksum guards the copy, so it must be there before its name is */
    if (fd >= 0)
        close(fd);
    free(chunk);
    return rc;
}

/* Old whole copies; a reader that has one open keeps it. */
static void sweep(const lf_ledger *l, const char *keep)
{
    char *dir = lf_strdup(l->path, NULL), *slash = dir ? strrchr(dir, '/') : NULL;
    lf_buf prefix;
    lf_buf_init(&prefix);
    lf_buf_addf(&prefix, "%s.pub-", base_name(l->path));
    if (slash)
        slash[slash == dir] = '\0';
    DIR *d = dir ? opendir(slash ? dir : ".") : NULL;
    for (const struct dirent *e = d ? readdir(d) : NULL; e && lf_buf_check(&prefix, NULL) == 0;
         e = readdir(d))
        if (lf_str_has_prefix(e->d_name, prefix.data) && (!keep || strcmp(e->d_name, keep) != 0))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    lf_buf_fini(&prefix);
    free(dir);
}

static int add_blocks(lf_ledger *l, lf_buf *out, const uint32_t *blocks, size_t n, lf_err *err)
{
    unsigned char block[LF_BLOCK];
    lf_buf_add(out, blocks, n * sizeof *blocks);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = lf_written_read(&l->written, block, LF_BLOCK, (int64_t)blocks[i] * LF_BLOCK, err);
        lf_buf_add(out, block, LF_BLOCK);
    }
    return rc < 0 ? rc : lf_buf_check(out, err);
}

/* Put the snapshot in place. No fsync: a torn one is noticed by its checksum, and readers then take
 * the ledger itself. */
static int place(lf_ledger *l, struct head *h, const uint32_t *blocks, const char *pub,
                 const char *tmp, mode_t mode, lf_err *err)
{
    lf_buf out;
    lf_buf_init(&out);
    memcpy(h->magic, MAGIC, sizeof h->magic);
    h->order = BYTE_ORDER_MARK;
    lf_buf_add(&out, h, sizeof *h);
    int rc = add_blocks(l, &out, blocks, h->n, err);
    if (rc == 0) {
        ((struct head *)(void *)out.data)->crc = crc_of(out.data, out.len);
        int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
        rc = fd < 0 ? lf_fail_errno(err, "cannot make %s", tmp)
                    : lf_io_write_all(fd, out.data, out.len, tmp, err);
        if (rc == 0 && fchmod(fd, mode) < 0)
            rc = lf_fail_errno(err, "cannot set the mode of %s", tmp);
        if (fd >= 0 && close(fd) < 0 && rc == 0)
            rc = lf_fail_errno(err, "cannot write %s", tmp);
    }
    if (rc == 0 && rename(tmp, pub) < 0)
        rc = lf_fail_errno(err, "cannot place %s", pub);
    lf_buf_fini(&out);
    return rc;
}

static int publish_whole(lf_ledger *l, struct head *h, const char *pub, const char *tmp,
                         mode_t mode, lf_err *err)
{
    char token[LF_TOKEN_SIZE], suffix[LF_TOKEN_SIZE + 8];
    int rc = lf_token(token, err);
    if (rc < 0)
        return rc;
    snprintf(suffix, sizeof suffix, ".pub-%.16s", token);
    char *base = named(l, suffix, err);
    rc = base ? 0 : LF_ENOMEM;
    if (rc == 0 && snprintf(h->base, sizeof h->base, "%s", base_name(base)) >= (int)sizeof h->base)
        rc = lf_fail(err, LF_EINVAL, "%s: the name is too long for a copy beside it", l->path);
    if (rc == 0)
        rc = write_base(l, base, mode, (int64_t)h->size, err);
    h->n = 0;
    if (rc == 0)
        rc = place(l, h, NULL, pub, tmp, mode, err);
    if (rc == 0)
        sweep(l, h->base);
    else if (base)
        unlink(base);
    free(base);
    return rc;
}

/* The blocks that differ from the base: those that did before and those that this session wrote.
 * -1: too many. */
static int64_t collect(const lf_ledger *l, const lf_buf *old, int64_t size, uint32_t *out)
{
    int64_t limit = size / LF_BLOCK / 4, n = 0;
    limit = limit < BLOCKS_MIN ? BLOCKS_MIN : limit > BLOCKS_MAX ? BLOCKS_MAX : limit;
    uint32_t total = (uint32_t)((size + LF_BLOCK - 1) / LF_BLOCK);
    uint64_t k = 0, n_old = head_of(old)->n;
    for (uint32_t b = 0; b < total; b++) {
        while (k < n_old && blocks_of(old)[k] < b)
            k++;
        if (!lf_written_has(&l->written, b) && !(k < n_old && blocks_of(old)[k] == b))
            continue;
        if (n >= limit)
            return -1;
        out[n++] = b;
    }
    return n;
}

int lf_ledger_publish(lf_ledger *l, lf_err *err)
{
    struct stat st;
    struct head h = {0};
    char *pub = named(l, ".pub", err), *tmp = named(l, ".pub.tmp", err);
    uint32_t *blocks = lf_malloc(BLOCKS_MAX, sizeof *blocks, err);
    int64_t size = 0, n = -1;
    lf_buf old;
    lf_buf_init(&old);
    int rc = !l->writable ? lf_fail(err, LF_EINVAL, "%s is open for reading only", l->path)
             : pub && tmp && blocks ? 0
                                    : LF_ENOMEM;
    if (rc == 0 && stat(l->path, &st) < 0)
        rc = lf_fail_errno(err, "cannot look at %s", l->path);
    if (rc == 0)
        rc = lf_written_size(&l->written, &size, err);
    if (rc == 0)
        rc = lf_snapshot_counter(l, &h.counter, err);
    if (rc == 0) {
        h.size = (uint64_t)size;
        h.inode = (uint64_t)st.st_ino;
        h.device = (uint64_t)st.st_dev;
        if (load(&old, pub)) {
            const struct head *o = head_of(&old);
            bool same = o->inode == h.inode && o->device == h.device && o->counter == l->counter;
            if (same && h.counter == l->counter && !lf_written_any(&l->written))
                goto out; /* it is what readers have */
            memcpy(h.base, o->base, sizeof h.base);
            n = same ? collect(l, &old, size, blocks) : -1;
        }
        h.n = n > 0 ? (uint64_t)n : 0;
        rc = n >= 0 ? place(l, &h, blocks, pub, tmp, st.st_mode & 0777, err)
                    : publish_whole(l, &h, pub, tmp, st.st_mode & 0777, err);
    }
    if (rc == 0) {
        lf_written_clear(&l->written);
        l->counter = h.counter;
        l->published = true;
    } else if (tmp) {
        unlink(tmp);
    }
out:
    lf_buf_fini(&old);
    free(blocks);
    free(pub);
    free(tmp);
    return rc;
}

void lf_snapshot_drop(const lf_ledger *l)
{
    char *pub = named(l, ".pub", NULL);
    if (pub && unlink(pub) == 0)
        sweep(l, NULL);
    free(pub);
}

/* ---- reading ---- */

static int open_base(const lf_ledger *l, const char *name, lf_err *err)
{
    char *path = lf_strdup(l->path, err);
    if (!path)
        return LF_ENOMEM;
    path[base_name(l->path) - l->path] = '\0';
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s%s", path, name);
    free(path);
    int fd = lf_buf_check(&b, err) == 0 ? open(b.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    int rc = fd >= 0 ? fd : lf_fail_errno(err, "cannot open %s", b.data);
    lf_buf_fini(&b);
    return rc;
}

int lf_snapshot_open(lf_ledger *l, lf_err *err)
{
    char *pub = named(l, ".pub", err);
    int rc = pub ? LF_ENOENT : LF_ENOMEM;
    /* Between reading the snapshot and opening its base another may have come and swept the base
     * away. */
    for (int i = 0; rc == LF_ENOENT && i < OPEN_TRIES; i++) {
        lf_buf b;
        lf_buf_init(&b);
        if (!load(&b, pub)) {
            lf_buf_fini(&b);
            break;
        }
        int fd = open_base(l, head_of(&b)->base, NULL);
        if (fd < 0) {
            lf_buf_fini(&b);
            continue;
        }
        uint64_t n = head_of(&b)->n;
        struct lf_overlay o = {.base_fd = fd, .size = (int64_t)head_of(&b)->size, .n = (uint32_t)n};
        o.memory = lf_buf_steal(&b, err);
        lf_buf_fini(&b);
        o.blocks = (const uint32_t *)(const void *)((const char *)o.memory + sizeof(struct head));
        o.data = (const unsigned char *)o.memory + sizeof(struct head) + n * sizeof(uint32_t);
        if (!o.memory)
            lf_overlay_free(&o);
        rc = !o.memory                                           ? LF_ENOMEM
             : lf_vfs_open_overlay(&l->db, pub, &o) == SQLITE_OK ? 0
                                                                 : lf_db_fail(l, "open it", err);
    }
    if (rc == LF_ENOENT)
        lf_fail(err, LF_ENOENT, "%s: there is no snapshot for readers", l->path);
    free(pub);
    return rc;
}
