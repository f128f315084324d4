/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two ways to start share: alone (boot.c) and under a PMIx server (boot_pmix.c).
 */
#ifndef LF_COMM_BOOT_PRIV_H
#define LF_COMM_BOOT_PRIV_H

#include "engine/comm/comm.h"

struct lf_boot_ops {
    int (*fence)(lf_boot *b, lf_err *err); /* publish blob[published..n), wait for all ranks */
    int (*get)(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len,
               lf_err *err);
    void (*end_all)(lf_boot *b, int code, const char *text);
    void (*destroy)(lf_boot *b); /* leaves the blobs and b itself to boot.c */
};

struct lf_boot_blob {
    char *key;
    void *data;
    size_t len;
};

struct lf_boot {
    const struct lf_boot_ops *ops;
    struct lf_boot_info info;
    char host[256];
    /* [n], all blobs of this rank; the first `published` are known to the others */
    struct lf_boot_blob *blob;
    size_t n, cap, published;
};

/* Joins the job of the PMIx server. Returns NULL with err set on failure. */
lf_boot *lf_boot_create_pmix(lf_err *err);

#endif
