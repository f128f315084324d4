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
    char *groups; /* to these of the file lead hard links alone; NULL: not looked at */
    /* the growing dataset; grow is -1 when there is none */
    hid_t grow, grow_type;
    hsize_t grow_n;
};

/* Take and release the process-wide lock. Every HDF5 call lies between the two. */
void lf_h5_enter(void);
void lf_h5_leave(void);
/* Records rc with this text and the innermost cause that HDF5 knows. Call it under the lock. */
int lf_h5_fail(lf_err *err, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The file type of t; close it with H5Tclose. Negative on failure. */
hid_t lf_h5_make_type(enum lf_h5_type t);

#endif
