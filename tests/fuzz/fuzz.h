/* SPDX-License-Identifier: Apache-2.0
 *
 * What a fuzz target is: LLVMFuzzerTestOneInput, linked with libFuzzer (--enable-fuzz) or with
 * replay.c, which runs the committed corpus and a few thousand deterministic mutations of it under
 * `make check`. A finding is a crash, a sanitizer report, or abort().
 */
#ifndef LF_TESTS_FUZZ_H
#define LF_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Name of the folder below tests/fuzz/corpus, or NULL when the target makes its own seeds with
 * fuzz_seed. */
extern const char *const fuzz_corpus;
/* Seed number i of a target without a corpus folder: bytes into buf; returns the length, 0 when
 * there are no more. */
size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap);

/* A failure without words, or words without a failure, is a finding. */
void fuzz_check_error(int rc, const lf_err *err);

/* A file made of `base` with patches: each 4 bytes of data = u24le offset (modulo the length), u8
 * new value; the first two bytes give the share of the length that is kept (65535 = all). Written
 * to path. */
void fuzz_write_patched(const char *path, const uint8_t *base, size_t base_len, const uint8_t *data,
                        size_t size);
void fuzz_write(const char *path, const uint8_t *data, size_t size);
/* A directory of this process, removed at exit. */
const char *fuzz_dir(void);

#endif
