/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside lf-vocab: options and order of work (vocab.c), texts (vocab_text.c), artifacts
 * (vocab_write.c).
 */
#ifndef LF_STAGES_VOCAB_PRIV_H
#define LF_STAGES_VOCAB_PRIV_H

#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "engine/model/grow_rows.h"
#include "engine/model/weights.h"
#include "engine/text/corpus/corpus.h"
#include "engine/text/token/tokenizer_files.h"
#include "engine/text/vocab/grow.h"

typedef struct vocab {
    const char *base, *donor, *checkpoint, *out, *metrics;
    const char **text, **old_text, **specials;
    size_t n_text, n_old_text, n_specials;
    const char *text_field;
    bool strict, any_bytes; /* see lf_corpus_args */
    lf_grow_args grow;
    double held_out;
    enum lf_rows_init init;
    int64_t pad_to;
    uint64_t seed;
    int threads;
    /* state of the run */
    lf_grower *g;
    lf_tokenizer *grown;
    lf_tok_files files;          /* the files of the old tokenizer, then those of the grown one */
    char made_from[LF_HASH_HEX]; /* hash of options and inputs */
} vocab;

/* The size of a text in both vocabularies. */
typedef struct vocab_measure {
    uint64_t docs, bytes, before, after;
    uint64_t changed; /* documents that the grown tokenizer encodes differently */
} vocab_measure;

/* ---- texts ---- */
enum vocab_share { VOCAB_ALL, VOCAB_LEARN, VOCAB_HELD_OUT };
/* Count the words of the share of texts that is learned from. *out is NULL when there is no
 * text. */
int lf_vocab_words(const vocab *v, lf_word_counts **out, lf_err *err);
/* Encode texts with both tokenizers. */
int lf_vocab_measure(vocab_measure *m, const vocab *v, const char *const *paths, size_t n,
                     enum vocab_share share, lf_err *err);
/* Append the labels and lengths of the sources of a list of inputs. */
int lf_vocab_sources(const vocab *v, const char *const *paths, size_t n, lf_buf *out, lf_err *err);

/* ---- artifacts ---- */
/* Returns 1 when OUT/name is there and was made from the same options and inputs, 0 when it is not
 * there. LF_EEXIST: it was made from others. LF_EFORMAT: it is damaged. */
int lf_vocab_present(const vocab *v, const char *name, lf_err *err);
int lf_vocab_put_tokenizer(const vocab *v, lf_err *err);
int lf_vocab_put_checkpoint(const vocab *v, lf_err *err);
int lf_vocab_put_report(const vocab *v, const vocab_measure *fresh, const vocab_measure *old,
                        lf_err *err);

#endif
