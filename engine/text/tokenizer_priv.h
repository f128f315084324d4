/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of lf_tokenizer, shared by its files only: tokenizer_load.c fills it, tokenizer.c encodes and decodes,
 * textnorm.c and added.c hold single steps.
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
#include "engine/text/bpe.h"
#include "engine/text/regex.h"
#include "engine/text/scan.h"
#include "engine/text/tokenizer.h"

#define LF_TOK_STEPS_MAX 16    /* pre-tokenizer or normalizer components */
#define LF_TOK_ADDED_MAX 65536 /* added tokens */
#define LF_TOK_TOKEN_MAX 65535 /* bytes of one token */

/* ---- normalisation (textnorm.c) ---- */
enum lf_norm { LF_NORM_NFC, LF_NORM_NFD, LF_NORM_NFKC, LF_NORM_NFKD };

/* text as valid UTF-8. When it is that already, *out is text itself; else buf holds the repaired text and *out points
 * into it. */
int lf_text_repair(const uint8_t **out, size_t *out_len, lf_buf *buf, const uint8_t *text, size_t len, bool strict,
                   uint64_t *replaced, lf_err *err);

typedef struct lf_norm_scratch {
    int32_t *cp;
    size_t cap;
} lf_norm_scratch;
/* The normal form of text (valid UTF-8), text itself when it is known to be normal, else in buf (cleared first). */
int lf_text_normalize(const uint8_t **out, size_t *out_len, lf_buf *buf, lf_norm_scratch *scratch, enum lf_norm form,
                      const uint8_t *cls, const uint8_t *text, size_t len, lf_err *err);

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

/* Leftmost-longest matcher over one set of added tokens. */
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

/* Over the tokens of added[0..n) whose `normalized` equals the flag. Two equal texts are LF_EFORMAT. */
int lf_trie_build(lf_trie *t, const lf_added *added, size_t n, bool normalized, lf_err *err);
void lf_trie_fini(lf_trie *t);
/* Leftmost-longest match in text[from, len): true with the token and its place. */
bool lf_trie_find(const lf_trie *t, const uint8_t *text, size_t len, size_t from, size_t *start, size_t *end,
                  int *which);

/* Cut text at the set's matches: fn is called for each part in order, added = NULL for plain text (never empty). */
typedef int (*lf_piece_fn)(void *arg, const uint8_t *text, size_t len, const lf_added *added, lf_err *err);
int lf_added_split(const lf_trie *t, const lf_added *added, const uint8_t *cls, bool special_as_text,
                   const uint8_t *text, size_t len, lf_piece_fn fn, void *arg, lf_err *err);

/* ---- the tokenizer ---- */
enum lf_pretok_type { LF_PRETOK_SPLIT, LF_PRETOK_DIGITS, LF_PRETOK_BYTELEVEL };
enum lf_split_behavior {
    LF_SPLIT_REMOVED,
    LF_SPLIT_ISOLATED,
    LF_SPLIT_MERGED_PREV,
    LF_SPLIT_MERGED_NEXT,
    LF_SPLIT_CONTIGUOUS
};

typedef struct lf_pretok {
    enum lf_pretok_type type;
    enum lf_scan_kind scan; /* the pattern's scanner, if it has one */
    lf_regex *re;           /* owned; SPLIT, and BYTELEVEL with use_regex */
    enum lf_split_behavior behavior;
    bool invert;
    bool individual;                  /* DIGITS */
    bool add_prefix_space, use_regex; /* BYTELEVEL */
} lf_pretok;

typedef struct lf_token {
    const uint8_t *bytes; /* NULL: no such token; in the arena */
    uint32_t len;
    bool special;
} lf_token;

struct lf_tokenizer {
    lf_arena *arena;
    uint8_t *cls;
    lf_token *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    void *names; /* json_t object: token text -> id, owned */
    lf_bpe bpe;
    bool ignore_merges;
    lf_added *added;
    size_t n_added;
    lf_trie raw, normed; /* added tokens matched before and after normalisation */
    enum lf_norm norms[LF_TOK_STEPS_MAX];
    size_t n_norms;
    lf_pretok pretok[LF_TOK_STEPS_MAX];
    size_t n_pretok;
    enum lf_scan_kind fast; /* the whole pre-tokenizer is this scanner, cutting every match off */
    lf_ids before, after;   /* ids of the template */
    char sha256[LF_HASH_HEX];
};

/* Apply every normaliser step; as lf_text_normalize with two buffers. */
struct lf_tok_bufs {
    lf_buf a, b;
    lf_norm_scratch scratch;
};
int lf_tok_normalize(const lf_tokenizer *t, struct lf_tok_bufs *bufs, const uint8_t **out, size_t *out_len,
                     const uint8_t *text, size_t len, lf_err *err);

/* The byte that a character of the byte-level alphabet stands for, -1 for other characters; and back. */
int lf_byte_of_char(uint32_t c);
uint32_t lf_char_of_byte(uint8_t b);

#endif
