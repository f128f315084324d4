/* SPDX-License-Identifier: Apache-2.0
 *
 * What this program was built from, and with which libraries. The code lives in an archive of its
 * own (engine/libbuilt.a), so that a new commit relinks only the programs that print it.
 */
#ifndef LF_BASE_BUILT_H
#define LF_BASE_BUILT_H

#include <stdbool.h>

#include "engine/base/str.h"

typedef struct lf_built {
    /* 40 hex digits, followed by "-dirty" when files had changed; or "unknown" */
    const char *commit;
    bool pmix, ucx, onednn, cuda;
    bool snappy, zstd, zlib; /* codecs of parquet */
    bool jpeg, png, webp;    /* decoders of pictures */
    const char *hdf5;        /* version of the headers */
    const char *const *isas; /* families of CPU kernels, slowest first; NULL-terminated */
} lf_built;

const lf_built *lf_built_get(void);

/* Adds the lines of --version: commit, features, instruction sets. */
void lf_built_add(lf_buf *b);

#endif
