/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms of tokenizers beside tokenizer.json: what the readers refuse and say, which of the
 * files beside wins, and the settings of tokenizer_config.json. Ids against the libraries are
 * text_forms' matter.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/text/token/tokenizer.h"
#include "engine/text/token/tokenizer_files.h"
#include "tests/tap/tap.h"
#include "tests/unit/text_vectors.h"

/* ---- a container of files, and a small sentencepiece model ---- */

static lf_buf box;

static void begin(void)
{
    lf_buf_clear(&box);
    lf_buf_adds(&box, "loong-flow tokenizer files 1\n");
}

static void file(const char *name, const void *data, size_t n)
{
    lf_buf_addf(&box, "%s %zu\n", name, n);
    lf_buf_add(&box, data, n);
}

static void text_file(const char *name, const char *text)
{
    file(name, text, strlen(text));
}

static lf_tokenizer *load(lf_err *err)
{
    return lf_tokenizer_parse(box.data, box.len, "box", err);
}

static void refuse(int want, const char *contains, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_tokenizer *t = load(&err);
    tap_rc(t ? 0 : err.rc, want, &err, contains, name);
    lf_tokenizer_destroy(t);
}

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

static void piece(lf_buf *b, const char *text, size_t n, float score, int type)
{
    uint32_t bits;
    memcpy(&bits, &score, 4);
    lf_buf_addc(b, 0x0A);
    lf_buf_addc(b, (char)(n + 9));
    lf_buf_addc(b, 0x0A);
    lf_buf_addc(b, (char)n);
    lf_buf_add(b, text, n);
    lf_buf_addc(b, 0x15);
    for (int i = 0; i < 4; i++)
        lf_buf_addc(b, (char)(bits >> (8 * i)));
    lf_buf_addc(b, 0x18);
    lf_buf_addc(b, (char)type);
}

#define SP "\xE2\x96\x81"

/* <unk> <s> </s> a b _ _a ab, scores by rank; trainer_spec.model_type; no rules, spaces stay. */
static void model(lf_buf *b, int model_type, int unk_type)
{
    static const char *const pieces[] = {"a", "b", SP, SP "a", "ab"};
    lf_buf_clear(b);
    piece(b, "<unk>", 5, 0, unk_type);
    piece(b, "<s>", 3, 0, CONTROL);
    piece(b, "</s>", 4, 0, CONTROL);
    for (int i = 0; i < 5; i++)
        piece(b, pieces[i], strlen(pieces[i]), (float)-i, NORMAL);
    char trainer[] = {0x12, 2, 0x18, (char)model_type};
    char normalizer[] = {0x1A, 2, 0x20, 0}; /* remove_extra_whitespaces = false */
    lf_buf_add(b, trainer, sizeof(trainer));
    lf_buf_add(b, normalizer, sizeof(normalizer));
}

/* Ids of text as "1 2 3". */
static const char *ids_of(const lf_tokenizer *t, const char *text, unsigned flags)
{
    static char out[2048];
    lf_err err = LF_ERR_INIT;
    lf_ids ids = {0};
    lf_tok_state *s = lf_tok_state_create(t, &err);
    out[0] = 0;
    if (lf_tokenizer_encode(s, text, strlen(text), flags, &ids, NULL, &err) != 0)
        snprintf(out, sizeof(out), "%s", err.text);
    for (size_t i = 0; i < ids.n; i++)
        snprintf(out + strlen(out), sizeof(out) - strlen(out), i ? " %u" : "%u", ids.v[i]);
    lf_ids_fini(&ids);
    lf_tok_state_destroy(s);
    return out;
}

static void spm(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf m;
    lf_buf_init(&m);
    model(&m, 2, UNKNOWN);
    begin();
    file("tokenizer.model", m.data, m.len);
    lf_tokenizer *t = load(&err);
    tap_ok(t != NULL, "a small model loads %s", err.text);
    tap_str(ids_of(t, "ab a", 0), "6 4 6", "BPE: best score first, then leftmost");
    tap_str(ids_of(t, "xya", 0), "5 0 3", "a run of unknown characters is one unk");
    tap_str(ids_of(t, "<s>", LF_TOK_TEMPLATE), "5 0",
            "a control symbol in a text is text; no template without a configuration");
    tap_i64(lf_tokenizer_bos(t), 1, "bos of the model");
    tap_i64(lf_tokenizer_eos(t), 2, "eos of the model");
    tap_i64(lf_tokenizer_unk(t), 0, "unk of the model");
    lf_tokenizer_destroy(t);
    size_t good = m.len;
    for (size_t n = 0; n < good;
         n++) { /* every cut: an error, or a shorter model that lacks its settings */
        lf_err why = LF_ERR_INIT;
        t = lf_tokenizer_parse(m.data, n, "t.model", &why);
        if (!t && (why.rc == 0 || !why.text[0]))
            tap_ok(false, "a model cut at %zu fails without words", n);
        lf_tokenizer_destroy(t);
    }
    tap_ok(true, "a model cut at any of %zu places", good);
    model(&m, 3, UNKNOWN);
    begin();
    file("tokenizer.model", m.data, m.len);
    refuse(LF_ENOTSUP, "model_type 3", "a word model");
    model(&m, 2, NORMAL);
    begin();
    file("tokenizer.model", m.data, m.len);
    refuse(LF_EFORMAT, "0 unknown symbols", "no unk");
    model(&m, 2, UNKNOWN);
    piece(&m, "<0x41>", 6, 0, BYTE);
    begin();
    file("tokenizer.model", m.data, m.len);
    refuse(LF_EFORMAT, "byte_fallback is off", "a byte piece without byte_fallback");
    model(&m, 2, UNKNOWN);
    piece(&m, "a\0b", 3, 0, NORMAL);
    begin();
    file("tokenizer.model", m.data, m.len);
    refuse(LF_EFORMAT, "piece 8", "a piece with a zero byte");
    model(&m, 2, UNKNOWN);
    piece(&m, "ab", 2, 0, NORMAL);
    begin();
    file("tokenizer.model", m.data, m.len);
    refuse(LF_EFORMAT, "there twice", "a piece twice");
    lf_buf_fini(&m);
}

static void with_config(const char *config, const char *text, unsigned flags, const char *want,
                        const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_buf m;
    lf_buf_init(&m);
    model(&m, 2, UNKNOWN);
    begin();
    file("tokenizer.model", m.data, m.len);
    text_file("tokenizer_config.json", config);
    lf_tokenizer *t = load(&err);
    tap_str(t ? ids_of(t, text, flags) : err.text, want, name);
    lf_tokenizer_destroy(t);
    lf_buf_fini(&m);
}

#define ADDED                                                                                      \
    "\"bos_token\":\"<s>\",\"eos_token\":\"</"                                                     \
    "s>\",\"added_tokens_decoder\":{\"8\":{\"content\":\"<x>\",\"normalized\":false}}"

static void config(void)
{
    with_config("{\"tokenizer_class\":\"LlamaTokenizer\"," ADDED "}", "a", LF_TOK_TEMPLATE, "1 6",
                "Llama begins with bos");
    with_config("{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false,\"add_eos_token\":"
                "true," ADDED "}",
                "a", LF_TOK_TEMPLATE, "6 2", "add_bos_token and add_eos_token win over the class");
    with_config("{\"tokenizer_class\":\"LlamaTokenizer\"," ADDED "}", "a<x>a</s>", 0, "6 8 6 2",
                "legacy: every part has the dummy prefix");
    with_config("{\"tokenizer_class\":\"LlamaTokenizer\",\"legacy\":false," ADDED "}", "a<x>a</s>",
                0, "6 8 3 2", "legacy = false: the first part only");
    with_config("{\"tokenizer_class\":\"LlamaTokenizer\",\"legacy\":false," ADDED "}", "<x>a", 0,
                "8 3", "a text that begins with an added token");
    with_config("{\"add_eos_token\":true}", "a", LF_TOK_TEMPLATE, "6 2",
                "a template with the model's own eos");
    lf_buf m;
    lf_buf_init(&m);
    model(&m, 2, UNKNOWN);
    begin();
    file("sentencepiece.bpe.model", m.data, m.len);
    text_file("tokenizer_config.json", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}");
    refuse(LF_ENOTSUP, "XLMRobertaTokenizer", "a class that numbers tokens anew");
    begin();
    file("tokenizer.model", m.data, m.len);
    text_file("tokenizer_config.json", "[1]");
    refuse(LF_EFORMAT, "tokenizer_config.json is no object", "a configuration that is no object");
    begin();
    file("tokenizer.model", m.data, m.len);
    text_file("tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{}}}");
    refuse(LF_EFORMAT, "added_tokens_decoder", "an added token without a number");
    lf_buf_fini(&m);
}

#define VOCAB  "{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3,\"</s>\":4,\"<e>\":5}"
#define MERGES "#version: 0.2\na b\n"

static void merges(const char *conf, const char *map, const char *gen)
{
    begin();
    text_file("vocab.json", VOCAB);
    text_file("merges.txt", MERGES);
    if (conf)
        text_file("tokenizer_config.json", conf);
    if (map)
        text_file("special_tokens_map.json", map);
    if (gen)
        text_file("generation_config.json", gen);
}

static void eos_is(int64_t want, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_tokenizer *t = load(&err);
    tap_i64(t ? lf_tokenizer_eos(t) : -99, want, name);
    lf_tokenizer_destroy(t);
}

static void precedence(void)
{
    static const char conf[] = "{\"eos_token\":{\"content\":\"</s>\"}}",
                      map[] = "{\"eos_token\":\"<e>\"}", gen[] = "{\"eos_token_id\":[3,4]}";
    merges(conf, map, gen);
    eos_is(4, "tokenizer_config.json wins");
    merges(NULL, map, gen);
    eos_is(5, "then special_tokens_map.json");
    merges(NULL, NULL, gen);
    eos_is(3, "then generation_config.json, its first id");
    merges(NULL, NULL, "{\"eos_token_id\":77}");
    eos_is(-1, "an id that is not in the vocabulary names nothing");
    merges("{\"tokenizer_class\":\"CamelTokenizer\"}", NULL, NULL);
    refuse(LF_ENOTSUP, "CamelTokenizer", "a class whose pattern is not known");
    begin();
    text_file("vocab.json", VOCAB);
    refuse(LF_EFORMAT, "beside each other", "vocab.json alone");
    begin();
    text_file("vocab.json", VOCAB);
    text_file("merges.txt", "a b\na c\n");
    refuse(LF_EFORMAT, "merges[1]", "a merge of a missing token");
}

/* The single bytes, ids 0 to 255. */
static void byte_ranks(lf_buf *ranks)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 256; i++)
        lf_buf_addf(ranks, "%c%c== %d\n", digits[i >> 2], digits[(i & 3) << 4], i);
}

static void tiktoken(void)
{
    lf_buf ranks;
    lf_buf_init(&ranks);
    byte_ranks(&ranks);
    lf_buf_adds(&ranks, "YWI= 256\nYWJh 257\n"); /* ab, aba */
    static const char conf[] = "{\"tokenizer_class\":\"QWenTokenizer\"}";
    lf_err err = LF_ERR_INIT;
    begin();
    file("qwen.tiktoken", ranks.data, ranks.len);
    text_file("tokenizer_config.json", conf);
    lf_tokenizer *t = load(&err);
    tap_str(t ? ids_of(t, "abab aba<|endoftext|>", 0) : err.text, "256 256 32 257 258",
            "ranks, Qwen's special tokens behind them");
    lf_tokenizer_destroy(t);
    begin();
    file("qwen.tiktoken", ranks.data, ranks.len);
    refuse(LF_ENOTSUP, "pat_str", "no pattern");
    begin();
    file("qwen.tiktoken", ranks.data, ranks.len);
    text_file("tokenizer_config.json", "{\"pat_str\":\"\\\\bx\"}");
    refuse(LF_ENOTSUP, "\\b", "a pattern that cannot be matched exactly");
    begin();
    file("qwen.tiktoken", ranks.data + 7, ranks.len - 7);
    text_file("tokenizer_config.json", conf);
    refuse(LF_EFORMAT, "byte 0x00", "a byte without a token");
    lf_buf_adds(&ranks, "YW!= 258\n");
    begin();
    file("qwen.tiktoken", ranks.data, ranks.len);
    text_file("tokenizer_config.json", conf);
    refuse(LF_EFORMAT, ":259:", "a line that is not base64, by its number");
    lf_buf_fini(&ranks);
}

/* One row of tiktoken.json: all texts' ids. */
static void golden_row(const json_t *all, const json_t *row)
{
    lf_err err = LF_ERR_INIT;
    json_t *ranks = json_object_get(all, "ranks"), *texts = json_object_get(all, "texts");
    char *conf = json_dumps(json_object_get(row, "config"), JSON_COMPACT);
    const char *name = json_string_value(json_object_get(row, "name"));
    size_t i, k, bad = 0;
    const json_t *v;
    lf_buf lines;
    lf_buf_init(&lines);
    json_array_foreach(ranks, i, v) lf_buf_addf(&lines, "%s %zu\n", json_string_value(v), i);
    if (json_integer_value(json_object_get(row, "empty")))
        lf_buf_addf(&lines, "= %zu\n", json_array_size(ranks));
    begin();
    file("x.tiktoken", lines.data, lines.len);
    text_file("tokenizer_config.json", conf);
    lf_tokenizer *t = load(&err);
    tap_rc(t ? 0 : err.rc, 0, &err, NULL, name);
    json_array_foreach(texts, i, v)
    {
        const json_t *want = json_array_get(json_object_get(row, "ids"), i);
        char *text = malloc(json_string_length(v) + 1);
        lf_ids ids = {0};
        size_t n = vectors_unhex(text, json_string_value(v));
        lf_tok_state *s = t ? lf_tok_state_create(t, &err) : NULL;
        bool ok = s && lf_tokenizer_encode(s, text, n, 0, &ids, NULL, &err) == 0;
        ok = ok && ids.n == json_array_size(want);
        for (k = 0; ok && k < ids.n; k++)
            ok = ids.v[k] == (uint32_t)json_integer_value(json_array_get(want, k));
        bad += !ok;
        if (!ok)
            tap_diag("%s: text %zu: %s", name, i, json_string_value(v));
        lf_tok_state_destroy(s);
        lf_ids_fini(&ids);
        free(text);
    }
    tap_i64((int64_t)bad, 0, "texts with other ids than tiktoken's");
    lf_tokenizer_destroy(t);
    lf_buf_fini(&lines);
    free(conf);
}

static void golden(void)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    size_t i;
    json_t *row;
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/tiktoken.json", getenv("LF_SRCDIR"));
    json_t *all = lf_json_load_file(path, (size_t)1 << 20, &err);
    if (!all)
        tap_bail("%s", err.text);
    json_array_foreach(json_object_get(all, "rows"), i, row) golden_row(all, row);
    json_decref(all);
}

/* Whisper's multilingual file ends with a token without bytes, which no text becomes. */
static void empty_token(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf ranks, out;
    lf_buf_init(&ranks);
    lf_buf_init(&out);
    byte_ranks(&ranks);
    lf_buf_adds(&ranks, "= 256\n");
    begin();
    file("multilingual.tiktoken", ranks.data, ranks.len);
    text_file("tokenizer_config.json", "{\"tokenizer_class\":\"WhisperTokenizer\"}");
    lf_tokenizer *t = load(&err);
    tap_rc(t ? 0 : err.rc, 0, &err, NULL, "a line with no bytes");
    tap_i64(t ? lf_tokenizer_vocab_size(t) : 0, 257, "it has an id");
    static const uint32_t ids[] = {97, 256, 98};
    tap_rc(t ? lf_tokenizer_decode(t, ids, 3, false, &out, &err) : -1, 0, &err, NULL, "its text");
    tap_str(out.data, "ab", "is nothing");
    lf_tokenizer_destroy(t);
    lf_buf_fini(&ranks);
    lf_buf_fini(&out);
}

static void containers(void)
{
    begin();
    refuse(LF_EFORMAT, "empty", "an empty container");
    begin();
    lf_buf_adds(&box, "vocab.txt 10\nabc");
    refuse(LF_EFORMAT, "broken", "a file longer than the container");
    begin();
    lf_buf_adds(&box, "../vocab.txt 3\nabc");
    refuse(LF_EFORMAT, "broken", "a name with a folder");
    begin();
    text_file("vocab.txt", "[UNK]\n[CLS]\nab\n");
    refuse(LF_EFORMAT, "[SEP]", "vocab.txt without [SEP]");
    lf_err err = LF_ERR_INIT;
    lf_tokenizer *t = lf_tokenizer_load("/nonexistent/tokenizer", &err);
    tap_rc(t ? 0 : err.rc, LF_ENOENT, &err, "/nonexistent", "a path that is not there");
}

static void put(const char *dir, const char *name, const char *text)
{
    lf_err err = LF_ERR_INIT;
    char path[4200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (lf_io_write_file(path, text, strlen(text), 0644, &err) != 0)
        tap_bail("%s", err.text);
}

/* The text of the template called `name` in the tokenizer_config.json of f. */
static const char *template_of(const lf_tok_files *f, const char *name)
{
    static char text[100];
    const lf_buf *b = lf_tok_files_get(f, "tokenizer_config.json");
    json_t *o = b ? json_loads(b->data, 0, NULL) : NULL, *e;
    size_t i;
    snprintf(text, sizeof(text), "none");
    json_array_foreach(json_object_get(o, "chat_template"), i, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "name")), name) == 0)
            snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(e, "template")));
    }
    json_decref(o);
    return text;
}

/* As transformers 5 saves several chat templates. */
static void named_templates(void)
{
    char dir[4000], folder[4100];
    lf_err err = LF_ERR_INIT;
    lf_tok_files f;
    snprintf(dir, sizeof(dir), "%s/named", tap_tmpdir());
    snprintf(folder, sizeof(folder), "%s/additional_chat_templates", dir);
    if (mkdir(dir, 0777) != 0 || mkdir(folder, 0777) != 0)
        tap_bail("cannot make %s", folder);
    put(dir, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\nab\n");
    put(dir, "tokenizer_config.json", "{\"chat_template\": \"old\", \"cls_token\": \"[CLS]\"}");
    put(folder, "tool_use.jinja", "with \\u00e9 tools");
    put(folder, ".hidden.jinja", "no");
    tap_rc(lf_tok_files_read(&f, dir, &err), 0, &err, NULL, "a directory with two templates");
    tap_str(template_of(&f, "default"), "old", "the default of tokenizer_config.json");
    tap_str(template_of(&f, "tool_use"), "with \\u00e9 tools", "and one of the folder");
    tap_str(template_of(&f, ".hidden"), "none", "hidden files are none");
    lf_tok_files_fini(&f);
    put(dir, "chat_template.jinja", "own");
    tap_rc(lf_tok_files_read(&f, dir, &err), 0, &err, NULL, "the same with chat_template.jinja");
    tap_str(template_of(&f, "default"), "own", "which is the default");
    tap_ok(!lf_tok_files_get(&f, "chat_template.jinja"), "and is no file of its own");
    tap_ok(strstr(lf_tok_files_get(&f, "tokenizer_config.json")->data, "[CLS]"),
           "the rest of tokenizer_config.json is there");
    lf_tok_files_fini(&f);
    put(folder, "bad.jinja", "\xff");
    tap_rc(lf_tok_files_read(&f, dir, &err), LF_EFORMAT, &err, "bad.jinja", "no UTF-8");
}

int main(void)
{
    lf_buf_init(&box);
    TAP(13, spm());
    TAP(9, config());
    TAP(7, precedence());
    TAP(5, tiktoken());
    TAP(4, empty_token());
    TAP(8, golden());
    TAP(5, containers());
    TAP(9, named_templates());
    lf_buf_fini(&box);
    return tap_done();
}
