/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms other than tokenizer.json. vocab.json + merges.txt and vocab.txt are turned into the
 * tokenizer.json that their tokenizer_class stands for; a sentencepiece model keeps its own rules;
 * tiktoken files are in tiktoken.c.
 */
#include "config.h"

#include "engine/text/token/tokenizer_forms.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/text/token/scan.h"
#include "engine/text/token/spm.h"
#include "engine/text/token/tokenizer.h"

/* ---- sentencepiece ---- */

/* Classes whose ids are not the model's own (fairseq's order, offsets): their tokenizer.json says
 * what they are. */
static int check_spm_class(const char *name, const char *path, lf_err *err)
{
    static const char *const shifted[] = {
        "XLMRoberta", "Camembert",   "MBart",         "NllbTokenizer",  "Pegasus",  "Barthez",
        "M2M100",     "Speech2Text", "XLMProphetNet", "BigBirdPegasus", "Reformer", "FNet"};
    for (size_t i = 0; i < sizeof(shifted) / sizeof(shifted[0]); i++)
        if (lf_str_has_prefix(name, shifted[i]))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: tokenizer_class %s numbers the sentencepiece model's tokens anew; "
                           "give its tokenizer.json",
                           path, name);
    return 0;
}

lf_tokenizer *lf_tok_from_spm(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                              lf_err *err)
{
    const lf_buf *b = &f->v[0].data;
    lf_tokenizer *t = lf_tok_create(err);
    int rc = t ? check_spm_class(lf_tok_conf_class(c), path, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_spm_load(t, (const uint8_t *)b->data, b->len, path, err);
    if (rc == 0 && c->config) {
        json_t *added = lf_tok_conf_added(c, t->names, path, err);
        rc = added ? lf_tok_load_added(t, added, true, path, err) : LF_EFORMAT;
        json_decref(added);
        t->spm->prefix_first = !lf_tok_conf_bool(c, "legacy", true);
        if (!lf_tok_conf_bool(c, "add_prefix_space", true))
            t->spm->add_prefix = false;
    }
    if (rc == 0) {
        lf_tok_conf_name(c, t);
        rc = c->config ? lf_tok_conf_template(c, t, err) : 0;
    }
    if (rc == 0)
        return t;
    lf_tokenizer_destroy(t);
    return NULL;
}

/* ---- vocab.json + merges.txt ---- */

static json_t *merges_of(const lf_buf *b)
{
    json_t *list = json_array();
    const char *p = b->data, *end = p + b->len;
    while (list && p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        size_t trim = n > 0 && p[n - 1] == '\r' ? n - 1 : n;
        /* The library skips lines with #version; an empty last line ends the file. */
        if (trim > 0 && !(trim >= 8 && memcmp(p, "#version", 8) == 0) &&
            json_array_append_new(list, json_stringn(p, trim)) != 0) {
            json_decref(list);
            return NULL;
        }
        p = nl ? nl + 1 : end;
    }
    return list;
}

enum byte_class { BYTES_GPT2, BYTES_QWEN2, BYTES_ROBERTA, BYTES_UNKNOWN };
static enum byte_class byte_class(const char *name)
{
    static const struct {
        const char *prefix;
        enum byte_class kind;
    } rows[] = {{"GPT2", BYTES_GPT2},          {"Qwen2", BYTES_QWEN2},     {"CodeGen", BYTES_GPT2},
                {"GPTNeoX", BYTES_GPT2},       {"Roberta", BYTES_ROBERTA}, {"Bart", BYTES_ROBERTA},
                {"Longformer", BYTES_ROBERTA}, {"LED", BYTES_ROBERTA}};
    if (!*name || strcmp(name, "PreTrainedTokenizerFast") == 0)
        return BYTES_GPT2;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (lf_str_has_prefix(name, rows[i].prefix))
            return rows[i].kind;
    return BYTES_UNKNOWN;
}

/* The parts of a byte-level tokenizer.json; pattern NULL: ByteLevel's own. */
static int set_byte_level(json_t *root, const char *pattern, bool prefix_space, bool nfc)
{
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                              (int)prefix_space, "trim_offsets", 1, "use_regex", pattern == NULL);
    json_t *pre = level;
    if (pattern)
        pre = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence",
                        "pretokenizers", "type", "Split", "pattern", "Regex", pattern, "behavior",
                        "Isolated", "invert", 0, level);
    int bad = json_object_set_new(root, "pre_tokenizer", pre) ||
              json_object_set_new(root, "decoder", json_pack("{s:s}", "type", "ByteLevel"));
    if (nfc)
        bad = bad || json_object_set_new(root, "normalizer", json_pack("{s:s}", "type", "NFC"));
    return bad;
}

/* Template, named ids and added tokens on a tokenizer made from parts. */
static int finish(lf_tokenizer *t, const lf_tok_conf *c, const char *path, lf_err *err)
{
    json_t *added = lf_tok_conf_added(c, t->names, path, err);
    int rc = added ? lf_tok_load_added(t, added, true, path, err) : LF_EFORMAT;
    json_decref(added);
    if (rc == 0)
        rc = lf_tok_fill_bytes(t, err);
    if (rc == 0)
        lf_tok_conf_name(c, t);
    return rc == 0 ? lf_tok_conf_template(c, t, err) : rc;
}

/* [cls] text [sep], with the ids of the vocabulary. */
static int around(lf_tokenizer *t, const lf_tok_conf *c, const char *cls, const char *sep,
                  const char *path, lf_err *err)
{
    const char *text[2] = {lf_tok_conf_token(c, "cls_token"), lf_tok_conf_token(c, "sep_token")};
    text[0] = text[0] ? text[0] : cls;
    text[1] = text[1] ? text[1] : sep;
    for (int k = 0; k < 2; k++) {
        int64_t id = lf_tokenizer_find(t, text[k]);
        if (id < 0)
            return lf_fail(err, LF_EFORMAT, "%s: the vocabulary lacks %s", path, text[k]);
        int rc = lf_ids_add(k ? &t->after : &t->before, (uint32_t)id, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

lf_tokenizer *lf_tok_from_merges(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                 lf_err *err)
{
    enum byte_class kind = byte_class(lf_tok_conf_class(c));
    if (kind == BYTES_UNKNOWN) {
        lf_fail(err, LF_ENOTSUP,
                "%s: tokenizer_class %s with vocab.json and merges.txt is not known; give its "
                "tokenizer.json",
                path, lf_tok_conf_class(c));
        return NULL;
    }
    json_t *merges = merges_of(lf_tok_files_get(f, "merges.txt"));
    json_t *root = json_pack("{s:{s:s, s:O, s:o}}", "model", "type", "BPE", "vocab", c->vocab,
                             "merges", merges);
    lf_tokenizer *t = NULL;
    if (!root ||
        set_byte_level(root, kind == BYTES_QWEN2 ? LF_PATTERN_QWEN2 : NULL,
                       lf_tok_conf_bool(c, "add_prefix_space", false), kind == BYTES_QWEN2) != 0)
        lf_fail(err, LF_ENOMEM, "%s: merges.txt is not UTF-8, or there is no memory", path);
    else
        t = lf_tok_from_json(root, path, err);
    json_decref(root);
    int rc = t ? finish(t, c, path, err) : LF_EFORMAT;
    if (rc == 0 && kind == BYTES_ROBERTA)
        rc = around(t, c, "<s>", "</s>", path, err);
    if (rc == 0)
        return t;
    lf_tokenizer_destroy(t);
    return NULL;
}

/* ---- vocab.txt ---- */

static json_t *vocab_of(const lf_buf *b, lf_err *err)
{
    json_t *vocab = json_object();
    const char *p = b->data, *end = p + b->len;
    json_int_t id = 0;
    for (; vocab && p < end; id++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        while (n > 0 && (p[n - 1] == '\r' || p[n - 1] == ' ' || p[n - 1] == '\t'))
            n--;
        char *text = lf_strndup(p, n, err);
        bool bad =
            !text || memchr(p, 0, n) || json_object_set_new(vocab, text, json_integer(id)) != 0;
        free(text);
        if (bad) {
            lf_fail(err, LF_EFORMAT, "vocab.txt: line %lld is not UTF-8", (long long)id + 1);
            json_decref(vocab);
            return NULL;
        }
        p = nl ? nl + 1 : end;
    }
    return vocab;
}

lf_tokenizer *lf_tok_from_vocab_txt(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                    lf_err *err)
{
    const char *unk = lf_tok_conf_token(c, "unk_token");
    bool lower = lf_tok_conf_bool(c, "do_lower_case", true);
    const json_t *accents = json_object_get(c->config, "strip_accents");
    json_t *vocab = vocab_of(&f->v[0].data, err);
    lf_tokenizer *t = NULL;
    json_t *root =
        !vocab ? NULL
               : json_pack("{s:{s:s, s:s, s:s, s:i, s:o}, s:{s:s, s:b, s:b, s:b, s:b}, s:{s:s}, "
                           "s:{s:s, s:s, s:b}}",
                           "model", "type", "WordPiece", "unk_token", unk ? unk : "[UNK]",
                           "continuing_subword_prefix", "##", "max_input_chars_per_word", 100,
                           "vocab", vocab, "normalizer", "type", "BertNormalizer", "clean_text", 1,
                           "handle_chinese_chars",
                           (int)lf_tok_conf_bool(c, "tokenize_chinese_chars", true), "lowercase",
                           (int)lower, "strip_accents",
                           json_is_boolean(accents) ? (int)json_is_true(accents) : (int)lower,
                           "pre_tokenizer", "type", "BertPreTokenizer", "decoder", "type",
                           "WordPiece", "prefix", "##", "cleanup", 1);
    if (root)
        t = lf_tok_from_json(root, path, err);
    else if (vocab)
        lf_fail(err, LF_ENOMEM, "%s: no memory", path);
    json_decref(root);
    int rc = t ? finish(t, c, path, err) : LF_EFORMAT;
    if (rc == 0)
        rc = around(t, c, "[CLS]", "[SEP]", path, err);
    if (rc == 0)
        return t;
    lf_tokenizer_destroy(t);
    return NULL;
}

/* ---- loading ---- */

static int hash_files(lf_tokenizer *t, const lf_tok_files *f, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_buf all;
    lf_buf_init(&all);
    const lf_buf *config = lf_tok_files_get(f, "tokenizer_config.json");
    const lf_buf *merges =
        f->form == LF_TOK_FORM_VOCAB_MERGES ? lf_tok_files_get(f, "merges.txt") : NULL;
    const lf_buf *main =
        f->form == LF_TOK_FORM_VOCAB_MERGES ? lf_tok_files_get(f, "vocab.json") : &f->v[0].data;
    lf_buf_add(&all, main->data, main->len);
    if (merges)
        lf_buf_add(&all, merges->data, merges->len);
    if (config && f->form != LF_TOK_FORM_JSON) /* there it makes ids */
        lf_buf_add(&all, config->data, config->len);
    int rc = lf_buf_check(&all, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, all.data, all.len, err);
    if (rc == 0)
        lf_hash_hex(t->sha256, digest);
    lf_buf_fini(&all);
    return rc;
}

static lf_tokenizer *from_json(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                               lf_err *err)
{
    json_t *root = lf_json_load_text(f->v[0].data.data, f->v[0].data.len, path, err);
    lf_tokenizer *t = root ? lf_tok_from_json(root, path, err) : NULL;
    json_decref(root);
    if (t)
        lf_tok_conf_name(c, t);
    return t;
}

static lf_tokenizer *from_files(const lf_tok_files *f, const char *path, lf_err *err)
{
    static lf_tokenizer *(*const load[])(const lf_tok_files *f, const lf_tok_conf *c,
                                         const char *path, lf_err *err) = {
        [LF_TOK_FORM_JSON] = from_json,
        [LF_TOK_FORM_SPM] = lf_tok_from_spm,
        [LF_TOK_FORM_TIKTOKEN] = lf_tok_from_tiktoken,
        [LF_TOK_FORM_VOCAB_MERGES] = lf_tok_from_merges,
        [LF_TOK_FORM_VOCAB_TXT] = lf_tok_from_vocab_txt};
    lf_tok_conf c;
    if (lf_tok_conf_read(&c, f, path, err) != 0)
        return NULL;
    lf_tokenizer *t = load[f->form](f, &c, path, err);
    lf_tok_conf_fini(&c);
    if (t && hash_files(t, f, err) == 0)
        return t;
    lf_tokenizer_destroy(t);
    return NULL;
}

lf_tokenizer *lf_tokenizer_load(const char *path, lf_err *err)
{
    lf_tok_files f;
    if (lf_tok_files_read(&f, path, err) != 0)
        return NULL;
    lf_tokenizer *t = from_files(&f, path, err);
    lf_tok_files_fini(&f);
    return t;
}

lf_tokenizer *lf_tokenizer_parse(const char *data, size_t len, const char *path, lf_err *err)
{
    lf_tok_files f;
    if (lf_tok_files_unpack(&f, data, len, path, err) != 0)
        return NULL;
    lf_tokenizer *t = from_files(&f, path, err);
    lf_tok_files_fini(&f);
    return t;
}
