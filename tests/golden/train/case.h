/* SPDX-License-Identifier: Apache-2.0
 *
 * One small training run that PyTorch has made too: its data, model, settings and length. Shared by
 * the program that exports it and the test that repeats it.
 */
#ifndef LF_TESTS_TRAIN_CASE_H
#define LF_TESTS_TRAIN_CASE_H

#include "engine/base/hash.h"
#include "engine/train/loop.h"

enum {
    CASE_STEPS = 60,
    CASE_T = 64,
    CASE_MICRO = 4,
    CASE_BATCH = 8,
    CASE_VOCAB = 128,
    CASE_DOCS = 500
};

/* Two shards artifacts below dir, made from a rule alone: dir/a, dir/b. */
int case_write_data(const char *dir, lf_err *err);

/* What lf_train_run takes. Paths live in the case. */
typedef struct train_case {
    struct lf_train_config c;
    lf_loader_source sources[2];
    lf_ramp_row ramp;
    char dirs[2][4096], out[4096], metrics[4096];
} train_case;
int case_config(train_case *t, const char *dir, lf_err *err);

/* Every micro-batch of the run in order. */
typedef int (*case_batch_fn)(void *arg, int64_t index, const lf_loader_batch *b, lf_err *err);
int case_batches(const train_case *t, case_batch_fn fn, void *arg, lf_err *err);
/* SHA-256, hex, over tokens, targets and cu_seqlens of them all: what a curve belongs to. (The
 * loader's order id would change with the version of libhdf5, which may place bytes of a shard
 * elsewhere.) */
int case_digest(char out[LF_HASH_HEX], const train_case *t, lf_err *err);

#endif
