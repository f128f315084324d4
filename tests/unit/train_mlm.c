/* SPDX-License-Identifier: Apache-2.0
 *
 * Hidden tokens (engine/train/mlm.h): shares, what stands for them, who is spared; and through the
 * loader: the same whatever micro-batch, ranks and restarts, and counted as they are filled.
 */
#include "engine/train/mlm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/text/token/tokenizer.h"
#include "engine/train/loader.h"
#include "tests/tap/tap.h"

enum { VOCAB = 300, MASK = 299, T = 32, MANY = 400000, STEPS = 30, BATCH = 4 };

static const int32_t spared[] = {0, 5, 6, MASK};
static const lf_mlm usual = {
    .share = 0.15, .random = 0.1, .kept = 0.1, .mask_token = MASK, .spared = spared, .n_spared = 4};

/* A sample of n tokens, spared ones among them. */
static void draw(int32_t *tokens, int32_t *targets, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(lf_rng_u32(3, 1, (uint64_t)i) % VOCAB);
        targets[i] = lf_mlm_spares(&usual, tokens[i]) ? -1 : tokens[i];
    }
}

static void test_shares(void)
{
    int32_t *was = calloc(MANY, 4), *tokens = calloc(MANY, 4), *targets = calloc(MANY, 4),
            *may = calloc(MANY, 4);
    int64_t hidden = 0, masked = 0, kept = 0, could = 0, wrong = 0, words = 0;
    char seen[VOCAB] = {0};
    if (!was || !tokens || !targets || !may)
        tap_bail("no memory");
    draw(was, may, MANY);
    memcpy(tokens, was, MANY * sizeof *was);
    memcpy(targets, may, MANY * sizeof *may);
    const struct lf_mlm_row row = {
        .seed = 7, .sample = 11, .vocab = VOCAB, .n = MANY, .tokens = tokens, .targets = targets};
    const int64_t told = lf_mlm_hide(&usual, &row);
    for (int64_t i = 0; i < MANY; i++) {
        could += may[i] >= 0;
        hidden += targets[i] >= 0;
        wrong += targets[i] >= 0 ? targets[i] != was[i] || may[i] < 0 : tokens[i] != was[i];
        masked += targets[i] >= 0 && tokens[i] == MASK;
        kept += targets[i] >= 0 && tokens[i] == was[i];
        if (targets[i] >= 0 && tokens[i] != MASK && tokens[i] != was[i])
            seen[tokens[i]] = 1;
    }
    for (int i = 0; i < VOCAB; i++)
        words += seen[i];
    tap_i64(wrong, 0, "hidden tokens are targets, others stand as they were, spared ones always");
    tap_i64(told, hidden, "as many as it says");
    tap_f64((double)hidden / (double)could, 0.15, 0.003, "15 % are hidden");
    tap_f64((double)masked / (double)hidden, 0.8, 0.01, "for 80 % stands mask_token");
    tap_f64((double)kept / (double)hidden, 0.1, 0.01, "10 % are kept");
    tap_ok(words > 295, "any word stands for the others: %lld of them", (long long)words);
    free(was);
    free(tokens);
    free(targets);
    free(may);
}

/* What is hidden of a sample, as a number. */
static uint64_t hidden_of(const lf_mlm *m, uint64_t seed, bool valid, int64_t sample)
{
    int32_t tokens[64], targets[64];
    uint64_t bits = 0;
    draw(tokens, targets, 64);
    const struct lf_mlm_row row = {seed, valid, sample, VOCAB, 64, tokens, targets, NULL};
    lf_mlm_hide(m, &row);
    for (int i = 0; i < 64; i++)
        bits |= (uint64_t)(targets[i] >= 0) << i;
    return bits;
}

static void test_places(void)
{
    const uint64_t one = hidden_of(&usual, 7, false, 3);
    lf_mlm rare = usual;
    rare.share = 1e-6;
    tap_ok(one == hidden_of(&usual, 7, false, 3), "the same sample, the same tokens");
    tap_ok(one != hidden_of(&usual, 7, false, 4), "another sample, others");
    tap_ok(one != hidden_of(&usual, 8, false, 3), "another seed, others");
    tap_ok(one != hidden_of(&usual, 7, true, 3), "validation, others");
    const uint64_t least = hidden_of(&rare, 7, false, 3);
    tap_ok(least && (least & (least - 1)) == 0, "at least one of a sample is hidden");
    int32_t tokens[4] = {0, 5, 6, 0}, targets[4] = {-1, -1, -1, -1};
    const struct lf_mlm_row row = {7, false, 3, VOCAB, 4, tokens, targets, NULL};
    tap_i64(lf_mlm_hide(&usual, &row), 0, "none where all are spared");
}

/* Even tokens begin a word, multiples of seven end one. */
static lf_mlm by_words(void)
{
    static uint8_t marks[VOCAB - 50]; /* those above are words of their own */
    for (int i = 0; i < VOCAB - 50; i++)
        marks[i] =
            (uint8_t)((i % 2 == 0 ? LF_TOK_WORD_BEGINS : 0) | (i % 7 == 0 ? LF_TOK_WORD_ENDS : 0));
    lf_mlm m = usual;
    m.whole_words = true;
    m.marks = marks;
    m.n_marks = VOCAB - 50;
    return m;
}

static void test_words(void)
{
    const lf_mlm m = by_words();
    int32_t *was = calloc(MANY, 4), *tokens = calloc(MANY, 4), *targets = calloc(MANY, 4),
            *may = calloc(MANY, 4);
    uint8_t *begins = calloc(MANY, 1);
    int64_t hidden = 0, could = 0, torn = 0, wrong = 0, masked = 0, misplaced = 0;
    if (!was || !tokens || !targets || !may || !begins)
        tap_bail("no memory");
    draw(was, may, MANY);
    memcpy(tokens, was, MANY * sizeof *was);
    memcpy(targets, may, MANY * sizeof *may);
    lf_mlm_words(&m, was, MANY, begins);
    const struct lf_mlm_row row = {7, false, 11, VOCAB, MANY, tokens, targets, begins};
    const int64_t told = lf_mlm_hide(&m, &row);
    for (int64_t i = 0; i < MANY; i++) {
        const int32_t t = was[i], before = i ? was[i - 1] : MASK;
        const bool own = t >= VOCAB - 50, after = before >= VOCAB - 50 || before % 7 == 0;
        misplaced += begins[i] != (own || t % 2 == 0 || after);
        could += may[i] >= 0;
        hidden += targets[i] >= 0;
        masked += targets[i] >= 0 && tokens[i] == MASK;
        wrong += targets[i] >= 0 ? targets[i] != t || may[i] < 0 : tokens[i] != t;
        torn += i && !begins[i] && may[i] >= 0 && may[i - 1] >= 0 &&
                (targets[i] >= 0) != (targets[i - 1] >= 0);
    }
    tap_i64(misplaced, 0, "words begin where the marks say");
    tap_i64(torn, 0, "of a word all tokens are hidden or none");
    tap_i64(wrong, 0, "hidden tokens are targets, others stand as they were");
    tap_i64(told, hidden, "as many as it says");
    tap_f64((double)hidden / (double)could, 0.15, 0.003, "15 % of the tokens are hidden");
    tap_f64((double)masked / (double)hidden, 0.8, 0.01, "for 80 % stands mask_token");
    memset(begins, 1, MANY);
    memcpy(tokens, was, MANY * sizeof *was);
    memcpy(targets, may, MANY * sizeof *may);
    lf_mlm_hide(&m, &row);
    struct lf_mlm_row plain = row;
    plain.tokens = was;
    plain.targets = may;
    plain.begins = NULL;
    lf_mlm_hide(&usual, &plain);
    tap_ok(memcmp(tokens, was, MANY * 4) == 0 && memcmp(targets, may, MANY * 4) == 0,
           "words of one token are tokens");
    int32_t few[3] = {2, 3, 5}, aims[3] = {2, 3, -1};
    uint8_t first[3];
    lf_mlm rare = m;
    rare.share = 1e-6;
    lf_mlm_words(&rare, few, 3, first);
    const struct lf_mlm_row small = {7, false, 3, VOCAB, 3, few, aims, first};
    tap_ok(lf_mlm_hide(&rare, &small) == 2 && aims[0] == 2 && aims[1] == 3 && aims[2] == -1,
           "at least one word is hidden, whole");
    free(was);
    free(tokens);
    free(targets);
    free(may);
    free(begins);
}

static void test_refused(void)
{
    const struct {
        lf_mlm m;
        const char *says;
    } bad[] = {
        {{.share = 1, .mask_token = 1}, "mask_share = 1"},
        {{.share = 0, .mask_token = 1}, "mask_share = 0"},
        {{.share = 0.1, .random = 0.7, .kept = 0.4, .mask_token = 1}, "add up to at most 1"},
        {{.share = 0.1, .mask_token = VOCAB}, "mask_token = 300: the vocabulary has 300"},
        {{.share = 0.1, .spared = (int32_t[]){VOCAB}, .n_spared = 1}, "mask_spared has 300"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lf_err err = LF_ERR_INIT;
        tap_rc(lf_mlm_check(&bad[i].m, VOCAB, &err), LF_EINVAL, &err, bad[i].says, "refused");
    }
}

/* ---- through the loader ---- */

/* All samples of STEPS steps: tokens and targets of each. */
struct run {
    int32_t tokens[STEPS * BATCH][T], targets[STEPS * BATCH][T];
    int64_t trained[STEPS], counted[STEPS];
};

static void take(struct run *r, const char *dir, const lf_mlm *how, int32_t B, int ranks,
                 int64_t from)
{
    static const lf_loader_ramp ramp[] = {{0, BATCH}};
    const lf_loader_source source = {dir, 1};
    memset(r, 0, sizeof *r);
    for (int rank = 0; rank < ranks; rank++) {
        lf_loader *l = NULL;
        lf_err err = LF_ERR_INIT;
        const lf_loader_config c = {.mode = LF_LOADER_TRAIN,
                                    .split = "train",
                                    .sources = &source,
                                    .n_sources = 1,
                                    .T = T,
                                    .B = B,
                                    .policy = LF_PACK_CONCAT,
                                    .seed = 7,
                                    .ramp = ramp,
                                    .n_ramp = 1,
                                    .dp_rank = rank,
                                    .dp_size = ranks,
                                    .mlm = how};
        if (lf_loader_open(&l, &c, &err) < 0 || lf_loader_seek(l, from * BATCH, &err) < 0)
            tap_bail("%s", err.text);
        for (int64_t s = from; s < STEPS; s++) {
            lf_loader_step step;
            const lf_loader_batch *b;
            if (lf_loader_begin_step(l, &step, &err) != 1)
                tap_bail("step %lld: %s", (long long)s, err.text);
            r->counted[s] = step.trained;
            for (int32_t m = 0; m < step.n_micro; m++) {
                if (lf_loader_next(l, &b, &err) < 0)
                    tap_bail("%s", err.text);
                r->trained[s] += b->trained;
                for (int32_t i = 0; i < B; i++) {
                    memcpy(r->tokens[b->sample_ids[i]], b->tokens + i * T, sizeof r->tokens[0]);
                    memcpy(r->targets[b->sample_ids[i]], b->targets + i * T, sizeof r->targets[0]);
                }
            }
        }
        lf_loader_close(l);
    }
}

static void test_loader(const lf_mlm *m)
{
    static struct run one, other;
    char dir[4000];
    lf_err err = LF_ERR_INIT;
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), m->whole_words ? "words" : "data");
    if (lf_shard_write_synthetic(dir, &(struct lf_shard_synthetic){40, 4, 1, 60, VOCAB, 1}, &err) <
        0)
        tap_bail("%s", err.text);
    take(&one, dir, m, 2, 1, 0);
    tap_ok(memcmp(one.trained, one.counted, sizeof one.trained) == 0 && one.trained[0] > 0,
           "a step counts what its micro-batches hide");
    take(&other, dir, m, 1, 1, 0);
    tap_ok(memcmp(&one, &other, sizeof one) == 0, "micro-batches of half the size, the same");
    take(&other, dir, m, 1, 2, 0);
    tap_ok(memcmp(one.tokens, other.tokens, sizeof one.tokens) == 0 &&
               memcmp(one.targets, other.targets, sizeof one.targets) == 0 &&
               memcmp(one.counted, other.counted, sizeof one.counted) == 0,
           "two ranks, the same");
    take(&other, dir, m, 2, 1, 17);
    tap_ok(memcmp(one.tokens[17 * BATCH], other.tokens[17 * BATCH],
                  (STEPS - 17) * BATCH * sizeof one.tokens[0]) == 0 &&
               memcmp(one.targets[17 * BATCH], other.targets[17 * BATCH],
                      (STEPS - 17) * BATCH * sizeof one.targets[0]) == 0,
           "begun in the middle, the same");
}

int main(void)
{
    TAP(6, test_shares());
    TAP(6, test_places());
    TAP(5, test_refused());
    TAP(4, test_loader(&usual));
    const lf_mlm whole = by_words();
    TAP(8, test_words());
    TAP(4, test_loader(&whole));
    return tap_done();
}
