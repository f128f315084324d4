/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the targets that open sets of tensors.
 */
#ifndef LF_TESTS_FUZZ_TENSORS_H
#define LF_TESTS_FUZZ_TENSORS_H

#include "engine/store/tensors.h"

/* A file in memory with these bytes; path gets its name. It lives until the next call. */
void fuzz_memory_file(char *path, size_t cap, const uint8_t *data, size_t size);
/* Read the whole of every tensor and a part of it that does not begin at 0; a failure is a finding,
 * because opening has checked every length. */
void fuzz_read_tensors(const lf_st *s);

#endif
