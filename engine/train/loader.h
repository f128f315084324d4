/* SPDX-License-Identifier: Apache-2.0
 *
 * Training data in an exact order. The sample at global index i is a pure function of (datasets,
 * weights, T, policy, seed, i): error diffusion over the weights chooses the dataset, its count of
 * earlier choices gives epoch and index in that epoch's permutation, the packing index gives the
 * documents. So the whole cursor is one integer, and what an optimizer step sees does not depend on
 * micro-batch, ranks, threads or restarts.
 *
 *   tokens      i32 [B, T]   padding holds eos_id (0 without one)
 *   targets     i32 [B, T]   the next token of the same document; -1 where nothing is trained (last
 *                            token, padding)
 *   positions   i32 [B, T]   from 0 in each segment
 *   cu_seqlens  i32 [B * lf_loader_segs + 1]   boundaries of the segments over the B * T tokens:
 *               cu[0] = 0, cu[n_segs] = B * T (padding is a segment of its own); the rest repeats
 *               B * T
 *
 * Documents that belong together form a unit, which lies whole in one row. A unit is the two
 * answers of a pair, one after the other; or a labelled answer, alone or with the same prompt and
 * the answer of another document behind it (`mismatched`; the other document is half the data
 * away). Such data is packed best fit decreasing. Units longer than T are left out and counted.
 *
 * Tokens whose bit in the loss mask of the shards is 0 are read but not trained: their target is
 * -1. In Megatron's order (below) a row is T + 1 tokens that may cross documents, in one segment,
 * and every target is trained.
 *
 * Documents with pictures lie whole in one row too, and units stay what they are: each answer is
 * seen with the pictures of its prompt. They are packed first fit decreasing on tokens, patches and
 * tiles, a row with its share of what a micro-batch holds of each, so no micro-batch has too many.
 * Those that do not fit are left out and counted. The pictures of a micro-batch are decoded and
 * processed by the thread that fills it, in the order of its placeholders.
 *
 * With `pictures` a row is a document with pictures, and nothing of it but these is read.
 *
 * With `mlm` targets are what the tokens were that are hidden, and -1 elsewhere.
 * With `nsp` (nsp.h) too, segments are pairs of texts, made of the pieces of documents that the
 * packing index has; pieces that are too short are none.
 *
 * With `seq2seq` (seq2seq.h) a micro-batch has two axes. tokens, targets and positions are those of
 * the decoder: targets what it says, tokens the same one further on, behind the token that it
 * starts with. Of the encoder, with S = source_length:
 *
 *   source_tokens      i32 [B, S]
 *   source_positions   i32 [B, S]   from 0 in each source
 *   source_cu_seqlens  i32 [B * lf_loader_segs + 1]   document i of it belongs to document i of
 *                      cu_seqlens
 *
 * A row of one lies beside a row of the other. Padding is a document on both, of which one part may
 * have no tokens. Pairs stay whole and are packed first fit decreasing on both axes; those that a
 * row does not hold are left out and counted. A corrupted text is one document.
 *
 * A thread fills the next micro-batches while one is in use. Nothing is allocated after
 * lf_loader_open, but for a picture while it is decoded and cut into patches, and given back then.
 */
#ifndef LF_TRAIN_LOADER_H
#define LF_TRAIN_LOADER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/media/augment.h"
#include "engine/media/batch.h"
#include "engine/media/processor.h"
#include "engine/store/shard.h"
#include "engine/text/corpus/pack.h"
#include "engine/train/mlm.h"
#include "engine/train/nsp.h"
#include "engine/train/seq2seq.h"

typedef struct lf_loader_source {
    const char *dir; /* `shards` artifact */
    double weight;   /* > 0; becomes the share of the samples, to 1 part in 10^6 */
} lf_loader_source;

/* From this global sample on, an optimizer step takes this many samples. */
typedef struct lf_loader_ramp {
    int64_t from_sample;
    int64_t samples;
} lf_loader_ramp;

enum lf_loader_mode {
    LF_LOADER_TRAIN, /* endless, shuffled, blended */
    LF_LOADER_VALID  /* the sources one after the other, in order, once; weights are ignored */
};

/* Samples in the order of a Megatron-LM run (megatron_order.h). For LF_LOADER_TRAIN only; packing
 * is not used. */
typedef struct lf_loader_megatron {
    /* shares as in "949,50,1"; the first is the share of the sequences of each source that
     * trains */
    const char *split;
    uint32_t seed;
    int64_t samples; /* samples of the whole run, on which epochs and shuffles depend */
    double surplus;  /* of several weighted sources */
    /* weights are given; otherwise each source is one epoch, or a single source as many epochs as
     * needed */
    bool weighted;
} lf_loader_megatron;

typedef struct lf_loader_config {
    enum lf_loader_mode mode;
    const char *split; /* "train", "valid" */
    const lf_loader_source *sources;
    size_t n_sources;
    int32_t T;
    int32_t B; /* samples of a micro-batch */
    enum lf_pack_policy policy;
    /* the user's bound on segments of a sequence, padding included; 0 = min(T, 256); see
     * lf_loader_segs */
    int32_t max_segs;
    uint64_t seed;
    /* ascending, the first row from sample 0; samples are a multiple of B and at least B *
     * dp_size */
    const lf_loader_ramp *ramp;
    size_t n_ramp; /* VALID: none needed; a step is one micro-batch per rank */
    /* batch numbers that are skipped, in any order */
    const int64_t *skip;
    size_t n_skip;
    const lf_loader_megatron *megatron; /* NULL: the order above */
    int64_t max_tokens; /* VALID: stop after the sequence that reaches this many tokens; 0 = all */
    /* data-parallel rank and number of ranks; size 0 means 1. Micro-batch m of a step belongs to
     * rank m % size */
    int dp_rank, dp_size;
    int64_t vocab_size; /* > 0: the vocabulary of every source must be at most this */
    enum lf_rows rows;  /* the kind that the documents of every source must have */
    bool mismatched;    /* LF_ROWS_UNPAIRED: with the answer of another document */
    /* pictures: how many patches and tiles a micro-batch holds, at least B each; 0: there are
     * none */
    int32_t max_patches, max_tiles;
    int32_t patch_bytes; /* most bytes of a patch, a multiple of those of the sources */
    /* > 0: pictures are not decoded; rows of an encoder are read from `features` (NULL: a plan),
     * which has all pictures of the sources. Bytes of a row, most rows of a micro-batch. */
    int32_t encoded_bytes;
    int64_t max_encoded;
    const struct lf_features *features; /* borrowed */
    int64_t image_token;                /* the placeholder, as in the sources; -1: any */
    /* A row is one document that has pictures, and those alone: its tokens are not read, and no
     * vocabulary is asked for. T is 2. Units are tiles. */
    bool pictures;
    /* changes each picture that is trained on (engine/media/augment.h); borrowed; NULL: none */
    const struct lf_augment *augment;
    /* In training each sample comes so many times in a batch, every time with a number of its own:
     * samples 2 k r + 2 j and the next, j < k = repeats, are 2 r and 2 r + 1 of the order without
     * repeats. Batches are multiples of 2 k. 0, 1: it comes once. Not with megatron. */
    int repeats;
    /* hides tokens of plain documents (mlm.h); borrowed; NULL: targets are the next tokens */
    const lf_mlm *mlm;
    const lf_nsp *nsp; /* with mlm: segments are pairs of texts; borrowed; NULL: documents */
    /* plain documents become sources and targets; borrowed; NULL: there is one axis */
    const lf_seq2seq *seq2seq;
    int32_t decoder_start; /* with seq2seq: the token that the decoder reads first */
} lf_loader_config;

typedef struct lf_loader_batch {
    int32_t B, T, max_segs; /* max_segs: per sequence, lf_loader_segs */
    int32_t *tokens, *targets, *positions, *cu_seqlens;
    int32_t S; /* with seq2seq, else 0 and the three are NULL */
    int32_t *source_tokens, *source_positions, *source_cu_seqlens;
    int32_t n_segs;     /* segments, padding included; n_segs + 1 values of cu_seqlens count */
    int32_t max_seglen; /* longest segment */
    /* [n_segs] document of segment s in the split of its source; -1: padding, Megatron's order */
    int64_t *seg_doc;
    uint16_t *seg_source; /* [n_segs] */
    bool *seg_mismatched; /* [n_segs] the prompt of seg_doc with the answer of another document */
    int8_t *seg_nsp;      /* with nsp: [n_segs] enum lf_nsp_class; else NULL */
    int64_t *sample_ids;  /* [B] global sample index, -1 for a row of padding (end of validation) */
    lf_media_batch media; /* with max_tiles tiles and pictures, max_patches patches of room */
    int64_t trained;      /* targets >= 0; of prompts all tokens */
    int64_t step;         /* batch number of the optimizer step it belongs to */
    int32_t micro, n_micro; /* number of this micro-batch of this rank, and how many there are */
} lf_loader_batch;

typedef struct lf_loader_step {
    int64_t number;       /* batch number: its place in the data order, counting skipped ones */
    int64_t first_sample; /* global */
    int64_t n_samples;    /* over all ranks and micro-batches */
    int32_t n_micro;      /* micro-batches of this rank */
    /* trained tokens over all ranks and micro-batches, of prompts all of them; with `pictures` as
     * many as units */
    int64_t trained;
    /* pairs, labelled answers or prompts over all ranks and micro-batches; tiles with `pictures`;
     * pairs of texts with `nsp`, else with `mlm` tokens of documents; else 0 with plain
     * documents */
    int64_t units;
    int64_t next_sample; /* the cursor behind this step: lf_loader_seek to it continues */
} lf_loader_step;

typedef struct lf_loader lf_loader;

/* Returns the most segments that a row has, padding counted as one. Packing never makes more, and
 * cu_seqlens, the planned memory and the input of the graph have room for them. The number is
 * max_segs, but at least one unit and the padding behind it. */
int32_t lf_loader_segs(const lf_loader_config *c);
/* Checks T, B, max_segs and the ranks. lf_loader_open and lf_train_plan call it. LF_EINVAL. */
int lf_loader_check(const lf_loader_config *c, lf_err *err);
/* Is a batch of n sequences a multiple of the micro-batch B, with one for each rank? LF_EINVAL. */
int lf_loader_check_batch(int64_t n, int64_t B, int64_t ranks, lf_err *err);
int lf_loader_open(lf_loader **out, const lf_loader_config *c, lf_err *err);
void lf_loader_close(lf_loader *l);

/* Goes to a global sample. After lf_loader_open it is 0. LF_EINVAL: no optimizer step begins
 * there. */
int lf_loader_seek(lf_loader *l, int64_t sample, lf_err *err);
/* Begins the next optimizer step, before its first micro-batch. Returns 1, or 0 at the end
 * (LF_LOADER_VALID, Megatron's order). */
int lf_loader_begin_step(lf_loader *l, lf_loader_step *out, lf_err *err);
/* Gets the next micro-batch of the current step. *out is borrowed until the next call on l.
 * LF_EINVAL: there is no further one. */
int lf_loader_next(lf_loader *l, const lf_loader_batch **out, lf_err *err);

/* Micro-batch m of a step holds its samples [m * B, (m + 1) * B) and goes to rank m % ranks, as
 * number m / ranks there. Returns how many micro-batches of a step of n samples a rank computes. */
int64_t lf_deal_count(int64_t n, int64_t B, int64_t rank, int64_t ranks);

/* What is done to the pictures of the sources, which agree on it; NULL: they have none. */
const lf_processor *lf_loader_processor(const lf_loader *l);
/* the number of samples; practically endless in the order above */
int64_t lf_loader_samples(const lf_loader *l);
/* next_sample of the last step that was begun, or the target of the last seek */
int64_t lf_loader_cursor(const lf_loader *l);
const lf_shard_info *lf_loader_info(const lf_loader *l, size_t source);
uint64_t lf_loader_source_samples(const lf_loader *l, size_t source); /* sequences of one epoch */
/* Returns the units of a source. *dropped becomes the number that is left out: units longer than T
 * or with an empty side. Both are 0 with plain documents. */
uint64_t lf_loader_units(const lf_loader *l, size_t source, uint64_t *dropped);
/* Returns the number of plain documents longer than T. The rest of such a document stands in
 * another sequence and does not see the part before it. */
uint64_t lf_loader_cut(const lf_loader *l, size_t source);
/* Returns the number of documents that are left out of a source with pictures: empty ones, and
 * those with more tokens, patches or tiles than a row holds; of pairs with seq2seq, those without
 * a source or a target, or with more of either than a row holds. Else 0. */
uint64_t lf_loader_left_out(const lf_loader *l, size_t source);
/* max_patches and max_tiles that leave no document of a source out for its pictures. */
void lf_loader_needs(const lf_loader *l, size_t source, uint64_t needs[LF_PACK_AXES]);
const lf_shardset *lf_loader_set(const lf_loader *l, size_t source); /* labels, margins; borrowed */
/* Returns the SHA-256, in hex, over the data (hashes of shards), weights, T, policy, max_segs, seed
 * and, with pictures, what a row holds of them. The cursor of a checkpoint is valid for this order
 * only. */
const char *lf_loader_order_id(const lf_loader *l);
/* The memory that a loader will take. slot_bytes is exact: the loader with its slots. index_bytes
 * is the most that the index of one source with so many documents and tokens takes. lf_loader_check
 * must have passed for the config. The sources are counted and not opened. */
size_t lf_loader_slot_bytes(const lf_loader_config *c);
size_t lf_loader_index_bytes(const lf_loader_config *c, uint64_t docs, uint64_t tokens);
/* Returns the most bytes of the index of a source in Megatron's order, for a run that takes so many
 * samples of it. */
size_t lf_loader_megatron_bytes(int32_t T, uint64_t seqs, uint64_t tokens, uint64_t samples);
/* Returns {"sample","source","epoch","sequence","segments":[{"file","doc","first","len"}]} for
 * reports. The caller owns it. */
json_t *lf_loader_describe(const lf_loader *l, int64_t sample, lf_err *err);

/* Finds the dataset of sample i, and as *index how many earlier samples took the same one. The
 * weights sum to total. After i samples the count of source k differs from i * w[k] / total by less
 * than 1. */
void lf_blend_at(const uint32_t *w, size_t n, uint32_t total, uint64_t i, size_t *source,
                 uint64_t *index);

#endif
