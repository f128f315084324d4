/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that h5.c (files, attributes, writing) and h5_read.c (untrusted structure) share. No
 * other file includes hdf5.h.
 */
#ifndef LF_STORE_H5_PRIV_H
#define LF_STORE_H5_PRIV_H

#ifndef LF_STORE_H5_INTERNAL
#error "only engine/store/h5*.c may see HDF5; include engine/store/h5.h"
#endif

#include <hdf5.h>

#include "engine/store/h5.h"

#if !H5_VERSION_GE(1, 10, 5)
#error "HDF5 1.10.5 or newer is needed (H5Dget_chunk_info_by_coord)"
#endif

struct lf_h5 {
    hid_t file;
    char *path;
    /* The groups on the way to the dataset that was named last, which stay open: from the root HDF5
     * would look for each of them once for each dataset, and those of neighbours are mostly the
     * same. Group i is called by the first groups[i].end bytes of `way`. To those of a file that is
     * read lead hard links alone. */
    char *way;
    struct lf_h5_group {
        hid_t id;
        size_t end;
    } * groups;
    size_t n_groups, cap_groups;
    int64_t bytes; /* of a file that is read; 0: not asked for yet */
    /* the growing dataset; grow is -1 when there is none */
    hid_t grow, grow_type;
    hsize_t grow_n;
};

/* Take and release the process-wide lock. Every HDF5 call lies between the two. */
void lf_h5_enter(void);
void lf_h5_leave(void);
/* Records rc with this text and the innermost cause that HDF5 knows. Call it under the lock. */
int lf_h5_fail(lf_err *err, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The file type of t, which stays the library's or this folder's; negative on failure. Call it
 * under the lock. */
hid_t lf_h5_type_id(enum lf_h5_type t);

/* A group or a dataset: called `own` in `group`, `name` from the root on. */
struct lf_h5_place {
    hid_t group;
    const char *name, *own;
};
/* Opens the group at `at`, on the way to the dataset `name`. */
typedef int lf_h5_group_fn(lf_h5 *f, const struct lf_h5_place *at, const char *name, hid_t *out,
                           lf_err *err);
/* The place of the dataset `name`; groups before it that are not open yet are opened by `open`. */
int lf_h5_walk(lf_h5 *f, const char *name, lf_h5_group_fn *open, struct lf_h5_place *out,
               lf_err *err);

#endif
