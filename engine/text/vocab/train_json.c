/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json of a trained tokenizer, in the form that every version of the tokenizers library
 * reads (merges as "a b").
 */
#include "config.h"

#include <string.h>

#include "engine/text/token/scan.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/vocab/train_priv.h"

void lf_byte_text(char out[3], uint8_t b)
{
    uint32_t c = lf_char_of_byte(b);
    if (c < 0x80) {
        out[0] = (char)c;
        out[1] = 0;
        return;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    out[2] = 0;
}

static void add_text(lf_buf *out, const char *s)
{
    lf_buf_add_json(out, s, strlen(s));
}

static void write_specials(const lf_bpe_train_args *a, const lf_vocab *v, lf_buf *out)
{
    lf_buf_adds(out, "\"added_tokens\":[");
    bool first = true;
    for (size_t i = 0; i < v->n && i < a->n_specials; i++) {
        /* Specials got the first ids; a repeated one has none of its own. */
        size_t k = 0;
        while (k < a->n_specials && strcmp(a->specials[k], v->text[i]) != 0)
            k++;
        if (k == a->n_specials)
            break;
        lf_buf_addf(out, "%s\n{\"id\":%zu,\"content\":", first ? "" : ",", i);
        add_text(out, v->text[i]);
        lf_buf_adds(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":"
                         "false,\"special\":true}");
        first = false;
    }
    lf_buf_adds(out, "],\n");
}

static void write_pipeline(const lf_bpe_train_args *a, lf_buf *out)
{
    static const char *const norms[] = {"null", "{\"type\":\"NFC\"}", "{\"type\":\"NFKC\"}"};
    lf_buf_addf(out, "\"normalizer\":%s,\n\"pre_tokenizer\":", norms[a->normalizer]);
    if (a->pattern == LF_BPE_GPT2) {
        lf_buf_adds(out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                         "\"use_regex\":true},\n");
    } else {
        lf_buf_adds(out, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                         "\"pattern\":{\"Regex\":");
        add_text(out, a->pattern == LF_BPE_LLAMA3 ? LF_PATTERN_LLAMA3 : LF_PATTERN_QWEN2);
        lf_buf_adds(out, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                         "\"add_prefix_space\":false,"
                         "\"trim_offsets\":true,\"use_regex\":false}]},\n");
    }
    lf_buf_adds(
        out, "\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_"
             "offsets\":false,"
             "\"use_regex\":true},\n\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
             "\"trim_offsets\":true,\"use_regex\":true},\n");
}

int lf_bpe_write_json(const lf_bpe_train_args *a, const lf_vocab *v, const lf_trained_merge *m,
                      size_t n_merges, lf_buf *out, lf_err *err)
{
    lf_buf_adds(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n");
    write_specials(a, v, out);
    write_pipeline(a, out);
    lf_buf_adds(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_"
                     "subword_prefix\":null,"
                     "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
                     "\"ignore_merges\":false,\n"
                     "\"vocab\":{");
    for (size_t i = 0; i < v->n; i++) {
        lf_buf_adds(out, i ? ",\n" : "\n");
        add_text(out, v->text[i]);
        lf_buf_addf(out, ":%zu", i);
    }
    lf_buf_adds(out, "},\n\"merges\":[");
    lf_buf pair;
    lf_buf_init(&pair);
    for (size_t i = 0; i < n_merges; i++) {
        lf_buf_clear(&pair);
        lf_buf_addf(&pair, "%s %s", v->text[m[i].a], v->text[m[i].b]);
        lf_buf_adds(out, i ? ",\n" : "\n");
        add_text(out, pair.data);
    }
    int rc = lf_buf_check(&pair, err);
    lf_buf_fini(&pair);
    lf_buf_adds(out, "]}}\n");
    return rc == 0 ? lf_buf_check(out, err) : rc;
}
