/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tokenizer.json may not contain, the pattern dialect, limits and small accessors. Each bad
 * file differs from a good one in one place, and the good one loads.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/regex.h"
#include "engine/text/token/tokenizer.h"
#include "tests/tap/tap.h"

#define MODEL_HEAD "\"model\":{\"type\":\"BPE\","
#define VOCAB      "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"Ġ\":3,\"Ġab\":4},"
#define MERGES     "\"merges\":[\"a b\",[\"Ġ\",\"ab\"]]}"
#define MODEL      MODEL_HEAD VOCAB MERGES
#define LEVEL                                                                                      \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define PRE  "\"pre_tokenizer\":" LEVEL
#define DEC  "\"decoder\":{\"type\":\"ByteLevel\"}"
#define GOOD "{\"version\":\"1.0\"," MODEL "," PRE "," DEC "}"

static void refuse(const char *json, int want, const char *contains, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_tokenizer *t = lf_tokenizer_parse(json, strlen(json), "t.json", &err);
    tap_rc(t ? 0 : err.rc, want, &err, contains, name);
    lf_tokenizer_destroy(t);
}

#define SPLIT(pattern, behavior)                                                                   \
    "{" MODEL "," DEC ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"    \
    "\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior "\",\"invert\":false}," LEVEL     \
    "]}}"
#define ADDED(list) "{" MODEL "," PRE "," DEC ",\"added_tokens\":[" list "]}"

static void bad_files(void)
{
    refuse(GOOD, 0, NULL, "the good file loads");
    refuse("", LF_EFORMAT, "t.json", "empty file");
    refuse("[]", LF_EFORMAT, "no object", "not an object");
    refuse("{}", LF_EFORMAT, "model", "no model");
    refuse("{" MODEL "," PRE "}", 0, NULL, "no decoder: tokens with spaces between");
    refuse("{" MODEL "," DEC "}", 0, NULL, "no pre_tokenizer: BPE over characters");
    refuse("{\"truncation\":5," MODEL "," PRE "," DEC "}", LF_EFORMAT, "truncation",
           "truncation is a number");
    refuse("{\"padding\":[]," MODEL "," PRE "," DEC "}", LF_EFORMAT, "padding",
           "padding is a list");
    refuse("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1],[\"u\",-"
           "2]]},"
           "\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"special\":true}]}",
           0, NULL, "a token that stands twice in a Unigram's list");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}," PRE "," DEC "}", LF_ENOTSUP, "Unigram",
           "another model");
    refuse("{" MODEL_HEAD "\"dropout\":0.1," VOCAB MERGES "," PRE "," DEC "}", LF_ENOTSUP,
           "dropout", "dropout");
    refuse("{" MODEL_HEAD "\"byte_fallback\":true," VOCAB MERGES "," PRE "," DEC "}", LF_ENOTSUP,
           "byte_fallback", "byte_fallback");
    refuse("{" MODEL_HEAD "\"continuing_subword_prefix\":\"##\"," VOCAB MERGES "," PRE "," DEC "}",
           LF_ENOTSUP, "continuing_subword_prefix", "continuing_subword_prefix");
    refuse("{" MODEL_HEAD "\"unk_token\":\"<unk>\"," VOCAB MERGES "," PRE "," DEC "}", LF_EFORMAT,
           "<unk>", "unk not in vocab");
    refuse("{" MODEL_HEAD VOCAB "\"merges\":[\"a c\"]}," PRE "," DEC "}", LF_EFORMAT,
           "merges[0] (\"a c\"", "merge of a missing token");
    refuse("{" MODEL_HEAD VOCAB "\"merges\":[\"a b\",\"b a\"]}," PRE "," DEC "}", LF_EFORMAT,
           "\"ba\", which is not", "merge makes a missing token");
    refuse("{" MODEL_HEAD VOCAB "\"merges\":[\"ab\"]}," PRE "," DEC "}", LF_EFORMAT, "merges[0]",
           "merge without a space");
    refuse("{" MODEL_HEAD VOCAB "\"merges\":[\"a b a\"]}," PRE "," DEC "}", LF_EFORMAT, "merges[0]",
           "merge of three");
    refuse("{" MODEL_HEAD VOCAB "\"merges\":[[\"a\"]]}," PRE "," DEC "}", LF_EFORMAT, "merges[0]",
           "merge of one");
    refuse("{" MODEL_HEAD VOCAB "\"merges\":[7]}," PRE "," DEC "}", LF_EFORMAT, "merges[0]",
           "merge is a number");
    refuse("{" MODEL_HEAD VOCAB "\"merges\":7}," PRE "," DEC "}", LF_EFORMAT, "merges",
           "merges is a number");
    refuse("{" MODEL_HEAD "\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}," PRE "," DEC "}", LF_EFORMAT,
           "id 0 is given twice", "id twice");
    refuse("{" MODEL_HEAD "\"vocab\":{\"a\":-1},\"merges\":[]}," PRE "," DEC "}", LF_EFORMAT,
           "bad id", "negative id");
    refuse("{" MODEL_HEAD "\"vocab\":{\"a\":4000000000},\"merges\":[]}," PRE "," DEC "}",
           LF_EFORMAT, "bad id", "huge id");
    refuse("{" MODEL_HEAD "\"vocab\":{\"a\":\"0\"},\"merges\":[]}," PRE "," DEC "}", LF_EFORMAT,
           "bad id", "id is text");
    refuse("{" MODEL_HEAD "\"vocab\":{},\"merges\":[]}," PRE "," DEC "}", LF_EFORMAT, "empty",
           "empty vocabulary");
    refuse("{" MODEL_HEAD "\"merges\":[]}," PRE "," DEC "}", LF_EFORMAT, "vocab", "no vocabulary");
}

static void bad_parts(void)
{
    refuse("{\"normalizer\":{\"type\":\"Uppercase\"}," MODEL "," PRE "," DEC "}", LF_ENOTSUP,
           "normalizer \"Uppercase\"", "normalizer");
    refuse("{\"normalizer\":{\"type\":\"NFC\"}," MODEL "," PRE "," DEC "}", 0, NULL, "NFC is fine");
    refuse("{\"normalizer\":5," MODEL "," PRE "," DEC "}", LF_EFORMAT, "normalizer",
           "normalizer is a number");
    refuse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," DEC "}", LF_ENOTSUP,
           "UnicodeScripts", "pre_tokenizer");
    refuse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" LEVEL
           ",{\"type\":\"Digits\",\"individual_digits\":true}]}," DEC "}",
           LF_ENOTSUP, "after ByteLevel", "ByteLevel not last");
    refuse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," DEC "}", LF_EFORMAT,
           "add_prefix_space", "ByteLevel without members");
    refuse("{" MODEL "," PRE ",\"decoder\":{\"type\":\"CTC\"}}", LF_ENOTSUP, "decoder \"CTC\"",
           "decoder");
    refuse("{" MODEL "," PRE "," DEC ",\"post_processor\":{\"type\":\"PairProcessing\"}}",
           LF_ENOTSUP, "PairProcessing", "post_processor");
    refuse("{" MODEL "," PRE "," DEC
           ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
           "\"SpecialToken\":{\"id\":\"x\"}}],\"special_tokens\":{}}}",
           LF_EFORMAT, "TemplateProcessing", "template of an undefined token");
    refuse("{" MODEL "," PRE "," DEC ",\"post_processor\":{\"type\":\"TemplateProcessing\","
           "\"single\":[],\"special_tokens\":{}}}",
           LF_EFORMAT, "does not hold the text", "template without text");
    refuse(SPLIT("{\"Regex\":\"\\\\p{L}+\"}", "Isolated"), 0, NULL, "a Split is fine");
    refuse(SPLIT("{\"Regex\":\"(\"}", "Isolated"), LF_EFORMAT, "pattern \"(\"", "broken pattern");
    refuse(SPLIT("{\"Regex\":\"\\\\bx\"}", "Isolated"), LF_ENOTSUP, "\\b",
           "\\b differs between engines");
    refuse(SPLIT("{\"Regex\":\"[a[^b]]\"}", "Isolated"), LF_ENOTSUP, "set inside a set",
           "nested set");
    refuse(SPLIT("{\"Regex\":\"a\"}", "Sideways"), LF_EFORMAT, "Sideways", "behavior");
    refuse(SPLIT("5", "Isolated"), LF_EFORMAT, "pattern", "pattern is a number");
    refuse(ADDED("{\"id\":5,\"content\":\"<x>\"}"), 0, NULL, "an added token is fine");
    refuse(ADDED("{\"id\":9,\"content\":\"<x>\"}"), LF_EFORMAT,
           "has id 9, but its place gives it 5", "added token with another id");
    refuse(ADDED("{\"id\":0,\"content\":\"ab\"}"), LF_EFORMAT, "gives it 2",
           "added token of the vocabulary with another id");
    refuse(ADDED("{\"id\":5,\"content\":\"<x>\"},{\"id\":5,\"content\":\"<x>\"}"), LF_EFORMAT,
           "same text", "added token twice");
    refuse(ADDED("{\"content\":\"<x>\"}"), LF_EFORMAT, "id", "added token without id");
    refuse(ADDED("7"), LF_EFORMAT, "added_tokens", "added token is a number");
}

/* As transformers does: truncation and padding change no ids unless a call asks for it; padding
 * names its token. */
static void cut_and_padded(void)
{
    lf_err err = LF_ERR_INIT;
    lf_ids ids = {0};
    static const char json[] =
        "{\"truncation\":{\"max_length\":1,\"direction\":\"Right\",\"strategy\":\"LongestFirst\","
        "\"stride\":0},"
        "\"padding\":{\"strategy\":{\"Fixed\":8},\"direction\":\"Right\",\"pad_to_multiple_of\":4,"
        "\"pad_id\":1,\"pad_type_id\":0,\"pad_token\":\"b\"}," MODEL "," PRE "," DEC "}";
    lf_tokenizer *t = lf_tokenizer_parse(json, strlen(json), "t.json", &err);
    tap_rc(t ? 0 : err.rc, 0, &err, NULL, "truncation and padding are set");
    lf_tok_state *s = t ? lf_tok_state_create(t, &err) : NULL;
    tap_rc(s ? lf_tokenizer_encode(s, "ab ab", 5, LF_TOK_TEMPLATE, &ids, NULL, &err) : -1, 0, &err,
           NULL, "a text");
    tap_i64((int64_t)ids.n, 2, "neither cut nor padded");
    tap_i64(t ? lf_tokenizer_pad(t) : -1, 1, "the token for padding");
    lf_ids_fini(&ids);
    lf_tok_state_destroy(s);
    lf_tokenizer_destroy(t);
}

static void missing_bytes(void)
{
    lf_err err = LF_ERR_INIT;
    lf_ids ids = {0};
    lf_tokenizer *t = lf_tokenizer_parse(GOOD, strlen(GOOD), "t.json", &err);
    lf_tok_state *s = lf_tok_state_create(t, &err);
    tap_rc(lf_tokenizer_encode(s, "ab ab", 5, 0, &ids, NULL, &err), 0, &err, NULL,
           "text inside the vocabulary");
    static const uint32_t want[] = {2, 4};
    tap_i64((int64_t)ids.n, 2, "two tokens");
    tap_mem(ids.v, want, sizeof(want), "merged, and the space with its word");
    tap_rc(lf_tokenizer_encode(s, "abc", 3, 0, &ids, NULL, &err), LF_EFORMAT, &err, "byte 0x63",
           "a byte without a token");
    tap_i64((int64_t)ids.n, 2, "a failure leaves the ids as they were");
    tap_rc(lf_tokenizer_encode(s, "ab\xff", 3, LF_TOK_STRICT, &ids, NULL, &err), LF_EFORMAT, &err,
           "byte 2 (0xff)", "strict names the offset");
    lf_tok_state_destroy(s);
    lf_tokenizer_destroy(t);
    /* With unk_token: one for each character, or one for each run with fuse_unk. */
    static const char *const fuse[] = {"false", "true"};
    for (int f = 0; f < 2; f++) {
        char json[1024];
        snprintf(json, sizeof(json),
                 "{" MODEL_HEAD "\"unk_token\":\"a\",\"fuse_unk\":%s," VOCAB MERGES "," PRE "," DEC
                 "}",
                 fuse[f]);
        t = lf_tokenizer_parse(json, strlen(json), "t.json", &err);
        s = lf_tok_state_create(t, &err);
        ids.n = 0;
        tap_rc(lf_tokenizer_encode(s, "xyzb", 4, 0, &ids, NULL, &err), 0, &err, NULL,
               "unknown characters");
        tap_i64((int64_t)ids.n, f ? 1 : 3, "unk, joined with fuse_unk, then merged like any token");
        lf_tok_state_destroy(s);
        lf_tokenizer_destroy(t);
    }
    lf_ids_fini(&ids);
}

static void accessors(void)
{
    lf_err err = LF_ERR_INIT;
    static const char json[] =
        ADDED("{\"id\":5,\"content\":\"<|endoftext|>\",\"special\":true,\"normalized\":false}");
    lf_tokenizer *t = lf_tokenizer_parse(json, strlen(json), "t.json", &err);
    tap_i64(lf_tokenizer_vocab_size(t), 6, "vocab_size counts added tokens");
    tap_i64(lf_tokenizer_eos(t), 5, "eos by its usual name");
    tap_i64(lf_tokenizer_find(t, "Ġab"), 4, "find by text");
    tap_i64(lf_tokenizer_find(t, "nope"), -1, "find what is not there");
    tap_ok(lf_tokenizer_is_special(t, 5) && !lf_tokenizer_is_special(t, 4) &&
               !lf_tokenizer_is_special(t, 6),
           "is_special");
    const uint8_t *p = NULL;
    size_t n = 0;
    tap_ok(lf_tokenizer_token(t, 4, &p, &n) && n == 3 && memcmp(p, " ab", 3) == 0,
           "bytes of a token");
    tap_ok(!lf_tokenizer_token(t, 6, &p, &n), "no bytes beyond the vocabulary");
    tap_i64((int64_t)strlen(lf_tokenizer_sha256(t)), 64, "the file's hash");
    lf_buf out;
    lf_buf_init(&out);
    static const uint32_t ids[] = {2, 5, 4};
    tap_rc(lf_tokenizer_decode(t, ids, 3, true, &out, &err), 0, &err, NULL, "decode");
    tap_str(out.data, "ab ab", "specials skipped");
    static const uint32_t wrong[] = {2, 77};
    tap_rc(lf_tokenizer_decode(t, wrong, 2, true, &out, &err), LF_EINVAL, &err, "token id 77",
           "an id that is not there");
    lf_buf_fini(&out);
    lf_tokenizer_destroy(t);
}

/* want: a digit for each token of a vocabulary, the sum of its bits. */
static void words_of(const char *json, const char *want, const char *name)
{
    lf_err err = LF_ERR_INIT;
    uint8_t marks[16];
    char got[17] = "";
    lf_tokenizer *t = lf_tokenizer_parse(json, strlen(json), "t.json", &err);
    const size_t n = strlen(want);
    if (!t || lf_tokenizer_word_marks(t, marks, n, &err) < 0) {
        tap_ok(false, "%s: %s", name, err.text);
    } else {
        for (size_t i = 0; i < n; i++)
            got[i] = (char)('0' + marks[i]);
        tap_str(got, want, name);
    }
    lf_tokenizer_destroy(t);
}

#define META                                                                                       \
    "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\",\"split\":"  \
    "true}"

static void word_marks(void)
{
    lf_err err = LF_ERR_INIT;
    words_of(ADDED("{\"id\":5,\"content\":\"<x>\",\"special\":true},{\"id\":6,\"content\":\"c\"}"),
             "0001133", "byte-level BPE: the space, alone too, and added tokens");
    words_of("{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":"
             "\"##\","
             "\"vocab\":{\"u\":0,\"a\":1,\"##a\":2,\"#\":3,\"##\":4,\"###\":5,\"#a\":6}},"
             "\"added_tokens\":[{\"id\":7,\"content\":\"[MASK]\",\"special\":true}],"
             "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}}",
             "110100133", "WordPiece: the continuing prefix, special tokens, ids that are none");
    words_of("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"\u2581a\",-1],["
             "\"b\","
             "-2],[\"\u2581\",-3]]},\"pre_tokenizer\":" META ",\"decoder\":" META "}",
             "0101", "Unigram: the space of sentencepiece; alone it begins a word, too");
    words_of(
        "{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0,\"b\":1,"
        "\"b</w>\":2},\"merges\":[]},\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}}",
        "002", "BPE with an end of words");
    words_of("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\u2581\",-1],["
             "\"b\","
             "-2],[\"\u2581\",-3]]},\"pre_tokenizer\":" META ",\"decoder\":" META "}",
             "0202", "Unigram with the space behind words: alone it ends one");
    words_of("{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1}}}",
             "33", "a vocabulary of words");
    static const char none[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
    lf_tokenizer *t = lf_tokenizer_parse(none, strlen(none), "t.json", &err);
    uint8_t marks[3];
    tap_rc(t ? lf_tokenizer_word_marks(t, marks, 3, &err) : 0, LF_ENOTSUP, &err,
           "does not mark where words begin", "one that marks none");
    lf_tokenizer_destroy(t);
}

int main(void)
{
    TAP(27, bad_files());
    TAP(22, bad_parts());
    TAP(4, cut_and_padded());
    TAP(10, missing_bytes());
    TAP(11, accessors());
    TAP(7, word_marks());
    return tap_done();
}
