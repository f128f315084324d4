/* SPDX-License-Identifier: Apache-2.0
 *
 * What this program was built from and with. In an archive of its own (engine/libbuilt.a): a new
 * commit links the programs that say it anew, and nothing else.
 */
#ifndef LF_BASE_BUILT_H
#define LF_BASE_BUILT_H

#include <stdbool.h>

#include "engine/base/str.h"

typedef struct lf_built {
    const char *commit; /* 40 hex digits, "-dirty" behind them for changed files; or "unknown" */
    bool pmix, ucx, onednn, cuda;
    bool snappy, zstd, zlib; /* codecs of parquet */
    const char *hdf5;        /* version of the headers */
    const char *const *isas; /* families of CPU kernels, slowest first; NULL-terminated */
} lf_built;

const lf_built *lf_built_get(void);

/* Lines for --version: commit, features, instruction sets. */
void lf_built_add(lf_buf *b);

#endif
