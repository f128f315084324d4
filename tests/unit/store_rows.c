/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards of pairs, labelled answers and prompts: what documents have besides tokens comes back as
 * it went in, over several files, and files that contradict themselves are refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/store/h5.h"
#include "engine/store/shard.h"
#include "tests/tap/tap.h"

static const char *at(const char *name)
{
    static char p[4100];
    snprintf(p, sizeof p, "%s/%s", tap_tmpdir(), name);
    return p;
}

static lf_shard_writer *begin(const char *path, enum lf_rows rows)
{
    lf_shard_info info = {.vocab_size = 9000, .eos_id = -1, .source = "rows", .rows = rows};
    lf_shard_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    memset(info.tokenizer_sha256, 'b', LF_HASH_HEX - 1);
    if (lf_shard_create(&w, path, &info, 0, &err) < 0)
        tap_bail("%s", err.text);
    return w;
}

static float margin_of(uint64_t pair)
{
    return pair % 3 == 1 ? 0.25f * (float)pair : 0;
}
static bool label_of(uint64_t doc)
{
    return doc * doc % 7 < 3;
}
static size_t rest_of(uint64_t doc, char *buf, size_t cap)
{
    if (doc % 5 == 4)
        return (size_t)snprintf(buf, cap, "{}");
    return (size_t)snprintf(buf, cap, "{\"answer\":\"%llu\",\"pad\":\"%.*s\"}",
                            (unsigned long long)doc, (int)(doc % 40),
                            "........................................");
}

/* Documents [first, first + n) of a kind. */
static int write_docs(lf_shard_writer *w, enum lf_rows rows, uint64_t first, uint64_t n,
                      bool margins, lf_err *err)
{
    static const uint32_t tok[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const uint8_t mask[9] = {0, 0, 1, 1, 1, 1, 1, 1, 1};
    char rest[200];
    int rc = 0;
    for (uint64_t d = first; d < first + n && rc == 0; d++) {
        lf_shard_doc doc = {.tokens = tok, .n = d % 9 + 1, .mask = mask};
        doc.has_margin = rows == LF_ROWS_PAIRS && margins && d % 2 == 0 && d / 2 % 3 == 1;
        doc.margin = margin_of(d / 2);
        doc.label = label_of(d);
        doc.rest_len = rest_of(d, rest, sizeof rest);
        doc.rest = d % 5 == 4 ? NULL : rest;
        rc = lf_shard_append_doc(w, &doc, err);
    }
    return rc;
}

/* 0 when documents [0, n) of a set are as written; else how many are not. */
static int64_t differing(const lf_shardset *s, enum lf_rows rows, uint64_t n)
{
    int64_t bad = lf_shardset_get_info(s)->rows != rows || lf_shardset_get_info(s)->n_docs != n;
    for (uint64_t d = 0; d < n; d++) {
        char want[200];
        size_t len = 0, k = rest_of(d, want, sizeof want);
        const char *rest = lf_shardset_rest(s, d, &len);
        bool prompts = rows == LF_ROWS_PROMPTS, pairs = rows == LF_ROWS_PAIRS;
        bad += lf_shardset_label(s, d) != (rows == LF_ROWS_UNPAIRED ? label_of(d) : true);
        bad += len != (prompts ? k : 2) || memcmp(rest, prompts ? want : "{}", len) != 0;
        bad +=
            d % 2 == 0 && fabsf(lf_shardset_margin(s, d / 2) - (pairs ? margin_of(d / 2) : 0)) > 0;
        bad += lf_shardset_doc_len(s, d) != d % 9 + 1 || lf_shardset_trained(s, d, 0);
    }
    return bad;
}

/* 30 documents over two files; the second has no margins of its own. */
static void test_set(enum lf_rows rows)
{
    lf_err err = LF_ERR_INIT;
    lf_artifact a = {0};
    lf_shardset *s = NULL;
    char dir[4000], path[4100];
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), lf_rows_name(rows));
    int rc = lf_artifact_init(&a, "shards", &err);
    snprintf(path, sizeof path, "mkdir %s", dir);
    if (system(path) != 0)
        tap_bail("mkdir");
    for (int i = 0; i < 2 && rc == 0; i++) {
        lf_shard_stat st;
        char name[32];
        snprintf(name, sizeof name, "train-%05d.h5", i);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        lf_shard_writer *w = begin(path, rows);
        rc = write_docs(w, rows, i ? 14 : 0, i ? 16 : 14, true, &err);
        rc = rc ? rc : lf_shard_finish(w, &st, &err);
        rc = rc ? rc : lf_artifact_add(&a, name, st.bytes, st.sha256, &err);
    }
    rc = rc ? rc : lf_artifact_publish(&a, dir, &err);
    rc = rc ? rc : lf_shardset_open(&s, dir, "train", &err);
    tap_rc(rc, 0, &err, NULL, lf_rows_name(rows));
    if (s) {
        tap_i64(differing(s, rows, 30), 0, "every document is as written");
        tap_ok(lf_shardset_has_margin(s) == (rows == LF_ROWS_PAIRS), "margins");
    }
    lf_shardset_close(s);
    lf_artifact_fini(&a);
}

static void test_plain(void)
{
    lf_err err = LF_ERR_INIT;
    lf_shard *s = NULL;
    size_t len = 0;
    lf_shard_writer *w = begin(at("pairs0.h5"), LF_ROWS_PAIRS);
    write_docs(w, LF_ROWS_PAIRS, 0, 8, false, &err);
    lf_shard_finish(w, NULL, &err);
    tap_rc(lf_shard_open(&s, at("pairs0.h5"), &err), 0, &err, NULL, "pairs without margins");
    tap_ok(!lf_shard_has_margin(s) && lf_shard_margin(s, 1) == 0 &&
               lf_shard_get_info(s)->rows == LF_ROWS_PAIRS,
           "have none");
    tap_ok(lf_shard_label(s, 3) && memcmp(lf_shard_rest(s, 3, &len), "{}", 2) == 0 && len == 2,
           "nor labels and other columns");
    lf_shard_close(s);
    w = begin(at("plain.h5"), LF_ROWS_PLAIN);
    write_docs(w, LF_ROWS_PLAIN, 0, 3, false, &err);
    lf_shard_finish(w, NULL, &err);
    tap_rc(lf_shard_open(&s, at("plain.h5"), &err), 0, &err, NULL, "plain documents");
    tap_i64(lf_shard_get_info(s)->rows, LF_ROWS_PLAIN, "are plain");
    lf_shard_close(s);
    w = begin(at("none.h5"), LF_ROWS_PROMPTS);
    tap_rc(lf_shard_finish(w, NULL, &err), 0, &err, NULL, "no prompts");
    tap_rc(lf_shard_open(&s, at("none.h5"), &err), 0, &err, NULL, "can be read");
    lf_shard_close(s);
}

static void test_refused(void)
{
    static const uint32_t tok[2] = {1, 2};
    lf_err err = LF_ERR_INIT;
    lf_shard_writer *w = begin(at("odd.h5"), LF_ROWS_PAIRS);
    lf_shard_doc doc = {.tokens = tok, .n = 2, .has_margin = true, .margin = INFINITY};
    tap_rc(lf_shard_append_doc(w, &doc, &err), LF_EINVAL, &err, "not finite", "an infinite margin");
    doc.margin = 1;
    tap_rc(lf_shard_append_doc(w, &doc, &err), 0, &err, NULL, "a better answer");
    tap_rc(lf_shard_append_doc(w, &doc, &err), LF_EINVAL, &err, "first document",
           "a margin on the worse answer");
    tap_rc(lf_shard_finish(w, NULL, &err), LF_EINVAL, &err, "1 documents are no pairs",
           "half a pair");
}

/* Files made by hand: two documents of 2 and 3 tokens. */
struct hostile {
    const char *rows;
    const float *margin;
    size_t n_margin;
    const uint8_t *label;
    size_t n_label;
    const uint64_t *off;
    size_t n_off, n_rest, n_docs;
};

static void hostile(struct hostile x, const char *says, const char *name)
{
    static int n;
    static const uint16_t tok[5] = {0};
    static const uint64_t docs[] = {0, 2, 5, 5};
    static const uint8_t bytes[16] = {0};
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
    rc = rc ? rc : lf_h5_put_attr_str(f, "lf_rows", x.rows, &err);
    rc = rc ? rc : lf_h5_put(f, "tokens", LF_H5_U16, tok, 5, &err);
    rc = rc ? rc : lf_h5_put(f, "doc_offsets", LF_H5_U64, docs, x.n_docs ? x.n_docs + 1 : 3, &err);
    if (x.margin)
        rc = rc ? rc : lf_h5_put(f, "margin", LF_H5_F32, x.margin, x.n_margin, &err);
    if (x.label)
        rc = rc ? rc : lf_h5_put(f, "label", LF_H5_U8, x.label, x.n_label, &err);
    if (x.off)
        rc = rc ? rc : lf_h5_put(f, "rest_offsets", LF_H5_U64, x.off, x.n_off, &err);
    if (x.n_rest)
        rc = rc ? rc : lf_h5_put(f, "rest", LF_H5_U8, bytes, x.n_rest, &err);
    rc = rc ? rc : lf_h5_close(f, &err);
    if (rc)
        tap_bail("%s", err.text);
    rc = lf_shard_open(&s, at(file), &err);
    tap_rc(rc, says ? LF_EFORMAT : 0, &err, says, name);
    lf_shard_close(s);
}

static void test_hostile(void)
{
    static const float one[] = {1, 2}, nan[] = {NAN};
    static const uint8_t label[] = {1, 0, 1}, wrong[] = {1, 2};
    static const uint64_t off[] = {0, 4, 9}, late[] = {1, 4, 9}, back[] = {0, 10, 9},
                          far[] = {0, 4, (uint64_t)1 << 60};
    hostile((struct hostile){.rows = "pairs", .margin = one, .n_margin = 1}, NULL, "a good pair");
    hostile((struct hostile){.rows = "pairs", .margin = one, .n_margin = 2},
            "margin is not a list of 1", "two margins");
    hostile((struct hostile){.rows = "pairs", .margin = nan, .n_margin = 1}, "not finite",
            "a margin that is no number");
    hostile((struct hostile){.rows = "pairs", .n_docs = 3}, "3 documents are no pairs",
            "three documents");
    hostile((struct hostile){.rows = "unpaired", .label = label, .n_label = 2}, NULL,
            "good labels");
    hostile((struct hostile){.rows = "unpaired"}, "label", "no labels");
    hostile((struct hostile){.rows = "unpaired", .label = label, .n_label = 3},
            "label is not a list of 2", "a label too many");
    hostile((struct hostile){.rows = "unpaired", .label = wrong, .n_label = 2}, "document 1 is 2",
            "a label of 2");
    hostile((struct hostile){.rows = "prompts", .off = off, .n_off = 3, .n_rest = 9}, NULL,
            "good prompts");
    hostile((struct hostile){.rows = "prompts"}, "rest_offsets", "no offsets");
    hostile((struct hostile){.rows = "prompts", .off = off, .n_off = 2, .n_rest = 4},
            "not a list of 3", "offsets too few");
    hostile((struct hostile){.rows = "prompts", .off = off, .n_off = 3, .n_rest = 8},
            "rest is not a list of 9", "text too short");
    hostile((struct hostile){.rows = "prompts", .off = late, .n_off = 3, .n_rest = 9},
            "do not begin at 0", "offsets from 1");
    hostile((struct hostile){.rows = "prompts", .off = back, .n_off = 3, .n_rest = 9},
            "decrease at document 1", "offsets that decrease");
    hostile((struct hostile){.rows = "prompts", .off = far, .n_off = 3, .n_rest = 9},
            "rest is not a list", "offsets that end far off");
    hostile((struct hostile){.rows = "triples"}, "lf_rows is 'triples'", "rows of no known kind");
}

int main(void)
{
    TAP(3, test_set(LF_ROWS_PAIRS));
    TAP(3, test_set(LF_ROWS_UNPAIRED));
    TAP(3, test_set(LF_ROWS_PROMPTS));
    TAP(7, test_plain());
    TAP(4, test_refused());
    TAP(16, test_hostile());
    return tap_done();
}
