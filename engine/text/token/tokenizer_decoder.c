/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder steps of a tokenizer.json. What is not exact when tokens arrive one by one is refused
 * here: Strip at the end and patterns of several characters behind Fuse, and anything behind
 * ByteLevel.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include "engine/text/token/tokenizer_parts.h"

static int get_text(lf_decstep *st, json_t *o, const char *key, bool one_char, const char *type,
                    const char *path, lf_err *err)
{
    const char *text = NULL;
    int rc = lf_json_get_str(&text, o, key, true, type, err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    st->n_text = strlen(text);
    if (st->n_text == 0 || (one_char && lf_utf8_len(text, st->n_text) != st->n_text))
        return lf_fail(err, LF_EFORMAT, "%s: decoder %s: %s is not %s", path, type, key,
                       one_char ? "one character" : "a text");
    st->text = lf_strdup(text, err);
    return st->text ? 0 : LF_ENOMEM;
}

static int load_strip(lf_decstep *st, json_t *o, const char *path, lf_err *err)
{
    int64_t start = 0, stop = 0;
    int rc = get_text(st, o, "content", true, "Strip", path, err);
    if (rc != 0)
        return rc;
    rc = lf_json_get_i64(&start, o, "start", true, "Strip", err);
    if (rc == 0)
        rc = lf_json_get_i64(&stop, o, "stop", true, "Strip", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    if (start < 0 || stop < 0 || start > 1 << 20 || stop > 1 << 20)
        return lf_fail(err, LF_EFORMAT,
                       "%s: decoder Strip: start %lld or stop %lld is out of range", path,
                       (long long)start, (long long)stop);
    st->start = (size_t)start;
    st->stop = (size_t)stop;
    return 0;
}

static int load_one(lf_decstep *st, json_t *o, const char *path, lf_err *err)
{
    enum lf_prepend prepend = LF_PREPEND_ALWAYS;
    int rc = 0;
    st->cleanup = true;
    switch (st->type) {
    case LF_DEC_REPLACE:
        return lf_tok_load_replace(&st->rep, o, path, err);
    case LF_DEC_STRIP:
        return load_strip(st, o, path, err);
    case LF_DEC_METASPACE:
        rc = get_text(st, o, "replacement", true, "Metaspace", path, err);
        if (rc == 0)
            rc = lf_tok_load_prepend(&prepend, o, path, err);
        st->drop_first = prepend != LF_PREPEND_NEVER;
        return rc;
    case LF_DEC_WORDPIECE:
        rc = get_text(st, o, "prefix", false, "WordPiece", path, err);
        if (rc == 0)
            rc = lf_json_get_bool(&st->cleanup, o, "cleanup", false, "WordPiece", err);
        return rc;
    case LF_DEC_BPE:
        return get_text(st, o, "suffix", false, "BPEDecoder", path, err);
    default:
        return 0;
    }
}

/* A step behind Fuse sees parts of one text. */
static int check_fused(const lf_decstep *st, const char *type, const char *path, lf_err *err)
{
    const lf_normstep *r = &st->rep;
    bool ok =
        st->type == LF_DEC_FUSE || st->type == LF_DEC_METASPACE ||
        (st->type == LF_DEC_STRIP && st->stop == 0) ||
        (st->type == LF_DEC_REPLACE && !r->re && lf_utf8_len(r->from, r->n_from) == r->n_from);
    return ok ? 0
              : lf_fail(err, LF_ENOTSUP,
                        "%s: decoder \"%.80s\" behind Fuse is not supported in this form", path,
                        type);
}

int lf_tok_load_decstep(lf_tokenizer *t, json_t *o, const char *type, const char *path, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_dec_type type;
    } kinds[] = {{"ByteLevel", LF_DEC_BYTELEVEL}, {"ByteFallback", LF_DEC_BYTEFALLBACK},
                 {"Fuse", LF_DEC_FUSE},           {"Replace", LF_DEC_REPLACE},
                 {"Strip", LF_DEC_STRIP},         {"Metaspace", LF_DEC_METASPACE},
                 {"WordPiece", LF_DEC_WORDPIECE}, {"BPEDecoder", LF_DEC_BPE}};
    size_t i = 0, n = sizeof(kinds) / sizeof(kinds[0]);
    while (i < n && strcmp(kinds[i].name, type) != 0)
        i++;
    if (i == n)
        return lf_fail(err, LF_ENOTSUP, "%s: decoder \"%.80s\" is not supported", path, type);
    lf_decstep *last = t->n_decs ? &t->decs[t->n_decs - 1] : NULL;
    if (last && last->type == LF_DEC_BYTELEVEL &&
        (kinds[i].type == LF_DEC_FUSE || kinds[i].type == LF_DEC_BYTELEVEL))
        return 0; /* one text already */
    if (last && (last->type == LF_DEC_BYTELEVEL || kinds[i].type == LF_DEC_BYTELEVEL))
        return lf_fail(err, LF_ENOTSUP, "%s: decoder \"%.80s\" beside ByteLevel is not supported",
                       path, type);
    lf_decstep *st = &t->decs[t->n_decs++];
    st->type = kinds[i].type;
    st->fused = last && (last->fused || last->type == LF_DEC_FUSE);
    int rc = load_one(st, o, path, err);
    return rc == 0 && st->fused ? check_fused(st, type, path, err) : rc;
}
