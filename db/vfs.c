/* SPDX-License-Identifier: Apache-2.0
 *
 * The two layers of vfs.h as SQLite VFSs (sqlite.org/vfs.html). Only the main database file goes
 * through them; journals and temporary files are the system's own. Both are of version 1: no shared
 * memory, no memory mapping, so every byte of the ledger passes xRead and xWrite.
 */
#include "db/vfs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the connection that this thread is opening shall get. */
static __thread struct {
    struct lf_written *written;
    struct lf_overlay *overlay;
    sqlite3_vfs *below;
} opening;

/* ---- what was written ---- */

struct tracked {
    sqlite3_file base;
    struct lf_written *w;
    sqlite3_file *real; /* behind this struct */
};

static struct tracked *tracked(sqlite3_file *f)
{
    return (struct tracked *)(void *)f;
}

static void note(struct lf_written *w, int64_t offset, int n)
{
    uint64_t first = (uint64_t)offset / LF_BLOCK,
             last = (uint64_t)(offset + (n > 0 ? n - 1 : 0)) / LF_BLOCK;
    if (last / 8 >= w->cap && !w->lost) {
        size_t cap = (size_t)(last / 8 + 1) * 2;
        unsigned char *more = realloc(w->bits, cap);
        if (more) {
            memset(more + w->cap, 0, cap - w->cap);
            w->bits = more;
            w->cap = cap;
        }
        w->lost = !more;
    }
    for (uint64_t b = first; !w->lost && b <= last; b++)
        w->bits[b / 8] |= (unsigned char)(1u << (b % 8));
}

bool lf_written_has(const struct lf_written *w, uint32_t block)
{
    return w->lost || (block / 8 < w->cap && (w->bits[block / 8] & 1u << (block % 8)));
}

bool lf_written_any(const struct lf_written *w)
{
    bool any = w->lost;
    for (size_t i = 0; i < w->cap && !any; i++)
        any = w->bits[i] != 0;
    return any;
}

void lf_written_clear(struct lf_written *w)
{
    if (w->bits)
        memset(w->bits, 0, w->cap);
    w->lost = false;
}

void lf_written_fini(struct lf_written *w)
{
    free(w->bits);
    *w = (struct lf_written){0};
}

int lf_written_read(struct lf_written *w, void *buf, int n, int64_t offset, lf_err *err)
{
    int code = w->file ? w->file->pMethods->xRead(w->file, buf, n, offset) : SQLITE_MISUSE;
    return code == SQLITE_OK || code == SQLITE_IOERR_SHORT_READ
               ? 0
               : lf_fail(err, LF_EIO, "cannot read the ledger at byte %lld (SQLite code %d)",
                         (long long)offset, code);
}

int lf_written_size(struct lf_written *w, int64_t *size, lf_err *err)
{
    sqlite3_int64 n = 0;
    int code = w->file ? w->file->pMethods->xFileSize(w->file, &n) : SQLITE_MISUSE;
    *size = n;
    return code == SQLITE_OK
               ? 0
               : lf_fail(err, LF_EIO, "cannot learn the size of the ledger (SQLite code %d)", code);
}

static int t_close(sqlite3_file *f)
{
    struct tracked *t = tracked(f);
    t->w->file = NULL;
    return t->real->pMethods->xClose(t->real);
}
static int t_read(sqlite3_file *f, void *b, int n, sqlite3_int64 at)
{
    return tracked(f)->real->pMethods->xRead(tracked(f)->real, b, n, at);
}
static int t_write(sqlite3_file *f, const void *b, int n, sqlite3_int64 at)
{
    note(tracked(f)->w, at, n);
    return tracked(f)->real->pMethods->xWrite(tracked(f)->real, b, n, at);
}
static int t_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    return tracked(f)->real->pMethods->xTruncate(tracked(f)->real, n);
}
static int t_sync(sqlite3_file *f, int flags)
{
    return tracked(f)->real->pMethods->xSync(tracked(f)->real, flags);
}
static int t_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return tracked(f)->real->pMethods->xFileSize(tracked(f)->real, n);
}
static int t_lock(sqlite3_file *f, int how)
{
    return tracked(f)->real->pMethods->xLock(tracked(f)->real, how);
}
static int t_unlock(sqlite3_file *f, int how)
{
    return tracked(f)->real->pMethods->xUnlock(tracked(f)->real, how);
}
static int t_reserved(sqlite3_file *f, int *out)
{
    return tracked(f)->real->pMethods->xCheckReservedLock(tracked(f)->real, out);
}
static int t_control(sqlite3_file *f, int op, void *arg)
{
    return tracked(f)->real->pMethods->xFileControl(tracked(f)->real, op, arg);
}
static int t_sector(sqlite3_file *f)
{
    return tracked(f)->real->pMethods->xSectorSize(tracked(f)->real);
}
static int t_traits(sqlite3_file *f)
{
    return tracked(f)->real->pMethods->xDeviceCharacteristics(tracked(f)->real);
}

static const sqlite3_io_methods tracked_methods = {
    .iVersion = 1,
    .xClose = t_close,
    .xRead = t_read,
    .xWrite = t_write,
    .xTruncate = t_truncate,
    .xSync = t_sync,
    .xFileSize = t_size,
    .xLock = t_lock,
    .xUnlock = t_unlock,
    .xCheckReservedLock = t_reserved,
    .xFileControl = t_control,
    .xSectorSize = t_sector,
    .xDeviceCharacteristics = t_traits,
};

static int track_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags,
                      int *out_flags)
{
    struct tracked *t = tracked(f);
    f->pMethods = NULL;
    if ((flags & SQLITE_OPEN_MAIN_DB) == 0 || !opening.written) {
        sqlite3_vfs *system = sqlite3_vfs_find(NULL);
        (void)vfs;
        return system->xOpen(system, name, f, flags, out_flags);
    }
    t->real = (sqlite3_file *)(void *)(t + 1);
    int code = opening.below->xOpen(opening.below, name, t->real, flags, out_flags);
    if (t->real->pMethods && code == SQLITE_OK) {
        t->w = opening.written;
        t->w->file = t->real;
        f->pMethods = &tracked_methods;
    } else if (t->real->pMethods) {
        t->real->pMethods->xClose(t->real);
    }
    return code;
}

/* ---- a snapshot ---- */

struct shown {
    sqlite3_file base;
    struct lf_overlay o;
};

static struct lf_overlay *overlay(sqlite3_file *f)
{
    return &((struct shown *)(void *)f)->o;
}

void lf_overlay_free(struct lf_overlay *o)
{
    if (o->base_fd >= 0)
        close(o->base_fd);
    free(o->memory);
    *o = (struct lf_overlay){.base_fd = -1};
}

static int o_close(sqlite3_file *f)
{
    lf_overlay_free(overlay(f));
    return SQLITE_OK;
}

static const unsigned char *changed(const struct lf_overlay *o, uint32_t block)
{
    uint32_t lo = 0, hi = o->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (o->blocks[mid] < block)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < o->n && o->blocks[lo] == block ? o->data + (size_t)lo * LF_BLOCK : NULL;
}

static int read_base(int fd, unsigned char *out, size_t n, int64_t at)
{
    while (n > 0) {
        ssize_t got = pread(fd, out, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return SQLITE_IOERR_READ;
        if (got == 0) { /* behind the base's end only changed blocks have contents */
            memset(out, 0, n);
            break;
        }
        out += got;
        n -= (size_t)got;
        at += got;
    }
    return SQLITE_OK;
}

static int o_read(sqlite3_file *f, void *buf, int n, sqlite3_int64 at)
{
    const struct lf_overlay *o = overlay(f);
    unsigned char *out = buf;
    int64_t end = at + n;
    for (int64_t p = at; p < end;) {
        uint32_t block = (uint32_t)(p / LF_BLOCK);
        size_t in = (size_t)(p % LF_BLOCK), part = LF_BLOCK - in;
        const unsigned char *b = changed(o, block);
        if ((int64_t)part > end - p)
            part = (size_t)(end - p);
        if (b)
            memcpy(out + (p - at), b + in, part);
        else if (read_base(o->base_fd, out + (p - at), part, p) != SQLITE_OK)
            return SQLITE_IOERR_READ;
        p += (int64_t)part;
    }
    if (end <= o->size)
        return SQLITE_OK;
    memset(out + (at < o->size ? o->size - at : 0), 0,
           (size_t)(end - (at < o->size ? o->size : at)));
    return SQLITE_IOERR_SHORT_READ;
}

static int o_refuse_write(sqlite3_file *f, const void *b, int n, sqlite3_int64 at)
{
    (void)f, (void)b, (void)n, (void)at;
    return SQLITE_READONLY;
}
static int o_refuse_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    (void)f, (void)n;
    return SQLITE_READONLY;
}
static int o_nothing(sqlite3_file *f, int arg)
{
    (void)f, (void)arg;
    return SQLITE_OK;
}
static int o_size(sqlite3_file *f, sqlite3_int64 *n)
{
    *n = overlay(f)->size;
    return SQLITE_OK;
}
static int o_reserved(sqlite3_file *f, int *out)
{
    (void)f;
    *out = 0;
    return SQLITE_OK;
}
static int o_control(sqlite3_file *f, int op, void *arg)
{
    (void)f, (void)op, (void)arg;
    return SQLITE_NOTFOUND;
}
static int o_sector(sqlite3_file *f)
{
    (void)f;
    return LF_BLOCK;
}
/* Nobody writes a snapshot: SQLite need not lock it, nor look for a journal. */
static int o_traits(sqlite3_file *f)
{
    (void)f;
    return SQLITE_IOCAP_IMMUTABLE;
}

static const sqlite3_io_methods overlay_methods = {
    .iVersion = 1,
    .xClose = o_close,
    .xRead = o_read,
    .xWrite = o_refuse_write,
    .xTruncate = o_refuse_truncate,
    .xSync = o_nothing,
    .xFileSize = o_size,
    .xLock = o_nothing,
    .xUnlock = o_nothing,
    .xCheckReservedLock = o_reserved,
    .xFileControl = o_control,
    .xSectorSize = o_sector,
    .xDeviceCharacteristics = o_traits,
};

static int overlay_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags,
                        int *out_flags)
{
    (void)vfs;
    f->pMethods = NULL;
    if ((flags & SQLITE_OPEN_MAIN_DB) == 0 || !opening.overlay) {
        sqlite3_vfs *system = sqlite3_vfs_find(NULL);
        return system->xOpen(system, name, f, flags, out_flags);
    }
    *overlay(f) = *opening.overlay;
    *opening.overlay = (struct lf_overlay){.base_fd = -1};
    f->pMethods = &overlay_methods;
    if (out_flags)
        *out_flags = SQLITE_OPEN_READONLY;
    return SQLITE_OK;
}

/* ---- registering ---- */

static sqlite3_vfs track_vfs, overlay_vfs;

static void register_both(void)
{
    sqlite3_initialize();
    const sqlite3_vfs *system = sqlite3_vfs_find(NULL);
    track_vfs = overlay_vfs = *system;
    track_vfs.zName = "loong-track";
    track_vfs.szOsFile = system->szOsFile + (int)sizeof(struct tracked);
    track_vfs.xOpen = track_open;
    overlay_vfs.zName = "loong-overlay";
    overlay_vfs.szOsFile =
        system->szOsFile > (int)sizeof(struct shown) ? system->szOsFile : (int)sizeof(struct shown);
    overlay_vfs.xOpen = overlay_open;
    track_vfs.pNext = overlay_vfs.pNext = NULL;
    sqlite3_vfs_register(&track_vfs, 0);
    sqlite3_vfs_register(&overlay_vfs, 0);
}

static void register_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_both);
}

int lf_vfs_open_tracked(sqlite3 **db, const char *path, int flags, bool nolock,
                        struct lf_written *w)
{
    register_once();
    opening.below = sqlite3_vfs_find(nolock ? "unix-none" : NULL);
    opening.written = w;
    int code = opening.below ? sqlite3_open_v2(path, db, flags, "loong-track") : SQLITE_ERROR;
    opening.written = NULL;
    return code;
}

int lf_vfs_open_overlay(sqlite3 **db, const char *name, struct lf_overlay *o)
{
    register_once();
    opening.overlay = o;
    int code = sqlite3_open_v2(name, db, SQLITE_OPEN_READONLY, "loong-overlay");
    opening.overlay = NULL;
    lf_overlay_free(o);
    return code;
}
