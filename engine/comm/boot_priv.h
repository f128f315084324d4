/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ways to start: alone (boot.c) or under a PMIx server (boot_pmix.c).
 */
#ifndef LF_COMM_BOOT_PRIV_H
#define LF_COMM_BOOT_PRIV_H

#include "engine/comm/comm.h"

struct lf_boot_ops {
    int (*put)(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err);
    int (*fence)(lf_boot *b, lf_err *err);
    int (*get)(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len, lf_err *err);
    void (*destroy)(lf_boot *b);
};

struct lf_boot {
    const struct lf_boot_ops *ops;
    struct lf_boot_info info;
};

lf_boot *lf_boot_create_pmix(lf_err *err);

#endif
