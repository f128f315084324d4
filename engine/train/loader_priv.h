/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the loader: order.c has the order of samples (pure functions), loader.c fills
 * micro-batches, loader_open.c makes the loader.
 */
#ifndef LF_TRAIN_LOADER_PRIV_H
#define LF_TRAIN_LOADER_PRIV_H

#include <pthread.h>

#include "engine/base/hash.h"
#include "engine/media/expand.h"
#include "engine/store/features.h"
#include "engine/train/loader.h"
#include "engine/train/megatron_order.h"

#define LF_LOADER_MAX_SOURCES  256
#define LF_LOADER_WEIGHT_TOTAL 1000000
#define LF_LOADER_SLOTS        3   /* micro-batches in the ring */
#define LF_LOADER_SEGS         256 /* default bound on the segments of a row */

/* Turns weights into integers. *total becomes their sum, at most LF_LOADER_WEIGHT_TOTAL. LF_EINVAL:
 * a weight is not positive, or its share would round to 0. */
int lf_blend_weights(uint32_t *w, uint32_t *total, const double *weight, size_t n, lf_err *err);
/* Makes one choice of lf_blend_at. count[] are the choices before sample i. */
size_t lf_blend_choose(const uint32_t *w, size_t n, uint32_t total, uint64_t i,
                       const uint64_t *count);

/* ---- units (units.c), which the packing index packs ---- */

enum { LF_UNIT_PARTS = 2 };
struct lf_units {
    const lf_shardset *set; /* borrowed */
    enum lf_rows rows;
    bool mismatched;
    uint32_t T;
    uint64_t n, dropped; /* units; those longer than T */
    uint64_t cut;        /* plain documents longer than T, whose rest stands in another sequence */
    bool media;          /* documents have pictures, and stay whole */
    bool alone;          /* and are rows of these alone (pictures of lf_loader_config) */
    uint32_t most[LF_PACK_AXES];  /* patches and tiles of a row */
    uint64_t left_out;            /* documents or units that no row holds, not dropped */
    uint64_t needs[LF_PACK_AXES]; /* patches and tiles of the largest unit */
    uint32_t *prompt;             /* mismatched, split: [n] tokens before the first trained one */
    bool split;                   /* a document is a source, which is the prompt, and a target */
};
/* One segment of a unit. A mismatched one has the first `head` tokens of seg.doc, then those of
 * `other` behind its prompt. */
struct lf_unit_part {
    lf_pack_seg seg;
    bool mismatched;
    uint32_t head;
    uint64_t other;
};
/* dir is for messages. LF_EINVAL: the data holds other rows. */
int lf_units_open(struct lf_units *u, const lf_shardset *set, enum lf_rows rows, bool mismatched,
                  uint32_t T, const char *dir, lf_err *err);
void lf_units_fini(struct lf_units *u);
/* Takes documents with pictures: those that a row cannot hold are counted. */
void lf_units_media(struct lf_units *u, const lf_loader_config *c);
/* What a unit weighs besides its tokens; for lf_pack_build. */
void lf_units_weigh(const void *units, uint64_t unit, uint64_t weight[LF_PACK_AXES]);
/* Patches and tiles that a row of such a micro-batch holds. */
void lf_units_most(const lf_loader_config *c, uint32_t most[LF_PACK_AXES]);
/* Returns the length of a unit, or 0 when it is longer than T; for lf_pack_build. */
uint64_t lf_units_len(const void *units, uint64_t unit);
/* Returns the most segments of a unit of such documents. */
int32_t lf_units_most_parts(enum lf_rows rows, bool mismatched);
/* Returns the bound on units of a row, padding counted, that keeps its segments within
 * lf_loader_segs. */
uint32_t lf_units_bound(const lf_loader_config *c);
/* Returns the memory of the units, with the lengths of their documents. */
size_t lf_units_bytes(const lf_loader_config *c, uint64_t docs);
/* Takes documents as pairs of source and target: those that a row cannot hold are counted. */
int lf_units_split(struct lf_units *u, const lf_loader_config *c, lf_err *err);
/* Finds the segments of seg, whose doc is a unit in the index, and returns their number. */
int lf_units_parts(const struct lf_units *u, const lf_pack_seg *seg,
                   struct lf_unit_part part[LF_UNIT_PARTS]);
/* Tokens [from, to) of a document, whose first stands at token `at` of a segment. */
struct lf_units_cut {
    uint64_t doc, from, to;
    uint32_t at;
};
/* Finds what a segment is made of, in order, and returns how many cuts that are. */
int lf_units_cuts(const struct lf_units *u, const struct lf_unit_part *p,
                  struct lf_units_cut cut[LF_UNIT_PARTS]);
/* Does this picture of the cut's document begin in the cut? */
bool lf_units_sees(const lf_shard_picture *p, const struct lf_units_cut *cut);
int lf_units_fill_mismatched(const struct lf_units *u, const struct lf_unit_part *p,
                             int32_t *tokens, int32_t *targets, lf_err *err);

/* The data of all walkers; constant after open. */
struct lf_order {
    enum lf_loader_mode mode;
    size_t n_sources;
    uint32_t w[LF_LOADER_MAX_SOURCES], total;
    uint64_t n[LF_LOADER_MAX_SOURCES]; /* sequences of a source */
    uint64_t seed;
    uint32_t repeats;  /* of lf_loader_config, at least 1 */
    int64_t n_samples; /* their number with VALID; INT64_MAX with TRAIN */
    const lf_loader_ramp *ramp;
    size_t n_ramp;
    const int64_t *skip; /* sorted */
    size_t n_skip;
    bool megatron; /* the order of megatron_order.h, with these weights */
    double mw[LF_LOADER_MAX_SOURCES];
};

/* One source in Megatron's order (loader_megatron.c). */
struct lf_mega {
    const lf_shardset *set; /* borrowed */
    lf_megatron_order *order;
    uint64_t *first; /* [n_seqs + 1] first token of each sequence, counted in the split */
    uint64_t n_seqs;
};
/* samples is the number that this source must give; 0: one epoch. */
int lf_mega_open(struct lf_mega *m, const lf_shardset *set, const lf_loader_megatron *c, int32_t T,
                 uint64_t samples, lf_err *err);
void lf_mega_fini(struct lf_mega *m);
size_t lf_mega_bytes(const struct lf_mega *m);
/* Reads the T + 1 tokens of a sample, without allocation. */
int lf_mega_read(const struct lf_mega *m, uint64_t sample, int32_t *dst, lf_err *err);
/* Returns the parts of a sample as an array of {"sequence","first","len"}. */
json_t *lf_mega_describe(const struct lf_mega *m, uint64_t sample);
/* Opens every source and sets weights, counts and number of samples of the order. */
int lf_mega_open_all(struct lf_mega *m, struct lf_order *o, const lf_shardset *const *sets,
                     const lf_loader_config *c, lf_err *err);

/* A place in the order of samples. */
struct lf_walker {
    int64_t sample;
    uint64_t count[LF_LOADER_MAX_SOURCES];
};
void lf_walker_seek(struct lf_walker *w, const struct lf_order *o, int64_t sample);
/* Finds dataset and sequence of the sample at w and moves w on. epoch may be NULL. */
void lf_walker_next(struct lf_walker *w, const struct lf_order *o, size_t *source,
                    uint64_t *sequence, uint64_t *epoch);

/* A place in the order of optimizer steps. */
struct lf_stepper {
    int64_t number, first, n;
};
/* Checks the ramp: rows ascend from 0, and batches are positive multiples of the micro-batch B with
 * at least one micro-batch per data-parallel rank. */
int lf_order_check(const struct lf_order *o, int64_t B, int64_t ranks, lf_err *err);
/* Goes to the step that begins at this sample. LF_EINVAL: there is none. */
int lf_stepper_seek(struct lf_stepper *s, const struct lf_order *o, int64_t sample, lf_err *err);
/* Moves past steps of the skip list. false at the end of the order. */
bool lf_stepper_settle(struct lf_stepper *s, const struct lf_order *o);
void lf_stepper_next(struct lf_stepper *s, const struct lf_order *o);

/* ---- pictures (loader_media.c) ---- */

struct lf_loader_media {
    bool on;
    uint8_t made_by[LF_HASH_BYTES]; /* hash of the texts of both */
    lf_processor processor;
    lf_expand expand;
    int64_t image_token;
    int32_t max_patches, max_tiles;
    bool alone;                       /* pictures of lf_loader_config */
    const struct lf_augment *augment; /* of lf_loader_config; NULL: none */
    const lf_features *features;      /* NULL: pictures are decoded */
    int64_t max_encoded;              /* rows of features */
    uint8_t *file;                    /* [file_bytes] of the picture being read */
    size_t file_bytes;
};
/* The processor of one source's pictures, against those before: `have` says there are some. A
 * source without pictures has none, whatever it was prepared with. */
int lf_loader_media_source(struct lf_loader_media *m, bool *have, const lf_shardset *set,
                           const char *dir, lf_err *err);
/* Adds the key of picture i of a document. Returns its number, or a negative lf_rc. */
int64_t lf_loader_media_key(struct lf_features_keys *keys, const lf_shardset *set, uint64_t doc,
                            uint64_t i, lf_err *err);
/* Do the features have every picture of a source, made by the same processor? LF_EINVAL. */
int lf_loader_media_featured(const struct lf_loader_media *m, const lf_shardset *set,
                             const char *dir, lf_err *err);
/* Is the processor of the sources the one that was planned for? */
int lf_loader_media_check(const struct lf_loader_media *m, const lf_loader_config *c,
                          const char *dir, lf_err *err);
size_t lf_loader_media_bytes(const lf_loader_config *c); /* of one slot */
/* Picture i of a document in a sample of the order. */
struct lf_loader_place {
    uint64_t doc, i;
    int64_t sample;
};
/* Reads, decodes and processes picture i of a document to what its shard says it becomes; on
 * success the caller owns *x. */
int lf_loader_media_read(const struct lf_loader_media *m, lf_pixels *x, const lf_shardset *set,
                         uint64_t doc, uint64_t i, const lf_shard_picture *said, lf_err *err);
/* The same, changed as `augment` says of this sample. */
int lf_loader_media_changed(const struct lf_loader_media *m, lf_pixels *x, const lf_shardset *set,
                            const struct lf_loader_place *at, const lf_shard_picture *said,
                            lf_err *err);
/* Puts its patches, of which x has none where features are read, behind those of the batch. Its
 * placeholders begin at row `at`. A picture of pan and scan has a run of them for each tile; any
 * other has one. */
int lf_loader_media_put(const struct lf_loader_media *m, lf_loader_batch *b, const lf_pixels *x,
                        const lf_shard_picture *said, int64_t at, lf_err *err);
/* Prefixes err with the place of the picture; returns its code. */
int lf_loader_media_blame(const lf_shardset *set, uint64_t doc, uint64_t i, lf_err *err);
/* Decodes and processes the pictures of a segment, whose tokens stand from row `first` of the
 * micro-batch on. */
int lf_loader_media_fill(const struct lf_loader_media *m, lf_loader_batch *b,
                         const struct lf_units *u, const struct lf_unit_part *p, int64_t first,
                         lf_err *err);

/* ---- sources and targets (loader_seq2seq.c) ---- */

struct lf_loader_src;

/* Are texts corrupted? Then the packing index is one of texts. */
static inline bool lf_loader_corrupts(const lf_loader_config *c)
{
    return c->seq2seq && c->seq2seq->kind != LF_SEQ2SEQ_PAIRS;
}
static inline bool lf_loader_splits(const lf_loader_config *c)
{
    return c->seq2seq && c->seq2seq->kind == LF_SEQ2SEQ_PAIRS;
}
/* The configuration as the packing index sees it. */
lf_loader_config lf_loader_index_config(const lf_loader_config *c);
int lf_loader_seq2seq_check(const lf_loader_config *c, lf_err *err);
/* Can the documents of this source be such samples? */
int lf_loader_seq2seq_source(const lf_loader *l, const struct lf_loader_src *src, lf_err *err);
/* Row `row` of a micro-batch from one sequence, as fill_row of loader.c does. */
int lf_loader_seq2seq_fill(const lf_loader *l, lf_loader_batch *b, int32_t row,
                           const struct lf_loader_src *src, const lf_pack_seg *segs,
                           uint32_t n_segs, lf_err *err);
/* Targets of a sequence. */
int64_t lf_loader_seq2seq_trained(const lf_loader *l, const struct lf_loader_src *src,
                                  uint64_t seq);
/* Closes the segment that ends at flattened position `end`, and says what it is. */
void lf_loader_end_segment(lf_loader_batch *b, int32_t end);
void lf_loader_name_segment(lf_loader_batch *b, int64_t doc, size_t source, bool mismatched);
void lf_loader_positions(int32_t *positions, int32_t n);

/* ---- pairs of texts (loader_pairs.c) ---- */

int lf_loader_pairs_check(const lf_loader_config *c, lf_err *err);
/* Can texts of this source be paired? */
int lf_loader_pairs_source(const lf_loader_config *c, const struct lf_loader_src *src, lf_err *err);
/* Row `row` of a micro-batch from the pieces of `segs`, up to its padding; *at, 0 at first,
 * is the place of that in the row. */
int lf_loader_pairs_fill(const lf_loader *l, lf_loader_batch *b, int32_t row,
                         const struct lf_loader_src *src, uint32_t n_segs, int32_t *at,
                         lf_err *err);
/* The same of count_segs into count_row and count_begins; *pairs grows. */
int lf_loader_pairs_count(const lf_loader *l, const struct lf_loader_src *src, uint32_t n_segs,
                          int64_t sample, int32_t *at, int64_t *pairs, lf_err *err);

/* ---- the loader itself ---- */

struct lf_loader_src {
    lf_shardset *set;
    lf_pack *pack; /* NULL in Megatron's order */
    bool masked;
    char *dir;
    struct lf_units units;
};

struct lf_loader {
    struct lf_loader_media media;
    struct lf_order order;
    struct lf_loader_src *src;
    struct lf_mega *mega; /* [n_sources] in Megatron's order, else NULL */
    lf_loader_ramp *ramp;
    int64_t *skip;
    int32_t T, B, max_segs, pad_token;
    const lf_mlm *mlm;         /* NULL: none */
    int64_t mlm_vocab;         /* words of it that stand for hidden ones */
    const lf_nsp *nsp;         /* NULL: none */
    uint8_t *begins;           /* [T] where words of the row that is filled begin; NULL: unread */
    const lf_seq2seq *seq2seq; /* NULL: none */
    int32_t decoder_start;
    int32_t text;  /* tokens of a text that is corrupted; 0: none is */
    int32_t *work; /* [3 text + 2] the thread's own */
    int64_t dp_rank, dp_size;
    char order_id[LF_HASH_HEX];
    /* memory of the loader with its slots; memory of the indices of sources */
    size_t bytes, index_bytes;

    /* the caller's side */
    struct lf_walker walk;
    struct lf_stepper step;
    lf_loader_step now;
    lf_pack_seg *count_segs;
    /* [2 T] tokens and targets of a sample that is counted, with mlm; with nsp T more of scratch */
    int32_t *count_row;
    uint8_t *count_begins;
    int32_t micro; /* micro-batches of `now` given so far */
    bool in_step;
    int64_t cursor;

    /* shared with the thread, under lock */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t gen, made, used;
    int64_t seek_to;
    bool quit, failed;
    lf_err failure;
    lf_loader_batch slot[LF_LOADER_SLOTS];

    /* the thread's own */
    struct lf_walker fill_walk;
    struct lf_stepper fill_step;
    int32_t fill_micro;
    lf_pack_seg *segs;
    int32_t *row; /* [T + 1], Megatron's order; [text]; [T] with nsp */
};

/* The function of the loader's thread; arg is the lf_loader. */
void *lf_loader_fill(void *arg);

#endif
