/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the reader and the writer of Megatron indexed datasets share.
 */
#ifndef LF_STORE_MEGATRON_PRIV_H
#define LF_STORE_MEGATRON_PRIV_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/le.h"

#define LF_MEGATRON_MAGIC  "MMIDIDX\0" /* 9 bytes, with the NUL that ends the literal */
#define LF_MEGATRON_HEADER 34

/* Returns "NAME.bin" and "NAME.idx", which the caller frees. path is NAME, NAME.bin or NAME.idx. */
int lf_megatron_names(char **bin, char **idx, const char *path, lf_err *err);

#endif
