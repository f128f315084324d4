/* SPDX-License-Identifier: Apache-2.0
 *
 * What a shard may hold besides documents: loss mask and sequences come back as they went in, over
 * several shards, and parts that contradict the rest of the file are refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/store/h5.h"
#include "engine/store/shard.h"
#include "tests/tap/tap.h"

static const char *at(const char *name)
{
    static char p[4100];
    snprintf(p, sizeof p, "%s/%s", tap_tmpdir(), name);
    return p;
}

static lf_shard_writer *begin(const char *name)
{
    lf_shard_info info = {.vocab_size = 9000, .eos_id = -1, .source = "parts"};
    lf_shard_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    memset(info.tokenizer_sha256, 'b', LF_HASH_HEX - 1);
    if (lf_shard_create(&w, at(name), &info, 0, &err) < 0)
        tap_bail("%s", err.text);
    return w;
}

static bool bit(size_t doc, size_t k)
{
    return (doc * 31 + k * k) % 7 > 2;
}

/* Documents of d * 37 % 501 tokens; the mask begins with document 5 and leaves out every fourth. */
static void test_mask(void)
{
    lf_err err = LF_ERR_INIT;
    lf_shard_writer *w = begin("mask.h5");
    lf_shard *s = NULL;
    uint32_t tok[501] = {0};
    uint8_t mask[501];
    int64_t bad = 0;
    for (size_t d = 0; d < 60; d++) {
        size_t n = d * 37 % 501;
        for (size_t k = 0; k < n; k++)
            mask[k] = bit(d, k);
        bad +=
            lf_shard_append_doc(
                w,
                &(lf_shard_doc){.tokens = tok, .n = n, .mask = d < 5 || d % 4 == 0 ? NULL : mask},
                &err) < 0;
    }
    tap_i64(bad, 0, "append");
    tap_rc(lf_shard_finish(w, NULL, &err), 0, &err, NULL, "finish");
    tap_rc(lf_shard_open(&s, at("mask.h5"), &err), 0, &err, NULL, "open");
    const uint64_t *off = lf_shard_offsets(s);
    uint64_t seen = 0, total = off[60];
    for (size_t d = 0; d < 60; d++)
        for (size_t k = 0; k < d * 37 % 501; k++) {
            bool want = d < 5 || d % 4 == 0 || bit(d, k);
            bad += lf_shard_trained(s, off[d] + k) != want;
            bad += lf_shard_count_trained(s, 0, off[d] + k) != seen;
            seen += want;
        }
    tap_ok(bad == 0 && lf_shard_has_mask(s) && total > 8192,
           "every bit, and every count from the beginning");
    tap_i64((int64_t)lf_shard_count_trained(s, 0, total), (int64_t)seen, "all of them");
    bad = 0;
    for (uint64_t a = 0; a < total; a += 997)
        for (uint64_t b = a; b < total; b += 1201)
            bad += lf_shard_count_trained(s, a, b - a) + lf_shard_count_trained(s, b, total - b) !=
                   lf_shard_count_trained(s, a, total - a);
    tap_i64(bad, 0, "counts add up");
    tap_ok(!lf_shard_doc_seqs(s), "and no sequences");
    lf_shard_close(s);
}

static void test_seqs(bool modes)
{
    static const uint32_t lens[][4] = {{3}, {2, 0, 5}, {0}, {1, 1, 1, 1}, {4}};
    static const size_t counts[] = {1, 3, 0, 4, 1}, total[] = {3, 7, 0, 4, 4};
    static const int8_t mode[] = {-1, 2, 0, 1};
    lf_err err = LF_ERR_INIT;
    const char *name = modes ? "modes.h5" : "seqs.h5";
    lf_shard_writer *w = begin(name);
    lf_shard *s = NULL;
    uint32_t tok[16] = {0};
    int64_t bad = 0;
    for (size_t d = 0; d < 5; d++)
        bad += lf_shard_append_doc(w,
                                   &(lf_shard_doc){.tokens = tok,
                                                   .n = total[d],
                                                   .seq_len = lens[d],
                                                   .n_seqs = counts[d],
                                                   .modes = modes && d != 4 ? mode : NULL},
                                   &err) < 0;
    bad += lf_shard_append(w, tok, 6, &err) < 0;
    tap_i64(bad, 0, "append");
    tap_rc(lf_shard_append_doc(
               w, &(lf_shard_doc){.tokens = tok, .n = 3, .seq_len = lens[0], .n_seqs = 0}, &err),
           LF_EINVAL, &err, "3 tokens in sequences of 0", "sequences that are not the document");
    lf_shard_abort(w);
    w = begin(name);
    for (size_t d = 0; d < 5; d++)
        lf_shard_append_doc(w,
                            &(lf_shard_doc){.tokens = tok,
                                            .n = total[d],
                                            .seq_len = lens[d],
                                            .n_seqs = counts[d],
                                            .modes = modes && d != 4 ? mode : NULL},
                            &err);
    lf_shard_append(w, tok, 6, &err);
    tap_rc(lf_shard_finish(w, NULL, &err), 0, &err, NULL, "finish");
    tap_rc(lf_shard_open(&s, at(name), &err), 0, &err, NULL, "open");
    const uint64_t *ds = lf_shard_doc_seqs(s), *so = lf_shard_seq_offsets(s),
                   *off = lf_shard_offsets(s);
    const int8_t *m = lf_shard_seq_modes(s);
    for (size_t d = 0; d < 5; d++) {
        bad += ds[d + 1] - ds[d] != counts[d] || off[d + 1] - off[d] != total[d];
        for (size_t k = 0; k < counts[d]; k++) {
            bad += so[ds[d] + k + 1] - so[ds[d] + k] != lens[d][k];
            bad += modes && m[ds[d] + k] != (d != 4 ? mode[k] : 0);
        }
    }
    tap_ok(bad == 0 && ds[6] == 10 && (m != NULL) == modes,
           "documents of 1, 3, 0, 4, 1 and 1 sequences%s", modes ? " with modes" : "");
    tap_ok(!lf_shard_has_mask(s) && lf_shard_count_trained(s, 0, 24) == 24,
           "without a mask all is trained");
    lf_shard_close(s);
}

/* Parts made by hand: [docs] of 2 and 3 tokens. */
static void hostile(const uint64_t *ds, size_t n_ds, const uint64_t *so, size_t n_so, size_t n_mask,
                    const char *says, const char *name)
{
    static int n;
    static const uint16_t tok[5] = {0};
    static const uint64_t off[] = {0, 2, 5};
    static const uint8_t bytes[8] = {0};
    char sha[LF_HASH_HEX] = {0}, file[32];
    lf_err err = LF_ERR_INIT;
    lf_h5 *f = NULL;
    lf_shard *s = NULL;
    memset(sha, 'c', 64);
    snprintf(file, sizeof file, "bad%d.h5", n++);
    int rc = lf_h5_create(&f, at(file), &err);
    rc = rc ? rc : lf_h5_put_attr_str(f, "lf_format", LF_SHARD_FORMAT, &err);
    rc = rc ? rc : lf_h5_put_attr_str(f, "tokenizer_sha256", sha, &err);
    rc = rc ? rc : lf_h5_put_attr_i64(f, "vocab_size", 10, &err);
    rc = rc ? rc : lf_h5_put_attr_i64(f, "eos_id", -1, &err);
    rc = rc ? rc : lf_h5_put_attr_str(f, "source", "x", &err);
    rc = rc ? rc : lf_h5_put(f, "tokens", LF_H5_U16, tok, 5, &err);
    rc = rc ? rc : lf_h5_put(f, "doc_offsets", LF_H5_U64, off, 3, &err);
    if (ds)
        rc = rc ? rc : lf_h5_put(f, "doc_seqs", LF_H5_U64, ds, n_ds, &err);
    if (so)
        rc = rc ? rc : lf_h5_put(f, "seq_offsets", LF_H5_U64, so, n_so, &err);
    if (n_mask)
        rc = rc ? rc : lf_h5_put(f, "loss_mask", LF_H5_U8, bytes, n_mask, &err);
    rc = rc ? rc : lf_h5_close(f, &err);
    if (rc)
        tap_bail("%s", err.text);
    rc = lf_shard_open(&s, at(file), &err);
    tap_rc(rc, says ? LF_EFORMAT : 0, &err, says, name);
    lf_shard_close(s);
}
#define LIST(...) (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8

static void test_hostile(void)
{
    hostile(LIST(0, 1, 3), LIST(0, 2, 2, 5), 1, NULL, "a good one");
    hostile(NULL, 0, NULL, 0, 2, "loss_mask is not a list of 1 u8", "a mask too long");
    hostile(LIST(0, 1), LIST(0, 5), 0, "doc_seqs is not a list of 3", "doc_seqs too short");
    hostile(LIST(0, 1, 3), NULL, 0, 0, "seq_offsets", "no seq_offsets");
    hostile(LIST(0, 1, UINT64_MAX), LIST(0, 5), 0, "2^64", "doc_seqs that end at 2^64 - 1");
    hostile(LIST(0, 1, (uint64_t)1 << 60), LIST(0, 5), 0, "seq_offsets is not a list",
            "doc_seqs that end far off");
    hostile(LIST(0, 3, 2), LIST(0, 2, 5), 0, "doc_seqs decrease at document 1",
            "doc_seqs that decrease");
    hostile(LIST(0, 1, 3), LIST(0, 2, 1, 5), 0, "seq_offsets decrease at sequence 1",
            "seq_offsets that decrease");
    hostile(LIST(0, 1, 3), LIST(0, 3, 4, 5), 0, "document 1 does not begin",
            "sequences that cross documents");
    hostile(LIST(0, 1, 3), LIST(0, 2, 2, 4), 0, "document 2 does not begin",
            "sequences that end early");
    hostile(LIST(1, 2, 3), LIST(0, 0, 2, 5), 0, "doc_seqs do not begin at 0",
            "doc_seqs that begin at 1");
}

int main(void)
{
    TAP(7, test_mask());
    TAP(6, test_seqs(false));
    TAP(6, test_seqs(true));
    TAP(11, test_hostile());
    return tap_done();
}
