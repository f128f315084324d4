/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file that nobody vouches for contains: attributes, and where the bytes of a dataset lie.
 * Everything HDF5 would follow out of the file (soft, external and user-defined links, external
 * storage, virtual datasets, filters) is refused before it is followed, and every extent is held
 * against the length of the file.
 */
#define LF_STORE_H5_INTERNAL
#include "engine/store/h5.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/h5_priv.h"

/* ---- attributes ---- */

/* Open a scalar attribute of the root group: sets *a and *type. */
static int open_attr(lf_h5 *f, const char *name, hid_t *a, hid_t *type, lf_err *err)
{
    htri_t there = H5Aexists(f->file, name);
    if (there < 0)
        return lf_h5_fail(err, LF_EFORMAT, "%s: cannot look for the attribute %s", f->path, name);
    if (there == 0)
        return lf_fail(err, LF_EFORMAT, "%s: the attribute %s is missing", f->path, name);
    hid_t space = -1;
    int rc = 0;
    if ((*a = H5Aopen(f->file, name, H5P_DEFAULT)) < 0 || (*type = H5Aget_type(*a)) < 0 ||
        (space = H5Aget_space(*a)) < 0)
        rc = lf_h5_fail(err, LF_EFORMAT, "%s: cannot open the attribute %s", f->path, name);
    else if (H5Sget_simple_extent_type(space) != H5S_SCALAR)
        rc = lf_fail(err, LF_EFORMAT, "%s: the attribute %s is not a single value", f->path, name);
    if (space >= 0)
        H5Sclose(space);
    return rc;
}

int lf_h5_get_attr_str(lf_h5 *f, const char *name, char **out, lf_err *err)
{
    hid_t a = -1, t = -1;
    char *s = NULL;
    lf_h5_enter();
    int rc = open_attr(f, name, &a, &t, err);
    if (rc < 0)
        goto out;
    size_t n = H5Tget_size(t);
    if (H5Tget_class(t) != H5T_STRING || H5Tis_variable_str(t) != 0 || n == 0 ||
        n > LF_H5_MAX_STR + 1) {
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: the attribute %s is not a string of fixed length of at most %d bytes",
                     f->path, name, LF_H5_MAX_STR);
        goto out;
    }
    if (!(s = lf_calloc(n + 1, 1, err))) {
        rc = LF_ENOMEM;
        goto out;
    }
    if (H5Aread(a, t, s) < 0) {
        rc = lf_h5_fail(err, LF_EFORMAT, "%s: cannot read the attribute %s", f->path, name);
        goto out;
    }
    *out = s;
    s = NULL;
out:
    free(s);
    if (t >= 0)
        H5Tclose(t);
    if (a >= 0)
        H5Aclose(a);
    lf_h5_leave();
    return rc;
}

int lf_h5_get_attr_i64(lf_h5 *f, const char *name, int64_t *out, lf_err *err)
{
    hid_t a = -1, t = -1;
    int64_t v = 0;
    lf_h5_enter();
    int rc = open_attr(f, name, &a, &t, err);
    if (rc == 0 && H5Tequal(t, H5T_STD_I64LE) <= 0)
        rc =
            lf_fail(err, LF_EFORMAT, "%s: the attribute %s is not a 64-bit integer", f->path, name);
    if (rc == 0 && H5Aread(a, H5T_NATIVE_INT64, &v) < 0)
        rc = lf_h5_fail(err, LF_EFORMAT, "%s: cannot read the attribute %s", f->path, name);
    if (t >= 0)
        H5Tclose(t);
    if (a >= 0)
        H5Aclose(a);
    lf_h5_leave();
    if (rc == 0)
        *out = v;
    return rc;
}

/* ---- datasets ---- */

/* The link at `at`, on the way to the dataset `name`: a hard one, so that what is opened by it
 * stays in this file. */
static int check_link(const lf_h5 *f, const struct lf_h5_place *at, const char *name, lf_err *err)
{
    H5L_info_t info;
    if (H5Lget_info(at->group, at->own, &info, H5P_DEFAULT) < 0) {
        H5Eclear2(H5E_DEFAULT);
        if (H5Lexists(at->group, at->own, H5P_DEFAULT) == 0)
            return lf_fail(err, LF_EFORMAT, "%s: there is no dataset %s", f->path, name);
        return lf_h5_fail(err, LF_EFORMAT, "%s: cannot look for %s", f->path, name);
    }
    if (info.type != H5L_TYPE_HARD)
        return lf_fail(err, LF_EFORMAT,
                       "%s: %s is a soft or external link; links out of the file are refused",
                       f->path, at->name);
    return 0;
}

static int open_group(lf_h5 *f, const struct lf_h5_place *at, const char *name, hid_t *out,
                      lf_err *err)
{
    int rc = check_link(f, at, name, err);
    if (rc == 0 && (*out = H5Gopen2(at->group, at->own, H5P_DEFAULT)) < 0)
        rc = lf_h5_fail(err, LF_EFORMAT, "%s: cannot look for %s", f->path, name);
    return rc;
}

static int read_type(const lf_h5 *f, hid_t d, const char *name, enum lf_h5_type *out, lf_err *err)
{
    hid_t t = H5Dget_type(d);
    enum lf_h5_type found = 0;
    if (t < 0)
        return lf_h5_fail(err, LF_EFORMAT, "%s: cannot read the type of %s", f->path, name);
    const size_t bytes = H5Tget_size(t);
    for (enum lf_h5_type k = LF_H5_U8; k <= LF_H5_F64 && !found; k++) {
        if (lf_h5_type_bytes(k) != bytes)
            continue;
        const hid_t want = lf_h5_type_id(k);
        if (want >= 0 && H5Tequal(t, want) > 0)
            found = k;
    }
    H5Tclose(t);
    if (!found)
        return lf_fail(
            err, LF_EFORMAT,
            "%s: the type of %s is none of ours (little-endian u8..u64 i32 i64 bf16 f32 f64)",
            f->path, name);
    *out = found;
    return 0;
}

static int read_shape(const lf_h5 *f, hid_t d, const char *name, lf_h5_dataset *ds, lf_err *err)
{
    hsize_t dims[H5S_MAX_RANK];
    hid_t space = H5Dget_space(d);
    int n = space >= 0 && H5Sget_simple_extent_type(space) == H5S_SIMPLE
                ? H5Sget_simple_extent_ndims(space)
                : -1;
    bool ok = n >= 1 && n <= LF_H5_MAX_DIMS && H5Sget_simple_extent_dims(space, dims, NULL) == n;
    if (space >= 0)
        H5Sclose(space);
    if (!ok)
        return lf_h5_fail(err, LF_EFORMAT, "%s: the shape of %s is not 1 to %d dimensions", f->path,
                          name, LF_H5_MAX_DIMS);
    ds->ndim = n;
    ds->n_elems = 1;
    for (int i = 0; i < n; i++) {
        if (dims[i] > INT64_MAX ||
            __builtin_mul_overflow(ds->n_elems, (uint64_t)dims[i], &ds->n_elems))
            return lf_fail(err, LF_EFORMAT, "%s: the shape of %s overflows", f->path, name);
        ds->dims[i] = (int64_t)dims[i];
    }
    return 0;
}

static int check_extent(const lf_h5 *f, const char *name, haddr_t at, uint64_t bytes,
                        uint64_t file_bytes, lf_err *err)
{
    if (at == HADDR_UNDEF || at > file_bytes || bytes > file_bytes - at)
        return lf_fail(err, LF_EFORMAT, "%s: %s does not lie inside the file (%llu bytes)", f->path,
                       name, (unsigned long long)file_bytes);
    return 0;
}

/* Where the elements of a contiguous dataset begin. */
static int contiguous_extent(const lf_h5 *f, haddr_t at, const char *name, lf_h5_dataset *ds,
                             lf_err *err)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(ds->n_elems, (uint64_t)lf_h5_type_bytes(ds->type), &bytes))
        return lf_fail(err, LF_EFORMAT, "%s: the shape of %s overflows", f->path, name);
    int rc = check_extent(f, name, at, bytes, (uint64_t)f->bytes, err);
    if (rc < 0)
        return rc;
    if (!(ds->extents = lf_calloc(1, sizeof *ds->extents, err)))
        return LF_ENOMEM;
    ds->extents[0] = (lf_h5_extent){0, ds->n_elems, (uint64_t)at};
    ds->n_extents = 1;
    return 0;
}

/* Chunks in order; neighbours that touch in the file become one extent. */
static int chunk_extents(const lf_h5 *f, hid_t d, hsize_t chunk, const char *name,
                         uint64_t file_bytes, lf_h5_dataset *ds, lf_err *err)
{
    uint64_t elem = lf_h5_type_bytes(ds->type), n_chunks = (ds->n_elems - 1) / chunk + 1;
    if (chunk > file_bytes / elem || n_chunks > file_bytes / (chunk * elem))
        return lf_fail(err, LF_EFORMAT, "%s: %s says %llu elements, more than the file holds",
                       f->path, name, (unsigned long long)ds->n_elems);
    if (!(ds->extents = lf_calloc((size_t)n_chunks, sizeof *ds->extents, err)))
        return LF_ENOMEM;
    for (uint64_t i = 0; i < n_chunks; i++) {
        hsize_t at_elem = i * chunk, size = 0;
        unsigned mask = 0;
        haddr_t at = HADDR_UNDEF;
        if (H5Dget_chunk_info_by_coord(d, &at_elem, &mask, &at, &size) < 0)
            return lf_h5_fail(err, LF_EFORMAT, "%s: cannot find chunk %llu of %s", f->path,
                              (unsigned long long)i, name);
        uint64_t n = ds->n_elems - at_elem < chunk ? ds->n_elems - at_elem : chunk;
        int rc = check_extent(f, name, at, chunk * elem, file_bytes, err);
        if (rc < 0)
            return rc;
        if (size != chunk * elem || mask != 0)
            return lf_fail(err, LF_EFORMAT, "%s: chunk %llu of %s has a wrong size", f->path,
                           (unsigned long long)i, name);
        lf_h5_extent *last = ds->n_extents ? &ds->extents[ds->n_extents - 1] : NULL;
        if (last && last->offset + last->n * elem == at)
            last->n += n;
        else
            ds->extents[ds->n_extents++] = (lf_h5_extent){at_elem, n, (uint64_t)at};
    }
    return 0;
}

/* Of a dataset that has no place in the file of its own, by what its creation said. */
static int find_chunks(const lf_h5 *f, hid_t d, const char *name, lf_h5_dataset *ds, lf_err *err)
{
    hid_t dcpl = H5Dget_create_plist(d);
    if (dcpl < 0)
        return lf_h5_fail(err, LF_EFORMAT, "%s: cannot read the layout of %s", f->path, name);
    H5D_layout_t layout = H5Pget_layout(dcpl);
    hsize_t chunk = 0;
    int rc = 0;
    uint64_t bytes;
    if (H5Pget_nfilters(dcpl) != 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: %s is compressed or filtered, which shards and checkpoints never are",
                     f->path, name);
    else if (layout != H5D_CHUNKED &&
             (layout != H5D_CONTIGUOUS || H5Pget_external_count(dcpl) != 0))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: %s is not stored in this file (virtual, external or compact)", f->path,
                     name);
    else if (__builtin_mul_overflow(ds->n_elems, (uint64_t)lf_h5_type_bytes(ds->type), &bytes))
        rc = lf_fail(err, LF_EFORMAT, "%s: the shape of %s overflows", f->path, name);
    else if (ds->n_elems == 0)
        rc = 0;
    else if (layout == H5D_CONTIGUOUS)
        rc = contiguous_extent(f, HADDR_UNDEF, name, ds, err);
    else if (ds->ndim != 1 || H5Pget_chunk(dcpl, 1, &chunk) != 1 || chunk == 0)
        rc =
            lf_fail(err, LF_EFORMAT, "%s: %s is chunked in more than one dimension", f->path, name);
    else
        rc = chunk_extents(f, d, chunk, name, (uint64_t)f->bytes, ds, err);
    H5Pclose(dcpl);
    return rc;
}

/* HDF5 tells the place of a contiguous dataset of this file alone, not one of chunks, of another
 * file or within the structure; to be told how it was created takes as long as all else here. */
static int find_extents(lf_h5 *f, hid_t d, const char *name, lf_h5_dataset *ds, lf_err *err)
{
    if (f->bytes == 0)
        f->bytes = lf_io_size(f->path, err);
    if (f->bytes < 0) {
        const int rc = (int)f->bytes;
        f->bytes = 0;
        return rc;
    }
    const haddr_t at = ds->n_elems ? H5Dget_offset(d) : HADDR_UNDEF;
    return at != HADDR_UNDEF ? contiguous_extent(f, at, name, ds, err)
                             : find_chunks(f, d, name, ds, err);
}

int lf_h5_stat(lf_h5 *f, const char *name, lf_h5_dataset *out, lf_err *err)
{
    lf_h5_dataset ds = {0};
    struct lf_h5_place at;
    hid_t o = -1;
    lf_h5_enter();
    int rc = lf_h5_walk(f, name, open_group, &at, err);
    if (rc < 0 || (rc = check_link(f, &at, name, err)) < 0)
        goto out;
    if ((o = H5Oopen(at.group, at.own, H5P_DEFAULT)) < 0 || H5Iget_type(o) != H5I_DATASET) {
        rc = lf_h5_fail(err, LF_EFORMAT, "%s: %s is not a readable dataset", f->path, name);
        goto out;
    }
    if ((rc = read_type(f, o, name, &ds.type, err)) < 0 ||
        (rc = read_shape(f, o, name, &ds, err)) < 0 ||
        (rc = find_extents(f, o, name, &ds, err)) < 0)
        goto out;
    *out = ds;
    ds = (lf_h5_dataset){0};
out:
    lf_h5_dataset_fini(&ds);
    if (o >= 0)
        H5Oclose(o);
    lf_h5_leave();
    return rc;
}

bool lf_h5_has(lf_h5 *f, const char *name)
{
    lf_h5_enter();
    htri_t there = H5Lexists(f->file, name, H5P_DEFAULT);
    lf_h5_leave();
    return there > 0;
}

bool lf_h5_has_attr(lf_h5 *f, const char *name)
{
    lf_h5_enter();
    htri_t there = H5Aexists(f->file, name);
    lf_h5_leave();
    return there > 0;
}

void lf_h5_dataset_fini(lf_h5_dataset *d)
{
    free(d->extents);
    *d = (lf_h5_dataset){0};
}
