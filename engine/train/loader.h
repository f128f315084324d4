/* SPDX-License-Identifier: Apache-2.0
 *
 * Training data in an exact order. The sample at global index i is a pure function of (datasets,
 * weights, T, policy, seed, i): error diffusion over the weights chooses the dataset, its count of
 * earlier choices gives epoch and index in that epoch's permutation, the packing index gives the
 * documents. So the whole cursor is one integer, and what an optimizer step sees does not depend on
 * micro-batch, ranks, threads or restarts.
 *
 *   tokens     i32 [B, T]   padding holds eos_id (0 without one)
 *   targets    i32 [B, T]   the next token of the same document, -1 where nothing is trained (last
 *              token, padding)
 *   positions  i32 [B, T]   from 0 in each segment
 *   cu_seqlens i32 [B * lf_loader_segs + 1]  boundaries of the segments over the B * T tokens:
 *              cu[0] = 0, cu[n_segs] = B * T (padding is a segment of its own), the rest repeats
 *              B * T
 *
 * Documents that belong together are a unit, which lies whole in one row: a pair's two answers, one
 * after the other; an answer with a label alone, or with the same prompt and a stranger's answer
 * behind it (`mismatched`: that of the document half the data away). Such data is packed best fit
 * decreasing; units longer than T are left out and counted.
 *
 * Tokens whose bit in the shards' loss mask is 0 are read but not trained: their target is -1. In
 * Megatron's order (below) a row is T + 1 tokens that may cross documents, in one segment, every
 * target trained.
 *
 * A thread fills the next micro-batches while one is in use. Nothing is allocated after open.
 */
#ifndef LF_TRAIN_LOADER_H
#define LF_TRAIN_LOADER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/store/shard.h"
#include "engine/text/corpus/pack.h"

typedef struct lf_loader_source {
    const char *dir; /* `shards` artifact */
    double weight;   /* > 0; share of the samples after normalising, to 1 part in 10^6 */
} lf_loader_source;

/* From this global sample on, an optimizer step takes this many samples. */
typedef struct lf_loader_ramp {
    int64_t from_sample;
    int64_t samples;
} lf_loader_ramp;

enum lf_loader_mode {
    LF_LOADER_TRAIN, /* endless, shuffled, blended */
    LF_LOADER_VALID  /* the sources one after the other, in order, once; weights are not used */
};

/* Samples in the order of a Megatron-LM run (megatron_order.h) instead of ours. TRAIN only; packing
 * is not used. */
typedef struct lf_loader_megatron {
    /* shares as in "949,50,1": the first of them is what trains, of each source's sequences */
    const char *split;
    uint32_t seed;
    int64_t samples; /* of the whole run: epochs and shuffles depend on it */
    double surplus;  /* of several weighted sources */
    /* weights were given; else each source is one epoch, or the only one as many as needed */
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
    /* asked for per sequence, with padding; 0 = min(T, 256); see lf_loader_segs */
    int32_t max_segs;
    uint64_t seed;
    /* ascending, first row from sample 0; samples a multiple of B, at least B * dp_size */
    const lf_loader_ramp *ramp;
    size_t n_ramp; /* VALID: none needed; a step is one micro-batch per rank */
    /* optimizer-step numbers (batch numbers) that are passed over; any order */
    const int64_t *skip;
    size_t n_skip;
    const lf_loader_megatron *megatron; /* NULL: our order */
    int64_t max_tokens; /* VALID: stop after the sequence that reaches this many tokens; 0 = all */
    /* data-parallel rank and ranks; size 0 means 1. Micro-batch m of a step is rank m % size's */
    int dp_rank, dp_size;
    int64_t vocab_size; /* > 0: every source must have a vocabulary of at most this */
    enum lf_rows rows;  /* what the documents of every source must be */
    bool mismatched;    /* LF_ROWS_UNPAIRED: with a stranger's answer */
} lf_loader_config;

typedef struct lf_loader_batch {
    int32_t B, T, max_segs; /* max_segs: per sequence, lf_loader_segs */
    int32_t *tokens, *targets, *positions, *cu_seqlens;
    int32_t n_segs;     /* segments with padding; cu_seqlens has n_segs + 1 meaningful values */
    int32_t max_seglen; /* longest segment */
    /* [n_segs] document (of its source's split) that segment s is; -1: padding, Megatron's order */
    int64_t *seg_doc;
    uint16_t *seg_source; /* [n_segs] */
    bool *seg_mismatched; /* [n_segs] the prompt of seg_doc with a stranger's answer */
    int64_t *sample_ids;  /* [B] global sample index, -1 for a row of padding (end of validation) */
    int64_t trained;      /* targets >= 0 */
    int64_t step;         /* batch number of the optimizer step it belongs to */
    int32_t micro, n_micro; /* which micro-batch of this rank, of how many */
} lf_loader_batch;

typedef struct lf_loader_step {
    int64_t number;       /* batch number: its place in the data order, counting skipped ones */
    int64_t first_sample; /* global */
    int64_t n_samples;    /* over all ranks and micro-batches */
    int32_t n_micro;      /* micro-batches of this rank */
    int64_t trained;      /* trained tokens over all ranks and micro-batches */
    int64_t units;        /* pairs or labelled answers, likewise; 0 with plain documents */
    int64_t next_sample;  /* the cursor when this step is done: seek here to go on */
} lf_loader_step;

typedef struct lf_loader lf_loader;

/* How many segments a row may have, with the padding as one. Packing never makes more, and
 * cu_seqlens, the planned memory and the input of the graph have room for as many. The number is
 * max_segs, but at least one unit and the padding behind it. */
int32_t lf_loader_segs(const lf_loader_config *c);
/* Are T, B, max_segs and the ranks possible? LF_EINVAL. Open asks it, and a plan before. */
int lf_loader_check(const lf_loader_config *c, lf_err *err);
int lf_loader_open(lf_loader **out, const lf_loader_config *c, lf_err *err);
void lf_loader_close(lf_loader *l);

/* Go to a global sample, which must be where an optimizer step begins (LF_EINVAL). 0 after open. */
int lf_loader_seek(lf_loader *l, int64_t sample, lf_err *err);
/* Begin the next optimizer step, before its first micro-batch. Returns 1, or 0 at the end (VALID,
 * Megatron's order). */
int lf_loader_begin_step(lf_loader *l, lf_loader_step *out, lf_err *err);
/* The next micro-batch of the step begun; *out is borrowed until the next call on l. LF_EINVAL
 * after the last one. */
int lf_loader_next(lf_loader *l, const lf_loader_batch **out, lf_err *err);

/* how many there are; practically endless in our order */
int64_t lf_loader_samples(const lf_loader *l);
/* next_sample of the last step begun, or where seek went */
int64_t lf_loader_cursor(const lf_loader *l);
const lf_shard_info *lf_loader_info(const lf_loader *l, size_t source);
uint64_t lf_loader_source_samples(const lf_loader *l, size_t source); /* sequences of one epoch */
/* Units of a source, and how many of them are left out: longer than T, or an empty side; 0 and 0
 * with plain documents. */
uint64_t lf_loader_units(const lf_loader *l, size_t source, uint64_t *dropped);
/* Plain documents longer than T: their rest goes on in another sequence and does not see what came
 * before. */
uint64_t lf_loader_cut(const lf_loader *l, size_t source);
const lf_shardset *lf_loader_set(const lf_loader *l, size_t source); /* labels, margins; borrowed */
/* SHA-256 over the data (shard hashes), weights, T, policy, max_segs and seed, hex: a checkpoint's
 * cursor is valid for this order only. */
const char *lf_loader_order_id(const lf_loader *l);
/* The memory that a loader will hold, before there is one. slot_bytes: the loader with its slots,
 * exactly. index_bytes: the index of one source with so many documents and tokens, at most. Both
 * want a config that lf_loader_check has passed; they count its sources and do not open them. */
size_t lf_loader_slot_bytes(const lf_loader_config *c);
size_t lf_loader_index_bytes(const lf_loader_config *c, uint64_t docs, uint64_t tokens);
/* Bytes, at most, of the index of a source in Megatron's order for a run that takes so many samples
 * of it. */
size_t lf_loader_megatron_bytes(int32_t T, uint64_t seqs, uint64_t tokens, uint64_t samples);
/* {"sample","source","epoch","sequence","segments":[{"file","doc","first","len"}]}, for reports;
 * returns owned. */
json_t *lf_loader_describe(const lf_loader *l, int64_t sample, lf_err *err);

/* Which dataset sample i takes, and how many earlier samples took the same one. weights sum to
 * total; exact: after i samples the count of source k differs from i * w[k] / total by less than
 * 1. */
void lf_blend_at(const uint32_t *w, size_t n, uint32_t total, uint64_t i, size_t *source,
                 uint64_t *index);

#endif
