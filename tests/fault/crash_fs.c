/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of a disk behind crash_fs.h.
 */
#include "tests/fault/crash_fs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "tests/fault/trace.h"
#include "tests/tap/tap.h"

struct bytes {
    uint8_t *p;
    size_t n;
};
struct inode {
    uint64_t ino;
    bool dir;
    struct bytes now, safe;
};
/* One change of a directory: `path` comes to name an inode, or goes. */
struct change {
    char *path;
    int inode; /* -1: the name goes */
    bool safe;
};
struct op {
    struct trace_rec r;
    const char *path, *path2;
    const uint8_t *data;
};
struct crash_fs {
    lf_buf trace;
    struct op *ops;
    size_t n_ops, fsyncs;
    struct inode *inodes;
    int n_inodes;
    struct change *changes;
    size_t n_changes;
    uint64_t *seen;
    size_t n_seen;
    char *mark;
};

static void *grow(void *p, size_t n, size_t size)
{
    void *q = realloc(p, (n + 1) * size);
    if (!q)
        tap_bail("no memory");
    return q;
}

crash_fs *crash_fs_load(const char *trace_path)
{
    lf_err err = LF_ERR_INIT;
    crash_fs *fs = calloc(1, sizeof *fs);
    if (!fs)
        tap_bail("no memory");
    lf_buf_init(&fs->trace);
    if (lf_io_read_file(trace_path, (size_t)256 << 20, &fs->trace, &err))
        tap_bail("trace: %s", err.text);
    for (size_t at = 0; at < fs->trace.len;) {
        struct op o;
        memcpy(&o.r, fs->trace.data + at, sizeof o.r);
        at += sizeof o.r;
        o.path = o.r.path_len ? strndup(fs->trace.data + at, o.r.path_len) : NULL;
        at += o.r.path_len;
        o.path2 = o.r.path2_len ? strndup(fs->trace.data + at, o.r.path2_len) : NULL;
        at += o.r.path2_len;
        o.data = (const uint8_t *)fs->trace.data + at;
        at += o.r.data_len;
        fs->ops = grow(fs->ops, fs->n_ops, sizeof *fs->ops);
        fs->ops[fs->n_ops++] = o;
        fs->fsyncs += o.r.op == TRACE_FSYNC;
    }
    return fs;
}

static void op_fini(struct op *o)
{
    free((void *)(uintptr_t)o->path);
    free((void *)(uintptr_t)o->path2);
}

void crash_fs_free(crash_fs *fs)
{
    for (size_t i = 0; i < fs->n_ops; i++)
        op_fini(&fs->ops[i]);
    for (int i = 0; i < fs->n_inodes; i++) {
        free(fs->inodes[i].now.p);
        free(fs->inodes[i].safe.p);
    }
    for (size_t i = 0; i < fs->n_changes; i++)
        free(fs->changes[i].path);
    free(fs->ops);
    free(fs->inodes);
    free(fs->changes);
    free(fs->seen);
    free(fs->mark);
    lf_buf_fini(&fs->trace);
    free(fs);
}

size_t crash_fs_ops(const crash_fs *fs)
{
    return fs->n_ops;
}
size_t crash_fs_fsyncs(const crash_fs *fs)
{
    return fs->fsyncs;
}

static size_t find_fsync(const crash_fs *fs, size_t n)
{
    for (size_t i = 0; i < fs->n_ops; i++)
        if (fs->ops[i].r.op == TRACE_FSYNC && n-- == 0)
            return i;
    tap_bail("trace: no such fsync");
}

uint64_t crash_fs_site(const crash_fs *fs, size_t n)
{
    return (uint64_t)fs->ops[find_fsync(fs, n)].r.offset;
}

void crash_fs_drop(crash_fs *fs, size_t n)
{
    struct op *o = &fs->ops[find_fsync(fs, n)];
    op_fini(o);
    fs->n_ops--;
    fs->fsyncs--;
    memmove(o, o + 1, (size_t)(fs->ops + fs->n_ops - o) * sizeof *o);
}

/* The latest inode of that number (numbers are used again). */
static int find_inode(const crash_fs *fs, uint64_t ino)
{
    for (int i = fs->n_inodes - 1; i >= 0; i--)
        if (fs->inodes[i].ino == ino)
            return i;
    tap_bail("trace: inode %llu was never created", (unsigned long long)ino);
}

static int new_inode(crash_fs *fs, uint64_t ino, bool dir)
{
    fs->inodes = grow(fs->inodes, (size_t)fs->n_inodes, sizeof *fs->inodes);
    fs->inodes[fs->n_inodes] = (struct inode){.ino = ino, .dir = dir};
    return fs->n_inodes++;
}

static void change(crash_fs *fs, const char *path, int inode)
{
    fs->changes = grow(fs->changes, fs->n_changes, sizeof *fs->changes);
    fs->changes[fs->n_changes++] = (struct change){strdup(path), inode, false};
}

static void resize(struct bytes *b, size_t n)
{
    if (n > b->n) {
        b->p = grow(b->p, n, 1);
        memset(b->p + b->n, 0, n - b->n);
    }
    b->n = n;
}

static bool in_directory(const char *path, const char *dir)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    return strcmp(dir, ".") == 0 ? !slash : n == strlen(dir) && strncmp(path, dir, n) == 0;
}

static void sync_inode(crash_fs *fs, const struct op *o)
{
    if (o->path) {
        for (size_t i = 0; i < fs->n_changes; i++)
            fs->changes[i].safe = fs->changes[i].safe || in_directory(fs->changes[i].path, o->path);
        return;
    }
    struct inode *n = &fs->inodes[find_inode(fs, o->r.ino)];
    resize(&n->safe, n->now.n);
    if (n->now.n)
        memcpy(n->safe.p, n->now.p, n->now.n);
}

const char *crash_fs_step(crash_fs *fs, size_t i)
{
    const struct op *o = &fs->ops[i];
    struct bytes *now;
    switch (o->r.op) {
    case TRACE_CREATE:
        change(fs, o->path, new_inode(fs, o->r.ino, false));
        break;
    case TRACE_MKDIR:
        change(fs, o->path, new_inode(fs, o->r.ino, true));
        break;
    case TRACE_WRITE:
        now = &fs->inodes[find_inode(fs, o->r.ino)].now;
        if ((size_t)o->r.offset + o->r.data_len > now->n)
            resize(now, (size_t)o->r.offset + o->r.data_len);
        memcpy(now->p + o->r.offset, o->data, o->r.data_len);
        break;
    case TRACE_TRUNCATE:
        resize(&fs->inodes[find_inode(fs, o->r.ino)].now, (size_t)o->r.offset);
        break;
    case TRACE_FSYNC:
        sync_inode(fs, o);
        break;
    case TRACE_LINK:
        change(fs, o->path2, find_inode(fs, o->r.ino));
        break;
    case TRACE_RENAME:
        change(fs, o->path2, find_inode(fs, o->r.ino));
        change(fs, o->path, -1);
        break;
    case TRACE_UNLINK:
    case TRACE_RMDIR:
        change(fs, o->path, -1);
        break;
    case TRACE_MARK:
        free(fs->mark);
        fs->mark = strdup(o->path);
        return fs->mark;
    default:
        tap_bail("trace: op %u", o->r.op);
    }
    return NULL;
}

/* Names in force: the last counted change of each path. Returns their number; out[] holds indices
 * of changes. */
static size_t names(const crash_fs *fs, int state, size_t *out)
{
    size_t n = 0, last = fs->n_changes;
    while (last > 0 && fs->changes[last - 1].safe)
        last--;
    for (size_t i = 0; i < fs->n_changes; i++) {
        bool kept = state & CRASH_KEEP_NAMES || (state & CRASH_KEEP_LAST_NAME && i + 1 == last);
        if (!kept && !fs->changes[i].safe)
            continue;
        size_t k = 0;
        while (k < n && strcmp(fs->changes[out[k]].path, fs->changes[i].path) != 0)
            k++;
        out[k] = i;
        n += k == n;
    }
    return n;
}

static bool reachable(const crash_fs *fs, const size_t *live, size_t n, const char *path)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *slash = strrchr(dir, '/'); slash; slash = strrchr(dir, '/')) {
        *slash = 0;
        bool found = false;
        for (size_t k = 0; k < n && !found; k++) {
            const struct change *c = &fs->changes[live[k]];
            found = c->inode >= 0 && fs->inodes[c->inode].dir && strcmp(c->path, dir) == 0;
        }
        if (!found)
            return false;
    }
    return true;
}

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const uint8_t *c = p;
    size_t i = 0;
    for (uint64_t w; i + sizeof w <= n; i += sizeof w) { /* files of shards are large */
        memcpy(&w, c + i, sizeof w);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (; i < n; i++)
        h = (h ^ c[i]) * 0x100000001b3u;
    return h * 31 + n;
}

static void write_tree(const crash_fs *fs, const size_t *live, size_t n, bool data, const char *dir)
{
    char path[8192];
    lf_err err = LF_ERR_INIT;
    if (lf_io_mkdirs(dir, 0750, &err))
        tap_bail("%s", err.text);
    for (int pass = 0; pass < 2; pass++) /* directories first */
        for (size_t k = 0; k < n; k++) {
            const struct change *c = &fs->changes[live[k]];
            if (c->inode < 0 || !reachable(fs, live, n, c->path))
                continue;
            const struct inode *node = &fs->inodes[c->inode];
            const struct bytes *b = data ? &node->now : &node->safe;
            snprintf(path, sizeof path, "%s/%s", dir, c->path);
            if (pass == 0 && node->dir && mkdir(path, 0750) &&
                errno != EEXIST) /* lf_io_mkdirs would sync */
                tap_bail("cannot make %s", path);
            if (pass == 1 && !node->dir) {
                FILE *f = fopen(path, "wb");
                if (!f || (b->n && fwrite(b->p, 1, b->n, f) != b->n) || fclose(f) != 0)
                    tap_bail("cannot write %s", path);
            }
        }
}

int crash_fs_build(crash_fs *fs, int state, const char *dir)
{
    size_t *live = grow(NULL, fs->n_changes, sizeof *live);
    size_t n = names(fs, state, live);
    uint64_t h = 0;
    for (size_t k = 0; k < n; k++) {
        const struct change *c = &fs->changes[live[k]];
        if (c->inode < 0 || !reachable(fs, live, n, c->path))
            continue;
        const struct inode *node = &fs->inodes[c->inode];
        const struct bytes *b = state & CRASH_KEEP_DATA ? &node->now : &node->safe;
        h += mix(mix(0xcbf29ce484222325u, c->path, strlen(c->path)), b->p,
                 node->dir ? 0 : b->n); /* order of names does not matter */
    }
    h = mix(h, fs->mark,
            fs->mark ? strlen(fs->mark)
                     : 0); /* the same tree under a later promise is another case */
    bool known = false;
    for (size_t i = 0; i < fs->n_seen && !known; i++)
        known = fs->seen[i] == h;
    if (!known) {
        fs->seen = grow(fs->seen, fs->n_seen, sizeof *fs->seen);
        fs->seen[fs->n_seen++] = h;
        write_tree(fs, live, n, state & CRASH_KEEP_DATA, dir);
    }
    free(live);
    return !known;
}

void crash_fs_know(crash_fs *fs, const crash_fs *other)
{
    for (size_t i = 0; i < other->n_seen; i++) {
        fs->seen = grow(fs->seen, fs->n_seen, sizeof *fs->seen);
        fs->seen[fs->n_seen++] = other->seen[i];
    }
}
