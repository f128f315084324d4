/* SPDX-License-Identifier: Apache-2.0
 *
 * The training run that tests/golden/train/curve.txt belongs to: see case.h.
 */
#include "tests/golden/train/case.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/rng.h"
#include "engine/store/shard.h"

/* Documents with something to learn: four times in five the next token is a fixed function of this
 * one (another one in each artifact). Token 0 ends a document. */
static uint32_t make_doc(uint32_t *doc, uint32_t which, uint64_t d)
{
    uint32_t len = 3 + lf_rng_u32(41, which, d) % 120,
             cur = 1 + lf_rng_u32(42, which, d) % (CASE_VOCAB - 1);
    for (uint32_t k = 0; k + 1 < len; k++) {
        doc[k] = cur;
        uint32_t r = lf_rng_u32(43, which, d * 1024 + k);
        cur = 1 + (r % 5 ? cur * 29 + 11 + 6 * which : r / 5) % (CASE_VOCAB - 1);
    }
    doc[len - 1] = 0;
    return len;
}

static int write_artifact(const char *dir, uint32_t which, lf_err *err)
{
    lf_shard_info info = {.vocab_size = CASE_VOCAB, .eos_id = 0, .source = "test"};
    lf_shard_writer *w = NULL;
    lf_shard_stat st;
    lf_artifact a = {0};
    char path[4096];
    uint32_t doc[128];
    memset(info.tokenizer_sha256, '0', LF_HASH_HEX - 1);
    snprintf(path, sizeof path, "%.4000s/train-00000.h5", dir);
    int rc = lf_io_mkdirs(dir, 0777, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "shards", err);
    if (rc == 0)
        rc = lf_shard_create(&w, path, &info, 0, err);
    for (uint64_t d = 0; d < CASE_DOCS && rc == 0; d++) {
        uint32_t len = make_doc(doc, which, d);
        rc = lf_shard_append(w, doc, len, err);
    }
    if (rc == 0) {
        rc = lf_shard_finish(w, &st, err);
        w = NULL;
    }
    if (rc == 0)
        rc = lf_artifact_add(&a, "train-00000.h5", st.bytes, st.sha256, err);
    if (rc == 0)
        rc = lf_artifact_publish(&a, dir, err);
    lf_shard_abort(w);
    lf_artifact_fini(&a);
    return rc;
}

int case_write_data(const char *dir, lf_err *err)
{
    char path[4096];
    int rc = 0;
    for (uint32_t i = 0; i < 2 && rc == 0; i++) {
        snprintf(path, sizeof path, "%.4000s/%c", dir, (int)("ab"[i]));
        rc = write_artifact(path, i, err);
    }
    return rc;
}

int case_config(train_case *t, const char *dir, lf_err *err)
{
    static const char model[] = "[model]\nfamily = llama3\nlayers = 2\nhidden = 48\nheads = "
                                "4\nkv_heads = 2\nffn = 112\nvocab = 128\n"
                                "max_positions = 64\ninit_std = 0.08\n";
    lf_ini ini;
    *t = (train_case){.ramp = {0, CASE_BATCH}};
    for (int i = 0; i < 2; i++) {
        snprintf(t->dirs[i], sizeof t->dirs[i], "%.4000s/%c", dir, 'a' + i);
        t->sources[i] = (lf_loader_source){t->dirs[i], i ? 3 : 7};
    }
    snprintf(t->out, sizeof t->out, "%.4000s/out", dir);
    snprintf(t->metrics, sizeof t->metrics, "%.4000s/metrics", dir);
    t->c = (struct lf_train_config){.model_given = true,
                                    .sources = t->sources,
                                    .n_sources = 2,
                                    .seq_length = CASE_T,
                                    .micro_batch = CASE_MICRO,
                                    .packing = LF_PACK_CONCAT,
                                    .ramp = &t->ramp,
                                    .n_ramp = 1,
                                    .seed = 11,
                                    .steps = CASE_STEPS,
                                    .schedule = LF_SCHED_COSINE,
                                    .lr = 4e-3,
                                    .min_lr = 4e-4,
                                    .warmup_steps = 6,
                                    .adam = {0.9f, 0.95f, 1e-8f, 0.1f},
                                    .clip = 0.8,
                                    .compute = LF_F32,
                                    .numeric = LF_FAST,
                                    .threads = 2,
                                    .log_interval = 1000,
                                    .keep = 1,
                                    .out = t->out,
                                    .metrics = t->metrics};
    int rc = lf_ini_parse_text(&ini, model, sizeof model - 1, "case", err);
    if (rc)
        return rc;
    rc = lf_model_config_from_ini(&t->c.model, &ini, "model", err);
    lf_ini_fini(&ini);
    return rc;
}

int case_batches(const train_case *t, case_batch_fn fn, void *arg, lf_err *err)
{
    lf_loader_ramp ramp = {0, CASE_BATCH};
    lf_loader_config lc = {.mode = LF_LOADER_TRAIN,
                           .split = "train",
                           .sources = t->sources,
                           .n_sources = 2,
                           .T = CASE_T,
                           .B = CASE_MICRO,
                           .policy = t->c.packing,
                           .seed = t->c.seed,
                           .ramp = &ramp,
                           .n_ramp = 1,
                           .vocab_size = CASE_VOCAB};
    lf_loader *l = NULL;
    int rc = lf_loader_open(&l, &lc, err);
    for (int64_t i = 0; i < CASE_STEPS && rc == 0; i++) {
        lf_loader_step st;
        rc = lf_loader_begin_step(l, &st, err) == 1 ? 0 : LF_EINVAL;
        for (int32_t m = 0; rc == 0 && m < st.n_micro; m++) {
            const lf_loader_batch *b;
            rc = lf_loader_next(l, &b, err);
            if (rc == 0)
                rc = fn(arg, i * st.n_micro + m, b, err);
        }
    }
    lf_loader_close(l);
    return rc;
}

static int digest_batch(void *arg, int64_t index, const lf_loader_batch *b, lf_err *err)
{
    (void)index;
    (void)err;
    size_t n = (size_t)b->B * (size_t)b->T * sizeof *b->tokens;
    lf_hash_update(arg, b->tokens, n);
    lf_hash_update(arg, b->targets, n);
    lf_hash_update(arg, b->cu_seqlens, ((size_t)b->n_segs + 1) * sizeof *b->cu_seqlens);
    return 0;
}

int case_digest(char out[LF_HASH_HEX], const train_case *t, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    int rc = case_batches(t, digest_batch, h, err);
    lf_hash_final(h, digest);
    lf_hash_destroy(h);
    if (rc == 0)
        lf_hash_hex(out, digest);
    return rc;
}
