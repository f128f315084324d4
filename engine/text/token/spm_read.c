/* SPDX-License-Identifier: Apache-2.0
 *
 * See spm_read.h.
 */
#include "config.h"

#include "engine/text/token/spm_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/token/decode.h"
#include "engine/text/token/proto.h"
#include "engine/text/token/spm.h"

static int read_piece(lf_spm_file *f, const uint8_t *p, size_t len, const char *path, lf_err *err)
{
    lf_proto m = lf_proto_open(p, len);
    lf_spm_piece piece = {.type = LF_SPM_NORMAL};
    size_t n = 0;
    uint64_t type = LF_SPM_NORMAL;
    while (lf_proto_next(&m)) {
        if (m.field == 1 && m.wire == 2) {
            piece.text = m.bytes;
            n = m.len;
        } else if (m.field == 2 && m.wire == 5) {
            piece.score = lf_proto_f32(&m);
        } else if (m.field == 3 && m.wire == 0) {
            type = m.value;
        }
    }
    if (m.broken || type < LF_SPM_NORMAL || type > LF_SPM_BYTE || !isfinite(piece.score))
        return lf_fail(err, LF_EFORMAT, "%s: piece %zu is broken", path, f->n);
    if (n == 0 || n > LF_TOK_TOKEN_MAX || memchr(piece.text, 0, n) ||
        lf_utf8_check((const char *)piece.text, n) != n)
        return lf_fail(err, LF_EFORMAT, "%s: piece %zu has an empty, too long or invalid text",
                       path, f->n);
    piece.len = (uint32_t)n;
    piece.type = (enum lf_spm_type)type;
    int rc = lf_grow(&f->v, &f->cap, f->n, sizeof(*f->v), err);
    if (rc == 0)
        f->v[f->n++] = piece;
    return rc;
}

static void copy_name(char to[64], const lf_proto *m)
{
    if (m->len == 0 || m->len >= 64 || memchr(m->bytes, 0, m->len))
        return;
    memcpy(to, m->bytes, m->len);
    to[m->len] = 0;
}

static int read_trainer(lf_spm_file *f, const uint8_t *p, size_t len, const char *path, lf_err *err)
{
    lf_proto m = lf_proto_open(p, len);
    uint64_t type = f->model_type; /* the message may come in parts */
    while (lf_proto_next(&m)) {
        if (m.wire == 0 && m.field == 3)
            type = m.value;
        else if (m.wire == 0 && m.field == 24)
            f->whitespace_as_suffix = m.value != 0;
        else if (m.wire == 0 && m.field == 35)
            f->byte_fallback = m.value != 0;
        else if (m.wire == 2 && m.field == 44) {
            f->unk_surface = m.bytes;
            f->n_unk_surface = m.len;
        } else if (m.wire == 2 && m.field >= 46 && m.field <= 48)
            copy_name(m.field == 46 ? f->bos : m.field == 47 ? f->eos : f->pad, &m);
    }
    if (m.broken)
        return lf_fail(err, LF_EFORMAT, "%s: trainer_spec is broken", path);
    if (type != LF_SPM_UNIGRAM && type != LF_SPM_BPE)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s: sentencepiece model_type %llu is not supported (1 Unigram and 2 BPE are)", path,
            (unsigned long long)type);
    f->model_type = (enum lf_spm_model)type;
    if (f->unk_surface &&
        lf_utf8_check((const char *)f->unk_surface, f->n_unk_surface) != f->n_unk_surface)
        return lf_fail(err, LF_EFORMAT, "%s: unk_surface is not UTF-8", path);
    return 0;
}

static int read_normalizer(lf_spm_file *f, const uint8_t *p, size_t len, const char *path,
                           lf_err *err)
{
    lf_proto m = lf_proto_open(p, len);
    while (lf_proto_next(&m)) {
        if (m.wire == 2 && m.field == 2) {
            f->charsmap = m.bytes;
            f->n_charsmap = m.len;
        } else if (m.wire == 0 && m.field == 3) {
            f->add_dummy_prefix = m.value != 0;
        } else if (m.wire == 0 && m.field == 4) {
            f->remove_extra_whitespaces = m.value != 0;
        } else if (m.wire == 0 && m.field == 5) {
            f->escape_whitespaces = m.value != 0;
        }
    }
    return m.broken ? lf_fail(err, LF_EFORMAT, "%s: normalizer_spec is broken", path) : 0;
}

static int refuse_denormalizer(const uint8_t *p, size_t len, const char *path, lf_err *err)
{
    lf_proto m = lf_proto_open(p, len);
    while (lf_proto_next(&m))
        if (m.wire == 2 && m.field == 2 && m.len > 0)
            return lf_fail(err, LF_ENOTSUP,
                           "%s: denormalizer_spec has rules, which this program does not support",
                           path);
    return m.broken ? lf_fail(err, LF_EFORMAT, "%s: denormalizer_spec is broken", path) : 0;
}

/* The rules of sentencepiece's own loader. */
static int check(const lf_spm_file *f, const char *path, lf_err *err)
{
    bool byte[256] = {false};
    size_t n_byte = 0, n_unk = 0, n_piece = 0;
    for (size_t i = 0; i < f->n; i++) {
        const lf_spm_piece *p = &f->v[i];
        n_unk += p->type == LF_SPM_UNKNOWN;
        n_piece += p->type == LF_SPM_NORMAL || p->type == LF_SPM_USER || p->type == LF_SPM_UNUSED;
        if (p->type != LF_SPM_BYTE)
            continue;
        int b = lf_tok_byte_token((const char *)p->text, p->len);
        if (b < 0 || !f->byte_fallback)
            return lf_fail(err, LF_EFORMAT, "%s: byte piece %zu %s", path, i,
                           b < 0 ? "is not <0x..>" : "is there although byte_fallback is off");
        n_byte += !byte[b];
        byte[b] = true;
    }
    if (f->byte_fallback && n_byte != 256)
        return lf_fail(err, LF_EFORMAT, "%s: byte_fallback with only %zu of 256 byte pieces", path,
                       n_byte);
    if (n_unk != 1 || n_piece == 0)
        return lf_fail(err, LF_EFORMAT,
                       "%s: %zu unknown symbols and %zu pieces; there must be one and some", path,
                       n_unk, n_piece);
    return 0;
}

int lf_spm_read(lf_spm_file *f, const uint8_t *data, size_t len, const char *path, lf_err *err)
{
    lf_proto m = lf_proto_open(data, len);
    int rc = 0;
    *f = (lf_spm_file){.model_type = LF_SPM_UNIGRAM,
                       .add_dummy_prefix = true,
                       .remove_extra_whitespaces = true,
                       .escape_whitespaces = true,
                       .bos = "<s>",
                       .eos = "</s>",
                       .pad = "<pad>"};
    while (rc == 0 && lf_proto_next(&m)) {
        if (m.wire != 2)
            continue;
        if (m.field == 1)
            rc = read_piece(f, m.bytes, m.len, path, err);
        else if (m.field == 2)
            rc = read_trainer(f, m.bytes, m.len, path, err);
        else if (m.field == 3)
            rc = read_normalizer(f, m.bytes, m.len, path, err);
        else if (m.field == 5)
            rc = refuse_denormalizer(m.bytes, m.len, path, err);
    }
    if (rc == 0 && m.broken)
        rc = lf_fail(err, LF_EFORMAT, "%s: not a sentencepiece model: broken at byte %zu", path,
                     (size_t)(m.p - data));
    if (rc == 0 && f->n > INT32_MAX / 2)
        rc = lf_fail(err, LF_EFORMAT, "%s: %zu pieces are above the limit", path, f->n);
    return rc == 0 ? check(f, path, err) : rc;
}

void lf_spm_file_fini(lf_spm_file *f)
{
    free(f->v);
    f->v = NULL;
    f->n = 0;
}

bool lf_spm_is_model(const uint8_t *data, size_t len)
{
    lf_proto m = lf_proto_open(data, len);
    return len > 0 && data[0] == 0x0A && lf_proto_next(&m) && m.field == 1 && m.wire == 2;
}
