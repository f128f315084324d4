/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of encoder-decoders (engine/train/seq2seq.h): corrupted texts against
 * tests/golden/seq2seq, and through the loader, with pairs of sources and targets: whole, aligned
 * on both axes, the same whatever micro-batch, ranks and restarts, and counted as they are filled.
 */
#include "engine/train/seq2seq.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/text/token/tokenizer.h"
#include "engine/train/loader_priv.h"
#include "tests/tap/tap.h"

enum { MOST = 1024, EOS = 1 };

/* ---- against the golden file ---- */

static json_t *load(void)
{
    char path[4096];
    lf_err err = LF_ERR_INIT;
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/seq2seq/expected.json", src ? src : ".");
    json_t *j = lf_json_load_file(path, 1 << 20, &err);
    if (!j)
        tap_bail("%s", err.text);
    return j;
}

static int32_t read_list(const json_t *o, const char *name, int32_t *to)
{
    const json_t *list = json_object_get(o, name);
    const size_t n = json_array_size(list);
    if (n > MOST)
        tap_bail("%s has %zu numbers", name, n);
    for (size_t i = 0; i < n; i++)
        to[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (int32_t)n;
}

static int64_t number(const json_t *o, const char *name)
{
    return json_integer_value(json_object_get(o, name));
}

static bool same(const int32_t *got, int32_t n, const json_t *want, const char *name)
{
    int32_t list[MOST];
    return read_list(want, name, list) == n && memcmp(got, list, (size_t)n * sizeof *got) == 0;
}

/* Corrupts the text of a case, with another seed or sample by `other`. Is it the case's? */
static bool as_expected(const json_t *c, int64_t other)
{
    int32_t text[MOST], ends[MOST], work[3 * MOST + 2], source[MOST], target[MOST];
    const bool span = strcmp(json_string_value(json_object_get(c, "kind")), "span") == 0;
    const lf_seq2seq s = {.kind = span ? LF_SEQ2SEQ_SPAN : LF_SEQ2SEQ_DENOISE,
                          .share = json_number_value(json_object_get(c, "share")),
                          .mean = json_number_value(json_object_get(c, "mean")),
                          .sentinel = (int32_t)number(c, "sentinel"),
                          .mask_token = (int32_t)number(c, "mask"),
                          .begin = (int32_t)number(c, "begin"),
                          .ends = ends,
                          .n_ends = (size_t)read_list(c, "ends", ends)};
    struct lf_seq2seq_row r = {.seed = (uint64_t)number(c, "seed"),
                               .valid = number(c, "valid") != 0,
                               .sample = number(c, "sample") + other,
                               .eos = EOS,
                               .text = text,
                               .n = read_list(c, "text", text),
                               .work = work,
                               .source = source,
                               .target = target};
    lf_seq2seq_corrupt(&s, &r);
    return same(r.source, r.n_source, c, "source") && same(r.target, r.n_target, c, "target") &&
           r.n_target == lf_seq2seq_target(&s, r.n);
}

static void test_golden(void)
{
    json_t *all = load(), *c, *cases = json_object_get(all, "cases"),
           *lengths = json_object_get(all, "lengths");
    size_t i;
    json_array_foreach(cases, i, c)
        tap_ok(as_expected(c, 0), "case %zu, %s", i, json_string_value(json_object_get(c, "kind")));
    tap_ok(!as_expected(json_array_get(cases, 0), 1) && !as_expected(json_array_get(cases, 8), 1),
           "another sample is corrupted otherwise");
    int64_t wrong = 0;
    json_array_foreach(lengths, i, c)
    {
        const lf_seq2seq s = {.kind = LF_SEQ2SEQ_SPAN,
                              .share = json_number_value(json_array_get(c, 0)),
                              .mean = json_number_value(json_array_get(c, 1)),
                              .source_length = (int32_t)json_integer_value(json_array_get(c, 2))};
        const int32_t T = (int32_t)json_integer_value(json_array_get(c, 3)),
                      n = (int32_t)json_integer_value(json_array_get(c, 4)),
                      target = (int32_t)json_integer_value(json_array_get(c, 6));
        wrong += lf_seq2seq_text(&s, T) != n || lf_seq2seq_target(&s, n) != target;
    }
    tap_ok(wrong == 0 && i == 8, "texts are as long as transformers has them: 568 tokens of 512");
    json_decref(all);
}

/* Of 990 tokens that are taken out a first span has 900 or so, and a second one the others. */
static void test_long_spans(void)
{
    enum { TEXT = 1000, TRIES = 50 };
    static int32_t text[TEXT], work[3 * TEXT + 2], source[TEXT + 2], target[TEXT + 2];
    const lf_seq2seq s = {
        .kind = LF_SEQ2SEQ_DENOISE, .share = 0.99, .mean = 900, .mask_token = 3, .begin = -1};
    struct lf_seq2seq_row r = {
        .eos = EOS, .text = text, .n = TEXT, .work = work, .source = source, .target = target};
    int two = 0;
    for (int i = 0; i < TEXT; i++)
        text[i] = 4;
    for (int i = 0; i < TRIES; i++) {
        int masks = 0;
        r.sample = i;
        lf_seq2seq_corrupt(&s, &r);
        for (int k = 0; k < r.n_source; k++)
            masks += source[k] == s.mask_token;
        two += masks == 2;
    }
    tap_ok(two >= TRIES - 2, "spans of 900 tokens are drawn: %d of %d", two, TRIES);
}

/* Words of three tokens: none is cut, and of words as many are taken out as of tokens otherwise. */
static void test_words(void)
{
    enum { WORDS = 1000, N = 3 * WORDS, MASK = 3 };
    static int32_t text[N], source[N + 2], target[N + 2], work[3 * N + 2];
    uint8_t marks[20] = {0};
    const lf_mlm words = {.marks = marks, .n_marks = 20};
    lf_seq2seq s = {.kind = LF_SEQ2SEQ_DENOISE,
                    .source_length = N + 2,
                    .share = 0.3,
                    .mean = 3,
                    .mask_token = MASK,
                    .begin = -1,
                    .words = &words};
    struct lf_seq2seq_row r = {.seed = 5,
                               .vocab = 4,
                               .eos = 2,
                               .text = text,
                               .n = N,
                               .work = work,
                               .source = source,
                               .target = target};
    int32_t cut = 0, kept = 0, masks = 0, any[4] = {0};
    for (int i = 4; i < 20; i += 2)
        marks[i] = LF_TOK_WORD_BEGINS;
    for (int i = 0; i < N; i++)
        text[i] = i % 3 ? 5 + 2 * (i % 7) : 4 + 2 * (i % 8);
    lf_seq2seq_corrupt(&s, &r);
    for (int i = 0; i + 1 < r.n_source;) {
        const bool mask = source[i] == MASK;
        masks += mask;
        kept += !mask;
        cut += !mask && (source[i] % 2 || source[i + 1] % 2 == 0 || source[i + 2] % 2 == 0);
        i += mask ? 1 : 3;
    }
    tap_ok(cut == 0 && kept == WORDS * 7 / 10, "%d words stay, %d of them cut", kept, cut);
    tap_ok(masks > 70 && masks < 130, "300 are in %d spans of three in the mean", masks);
    s.random = 1;
    lf_seq2seq_corrupt(&s, &r);
    for (int i = 0; i + 1 < r.n_source; i++)
        if (source[i] < 4)
            any[source[i]]++;
    tap_ok(any[0] + any[1] + any[2] + any[3] == masks && any[0] > masks / 8 && any[3] > masks / 8,
           "any word stands for the same spans: %d %d %d %d", any[0], any[1], any[2], any[3]);
    s.random = 0.5;
    any[3] = 0;
    lf_seq2seq_corrupt(&s, &r);
    for (int i = 0; i + 1 < r.n_source; i++)
        any[3] += source[i] == MASK;
    tap_ok(any[3] > masks * 5 / 10 && any[3] < masks * 3 / 4,
           "or for half of them, an eighth of which is the mask again: %d", any[3]);
}

static void test_refused(void)
{
    const lf_seq2seq span = {.kind = LF_SEQ2SEQ_SPAN,
                             .source_length = 512,
                             .share = 0.15,
                             .mean = 3,
                             .sentinel = 999,
                             .n_sentinels = 100},
                     denoise = {.kind = LF_SEQ2SEQ_DENOISE,
                                .source_length = 64,
                                .share = 0.3,
                                .mean = 3,
                                .mask_token = 3,
                                .begin = -1};
    lf_seq2seq bad[10] = {span, span, span, span, span, span, denoise, denoise, denoise, denoise};
    const char *says[10] = {"mask_share = 1",        "span_length = 0.5",
                            "sentinel_token = 1000", "28 spans, and there are sentinels = 27",
                            "source_length = 2 and", "source_length = 1:",
                            "mask_token = 1000",     "begin_token = 1000",
                            "sentence_ends = 1001",  "mask_random = 1.5"};
    const int32_t ends[] = {4, 1001};
    bad[0].share = 1;
    bad[1].mean = 0.5;
    bad[2].sentinel = 1000;
    bad[3].n_sentinels = 27;
    bad[4].source_length = 2;
    bad[5].source_length = 1;
    bad[6].mask_token = 1000;
    bad[7].begin = 1000;
    bad[8].ends = ends;
    bad[8].n_ends = 2;
    bad[9].random = 1.5;
    lf_err err = LF_ERR_INIT;
    tap_i64(lf_seq2seq_check(&span, 114, 1000, &err), 0, "T5's own is taken");
    tap_i64(lf_seq2seq_check(&denoise, 64, 1000, &err), 0, "and so is denoising");
    for (size_t i = 0; i < 10; i++)
        tap_rc(lf_seq2seq_check(&bad[i], 114, 1000, &err), LF_EINVAL, &err, says[i], "refused");
}

/* ---- through the loader ---- */

enum { T = 24, S = 40, VOCAB = 300, START = 299, STEPS = 24, BATCH = 4, DOCS = 70 };

static const lf_seq2seq span = {.kind = LF_SEQ2SEQ_SPAN,
                                .source_length = S,
                                .share = 0.3,
                                .mean = 2,
                                .sentinel = 298,
                                .n_sentinels = 20},
                        denoise = {.kind = LF_SEQ2SEQ_DENOISE,
                                   .source_length = S,
                                   .share = 0.3,
                                   .mean = 3,
                                   .mask_token = 297,
                                   .begin = 2,
                                   .ends = (const int32_t[]){7, 9},
                                   .n_ends = 2},
                        pairs = {.kind = LF_SEQ2SEQ_PAIRS, .source_length = S};

/* Pairs: document d has a source of 1 + 5 d % 29 tokens, a target of 1 + 3 d % 17. Document 4 has
 * no source, 5 no target, 6 a source and 7 a target that is too long; every third source ends with
 * the token of the end. */
static uint32_t source_of(uint64_t d)
{
    return d == 4 ? 0 : d == 6 ? S : 1 + (uint32_t)(5 * d % 29);
}
static uint32_t target_of(uint64_t d)
{
    return d == 5 ? 0 : d == 7 ? T + 1 : 1 + (uint32_t)(3 * d % 17);
}
static int32_t token_of(uint64_t d, uint32_t k)
{
    return k + 1 == source_of(d) && d % 3 == 0 ? EOS : 10 + (int32_t)((7 * d + k) % 200);
}

static void write_pairs(const char *dir)
{
    char path[4200];
    lf_shard_info info = {.vocab_size = VOCAB, .eos_id = EOS, .source = "pairs"};
    lf_err err = LF_ERR_INIT;
    lf_shard_writer *w = NULL;
    lf_artifact a = {0};
    memset(info.tokenizer_sha256, 'c', LF_HASH_HEX - 1);
    snprintf(path, sizeof path, "%s/train-00000.h5", dir);
    int rc = lf_io_mkdirs(dir, 0777, &err);
    rc = rc ? rc : lf_shard_create(&w, path, &info, 0, &err);
    for (uint64_t d = 0; d < DOCS && !rc; d++) {
        const uint32_t n = source_of(d) + target_of(d);
        uint32_t tok[128];
        uint8_t mask[128];
        for (uint32_t k = 0; k < n; k++) {
            tok[k] = (uint32_t)token_of(d, k);
            /* the second token of an answer is read and not said */
            mask[k] = k >= source_of(d) && k != source_of(d) + 1;
        }
        rc = lf_shard_append_doc(w, &(lf_shard_doc){.tokens = tok, .n = n, .mask = mask}, &err);
    }
    rc = rc ? rc : lf_shard_finish(w, NULL, &err);
    rc = rc ? rc : lf_artifact_init(&a, "shards", &err);
    rc = rc ? rc : lf_artifact_add_hashed(&a, dir, "train-00000.h5", &err);
    rc = rc ? rc : lf_artifact_publish(&a, dir, &err);
    lf_artifact_fini(&a);
    if (rc)
        tap_bail("%s", err.text);
}

static lf_loader_config config_of(const lf_loader_source *source, const lf_seq2seq *s)
{
    static const lf_loader_ramp ramp[] = {{0, BATCH}};
    return (lf_loader_config){.mode = LF_LOADER_TRAIN,
                              .split = "train",
                              .sources = source,
                              .n_sources = 1,
                              .T = T,
                              .B = 2,
                              .policy = LF_PACK_CONCAT,
                              .seed = 7,
                              .ramp = ramp,
                              .n_ramp = 1,
                              .seq2seq = s,
                              .decoder_start = START};
}

/* All samples of STEPS steps. */
struct run {
    int32_t tokens[STEPS * BATCH][T], targets[STEPS * BATCH][T], positions[STEPS * BATCH][T];
    int32_t source[STEPS * BATCH][S], source_positions[STEPS * BATCH][S];
    int64_t trained[STEPS], counted[STEPS];
};

static void keep(struct run *r, const lf_loader_batch *b)
{
    for (int32_t i = 0; i < b->B; i++) {
        const int64_t to = b->sample_ids[i];
        memcpy(r->tokens[to], b->tokens + i * T, sizeof r->tokens[0]);
        memcpy(r->targets[to], b->targets + i * T, sizeof r->targets[0]);
        memcpy(r->positions[to], b->positions + i * T, sizeof r->positions[0]);
        memcpy(r->source[to], b->source_tokens + i * S, sizeof r->source[0]);
        memcpy(r->source_positions[to], b->source_positions + i * S, sizeof r->source[0]);
    }
}

/* Documents of a micro-batch: both axes are divided into as many, rows end where rows of the other
 * end, positions begin anew, and the decoder reads what it said before. */
static int64_t misplaced(const lf_loader_batch *b)
{
    const int32_t *cu = b->cu_seqlens, *src = b->source_cu_seqlens, room = b->B * b->max_segs;
    int64_t bad = b->S != S || cu[0] != 0 || src[0] != 0 || b->n_segs > room;
    for (int32_t s = b->n_segs; s <= room && !bad; s++)
        bad += cu[s] != b->B * T || src[s] != b->B * S;
    for (int32_t s = 0; s < b->n_segs && !bad; s++) {
        const int32_t at = cu[s], n = cu[s + 1] - at, from = src[s], m = src[s + 1] - from;
        const bool padding = n == 0 || m == 0 || (b->targets[at] < 0 && b->seg_doc[s] < 0);
        bad += n < 0 || m < 0 || n + m == 0;
        if (n > 0 && m > 0)
            bad += at / T != from / S;
        for (int32_t k = 0; k < n; k++) {
            bad += b->positions[at + k] != k;
            bad += padding ? b->targets[at + k] != -1 : k == 0 && b->tokens[at] != START;
            if (!padding && k > 0 && b->targets[at + k - 1] >= 0)
                bad += b->tokens[at + k] != b->targets[at + k - 1];
        }
        for (int32_t k = 0; k < m; k++)
            bad += b->source_positions[from + k] != k;
    }
    return bad;
}

/* Returns what stood wrong. */
static int64_t take(struct run *r, const char *dir, const lf_loader_config *like, int64_t from)
{
    int64_t bad = 0;
    memset(r, 0, sizeof *r);
    for (int rank = 0; rank < (like->dp_size ? like->dp_size : 1); rank++) {
        const lf_loader_source source = {dir, 1};
        lf_loader_config c = *like;
        lf_loader *l = NULL;
        lf_err err = LF_ERR_INIT;
        c.sources = &source;
        c.dp_rank = rank;
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
                bad += misplaced(b);
                keep(r, b);
            }
        }
        lf_loader_close(l);
    }
    return bad;
}

static bool same_samples(const struct run *a, const struct run *b, int64_t from)
{
    const size_t n = (size_t)(STEPS - from) * BATCH, at = (size_t)from * BATCH;
    return memcmp(a->tokens[at], b->tokens[at], n * sizeof a->tokens[0]) == 0 &&
           memcmp(a->targets[at], b->targets[at], n * sizeof a->tokens[0]) == 0 &&
           memcmp(a->positions[at], b->positions[at], n * sizeof a->tokens[0]) == 0 &&
           memcmp(a->source[at], b->source[at], n * sizeof a->source[0]) == 0 &&
           memcmp(a->source_positions[at], b->source_positions[at], n * sizeof a->source[0]) == 0 &&
           memcmp(a->counted + from, b->counted + from, (size_t)(STEPS - from) * 8) == 0;
}

static struct run one, other;

static void test_order(const char *dir, const lf_seq2seq *s)
{
    lf_loader_config c = config_of(NULL, s);
    tap_i64(take(&one, dir, &c, 0), 0, "documents of both axes belong together");
    tap_ok(memcmp(one.trained, one.counted, sizeof one.trained) == 0 && one.trained[0] > 0,
           "a step counts what its micro-batches say");
    c.B = 1;
    take(&other, dir, &c, 0);
    tap_ok(same_samples(&one, &other, 0), "micro-batches of half the size, the same");
    c.dp_size = 2;
    take(&other, dir, &c, 0);
    tap_ok(same_samples(&one, &other, 0), "two ranks, the same");
    c.dp_size = 0;
    take(&other, dir, &c, 17);
    tap_ok(same_samples(&one, &other, 17), "begun in the middle, the same");
    c.seed = 8;
    take(&other, dir, &c, 0);
    tap_ok(!same_samples(&one, &other, 0), "another seed, others");
}

/* Puts what the target says into the source again. Returns the tokens of the text, -1: they do not
 * belong together. */
static int32_t restore(const int32_t *source, const int32_t *target, int32_t *text)
{
    int32_t n = 0, k = 0, i = 0;
    for (; i < S && source[i] != span.sentinel - k && k < span.n_sentinels; i++) {
        /* up to the next sentinel; the last token of the end is found from behind */
        text[n++] = source[i];
    }
    for (int32_t t = 0; t < T && target[t] >= 0; t++) {
        if (target[t] != span.sentinel - k) {
            text[n++] = target[t];
            continue;
        }
        if (k > 0)
            for (i++; i < S && source[i] != span.sentinel - k; i++)
                text[n++] = source[i];
        if (i >= S || source[i] != target[t])
            return -1;
        k++;
    }
    return n - 1; /* without the end of the target */
}

/* The texts of span corruption are those that lie in the shards, one behind the other. */
static void test_restored(const char *dir)
{
    const lf_loader_source source = {dir, 1};
    lf_loader_config c = config_of(&source, NULL), spans = config_of(&source, &span);
    const int32_t n = lf_seq2seq_text(&span, T);
    static int32_t text[S + T];
    int64_t bad = 0, lost = 0;
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    c.T = n;
    take(&one, dir, &spans, 0);
    if (lf_loader_open(&l, &c, &err) < 0)
        tap_bail("%s", err.text);
    for (int64_t s = 0; s < STEPS; s++) {
        lf_loader_step step;
        const lf_loader_batch *b;
        lf_loader_begin_step(l, &step, &err);
        for (int32_t m = 0; m < step.n_micro && lf_loader_next(l, &b, &err) == 0; m++)
            for (int32_t i = 0; i < b->B; i++) {
                const int64_t at = b->sample_ids[i];
                const int32_t got = restore(one.source[at], one.targets[at], text);
                bad += got > n || got < 2 ||
                       memcmp(text, b->tokens + i * n, (size_t)got * sizeof *text) != 0;
                lost += got < n;
            }
    }
    lf_loader_close(l);
    tap_ok(bad == 0 && lost < STEPS, "what was taken out, put in again, is the text of the shards");
}

/* Every pair that a row holds comes once in an epoch, as it was written. */
static void test_pairs(const char *dir)
{
    const lf_loader_source source = {dir, 1};
    lf_loader_config c = config_of(&source, &pairs);
    int64_t seen[DOCS] = {0}, bad = 0, twice = 0;
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    c.mode = LF_LOADER_VALID;
    c.n_ramp = 0;
    if (lf_loader_open(&l, &c, &err) < 0)
        tap_bail("%s", err.text);
    tap_i64((int64_t)lf_loader_left_out(l, 0), 4, "four pairs are left out");
    lf_loader_step step;
    while (lf_loader_begin_step(l, &step, &err) == 1)
        for (int32_t m = 0; m < step.n_micro; m++) {
            const lf_loader_batch *b;
            if (lf_loader_next(l, &b, &err) < 0)
                tap_bail("%s", err.text);
            bad += misplaced(b);
            for (int32_t s = 0; s < b->n_segs; s++) {
                if (b->seg_doc[s] < 0)
                    continue;
                const uint64_t d = (uint64_t)b->seg_doc[s];
                const int32_t at = b->cu_seqlens[s], from = b->source_cu_seqlens[s],
                              n = (int32_t)target_of(d), m_src = (int32_t)source_of(d);
                seen[d]++;
                bad += b->cu_seqlens[s + 1] - at != n;
                bad += b->source_cu_seqlens[s + 1] - from != m_src + (d % 3 != 0);
                bad += b->source_tokens[b->source_cu_seqlens[s + 1] - 1] != EOS;
                for (int32_t k = 0; k < m_src; k++)
                    bad += b->source_tokens[from + k] != token_of(d, (uint32_t)k);
                for (int32_t k = 0; k < n; k++) {
                    const int32_t said = token_of(d, source_of(d) + (uint32_t)k);
                    bad += b->targets[at + k] != (k == 1 ? -1 : said);
                    bad += k + 1 < n && b->tokens[at + k + 1] != said;
                }
            }
        }
    lf_loader_close(l);
    for (uint64_t d = 0; d < DOCS; d++)
        twice += seen[d] != (d < 4 || d > 7);
    tap_i64(bad, 0, "sources are read whole and end, and of targets the trained tokens are said");
    tap_i64(twice, 0, "every other pair comes once");
}

static void test_sources_refused(const char *plain, const char *two)
{
    const lf_loader_source a = {plain, 1}, b = {two, 1};
    const struct {
        const lf_loader_source *source;
        const lf_seq2seq *s;
        const char *says;
    } bad[] = {{&a, &pairs, "so no document has a source"},
               {&b, &span, "has a loss mask"},
               {&a, &span, "decoder_start = -1"}};
    for (size_t i = 0; i < 3; i++) {
        lf_loader_config c = config_of(bad[i].source, bad[i].s);
        if (i == 2)
            c.decoder_start = -1;
        lf_err err = LF_ERR_INIT;
        lf_loader *l = NULL;
        tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, bad[i].says, "refused");
    }
}

/* What a loader takes is what was planned for it. */
static void test_memory(const char *dir, const lf_seq2seq *s)
{
    const lf_loader_source source = {dir, 1};
    const lf_loader_config c = config_of(&source, s);
    lf_err err = LF_ERR_INIT;
    lf_loader *l = NULL;
    if (lf_loader_open(&l, &c, &err) < 0)
        tap_bail("%s", err.text);
    const lf_shard_info *info = lf_loader_info(l, 0);
    tap_i64((int64_t)l->bytes, (int64_t)lf_loader_slot_bytes(&c), "slots as planned");
    tap_ok(l->index_bytes <= lf_loader_index_bytes(&c, info->n_docs, info->n_tokens),
           "an index of at most what was planned");
    lf_loader_close(l);
}

int main(void)
{
    char plain[4000], two[4000];
    lf_err err = LF_ERR_INIT;
    TAP(18, test_golden());
    TAP(1, test_long_spans());
    TAP(4, test_words());
    TAP(12, test_refused());
    snprintf(plain, sizeof plain, "%s/plain", tap_tmpdir());
    snprintf(two, sizeof two, "%s/pairs", tap_tmpdir());
    if (lf_shard_write_synthetic(plain, &(struct lf_shard_synthetic){90, 4, 1, 60, 250, 1}, &err) <
        0)
        tap_bail("%s", err.text);
    write_pairs(two);
    TAP(6, test_order(plain, &span));
    TAP(6, test_order(plain, &denoise));
    TAP(6, test_order(two, &pairs));
    TAP(1, test_restored(plain));
    TAP(3, test_pairs(two));
    TAP(3, test_sources_refused(plain, two));
    TAP(2, test_memory(plain, &span));
    TAP(2, test_memory(plain, &denoise));
    TAP(2, test_memory(two, &pairs));
    return tap_done();
}
