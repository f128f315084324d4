/* SPDX-License-Identifier: Apache-2.0
 *
 * See env.h.
 */
#include "config.h"

#include "engine/base/env.h"

#include <stdio.h>
#include <stdlib.h>

/* What users could set before 0.1.0. Variables between our own processes are not among them. */
static const char *const renamed[] = {
    "SITE_CONFIG", "USER_CONFIG", "CACHE_DIR",  "LIBEXEC",     "COMM",  "COMM_PATIENCE",
    "COMM_START",  "NCCL_LIB",    "CUDART_LIB", "CUDA_DRIVER", "CUDNN", "CUBLASLT",
};

int lf_env_check(lf_err *err)
{
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
        char before[64];
        snprintf(before, sizeof before, "LOONG_%s", renamed[i]);
        if (getenv(before))
            return lf_fail(err, LF_EINVAL,
                           "the environment sets %s, which is now called LF_%s; nothing reads it "
                           "under its old name, so set the new one and unset the old one",
                           before, renamed[i]);
    }
    return 0;
}
