/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers: load, encode, decode. Ids and texts agree with the library that each kind of file
 * belongs to (tests/golden/tokenizer), including its order of work.
 *
 *   tokenizer.json            the tokenizers library: added tokens with normalized=false,
 *                             normalizer, added tokens with normalized=true, pre-tokenizer, model,
 *                             post-processor's template
 *     model          BPE (byte-level, or characters with byte_fallback, affixes), Unigram,
 *                    WordPiece, WordLevel; no dropout
 *     normalizer     NFC NFD NFKC NFKD Lowercase StripAccents BertNormalizer Strip Replace Prepend
 *                    Precompiled Nmt ByteLevel, Sequence
 *     pre_tokenizer  Split Digits Metaspace Whitespace WhitespaceSplit Punctuation
 *                    CharDelimiterSplit BertPreTokenizer, Sequence; ByteLevel as the last
 *     post_processor ByteLevel TemplateProcessing BertProcessing RobertaProcessing, Sequence
 *     decoder        ByteLevel ByteFallback Fuse Replace Strip Metaspace WordPiece BPEDecoder,
 *                    Sequence
 *     truncation and padding make no ids (lf_tokenizer_pad). Anything else is LF_EFORMAT or
 *     LF_ENOTSUP naming the component.
 *   tokenizer.model           sentencepiece, BPE and Unigram; with tokenizer_config.json beside it
 *                             its added tokens, add_bos_token, add_eos_token and legacy count as in
 *                             transformers
 *   vocab.json + merges.txt   the tokenizers library, with the parts of tokenizer_class (default
 *   or vocab.txt              GPT-2, BERT)
 *   *.tiktoken                tiktoken, with the pattern of tokenizer_config.json ("pat_str") or of
 *                             its class
 *
 * A loaded tokenizer is immutable, and any number of threads may share it; each thread has an
 * lf_tok_state. Text that is not valid UTF-8 is read like Python's bytes.decode(errors="replace"):
 * each maximal invalid part becomes one U+FFFD, which is counted. LF_TOK_STRICT refuses it instead.
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
/* one thread's scratch memory and word cache (a few MB, bounded) */
typedef struct lf_tok_state lf_tok_state;

/* Growing list of token ids. Zero-initialise; v is owned, lf_ids_fini() frees it. */
typedef struct lf_ids {
    uint32_t *v;
    size_t n, cap;
} lf_ids;
void lf_ids_fini(lf_ids *ids);
int lf_ids_add(lf_ids *ids, uint32_t id, lf_err *err);
int lf_ids_add_all(lf_ids *ids, const uint32_t *v, size_t n, lf_err *err);

/* Both return a tokenizer that the caller owns, or NULL. path is a file or a directory;
 * tokenizer_files.h says which file counts. lf_tokenizer_parse reads one main file, or the
 * container of lf_tok_files_pack. There path is for messages, and its ending tells the form. */
lf_tokenizer *lf_tokenizer_load(const char *path, lf_err *err);
lf_tokenizer *lf_tokenizer_parse(const char *data, size_t len, const char *path, lf_err *err);
void lf_tokenizer_destroy(lf_tokenizer *t);

uint32_t lf_tokenizer_vocab_size(const lf_tokenizer *t); /* largest id + 1, added tokens included */
/* the id of the token with exactly this text in the file, or -1 */
int64_t lf_tokenizer_find(const lf_tokenizer *t, const char *token);
/* Ids that the files name (tokenizer_config.json, then special_tokens_map.json, then
 * generation_config.json, then a sentencepiece model itself), -1 none. eos, the end-of-document
 * token, is else the first of <|endoftext|>,
 * <|end_of_text|>, </s>, <|im_end|>, <eos> that is an added token: a tokenizer.json alone does not
 * name it. pad is else the token of a tokenizer.json's "padding"; that and "truncation" are
 * otherwise without effect, as in transformers. */
int64_t lf_tokenizer_bos(const lf_tokenizer *t);
int64_t lf_tokenizer_eos(const lf_tokenizer *t);
int64_t lf_tokenizer_pad(const lf_tokenizer *t);
int64_t lf_tokenizer_unk(const lf_tokenizer *t);
/* an added token with special = true */
bool lf_tokenizer_is_special(const lf_tokenizer *t, uint32_t id);
/* SHA-256, in hex, of the bytes of the files that make ids (a tokenizer.json alone; else the
 * vocabulary files, then tokenizer_config.json); borrowed. Stored in shards as tokenizer_sha256. */
const char *lf_tokenizer_sha256(const lf_tokenizer *t);

/* The bytes that an id stands for inside a text, borrowed from t, perhaps half a character; and its
 * text as in the file. false for an id without a token. */
bool lf_tokenizer_token(const lf_tokenizer *t, uint32_t id, const uint8_t **bytes, size_t *len);
bool lf_tokenizer_text(const lf_tokenizer *t, uint32_t id, const uint8_t **text, size_t *len);

/* Where the words of a text begin, by the marks that the tokenizer itself makes: the continuing
 * prefix of WordPiece (## of BERT), the space of byte-level BPE (the character U+0120 in its files)
 * and of sentencepiece (U+2581), the affixes of BPE. With spaces as marks what follows a word
 * without one, such as a comma, belongs to it, and a token of spaces alone to the word behind it
 * (before it, where most marks are behind words). Writes bits of each id below n; special and added
 * tokens and ids that there are not are words of their own. LF_ENOTSUP: the vocabulary marks
 * none. */
enum lf_tok_word {
    LF_TOK_WORD_BEGINS = 1, /* the token begins a word */
    LF_TOK_WORD_ENDS = 2    /* the next token begins one */
};
int lf_tokenizer_word_marks(const lf_tokenizer *t, uint8_t *marks, size_t n, lf_err *err);

lf_tok_state *lf_tok_state_create(const lf_tokenizer *t, lf_err *err); /* borrows t */
void lf_tok_state_destroy(lf_tok_state *s);

enum lf_tok_flags {
    LF_TOK_TEMPLATE =
        1,             /* add the post-processor's tokens (BOS ...), like add_special_tokens=True */
    LF_TOK_STRICT = 2, /* invalid UTF-8 is LF_EFORMAT naming the offset */
    LF_TOK_SPECIAL_TEXT =
        4, /* special tokens written in the text are ordinary text, like encode_special_tokens */
    LF_TOK_NO_CACHE = 8, /* do not use the word cache (tests) */
    LF_TOK_NO_SCANNER =
        16 /* PCRE2 even for the patterns that have a scanner of their own (tests) */
};

/* Encodes text and appends its ids to out. *replaced (may be NULL) grows by the number of U+FFFD
 * put for invalid UTF-8. On failure out is as before. */
int lf_tokenizer_encode(lf_tok_state *s, const char *text, size_t len, unsigned flags, lf_ids *out,
                        uint64_t *replaced, lf_err *err);

/* Calls fn, in order, with the bytes of each word that normalisation and pre-tokenization make of a
 * text, without added tokens. A negative return of fn stops and is returned. The trainers use
 * it. */
typedef int (*lf_tok_word_fn)(void *arg, const uint8_t *word, size_t len, lf_err *err);
struct lf_word_sink {
    lf_tok_word_fn fn;
    void *arg;
};
int lf_tokenizer_words(lf_tok_state *s, const char *text, size_t len, unsigned flags,
                       const struct lf_word_sink *sink, uint64_t *replaced, lf_err *err);

/* A streaming decoder. Zero-initialise it and push ids; then finish writes what is held back, or
 * drop discards it. Both leave it zeroed. Only whole characters reach out; bytes that can no longer
 * become one are U+FFFD. The concatenation equals the library's decode() of all ids. LF_EINVAL: an
 * id is unknown. */
typedef struct lf_tok_stream {
    uint8_t pend[4];
    unsigned n_pend;
    /* sentencepiece: text was written; the space at its front was removed */
    bool some, seen_front;
    struct lf_tok_chain *chain; /* owned; state of decoders other than ByteLevel */
} lf_tok_stream;
int lf_tok_stream_push(lf_tok_stream *d, const lf_tokenizer *t, uint32_t id, bool skip_special,
                       lf_buf *out, lf_err *err);
int lf_tok_stream_finish(lf_tok_stream *d, const lf_tokenizer *t, lf_buf *out, lf_err *err);
void lf_tok_stream_drop(lf_tok_stream *d);
int lf_tokenizer_decode(const lf_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                        lf_buf *out, lf_err *err);

#endif
