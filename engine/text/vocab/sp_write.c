/* SPDX-License-Identifier: Apache-2.0
 *
 * A SentencePiece-style vocabulary as files.
 *
 * tokenizer.json: the normalizer writes spaces as U+2581 and one in front. For bpe the merges are
 * every cut of a piece into two other pieces, by the piece's score: what SentencePiece's rule "join
 * the neighbours that make the best piece" comes to. For unigram the byte pieces get a score that
 * no text is cut into them by; the library looks for their names in the text otherwise.
 *
 * tokenizer.model: the messages and field numbers of sentencepiece_model.proto, and of protobuf
 * only varints, floats and length-delimited fields.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/vocab/train_sp_priv.h"

#define BYTE_SCORE (-1000.0)

/* ---- tokenizer.json ---- */

static void add_text(lf_buf *out, const char *s)
{
    lf_buf_add_json(out, s, strlen(s));
}

static void write_added(const lf_sp_vocab *v, lf_buf *out)
{
    bool first = true;
    lf_buf_adds(out, "\"added_tokens\":[");
    for (size_t i = 0; i < v->n; i++) {
        if (v->v[i].type != LF_SPM_UNKNOWN && v->v[i].type != LF_SPM_CONTROL &&
            v->v[i].type != LF_SPM_USER)
            continue;
        lf_buf_addf(out, "%s\n{\"id\":%zu,\"content\":", first ? "" : ",", i);
        add_text(out, v->v[i].text);
        lf_buf_addf(out,
                    ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                    "\"special\":%s}",
                    v->v[i].type == LF_SPM_USER ? "false" : "true");
        first = false;
    }
    lf_buf_adds(out, "],\n");
}

static void write_pipeline(const lf_sp_vocab *v, lf_buf *out)
{
    lf_buf_adds(
        out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
             "\"prepend\":\"" LF_SP_SPACE
             "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" LF_SP_SPACE
             "\"}]},\n");
    if (v->kind == LF_SP_UNIGRAM)
        lf_buf_adds(out, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" LF_SP_SPACE
                         "\",\"prepend_scheme\":\"never\",\"split\":true},\n");
    else
        lf_buf_adds(out, "\"pre_tokenizer\":null,\n");
    lf_buf_adds(
        out,
        "\"post_processor\":null,\n\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
        "\"Replace\","
        "\"pattern\":{\"String\":\"" LF_SP_SPACE
        "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},\n");
}

/* A cut of piece `id` into two pieces. */
typedef struct cut {
    float score;
    uint32_t id, left, right, at; /* at: bytes of the left one */
} cut;

static int by_rank(const void *x, const void *y)
{
    const cut *a = x, *b = y;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return (a->at < b->at) -
           (a->at > b->at); /* the longer left part first, as transformers sorts them */
}

static int find_cuts(cut **out, size_t *n, const lf_sp_vocab *v, lf_err *err)
{
    lf_vocab ids = {0};
    size_t cap = 0;
    int rc = lf_vocab_init(&ids, v->n + 1, err);
    for (size_t i = 0; i < v->n && rc == 0; i++)
        rc = lf_vocab_push(&ids, v->v[i].type == LF_SPM_NORMAL ? v->v[i].text : NULL, err);
    for (size_t i = 0; i < v->n && rc == 0; i++) {
        const char *t = v->v[i].text;
        size_t len = strlen(t);
        char *left = v->v[i].type == LF_SPM_NORMAL ? lf_strdup(t, err) : NULL;
        for (size_t k = len; left && --k > 0 && rc == 0;) {
            int64_t a, b;
            left[k] = 0;
            if (((unsigned char)t[k] & 0xC0) == 0x80 || (b = lf_vocab_find(&ids, t + k)) < 0 ||
                (a = lf_vocab_find(&ids, left)) < 0)
                continue;
            rc = lf_grow(out, &cap, *n, sizeof(**out), err);
            if (rc == 0)
                (*out)[(*n)++] =
                    (cut){v->v[i].score, (uint32_t)i, (uint32_t)a, (uint32_t)b, (uint32_t)k};
        }
        free(left);
    }
    lf_vocab_fini(&ids);
    if (rc == 0 && *n > 0)
        qsort(*out, *n, sizeof(**out), by_rank);
    return rc;
}

static int write_bpe(const lf_sp_vocab *v, lf_buf *out, lf_err *err)
{
    cut *c = NULL;
    size_t n = 0;
    lf_buf pair;
    lf_buf_init(&pair);
    lf_buf_adds(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    add_text(out, v->v[0].text);
    lf_buf_adds(out,
                ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":true,"
                "\"byte_fallback\":true,\"ignore_merges\":false,\n\"vocab\":{");
    for (size_t i = 0; i < v->n; i++) {
        lf_buf_adds(out, i ? ",\n" : "\n");
        add_text(out, v->v[i].text);
        lf_buf_addf(out, ":%zu", i);
    }
    lf_buf_adds(out, "},\n\"merges\":[");
    int rc = find_cuts(&c, &n, v, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        lf_buf_clear(&pair);
        lf_buf_addf(&pair, "%s %s", v->v[c[i].left].text, v->v[c[i].right].text);
        lf_buf_adds(out, i ? ",\n" : "\n");
        lf_buf_add_json(out, pair.data, pair.len);
    }
    lf_buf_adds(out, "]}}\n");
    rc = rc == 0 ? lf_buf_check(&pair, err) : rc;
    lf_buf_fini(&pair);
    free(c);
    return rc;
}

static void write_unigram(const lf_sp_vocab *v, lf_buf *out)
{
    lf_buf_adds(out,
                "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[");
    for (size_t i = 0; i < v->n; i++) {
        lf_buf_adds(out, i ? ",\n[" : "\n[");
        add_text(out, v->v[i].text);
        lf_buf_addf(out, ",%.9g]",
                    v->v[i].type == LF_SPM_BYTE ? BYTE_SCORE : (double)v->v[i].score);
    }
    lf_buf_adds(out, "]}}\n");
}

int lf_sp_write_json(const lf_sp_vocab *v, lf_buf *out, lf_err *err)
{
    lf_buf_adds(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n");
    write_added(v, out);
    write_pipeline(v, out);
    int rc = 0;
    if (v->kind == LF_SP_BPE)
        rc = write_bpe(v, out, err);
    else
        write_unigram(v, out);
    return rc == 0 ? lf_buf_check(out, err) : rc;
}

/* ---- tokenizer.model ---- */

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 };

static void add_varint(lf_buf *b, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        lf_buf_addc(b, (char)(0x80 | (x & 0x7F)));
    lf_buf_addc(b, (char)x);
}

static void add_tag(lf_buf *b, unsigned field, unsigned wire)
{
    add_varint(b, (uint64_t)field << 3 | wire);
}

static void add_int(lf_buf *b, unsigned field, int64_t x)
{
    add_tag(b, field, VARINT);
    add_varint(b, (uint64_t)x);
}

static void add_bytes(lf_buf *b, unsigned field, const char *p, size_t n)
{
    add_tag(b, field, BYTES);
    add_varint(b, n);
    lf_buf_add(b, p, n);
}

static void add_float(lf_buf *b, unsigned field, float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    add_tag(b, field, FIXED32);
    for (int i = 0; i < 4; i++)
        lf_buf_addc(b, (char)(u >> 8 * i & 0xFF));
}

/* ModelProto.pieces (1): piece 1, score 2, type 3. */
int lf_sp_add_piece(lf_buf *out, const char *text, float score, int type, lf_err *err)
{
    lf_buf one;
    lf_buf_init(&one);
    add_bytes(&one, 1, text, strlen(text));
    add_float(&one, 2, score);
    add_int(&one, 3, type);
    int rc = lf_buf_check(&one, err);
    add_bytes(out, 1, one.data, one.len);
    lf_buf_fini(&one);
    return rc;
}

int lf_sp_add_size(lf_buf *out, size_t n, lf_err *err)
{
    lf_buf one;
    lf_buf_init(&one);
    add_int(&one, 4, (int64_t)n);
    int rc = lf_buf_check(&one, err);
    add_bytes(out, 2, one.data, one.len);
    lf_buf_fini(&one);
    return rc;
}

/* TrainerSpec (2): model_type 3 (unigram 1, bpe 2), vocab_size 4, byte_fallback 35, ids of unk,
 * bos, eos, pad 40 .. 43.
 */
static void add_trainer(lf_buf *out, lf_buf *scratch, const lf_sp_vocab *v)
{
    lf_buf_clear(scratch);
    add_int(scratch, 3, v->kind == LF_SP_BPE ? 2 : 1);
    add_int(scratch, 4, (int64_t)v->n);
    add_int(scratch, 35, 1);
    add_int(scratch, 40, 0);
    add_int(scratch, 41, 1);
    add_int(scratch, 42, 2);
    add_int(scratch, 43, -1);
    add_bytes(out, 2, scratch->data, scratch->len);
}

/* NormalizerSpec (3): name 1, add_dummy_prefix 3, remove_extra_whitespaces 4, escape_whitespaces
 * 5. */
static void add_normalizer(lf_buf *out, lf_buf *scratch)
{
    lf_buf_clear(scratch);
    add_bytes(scratch, 1, "identity", strlen("identity"));
    add_int(scratch, 3, 1);
    add_int(scratch, 4, 0);
    add_int(scratch, 5, 1);
    add_bytes(out, 3, scratch->data, scratch->len);
}

int lf_sp_write_model(const lf_sp_vocab *v, lf_buf *out, lf_err *err)
{
    lf_buf scratch;
    lf_buf_init(&scratch);
    int rc = 0;
    for (size_t i = 0; i < v->n && rc == 0; i++)
        rc = lf_sp_add_piece(out, v->v[i].text, v->v[i].score, v->v[i].type, err);
    add_trainer(out, &scratch, v);
    add_normalizer(out, &scratch);
    rc = rc == 0 ? lf_buf_check(&scratch, err) : rc;
    lf_buf_fini(&scratch);
    return rc == 0 ? lf_buf_check(out, err) : rc;
}
