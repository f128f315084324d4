/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-level BPE tokenizers in Hugging Face's tokenizer.json form (GPT-2, Llama-3, Qwen2 style): load, encode, decode.
 * Ids agree with the tokenizers library on every text (tests/golden/tokenizer), including its order of work: added
 * tokens with normalized=false, then the normalizer, added tokens with normalized=true, the pre-tokenizer, BPE, and the
 * post-processor's template.
 *
 * What a file may contain; anything else is LF_EFORMAT or LF_ENOTSUP naming the component:
 *   model          BPE, vocab + merges ("a b" or ["a","b"]), ignore_merges, unk_token/fuse_unk; no dropout,
 * byte_fallback, continuing_subword_prefix or end_of_word_suffix normalizer     null, NFC, NFD, NFKC, NFKD, Sequence
 *   pre_tokenizer  ByteLevel last; before it Split (Regex or String, every behaviour, invert), Digits, Sequence
 *   post_processor null, ByteLevel, TemplateProcessing, Sequence
 *   decoder        ByteLevel, or a Sequence holding only it
 *   truncation, padding: null
 *
 * A tokenizer is immutable after loading and may be shared by any number of threads; each thread has an lf_tok_state.
 * Text that is not valid UTF-8 is read like Python's bytes.decode(errors="replace"): one U+FFFD for each maximal
 * invalid part, counted; LF_TOK_STRICT refuses it instead.
 */
#ifndef LF_TEXT_TOKENIZER_H
#define LF_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

#define LF_TOK_FILE_MAX ((size_t)256 << 20) /* bytes of a tokenizer.json */
#define LF_TOK_TEXT_MAX ((size_t)1 << 30)   /* bytes of one text; longer is LF_EINVAL */

typedef struct lf_tokenizer lf_tokenizer;
typedef struct lf_tok_state lf_tok_state; /* one thread's scratch memory and word cache (a few MB, bounded) */

/* Growing list of token ids. Zero-initialise; v is owned, lf_ids_fini() frees it. */
typedef struct lf_ids {
    uint32_t *v;
    size_t n, cap;
} lf_ids;
void lf_ids_fini(lf_ids *ids);
int lf_ids_add(lf_ids *ids, uint32_t id, lf_err *err);

/* Both return owned, NULL on failure. `path` is for messages in the second. */
lf_tokenizer *lf_tokenizer_load(const char *path, lf_err *err);
lf_tokenizer *lf_tokenizer_parse(const char *json, size_t len, const char *path, lf_err *err);
void lf_tokenizer_destroy(lf_tokenizer *t);

uint32_t lf_tokenizer_vocab_size(const lf_tokenizer *t);             /* largest id + 1, added tokens included */
int64_t lf_tokenizer_find(const lf_tokenizer *t, const char *token); /* id by exact token text as in the file, or -1 */
/* Id of the end-of-document token: the first of <|endoftext|>, <|end_of_text|>, </s>, <|im_end|>, <eos> that the file
 * has as an added token, or -1. A tokenizer.json does not name it, so options may override. */
int64_t lf_tokenizer_eos(const lf_tokenizer *t);
bool lf_tokenizer_is_special(const lf_tokenizer *t, uint32_t id); /* an added token with special = true */
/* SHA-256 of the file's bytes, in hex; borrowed. Stored in shards as tokenizer_sha256. */
const char *lf_tokenizer_sha256(const lf_tokenizer *t);

/* The bytes an id stands for (borrowed from t, may be half a character); false for an id without a token. */
bool lf_tokenizer_token(const lf_tokenizer *t, uint32_t id, const uint8_t **bytes, size_t *len);

lf_tok_state *lf_tok_state_create(const lf_tokenizer *t, lf_err *err); /* borrows t */
void lf_tok_state_destroy(lf_tok_state *s);

enum lf_tok_flags {
    LF_TOK_TEMPLATE = 1,     /* add the post-processor's tokens (BOS ...), like add_special_tokens=True */
    LF_TOK_STRICT = 2,       /* invalid UTF-8 is LF_EFORMAT naming the offset */
    LF_TOK_SPECIAL_TEXT = 4, /* special tokens written in the text are ordinary text, like encode_special_tokens */
    LF_TOK_NO_CACHE = 8,     /* do not use the word cache (tests) */
    LF_TOK_NO_SCANNER = 16   /* PCRE2 even for the patterns that have a scanner of their own (tests) */
};

/* Encode text and append its ids to out. *replaced (NULL allowed) is raised by the number of U+FFFD put for invalid
 * UTF-8. On failure out is as before. */
int lf_tokenizer_encode(lf_tok_state *s, const char *text, size_t len, unsigned flags, lf_ids *out, uint64_t *replaced,
                        lf_err *err);

/* The words that normalisation and pre-tokenization make of a text, without added tokens, as bytes: fn is called for
 * each in order; a negative return stops and is returned. Used by the trainer. */
typedef int (*lf_tok_word_fn)(void *arg, const uint8_t *word, size_t len, lf_err *err);
int lf_tokenizer_words(lf_tok_state *s, const char *text, size_t len, unsigned flags, lf_tok_word_fn fn, void *arg,
                       uint64_t *replaced, lf_err *err);

/* Streaming decoder: zero-initialise, push ids, finish. Whole characters only ever reach out; bytes that can no longer
 * become one are U+FFFD. The concatenation equals the library's decode() of all ids. An unknown id is LF_EINVAL. */
typedef struct lf_tok_stream {
    uint8_t pend[4];
    unsigned n_pend;
} lf_tok_stream;
int lf_tok_stream_push(lf_tok_stream *d, const lf_tokenizer *t, uint32_t id, bool skip_special, lf_buf *out,
                       lf_err *err);
void lf_tok_stream_finish(lf_tok_stream *d, lf_buf *out); /* an unfinished character becomes U+FFFD */
int lf_tokenizer_decode(const lf_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special, lf_buf *out,
                        lf_err *err);

#endif
