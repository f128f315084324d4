/* SPDX-License-Identifier: Apache-2.0
 *
 * HDF5: process set-up, files, attributes and everything that is written. Reading structure is
 * h5_read.c.
 *
 * The only statics of the store are here: HDF5 is one state per process and not re-entrant, so its
 * lock is one as well.
 */
#define LF_STORE_H5_INTERNAL
#include "engine/store/h5.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/mem.h"
#include "engine/store/h5_priv.h"

#define ALIGN_FROM 65536 /* objects of at least this many bytes begin on a page */
#define ALIGN_TO   4096

static pthread_mutex_t h5_lock = PTHREAD_MUTEX_INITIALIZER;
static bool h5_begun; /* under h5_lock */

void lf_h5_enter(void)
{
    pthread_mutex_lock(&h5_lock);
    /* Without this, a file that could not be completed (full disk) is tried again at exit, with
     * text on stderr. */
    if (!h5_begun)
        H5dont_atexit();
    h5_begun = true;
#if !(H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0))
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1); /* no property for it in this version */
#endif
    /* Every time: an application or a threadsafe HDF5 may keep its own value per thread. */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
    H5Eclear2(H5E_DEFAULT);
}

void lf_h5_leave(void)
{
    pthread_mutex_unlock(&h5_lock);
}

static herr_t keep_desc(unsigned n, const H5E_error2_t *e, void *user)
{
    (void)n;
    if (e->desc && e->desc[0])
        snprintf(user, 256, "%s", e->desc);
    return 0;
}

int lf_h5_fail(lf_err *err, int rc, const char *fmt, ...)
{
    char why[256] = "", text[700];
    va_list ap;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_desc, why); /* the last one is the innermost */
    H5Eclear2(H5E_DEFAULT);
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = why; *p; p++)
        if ((unsigned char)*p < 0x20)
            *p = ' ';
    return lf_fail(err, rc, why[0] ? "%s (HDF5: %s)" : "%s", text, why);
}

/* ---- types ---- */

static const struct {
    const char *name;
    size_t bytes;
} types[] = {[LF_H5_U8] = {"u8", 1},     [LF_H5_U16] = {"u16", 2}, [LF_H5_U32] = {"u32", 4},
             [LF_H5_U64] = {"u64", 8},   [LF_H5_I32] = {"i32", 4}, [LF_H5_I64] = {"i64", 8},
             [LF_H5_BF16] = {"bf16", 2}, [LF_H5_F32] = {"f32", 4}, [LF_H5_F64] = {"f64", 8}};
#define N_TYPES (sizeof types / sizeof types[0])

size_t lf_h5_type_bytes(enum lf_h5_type t)
{
    return (size_t)t < N_TYPES ? types[t].bytes : 0;
}

const char *lf_h5_type_name(enum lf_h5_type t)
{
    return (size_t)t < N_TYPES && types[t].name ? types[t].name : "unknown";
}

int lf_h5_type_parse(enum lf_h5_type *out, const char *name, lf_err *err)
{
    for (size_t i = 1; i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0) {
            *out = (enum lf_h5_type)i;
            return 0;
        }
    return lf_fail(err, LF_EFORMAT,
                   "unknown number type '%.40s'; known: u8 u16 u32 u64 i32 i64 bf16 f32 f64", name);
}

static hid_t make_bf16(void)
{
    hid_t t = H5Tcopy(H5T_IEEE_F32LE);
    if (t < 0 || H5Tset_fields(t, 15, 7, 8, 0, 7) < 0 || H5Tset_precision(t, 16) < 0 ||
        H5Tset_size(t, 2) < 0 || H5Tset_ebias(t, 127) < 0) {
        if (t >= 0)
            H5Tclose(t);
        return -1;
    }
    return t;
}

hid_t lf_h5_type_id(enum lf_h5_type t)
{
    static hid_t bf16 = -1; /* under h5_lock; made once */
    switch (t) {
    case LF_H5_U8:
        return H5T_STD_U8LE;
    case LF_H5_U16:
        return H5T_STD_U16LE;
    case LF_H5_U32:
        return H5T_STD_U32LE;
    case LF_H5_U64:
        return H5T_STD_U64LE;
    case LF_H5_I32:
        return H5T_STD_I32LE;
    case LF_H5_I64:
        return H5T_STD_I64LE;
    case LF_H5_BF16:
        return bf16 < 0 ? bf16 = make_bf16() : bf16;
    case LF_H5_F32:
        return H5T_IEEE_F32LE;
    case LF_H5_F64:
        return H5T_IEEE_F64LE;
    }
    return -1;
}

/* ---- groups ---- */

/* Closes all but the first n. */
static void leave_groups(lf_h5 *f, size_t n)
{
    while (f->n_groups > n)
        H5Gclose(f->groups[--f->n_groups].id);
}

/* How many of the open groups lie on the way to the dataset `name`? */
static size_t on_the_way(const lf_h5 *f, const char *name)
{
    size_t n = 0;
    for (; n < f->n_groups; n++) {
        const size_t end = f->groups[n].end;
        if (strncmp(f->way, name, end) != 0 || name[end] != '/')
            break;
    }
    return n;
}

int lf_h5_walk(lf_h5 *f, const char *name, lf_h5_group_fn *open, struct lf_h5_place *out,
               lf_err *err)
{
    leave_groups(f, on_the_way(f, name));
    const struct lf_h5_group *last = f->n_groups ? &f->groups[f->n_groups - 1] : NULL;
    *out = (struct lf_h5_place){
        .group = last ? last->id : f->file, .name = name, .own = name + (last ? last->end + 1 : 0)};
    if (!strchr(out->own, '/'))
        return 0;
    char *way = lf_strdup(name, err);
    if (!way)
        return LF_ENOMEM;
    free(f->way);
    f->way = way;
    for (const char *end; (end = strchr(out->own, '/')); out->own = end + 1) {
        const size_t at = (size_t)(end - name);
        int rc = lf_grow(&f->groups, &f->cap_groups, f->n_groups, sizeof *f->groups, err);
        if (rc != 0)
            return rc;
        way[at] = 0;
        const struct lf_h5_place group = {out->group, way, way + (out->own - name)};
        rc = open(f, &group, name, &out->group, err);
        way[at] = '/';
        if (rc != 0)
            return rc;
        f->groups[f->n_groups++] = (struct lf_h5_group){out->group, at};
    }
    return 0;
}

/* ---- files ---- */

static hid_t make_fapl(void)
{
    hid_t p = H5Pcreate(H5P_FILE_ACCESS);
    if (p < 0)
        return -1;
    bool ok = H5Pset_fclose_degree(p, H5F_CLOSE_STRONG) >= 0 &&
              H5Pset_libver_bounds(p, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
              H5Pset_alignment(p, ALIGN_FROM, ALIGN_TO) >= 0;
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
    ok = ok && H5Pset_file_locking(p, 0, 1) >= 0;
#endif
    if (ok)
        return p;
    H5Pclose(p);
    return -1;
}

static int new_handle(lf_h5 **out, const char *path, lf_err *err)
{
    lf_h5 *f = lf_calloc(1, sizeof *f, err);
    if (!f)
        return LF_ENOMEM;
    *f = (lf_h5){.file = -1, .grow = -1, .grow_type = -1, .path = lf_strdup(path, err)};
    if (!f->path) {
        free(f);
        return LF_ENOMEM;
    }
    *out = f;
    return 0;
}

int lf_h5_create(lf_h5 **out, const char *path, lf_err *err)
{
    lf_h5 *f = NULL;
    hid_t fapl = -1, fcpl = -1;
    /* H5Fcreate cannot give a mode, so the (empty) file is made here and then truncated by HDF5. */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, LF_ARTIFACT_MODE);
    if (fd < 0)
        return lf_fail_errno(err, "cannot create %s", path);
    close(fd);
    int rc = new_handle(&f, path, err);
    if (rc < 0) {
        unlink(path);
        return rc;
    }
    lf_h5_enter();
    if ((fapl = make_fapl()) < 0 || (fcpl = H5Pcreate(H5P_FILE_CREATE)) < 0 ||
        H5Pset_obj_track_times(fcpl, 0) < 0 ||
        (f->file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl)) < 0)
        rc = lf_h5_fail(err, LF_EIO, "cannot create the HDF5 file %s", path);
    if (fcpl >= 0)
        H5Pclose(fcpl);
    if (fapl >= 0)
        H5Pclose(fapl);
    lf_h5_leave();
    if (rc < 0) {
        unlink(path);
        free(f->path);
        free(f);
        return rc;
    }
    *out = f;
    return 0;
}

/* The signature must be at byte 0 and the superblock one of those with a checksum: then a damaged
 * byte of structure is seen by HDF5 before it is used. */
static int check_signature(const char *path, lf_err *err)
{
    static const unsigned char magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char head[9];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open %s", path);
    ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    if (n != (ssize_t)sizeof head || memcmp(head, magic, sizeof magic) != 0)
        return lf_fail(err, LF_EFORMAT, "%s is not an HDF5 file", path);
    if (head[8] < 2 || head[8] > 3)
        return lf_fail(err, LF_EFORMAT,
                       "%s has HDF5 superblock version %d; files of loong-flow have 2 or 3", path,
                       head[8]);
    return 0;
}

int lf_h5_open(lf_h5 **out, const char *path, lf_err *err)
{
    lf_h5 *f = NULL;
    int rc = check_signature(path, err);
    if (rc < 0 || (rc = new_handle(&f, path, err)) < 0)
        return rc;
    lf_h5_enter();
    hid_t fapl = make_fapl();
    if (fapl < 0 || (f->file = H5Fopen(path, H5F_ACC_RDONLY, fapl)) < 0)
        rc = lf_h5_fail(err, LF_EFORMAT, "%s: damaged or cut short", path);
    if (fapl >= 0)
        H5Pclose(fapl);
    lf_h5_leave();
    if (rc < 0) {
        free(f->path);
        free(f);
        return rc;
    }
    *out = f;
    return 0;
}

int lf_h5_close(lf_h5 *f, lf_err *err)
{
    if (!f)
        return 0;
    int rc = 0;
    lf_h5_enter();
    bool bad = f->grow >= 0 && H5Dclose(f->grow) < 0;
    leave_groups(f, 0);
    if (H5Fclose(f->file) < 0 || bad)
        rc = lf_h5_fail(err, LF_EIO, "cannot complete %s (is the disk full?)", f->path);
    lf_h5_leave();
    free(f->path);
    free(f->groups);
    free(f->way);
    free(f);
    return rc;
}

/* ---- attributes ---- */

static int put_attr(lf_h5 *f, const char *name, hid_t file_type, hid_t mem_type, const void *value,
                    lf_err *err)
{
    hid_t space = H5Screate(H5S_SCALAR), a = -1;
    int rc = 0;
    if (space < 0 || file_type < 0 ||
        (a = H5Acreate2(f->file, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT)) < 0 ||
        H5Awrite(a, mem_type, value) < 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot write the attribute %s", f->path, name);
    if (a >= 0)
        H5Aclose(a);
    if (space >= 0)
        H5Sclose(space);
    return rc;
}

int lf_h5_put_attr_str(lf_h5 *f, const char *name, const char *value, lf_err *err)
{
    size_t n = strlen(value);
    if (n > LF_H5_MAX_STR)
        return lf_fail(err, LF_EINVAL, "%s: attribute %s of %zu bytes; at most %d", f->path, name,
                       n, LF_H5_MAX_STR);
    lf_h5_enter();
    hid_t t = H5Tcopy(H5T_C_S1);
    if (t >= 0 && (H5Tset_size(t, n + 1) < 0 || H5Tset_cset(t, H5T_CSET_UTF8) < 0)) {
        H5Tclose(t);
        t = -1;
    }
    int rc = put_attr(f, name, t, t, value, err);
    if (t >= 0)
        H5Tclose(t);
    lf_h5_leave();
    return rc;
}

int lf_h5_put_attr_i64(lf_h5 *f, const char *name, int64_t value, lf_err *err)
{
    lf_h5_enter();
    int rc = put_attr(f, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, err);
    lf_h5_leave();
    return rc;
}

/* ---- datasets ---- */

/* A group of a file that is written, without times; it is made where it is not there. */
static int make_group(lf_h5 *f, const struct lf_h5_place *at, const char *name, hid_t *out,
                      lf_err *err)
{
    static hid_t gcpl = -1; /* under h5_lock; made once */
    hid_t g = -1;
    (void)name;
    const htri_t there = H5Lexists(at->group, at->own, H5P_DEFAULT);
    if (there < 0)
        return lf_h5_fail(err, LF_EIO, "%s: cannot look for the group %s", f->path, at->name);
    if (there)
        g = H5Gopen2(at->group, at->own, H5P_DEFAULT);
    else if ((gcpl >= 0 || (gcpl = H5Pcreate(H5P_GROUP_CREATE)) >= 0) &&
             H5Pset_obj_track_times(gcpl, 0) >= 0)
        g = H5Gcreate2(at->group, at->own, H5P_DEFAULT, gcpl, H5P_DEFAULT);
    if (g < 0)
        return lf_h5_fail(err, LF_EIO, "%s: cannot make the group %s", f->path, at->name);
    *out = g;
    return 0;
}

/* Create a dataset; takes nothing, returns a handle or -1. dcpl is prepared here (times off). */
static hid_t create_dataset(lf_h5 *f, const char *name, hid_t type, hid_t space, hid_t dcpl,
                            lf_err *err)
{
    struct lf_h5_place at;
    hid_t d = -1;
    if (lf_h5_walk(f, name, make_group, &at, err) < 0)
        return -1;
    if (type < 0 || space < 0 || dcpl < 0 || H5Pset_obj_track_times(dcpl, 0) < 0 ||
        (d = H5Dcreate2(at.group, at.own, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT)) < 0)
        lf_h5_fail(err, LF_EIO, "%s: cannot create the dataset %s", f->path, name);
    return d;
}

static int to_hsize(hsize_t *out, int ndim, const int64_t *dims, const char *name, lf_err *err)
{
    if (ndim < 1 || ndim > LF_H5_MAX_DIMS)
        return lf_fail(err, LF_EINVAL, "dataset %s with %d dimensions; 1 to %d are possible", name,
                       ndim, LF_H5_MAX_DIMS);
    for (int i = 0; i < ndim; i++) {
        if (dims[i] <= 0)
            return lf_fail(err, LF_EINVAL, "dataset %s: dimension %d is %lld", name, i,
                           (long long)dims[i]);
        out[i] = (hsize_t)dims[i];
    }
    return 0;
}

/* How a dataset is created whose bytes the caller writes; made once. */
static hid_t extent_dcpl(void)
{
    static hid_t kept = -1; /* under h5_lock */
    hid_t p = kept;
    if (p >= 0 || (p = H5Pcreate(H5P_DATASET_CREATE)) < 0)
        return p;
    if (H5Pset_layout(p, H5D_CONTIGUOUS) < 0 || H5Pset_alloc_time(p, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(p, H5D_FILL_TIME_NEVER) < 0) {
        H5Pclose(p);
        return -1;
    }
    return kept = p;
}

int lf_h5_put_extent(lf_h5 *f, const char *name, enum lf_h5_type type, int ndim,
                     const int64_t *dims, uint64_t *offset, lf_err *err)
{
    hsize_t hd[LF_H5_MAX_DIMS];
    int rc = to_hsize(hd, ndim, dims, name, err);
    if (rc < 0)
        return rc;
    lf_h5_enter();
    hid_t t = lf_h5_type_id(type), space = H5Screate_simple(ndim, hd, NULL), dcpl = extent_dcpl(),
          d = -1;
    haddr_t at = HADDR_UNDEF;
    if (dcpl < 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot describe the dataset %s", f->path, name);
    else if ((d = create_dataset(f, name, t, space, dcpl, err)) < 0)
        rc = LF_EIO;
    else if ((at = H5Dget_offset(d)) == HADDR_UNDEF)
        rc = lf_h5_fail(err, LF_EIO, "%s: the dataset %s has no place in the file", f->path, name);
    if (d >= 0 && H5Dclose(d) < 0 && rc == 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot close the dataset %s", f->path, name);
    if (space >= 0)
        H5Sclose(space);
    lf_h5_leave();
    if (rc == 0)
        *offset = (uint64_t)at;
    return rc;
}

int lf_h5_put(lf_h5 *f, const char *name, enum lf_h5_type type, const void *data, size_t n,
              lf_err *err)
{
    hsize_t dim = n;
    int rc = 0;
    lf_h5_enter();
    hid_t t = lf_h5_type_id(type), space = H5Screate_simple(1, &dim, NULL),
          dcpl = H5Pcreate(H5P_DATASET_CREATE), d = -1;
    if (dcpl < 0 || H5Pset_layout(dcpl, H5D_CONTIGUOUS) < 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot describe the dataset %s", f->path, name);
    else if ((d = create_dataset(f, name, t, space, dcpl, err)) < 0)
        rc = LF_EIO;
    else if (n && H5Dwrite(d, t, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot write the dataset %s", f->path, name);
    if (d >= 0 && H5Dclose(d) < 0 && rc == 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot close the dataset %s", f->path, name);
    if (dcpl >= 0)
        H5Pclose(dcpl);
    if (space >= 0)
        H5Sclose(space);
    lf_h5_leave();
    return rc;
}

int lf_h5_begin_growing(lf_h5 *f, const char *name, enum lf_h5_type type, size_t chunk_elems,
                        lf_err *err)
{
    if (f->grow >= 0)
        return lf_fail(err, LF_EINVAL, "%s: one growing dataset at a time", f->path);
    hsize_t zero = 0, unlimited = H5S_UNLIMITED, chunk = chunk_elems;
    int rc = 0;
    lf_h5_enter();
    hid_t space = H5Screate_simple(1, &zero, &unlimited), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    f->grow_type = lf_h5_type_id(type);
    f->grow_n = 0;
    if (dcpl < 0 || H5Pset_chunk(dcpl, 1, &chunk) < 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot describe the dataset %s", f->path, name);
    else if ((f->grow = create_dataset(f, name, f->grow_type, space, dcpl, err)) < 0)
        rc = LF_EIO;
    if (dcpl >= 0)
        H5Pclose(dcpl);
    if (space >= 0)
        H5Sclose(space);
    lf_h5_leave();
    return rc;
}

int lf_h5_append(lf_h5 *f, const void *data, size_t n, lf_err *err)
{
    if (n == 0)
        return 0;
    hsize_t first = f->grow_n, count = n, total = first + count;
    hid_t fs = -1, ms = -1;
    int rc = 0;
    lf_h5_enter();
    if (f->grow < 0 || H5Dset_extent(f->grow, &total) < 0 || (fs = H5Dget_space(f->grow)) < 0 ||
        (ms = H5Screate_simple(1, &count, NULL)) < 0 ||
        H5Sselect_hyperslab(fs, H5S_SELECT_SET, &first, NULL, &count, NULL) < 0 ||
        H5Dwrite(f->grow, f->grow_type, ms, fs, H5P_DEFAULT, data) < 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot append %zu elements (is the disk full?)", f->path,
                        n);
    else
        f->grow_n = total;
    if (ms >= 0)
        H5Sclose(ms);
    if (fs >= 0)
        H5Sclose(fs);
    lf_h5_leave();
    return rc;
}

/* ---- virtual datasets ---- */

static int map_block(hid_t dcpl, hid_t vspace, const lf_h5_block *b, int ndim)
{
    hsize_t lo[LF_H5_MAX_DIMS], count[LF_H5_MAX_DIMS], src[LF_H5_MAX_DIMS], n = 1;
    for (int i = 0; i < ndim; i++) {
        lo[i] = (hsize_t)b->lo[i];
        count[i] = (hsize_t)b->count[i];
        n *= count[i];
    }
    for (int i = 0; i < b->src_ndim; i++)
        src[i] = (hsize_t)b->src_dims[i];
    hsize_t first = (hsize_t)b->src_first;
    hid_t ss = H5Screate_simple(b->src_ndim, src, NULL);
    int rc = ss >= 0 && H5Sselect_hyperslab(vspace, H5S_SELECT_SET, lo, NULL, count, NULL) >= 0 &&
                     (b->src_ndim > 1 ||
                      H5Sselect_hyperslab(ss, H5S_SELECT_SET, &first, NULL, &n, NULL) >= 0) &&
                     H5Pset_virtual(dcpl, vspace, b->file, b->name, ss) >= 0
                 ? 0
                 : -1;
    if (ss >= 0)
        H5Sclose(ss);
    return rc;
}

int lf_h5_put_virtual(lf_h5 *f, const struct lf_h5_virtual *v, lf_err *err)
{
    const char *name = v->name;
    hsize_t hd[LF_H5_MAX_DIMS];
    int rc = to_hsize(hd, v->ndim, v->dims, name, err);
    if (rc < 0)
        return rc;
    lf_h5_enter();
    hid_t t = lf_h5_type_id(v->type), space = H5Screate_simple(v->ndim, hd, NULL),
          dcpl = H5Pcreate(H5P_DATASET_CREATE), d = -1;
    for (size_t i = 0; i < v->n_blocks && rc == 0; i++)
        if (space < 0 || dcpl < 0 || map_block(dcpl, space, &v->blocks[i], v->ndim) < 0)
            rc = lf_h5_fail(err, LF_EIO, "%s: cannot map a piece of %s", f->path, name);
    if (rc == 0 &&
        (H5Sselect_all(space) < 0 || (d = create_dataset(f, name, t, space, dcpl, err)) < 0))
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot create the virtual dataset %s", f->path, name);
    if (d >= 0 && H5Dclose(d) < 0 && rc == 0)
        rc = lf_h5_fail(err, LF_EIO, "%s: cannot close the dataset %s", f->path, name);
    if (dcpl >= 0)
        H5Pclose(dcpl);
    if (space >= 0)
        H5Sclose(space);
    lf_h5_leave();
    return rc;
}
