/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of texts (engine/train/nsp.h): where the first ends, and through the loader: what each pair
 * is made of, half of them follow, the same whatever micro-batch, ranks and restarts, and counted
 * as they are filled.
 */
#include "engine/train/nsp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/loader.h"
#include "tests/tap/tap.h"

enum { VOCAB = 300, MASK = 299, CLS = 5, SEP = 6, T = 48, STEPS = 60, BATCH = 4, MOST_DOC = 90 };

static const int32_t ends[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25};
static const lf_mlm mlm = {.share = 0.15, .random = 0.1, .kept = 0.1, .mask_token = MASK};
static const lf_mlm words = {.share = 0.5, .random = 1, .mask_token = MASK}, *how = &mlm;
static const lf_nsp anywhere = {.begin = CLS, .separator = SEP},
                    sentences = {.begin = CLS, .separator = SEP, .ends = ends, .n_ends = 16};

static bool is_end(int32_t token)
{
    return token >= ends[0] && token <= ends[15];
}

static void test_places(void)
{
    int32_t tokens[] = {40, CLS, 41, SEP, 10, 42, 43, 12, 44}, at[9] = {0};
    const int32_t n = lf_nsp_strip(&anywhere, tokens, 9);
    tap_i64(n, 7, "tokens of the format are left out");
    tap_ok(tokens[0] == 40 && tokens[1] == 41 && tokens[2] == 10 && tokens[6] == 44,
           "and the others stay in order");
    tap_i64(lf_nsp_sentence(&sentences, tokens, n), 3, "the first sentence ends behind its end");
    tap_i64(lf_nsp_sentence(&anywhere, tokens, n), 0, "there is none where no token ends one");
    for (uint32_t i = 0; i < 6000; i++)
        at[lf_nsp_split(&anywhere, tokens, n, i * 715827U)]++;
    tap_ok(at[0] == 0 && at[1] > 900 && at[6] > 900 && at[7] == 0, "texts end anywhere alike");
    memset(at, 0, sizeof at);
    for (uint32_t i = 0; i < 6000; i++)
        at[lf_nsp_split(&sentences, tokens, n, i * 715827U)]++;
    tap_ok(at[3] > 2900 && at[6] > 2900 && at[3] + at[6] == 6000, "or behind ends of sentences");
    tokens[2] = tokens[5] = 50;
    memset(at, 0, sizeof at);
    for (uint32_t i = 0; i < 6000; i++)
        at[lf_nsp_split(&sentences, tokens, n, i * 715827U)]++;
    tap_ok(at[1] > 900 && at[6] > 900, "or anywhere again where no sentence ends");
}

static void test_refused(void)
{
    const struct {
        lf_nsp p;
        const char *says;
    } bad[] = {{{.begin = VOCAB, .separator = 1}, "begin_token = 300: the vocabulary has 300"},
               {{.begin = -1, .separator = 1}, "begin_token = -1"},
               {{.begin = 1, .separator = VOCAB}, "separator = 300"},
               {{.begin = 7, .separator = 7}, "begin_token = separator = 7"},
               {{.begin = 1, .separator = 2, .ends = (int32_t[]){VOCAB}, .n_ends = 1},
                "sentence_ends = 3"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lf_err err = LF_ERR_INIT;
        tap_rc(lf_nsp_check(&bad[i].p, VOCAB, &err), LF_EINVAL, &err, bad[i].says, "refused");
    }
}

/* ---- through the loader ---- */

/* The documents without tokens of the format. */
static struct {
    int32_t *tokens;
    int64_t n;
} * docs;
static int64_t n_docs;

static void read_docs(const lf_shardset *s)
{
    lf_err err = LF_ERR_INIT;
    n_docs = (int64_t)lf_shardset_get_info(s)->n_docs;
    docs = calloc((size_t)n_docs, sizeof *docs);
    for (int64_t d = 0; docs && d < n_docs; d++) {
        const uint32_t n = (uint32_t)lf_shardset_doc_len(s, (uint64_t)d);
        docs[d].tokens = calloc(n + 1, 4);
        if (!docs[d].tokens || lf_shardset_read(s, (uint64_t)d, 0, n, docs[d].tokens, &err))
            tap_bail("%s", err.text);
        docs[d].n = lf_nsp_strip(&anywhere, docs[d].tokens, (int32_t)n);
    }
}

/* Where n tokens stand in a document, from place `from` on; -1: nowhere. */
static int64_t find(int64_t d, const int32_t *tokens, int64_t n, int64_t from)
{
    for (int64_t i = from; i + n <= docs[d].n; i++)
        if (memcmp(docs[d].tokens + i, tokens, (size_t)n * 4) == 0)
            return i;
    return -1;
}

/* Of the places where they stand, does one begin the document or a sentence? */
static bool begins(int64_t d, const int32_t *tokens, int64_t n)
{
    bool yes = false;
    for (int64_t i = find(d, tokens, n, 0); i >= 0 && !yes; i = find(d, tokens, n, i + 1))
        yes = i == 0 || is_end(docs[d].tokens[i - 1]);
    return yes;
}

struct seen {
    int64_t pairs, follow, bad, begin_sentence, end_sentence;
    int64_t units, counted, hidden_format;
};

static void look_at(struct seen *s, const lf_loader_batch *b, int32_t seg)
{
    const int32_t first = b->cu_seqlens[seg], n = b->cu_seqlens[seg + 1] - first;
    int32_t text[T], sep = -1, seps = 0;
    if (b->seg_nsp[seg] == LF_NSP_NONE) {
        s->bad += b->seg_doc[seg] >= 0;
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        text[i] = b->targets[first + i] >= 0 ? b->targets[first + i] : b->tokens[first + i];
        s->hidden_format += b->targets[first + i] == CLS || b->targets[first + i] == SEP;
        s->hidden_format += b->targets[first + i] >= 0 && b->tokens[first + i] == SEP;
        seps += text[i] == SEP;
        sep = text[i] == SEP && sep < 0 ? i : sep;
        s->bad += b->positions[first + i] != i;
    }
    const int32_t a = sep - 1, m = n - sep - 2;
    s->pairs++;
    if (text[0] != CLS || seps != 2 || text[n - 1] != SEP || a < 1 || m < 1) {
        s->bad++;
        return;
    }
    const int64_t at = find(b->seg_doc[seg], text + 1, a, 0);
    s->bad += at < 0;
    s->end_sentence += is_end(text[a]);
    if (b->seg_nsp[seg] == LF_NSP_FOLLOWS) {
        memmove(text + 1 + a, text + sep + 1, (size_t)m * 4);
        s->follow++;
        s->bad += find(b->seg_doc[seg], text + 1, a + m, 0) < 0;
        return;
    }
    bool other = false, sentence = false;
    for (int64_t d = 0; d < n_docs; d++) {
        if (d == b->seg_doc[seg])
            continue;
        other = other || find(d, text + sep + 1, m, 0) >= 0;
        sentence = sentence || begins(d, text + sep + 1, m);
    }
    s->bad += !other;
    s->begin_sentence += sentence;
}

struct run {
    int32_t tokens[STEPS * BATCH][T], targets[STEPS * BATCH][T];
    int64_t trained[STEPS], pairs[STEPS];
};

static struct seen take(struct run *r, const char *dir, const lf_nsp *p, int32_t B, int ranks,
                        int64_t from)
{
    static const lf_loader_ramp ramp[] = {{0, BATCH}};
    const lf_loader_source source = {dir, 1};
    struct seen seen = {0};
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
                                    .mlm = how,
                                    .nsp = p};
        if (lf_loader_open(&l, &c, &err) < 0 || lf_loader_seek(l, from * BATCH, &err) < 0)
            tap_bail("%s", err.text);
        if (!docs)
            read_docs(lf_loader_set(l, 0));
        for (int64_t s = from; s < STEPS; s++) {
            lf_loader_step step;
            const lf_loader_batch *b;
            if (lf_loader_begin_step(l, &step, &err) != 1)
                tap_bail("step %lld: %s", (long long)s, err.text);
            r->trained[s] = step.trained;
            r->pairs[s] = step.units;
            seen.units += rank == 0 ? step.units : 0;
            for (int32_t m = 0; m < step.n_micro; m++) {
                if (lf_loader_next(l, &b, &err) < 0)
                    tap_bail("%s", err.text);
                seen.counted += b->trained - (rank == 0 && m == 0 ? step.trained : 0);
                for (int32_t k = 0; k < b->n_segs; k++)
                    look_at(&seen, b, k);
                for (int32_t i = 0; i < B; i++) {
                    memcpy(r->tokens[b->sample_ids[i]], b->tokens + i * T, sizeof r->tokens[0]);
                    memcpy(r->targets[b->sample_ids[i]], b->targets + i * T, sizeof r->targets[0]);
                }
            }
        }
        lf_loader_close(l);
    }
    return seen;
}

static void test_pairs(const char *dir)
{
    static struct run one, other;
    struct seen s = take(&one, dir, &anywhere, 2, 1, 0);
    tap_ok(
        s.pairs > 300 && s.bad == 0,
        "%lld pairs: a beginning of a piece, then its rest or a text of another document, %lld not",
        (long long)s.pairs, (long long)s.bad);
    tap_ok(s.follow > s.pairs * 2 / 5 && s.follow < s.pairs * 3 / 5, "%lld follow, half of them",
           (long long)s.follow);
    tap_i64(s.units, s.pairs, "a step counts its pairs");
    tap_ok(s.counted == 0 && s.hidden_format == 0,
           "and what is hidden, of which nothing is of the format");
    s = take(&other, dir, &anywhere, 1, 1, 0);
    tap_ok(memcmp(&one, &other, sizeof one) == 0, "micro-batches of half the size, the same");
    s = take(&other, dir, &anywhere, 1, 2, 0);
    tap_ok(memcmp(&one, &other, sizeof one) == 0 && s.units == s.pairs, "two ranks, the same");
    take(&other, dir, &anywhere, 2, 1, 17);
    tap_ok(memcmp(one.tokens[17 * BATCH], other.tokens[17 * BATCH],
                  (STEPS - 17) * BATCH * sizeof one.tokens[0]) == 0 &&
               memcmp(one.pairs + 17, other.pairs + 17, (STEPS - 17) * sizeof *one.pairs) == 0,
           "begun in the middle, the same");
    s = take(&other, dir, &sentences, 2, 1, 0);
    tap_ok(s.bad == 0 && s.begin_sentence == s.pairs - s.follow,
           "with ends of sentences every other text begins behind one, or with its document");
    tap_ok(s.end_sentence > s.pairs / 2, "and first texts end with one, where they have any");
    how = &words;
    s = take(&other, dir, &anywhere, 2, 1, 0);
    tap_ok(s.bad == 0 && s.hidden_format == 0,
           "any word stands for a hidden one but the separator");
    how = &mlm;
}

static void test_sources(const char *dir, const char *lone)
{
    const lf_loader_source source = {lone, 1}, long_one = {dir, 1};
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    lf_loader_config c = {.mode = LF_LOADER_VALID,
                          .split = "train",
                          .sources = &source,
                          .n_sources = 1,
                          .T = T,
                          .B = 1,
                          .mlm = &mlm,
                          .nsp = &anywhere};
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "has one document",
           "of one document there is no other");
    c.sources = &long_one;
    c.mlm = NULL;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "objective = mlm", "nor without mlm");
    c.mlm = &mlm;
    c.T = 4;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "seq_length = 4",
           "nor a pair of 4 tokens");
}

int main(void)
{
    char dir[4000], lone[4000];
    lf_err err = LF_ERR_INIT;
    snprintf(dir, sizeof dir, "%s/data", tap_tmpdir());
    snprintf(lone, sizeof lone, "%s/lone", tap_tmpdir());
    if (lf_shard_write_synthetic(dir, &(struct lf_shard_synthetic){40, 4, 1, MOST_DOC, VOCAB, 1},
                                 &err) < 0 ||
        lf_shard_write_synthetic(lone, &(struct lf_shard_synthetic){1, 1, 1, MOST_DOC, VOCAB, 1},
                                 &err) < 0)
        tap_bail("%s", err.text);
    TAP(7, test_places());
    TAP(5, test_refused());
    TAP(10, test_pairs(dir));
    TAP(3, test_sources(dir, lone));
    return tap_done();
}
