/* SPDX-License-Identifier: Apache-2.0
 *
 * Data of judged answers through the loader: units lie whole in one row, what each segment is,
 * strangers' answers, units that do not fit are counted, other data is refused; max_segs from 1 on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/train/loader_priv.h"
#include "tests/tap/tap.h"

enum { T = 48, DOCS = 60, PROMPT = 3 };
static int32_t max_segs; /* what open_units() asks for */

/* Document d: a prompt of PROMPT + d % 4 tokens, then its answer; token k is 1 + (7 d + k) % 90. */
static uint32_t len_of(uint64_t d)
{
    return d == 8 ? 40 : 6 + (uint32_t)(d * d % 13); /* pair 4 is longer than T */
}
static uint32_t prompt_len(uint64_t d)
{
    return PROMPT + (uint32_t)(d % 4 / 2);
}
static int32_t token_of(uint64_t d, uint32_t k)
{
    return 1 + (int32_t)((7 * d + k) % 90);
}

static const char *make(const char *name, enum lf_rows rows)
{
    static char dir[2][4100];
    char *at = dir[rows == LF_ROWS_PAIRS], path[4200];
    lf_shard_info info = {.vocab_size = 100, .eos_id = 0, .source = "units", .rows = rows};
    lf_err err = LF_ERR_INIT;
    lf_shard_writer *w = NULL;
    lf_artifact a = {0};
    memset(info.tokenizer_sha256, 'c', LF_HASH_HEX - 1);
    snprintf(at, sizeof dir[0], "%s/%s%d", tap_tmpdir(), name, max_segs);
    snprintf(path, sizeof path, "%s/train-00000.h5", at);
    int rc = lf_io_mkdirs(at, 0777, &err);
    rc = rc ? rc : lf_shard_create(&w, path, &info, 0, &err);
    for (uint64_t d = 0; d < DOCS && !rc; d++) {
        uint32_t tok[64];
        uint8_t mask[64];
        for (uint32_t k = 0; k < len_of(d); k++) {
            tok[k] = (uint32_t)token_of(d, k);
            mask[k] = k >= prompt_len(d);
        }
        rc = lf_shard_append_doc(
            w, &(lf_shard_doc){.tokens = tok, .n = len_of(d), .mask = mask, .label = d % 3 == 0},
            &err);
    }
    rc = rc ? rc : lf_shard_finish(w, NULL, &err);
    rc = rc ? rc : lf_artifact_init(&a, "shards", &err);
    rc = rc ? rc : lf_artifact_add_hashed(&a, at, "train-00000.h5", &err);
    rc = rc ? rc : lf_artifact_publish(&a, at, &err);
    lf_artifact_fini(&a);
    if (rc)
        tap_bail("%s", err.text);
    return at;
}

static int open_units(lf_loader **l, const char *dir, enum lf_rows rows, bool mismatched, int32_t B,
                      lf_err *err)
{
    static const lf_loader_ramp ramp[] = {{0, 4}};
    const lf_loader_source src = {dir, 1};
    const lf_loader_config c = {.mode = LF_LOADER_TRAIN,
                                .split = "train",
                                .sources = &src,
                                .n_sources = 1,
                                .T = T,
                                .B = B,
                                .max_segs = max_segs,
                                .seed = 3,
                                .ramp = ramp,
                                .n_ramp = 1,
                                .rows = rows,
                                .mismatched = mismatched};
    return lf_loader_open(l, &c, err);
}

/* Is segment s document d as it was written, or d's prompt with the answer of `other`? Returns its
 * trained targets. */
static int64_t check_segment(const lf_loader_batch *b, int32_t s, uint64_t d, uint64_t other,
                             int64_t *bad)
{
    const int32_t first = b->cu_seqlens[s], n = b->cu_seqlens[s + 1] - first;
    const uint32_t head = other == d ? len_of(d) : prompt_len(d),
                   tail = other == d ? 0 : len_of(other) - prompt_len(other);
    int64_t trained = 0;
    *bad += n != (int32_t)(head + tail);
    for (int32_t k = 0; k < n && !*bad; k++) {
        bool answer = k + 1 < n && (uint32_t)k + 1 >= prompt_len(d);
        int32_t want = (uint32_t)k < head ? token_of(d, (uint32_t)k)
                                          : token_of(other, prompt_len(other) + (uint32_t)k - head);
        *bad += b->tokens[first + k] != want || b->positions[first + k] != k;
        *bad += b->targets[first + k] != (answer ? b->tokens[first + k + 1] : -1);
        trained += answer;
    }
    return trained;
}

/* Two epochs: every unit twice, in whole rows; the step's counts are those of its micro-batches. */
static void audit(enum lf_rows rows, bool mismatched, int32_t B, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    int64_t bad = 0, seen[DOCS] = {0}, trained_all = 0;
    const int per = rows == LF_ROWS_PAIRS || mismatched ? 2 : 1;
    if (open_units(&l, make(name, rows), rows, mismatched, B, &err))
        tap_bail("%s", err.text);
    uint64_t epoch = lf_loader_source_samples(l, 0), dropped,
             units = lf_loader_units(l, 0, &dropped);
    tap_i64((int64_t)units, rows == LF_ROWS_PAIRS ? DOCS / 2 : DOCS, "units");
    tap_i64((int64_t)dropped, rows == LF_ROWS_PAIRS ? 1 : 0, "left out");
    for (uint64_t done = 0; done < 2 * epoch / 4 * 4;) {
        lf_loader_step step;
        int64_t n_units = 0, trained = 0;
        bad += lf_loader_begin_step(l, &step, &err) != 1;
        for (int32_t m = 0; m < step.n_micro; m++) {
            const lf_loader_batch *b;
            bad += lf_loader_next(l, &b, &err) != 0;
            if (b->n_segs > b->B * b->max_segs)
                tap_bail("%d segments in %d rows of room for %d", b->n_segs, b->B, b->max_segs);
            for (int32_t s = b->n_segs; s <= b->B * b->max_segs; s++)
                bad += b->cu_seqlens[s] != B * T;
            for (int32_t s = 0; s < b->n_segs; s++) {
                int64_t d = b->seg_doc[s];
                if (d < 0)
                    continue;
                uint64_t other =
                    b->seg_mismatched[s] ? ((uint64_t)d + DOCS / 2) % DOCS : (uint64_t)d;
                int64_t targets = check_segment(b, s, (uint64_t)d, other, &bad);
                trained += b->seg_mismatched[s] ? 0 : targets;
                bool first = rows == LF_ROWS_PAIRS ? d % 2 == 0 : !b->seg_mismatched[s];
                n_units += first;
                if (first && per == 2) /* the other half comes next, in the same row */
                    bad += b->seg_doc[s + 1] != (mismatched ? d : d + 1) ||
                           b->seg_mismatched[s + 1] != mismatched ||
                           b->cu_seqlens[s] / T != (b->cu_seqlens[s + 2] - 1) / T;
                if (done < epoch / 4 * 4 && first)
                    seen[d]++;
            }
        }
        bad += n_units != step.units || trained != step.trained;
        trained_all += trained;
        done += (uint64_t)step.n_samples;
    }
    int64_t more = 0;
    for (int d = 0; d < DOCS; d++)
        more += seen[d] > 1;
    tap_ok(bad == 0 && more == 0 && trained_all > 0,
           "%s, micro-batch %d, max_segs %d: segments, units and counts are right (%lld wrong)",
           name, B, max_segs, (long long)bad);
    json_t *o = lf_loader_describe(l, 0, &err);
    tap_ok(o && json_array_size(json_object_get(o, "segments")) >= (size_t)per,
           "%s: a sample names its documents", name);
    json_decref(o);
    lf_loader_close(l);
}

/* A unit and its padding always fit, as far as there are tokens; what more is asked for is kept. */
static void test_segs(void)
{
    static const struct {
        int32_t T, asked;
        enum lf_rows rows;
        bool mismatched;
        int32_t segs;
    } of[] = {{48, 0, LF_ROWS_PLAIN, false, 48},   {512, 0, LF_ROWS_PLAIN, false, 256},
              {48, 1, LF_ROWS_PLAIN, false, 2},    {48, 1, LF_ROWS_PAIRS, false, 3},
              {48, 2, LF_ROWS_PAIRS, false, 3},    {48, 3, LF_ROWS_PAIRS, false, 3},
              {48, 6, LF_ROWS_PAIRS, false, 6},    {2, 0, LF_ROWS_PAIRS, false, 2},
              {48, 1, LF_ROWS_UNPAIRED, false, 2}, {48, 1, LF_ROWS_UNPAIRED, true, 3},
              {48, 1, LF_ROWS_PROMPTS, true, 2},   {2, 1, LF_ROWS_UNPAIRED, true, 2}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const lf_loader_config c = {.T = of[i].T,
                                    .B = 1,
                                    .max_segs = of[i].asked,
                                    .rows = of[i].rows,
                                    .mismatched = of[i].mismatched};
        int32_t segs = lf_loader_segs(&c), per = lf_units_most_parts(c.rows, c.mismatched);
        int32_t units = (int32_t)lf_units_bound(&c) - 1;
        tap_ok(segs == of[i].segs && units >= 1 && units * per + (units * per < c.T) <= segs,
               "T %d, max_segs %d: %d segments hold %d units of %d", c.T, c.max_segs, segs, units,
               per);
    }
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    TAP(4, audit(LF_ROWS_PAIRS, false, 2, "pairs"));
    TAP(4, audit(LF_ROWS_UNPAIRED, false, 1, "unpaired"));
    TAP(4, audit(LF_ROWS_UNPAIRED, true, 4, "strangers"));
    for (max_segs = 1; max_segs < 6; max_segs++) {
        TAP(4, audit(LF_ROWS_PAIRS, false, 2, "few pairs"));
        TAP(4, audit(LF_ROWS_UNPAIRED, false, 2, "few unpaired"));
        TAP(4, audit(LF_ROWS_UNPAIRED, true, 2, "few strangers"));
    }
    max_segs = 0;
    TAP(12, test_segs());
    tap_rc(open_units(&l, make("p2", LF_ROWS_PAIRS), LF_ROWS_PLAIN, false, 1, &err), LF_EINVAL,
           &err, "holds pairs of answers, but plain", "pairs are not text");
    tap_rc(open_units(&l, make("u2", LF_ROWS_UNPAIRED), LF_ROWS_PAIRS, false, 1, &err), LF_EINVAL,
           &err, "holds answers with a label", "labelled answers are not pairs");
    return tap_done();
}
