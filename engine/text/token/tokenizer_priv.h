/* SPDX-License-Identifier: Apache-2.0
 *
 * The representation of lf_tokenizer, for its own files only. tokenizer_load.c, tokenizer_parts.c,
 * tokenizer_decoder.c, spm.c and tokenizer_forms.c fill it. tokenizer.c encodes with normalize.c,
 * added.c, pretok.c and model.c; decode.c decodes.
 */
#ifndef LF_TEXT_TOKENIZER_PRIV_H
#define LF_TEXT_TOKENIZER_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/text/token/bpe.h"
#include "engine/text/token/charsmap.h"
#include "engine/text/token/regex.h"
#include "engine/text/token/scan.h"
#include "engine/text/token/tokenizer.h"
#include "engine/text/token/vtrie.h"

#define LF_TOK_STEPS_MAX 16    /* pre-tokenizer or normalizer components */
#define LF_TOK_ADDED_MAX 65536 /* added tokens */
#define LF_TOK_TOKEN_MAX 65535 /* bytes of one token */

/* ---- normalisation (textnorm.c) ---- */
enum lf_norm { LF_NORM_NFC, LF_NORM_NFD, LF_NORM_NFKC, LF_NORM_NFKD };

typedef struct lf_bytes {
    const uint8_t *p; /* borrowed */
    size_t n;
} lf_bytes;

/* Makes *text valid UTF-8. Valid text is not copied; otherwise buf holds the repaired text and
 * *text points into it. *replaced (may be NULL) grows by the number of U+FFFD. */
int lf_text_repair(lf_bytes *text, lf_buf *buf, bool strict, uint64_t *replaced, lf_err *err);

typedef struct lf_norm_scratch {
    int32_t *cp;
    size_t cap;
} lf_norm_scratch;
/* Brings *text, which is valid UTF-8, into a normal form. Text known to be normal is not copied;
 * otherwise buf is cleared and holds it. */
int lf_text_normalize(lf_bytes *text, lf_buf *buf, lf_norm_scratch *scratch, enum lf_norm form,
                      const uint8_t *cls, lf_err *err);

/* ---- normalizers (normalize.c) ---- */
enum lf_norm_type {
    LF_NORMSTEP_FORM,  /* NFC .. NFKD */
    LF_NORMSTEP_LOWER, /* Lowercase */
    LF_NORMSTEP_STRIP_ACCENTS,
    LF_NORMSTEP_BERT,
    LF_NORMSTEP_STRIP,   /* white space at the ends */
    LF_NORMSTEP_REPLACE, /* every match of a pattern, or of a text */
    LF_NORMSTEP_PREPEND, /* before a text that is not empty */
    LF_NORMSTEP_PRECOMPILED,
    LF_NORMSTEP_NMT,
    LF_NORMSTEP_BYTELEVEL /* bytes as characters of the byte alphabet */
};

typedef struct lf_normstep {
    enum lf_norm_type type;
    enum lf_norm form;
    bool clean, chinese, accents, lower; /* BERT */
    bool left, right;                    /* STRIP */
    lf_regex *re;                        /* REPLACE of a pattern; owned */
    char *from, *to;                     /* REPLACE of a text, PREPEND (to); owned */
    size_t n_from, n_to;
    lf_charsmap map; /* PRECOMPILED */
} lf_normstep;

/* Scratch of one thread. */
struct lf_tok_bufs {
    lf_buf a, b;
    lf_norm_scratch scratch;
    lf_regex_state *re[LF_TOK_STEPS_MAX]; /* made when first needed */
    bool front_gone;                      /* the last text's first character was removed */
};
void lf_tok_bufs_init(struct lf_tok_bufs *bufs);
void lf_tok_bufs_fini(struct lf_tok_bufs *bufs);
/* Applies all normaliser steps. *text is not copied, or points into bufs afterwards. */
int lf_tok_normalize(const lf_tokenizer *t, struct lf_tok_bufs *bufs, lf_bytes *text, lf_err *err);

/* Applies a REPLACE step alone. *state is made when needed. */
int lf_tok_replace(const lf_normstep *st, lf_regex_state **state, lf_buf *out, const uint8_t *p,
                   size_t len, lf_err *err);
void lf_normstep_fini(lf_normstep *st);

/* ---- added tokens (added.c) ---- */
typedef struct lf_added {
    uint32_t id;
    char *content; /* owned, as in the file */
    size_t len;
    char *match; /* owned: content, normalised when `normalized` */
    size_t match_len;
    bool single_word, lstrip, rstrip, normalized, special;
} lf_added;

typedef struct lf_trie_node {
    uint32_t first, n; /* its edges in lf_trie.bytes and .to */
    int32_t value;     /* index of the added token that ends here, -1 none */
} lf_trie_node;

/* A leftmost-longest matcher for one set of added tokens. */
typedef struct lf_trie {
    lf_trie_node *nodes;
    size_t n_nodes, cap_nodes;
    uint8_t *bytes;
    uint32_t *to;
    size_t n_edges, cap_bytes, cap_to;
    bool first[256]; /* bytes a token can begin with */
    int only_first;  /* the one such byte, -1 when there are several */
    bool used;
} lf_trie;

/* Builds the matcher of those tokens of added[0..n) whose `normalized` equals the flag. LF_EFORMAT:
 * two texts are equal. */
int lf_trie_build(lf_trie *t, const lf_added *added, size_t n, bool normalized, lf_err *err);
void lf_trie_fini(lf_trie *t);
/* Finds the leftmost-longest match in text[from, len). Returns true with the token and its
 * place. */
bool lf_trie_find(const lf_trie *t, const uint8_t *text, size_t len, size_t from, size_t *start,
                  size_t *end, int *which);

/* Cuts text at the matches of the set and calls fn for each part in order. added is NULL for plain
 * text, which is never empty. */
typedef int (*lf_piece_fn)(lf_tok_state *s, const uint8_t *text, size_t len, const lf_added *added,
                           lf_err *err);
int lf_added_split(lf_tok_state *s, const lf_trie *t, const uint8_t *text, size_t len,
                   lf_piece_fn fn, lf_err *err);

/* ---- pre-tokenizers (pretok.c) ---- */
enum lf_pretok_type {
    LF_PRETOK_SPLIT,
    LF_PRETOK_DIGITS,
    LF_PRETOK_BYTELEVEL,
    LF_PRETOK_METASPACE,
    LF_PRETOK_SPACE, /* WhitespaceSplit: cut at white space, which is removed */
    LF_PRETOK_WORDS, /* Whitespace: \w+ and [^\w\s]+ are kept */
    LF_PRETOK_PUNCT, /* Punctuation */
    LF_PRETOK_DELIM  /* CharDelimiterSplit */
};
enum lf_split_behavior {
    LF_SPLIT_REMOVED,
    LF_SPLIT_ISOLATED,
    LF_SPLIT_MERGED_PREV,
    LF_SPLIT_MERGED_NEXT,
    LF_SPLIT_CONTIGUOUS
};
enum lf_prepend { LF_PREPEND_ALWAYS, LF_PREPEND_FIRST, LF_PREPEND_NEVER };

typedef struct lf_pretok {
    enum lf_pretok_type type;
    enum lf_scan_kind scan; /* the pattern's scanner, if it has one */
    lf_regex *re;           /* owned; SPLIT, and BYTELEVEL with use_regex */
    enum lf_split_behavior behavior;
    bool invert;
    bool add_prefix_space, use_regex; /* BYTELEVEL */
    enum lf_prepend prepend;          /* METASPACE */
    bool split;
    char mark[5]; /* METASPACE and DELIM: the character */
    unsigned n_mark;
} lf_pretok;

typedef struct lf_spans {
    size_t (*v)[2]; /* [n][2]: start, end */
    bool *match;
    size_t n, cap_v, cap_match;
} lf_spans;

/* Cuts text with the steps from i on and calls lf_tok_word. at_start: the text is the beginning of
 * the caller's text. */
int lf_tok_pretokenize(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, bool at_start,
                       lf_err *err);
/* Makes every match of `scan` a word. */
int lf_tok_scan_words(lf_tok_state *s, enum lf_scan_kind scan, const uint8_t *p, size_t len,
                      lf_err *err);

/* ---- models (model.c; BPE in bpe.c) ---- */
enum lf_model_kind { LF_MODEL_BPE, LF_MODEL_UNIGRAM, LF_MODEL_WORDPIECE, LF_MODEL_WORDLEVEL };

/* The models other than BPE. The Unigram of the tokenizers library adds in f64, that of
 * sentencepiece in f32. */
typedef struct lf_model {
    enum lf_model_kind kind;
    lf_vtrie trie; /* UNIGRAM, WORDPIECE, WORDLEVEL: the tokens' texts -> id */
    double *score; /* UNIGRAM: [n_score], owned */
    size_t n_score;
    double min_score;
    bool spm;              /* sentencepiece's arithmetic */
    int64_t unk;           /* -1 none */
    bool fallback;         /* byte_fallback with all of byte_tok */
    int32_t byte_tok[256]; /* id of <0x00>.., -1 */
    uint32_t max_chars;    /* WORDPIECE: longer words are unk */
    uint32_t cont;         /* WORDPIECE: the node after the continuing prefix */
    bool has_cont;         /* the vocabulary has such tokens, or the prefix is empty */
} lf_model;
void lf_model_fini(lf_model *m);

/* The scratch memory of one thread for the models above. */
typedef struct lf_model_scratch {
    struct lf_best {
        double score;
        int32_t id;
        uint32_t from;
    } * best;
    size_t cap;
    uint32_t *cut; /* ends of tokens, last first */
    size_t cap_cut;
} lf_model_scratch;
/* Appends the ids of one word. */
int lf_model_encode(const lf_model *m, lf_model_scratch *s, const uint8_t *word, size_t n,
                    lf_ids *out, lf_err *err);

/* ---- sentencepiece (spm.c) ---- */
typedef struct lf_spm {
    lf_charsmap map;
    lf_vtrie user; /* user-defined symbols */
    bool add_prefix, remove_extra, escape, suffix;
    /* only the text's first part gets the dummy prefix (transformers: legacy = false) */
    bool prefix_first;
    char *unk_surface; /* owned */
} lf_spm;
void lf_spm_fini(lf_spm *m);
/* Normalises text, which may be any bytes, like sentencepiece and writes it to buf. */
int lf_spm_normalize(const lf_spm *m, const uint8_t *text, size_t len, bool prefix, lf_buf *buf,
                     lf_err *err);

/* ---- decoders (decode.c) ---- */
enum lf_dec_type {
    LF_DEC_BYTELEVEL,
    LF_DEC_BYTEFALLBACK,
    LF_DEC_FUSE,
    LF_DEC_REPLACE,
    LF_DEC_STRIP,
    LF_DEC_METASPACE,
    LF_DEC_WORDPIECE,
    LF_DEC_BPE,
    LF_DEC_JOIN, /* no decoder in the file: tokens with a space between */
    LF_DEC_SPM   /* sentencepiece's own */
};
typedef struct lf_decstep {
    enum lf_dec_type type;
    lf_normstep rep; /* REPLACE: pattern and content */
    char *text;      /* STRIP and METASPACE: the character; WORDPIECE: prefix; BPE: suffix. Owned */
    size_t n_text;
    size_t start, stop; /* STRIP */
    bool cleanup;       /* WORDPIECE */
    bool drop_first;    /* METASPACE: marks in the first token go */
    bool fused;         /* behind Fuse: the input is parts of one token */
} lf_decstep;

/* ---- the tokenizer ---- */
typedef struct lf_token {
    const uint8_t *bytes; /* what it stands for; NULL: no such token; in the arena */
    const uint8_t *text;  /* as in the file */
    uint32_t len, n_text;
    uint8_t kind; /* enum lf_token_kind */
    bool special;
} lf_token;
enum lf_token_kind { LF_TOKEN_TEXT, LF_TOKEN_BYTE, LF_TOKEN_CONTROL, LF_TOKEN_UNK, LF_TOKEN_ADDED };

struct lf_tokenizer {
    lf_arena *arena;
    uint8_t *cls, *ucls; /* ucls: NULL unless a component needs it */
    lf_token *tokens;    /* [n_tokens] */
    uint32_t n_tokens;
    void *names; /* json_t object: token text -> id, owned */
    lf_bpe bpe;
    lf_model model;
    lf_spm *spm; /* NULL unless read from a .model */
    /* the vocabulary is in the byte alphabet and the pre-tokenizer ends in ByteLevel */
    bool byte_level;
    lf_added *added;
    size_t n_added;
    lf_trie raw, normed; /* added tokens matched before and after normalisation */
    lf_normstep norms[LF_TOK_STEPS_MAX];
    size_t n_norms;
    lf_pretok pretok[LF_TOK_STEPS_MAX];
    size_t n_pretok;
    unsigned patterns;      /* enum lf_regex_how of its patterns */
    bool front_matters;     /* a Metaspace asks whether its part is the beginning of the text */
    enum lf_scan_kind fast; /* the whole pre-tokenizer is this scanner, cutting every match off */
    lf_ids before, after;   /* ids of the template */
    lf_decstep decs[LF_TOK_STEPS_MAX];
    size_t n_decs;
    int64_t bos, eos, pad, unk; /* named by the files beside, -1 not named */
    char sha256[LF_HASH_HEX];
};

struct lf_tok_state {
    const lf_tokenizer *t;
    lf_bpe_state *bpe;
    lf_model_scratch model;
    lf_regex_state *re[LF_TOK_STEPS_MAX];
    lf_spans cut[LF_TOK_STEPS_MAX];
    lf_buf changed[LF_TOK_STEPS_MAX]; /* the text that a pre-tokenizer step made of its part */
    lf_buf repaired, spm;
    struct lf_tok_bufs norm;
    /* One call's arguments. */
    unsigned flags;
    const uint8_t *start; /* the caller's text, and the first part as normalised */
    const uint8_t *first;
    lf_ids *out;              /* encoding */
    struct lf_word_sink word; /* or listing words */
};

/* Create an empty tokenizer with the tables that every tokenizer has, and one from a parsed
 * tokenizer.json. The caller owns it. */
lf_tokenizer *lf_tok_create(lf_err *err);
lf_tokenizer *lf_tok_from_json(void *root, const char *path, lf_err *err);

/* Passes one word of a text to the model or to the listing function. Memory is readable up to
 * `end`. */
static inline int lf_tok_word(lf_tok_state *s, const uint8_t *p, size_t n, const uint8_t *end,
                              lf_err *err)
{
    if (s->word.fn)
        return s->word.fn(s->word.arg, p, n, err);
    if (s->t->model.kind == LF_MODEL_BPE)
        return lf_bpe_encode(s->bpe, p, n, end, !(s->flags & LF_TOK_NO_CACHE), s->out, err);
    return lf_model_encode(&s->t->model, &s->model, p, n, s->out, err);
}

/* Returns the byte that a character of the byte-level alphabet stands for, or -1. lf_char_of_byte
 * is the reverse. */
int lf_byte_of_char(uint32_t c);
uint32_t lf_char_of_byte(uint8_t b);

#endif
