/* SPDX-License-Identifier: Apache-2.0
 *
 * The object of sight.h, for sight.c (memory, matrices), sight_rows.c (rows of the encoder) and
 * sight_place.c (rows of the decoder). */
#ifndef LF_MODEL_SIGHT_PRIV_H
#define LF_MODEL_SIGHT_PRIV_H

#include "engine/model/sight.h"

enum { LF_TAPS_BILINEAR = 4, LF_TAPS_BICUBIC = 16 }; /* taps of a resampled position */
/* Entries of the positions of so many rows, of pictures in so many tiles, at most. */
int64_t lf_sight_taps(const lf_vision_config *v, int64_t rows, int64_t tiles);
/* LF_EINVAL: the side of the table decides how its patches turn, and the picture has another. */
int lf_sight_check_turn(const lf_vision_config *v, const struct lf_sight_tile *t, lf_err *err);

/* Compressed rows [0] and those of the transpose [1]. */
struct lf_sight_matrix {
    const char *name;
    int64_t rows, from, most; /* most entries */
    int64_t n, row;           /* entries and rows so far */
    int32_t *start[2], *index[2];
    float *weight[2];
};
void lf_sight_begin(struct lf_sight_matrix *m);
void lf_sight_entry(struct lf_sight_matrix *m, int64_t index, double weight);
void lf_sight_end_row(struct lf_sight_matrix *m);
void lf_sight_finish(struct lf_sight_matrix *m);

/* Arrays behind each other in one block. */
struct lf_sight_block {
    char *at; /* NULL: only counted */
    size_t used;
};
void *lf_sight_carve(struct lf_sight_block *b, int64_t n, size_t size);
void lf_sight_carve_matrix(struct lf_sight_block *b, struct lf_sight_matrix *m, const char *name,
                           int64_t rows, int64_t from, int64_t entries);

/* Where inputs are written. */
struct lf_sight_at {
    lf_exec *ex;
    int chain, slot;
};
int lf_sight_write_matrix(const struct lf_sight_at *a, const struct lf_sight_matrix *m,
                          lf_err *err);
/* The entries of one row: the position of patch (row, col) of a tile in the table of v. */
void lf_sight_position(struct lf_sight_matrix *pos, const lf_vision_config *v,
                       const struct lf_sight_tile *t, int64_t row, int64_t col);

struct lf_sight {
    lf_model_config *own; /* what c points to, where it is a copy of this object */
    const lf_model_config *c;
    struct lf_decoder_media m;
    int64_t rows;
    struct {
        bool place, class, distill, pos, select, lines;
    } used;
    struct lf_sight_matrix place, class, distill, pos, select, put, lines;
    struct lf_sight_matrix own_put, own_lines; /* with m.own_rows: these rows of put and lines */
    int32_t *token, *places, *runs;
    int32_t *order;  /* [patches] which patch of the batch comes so manieth into the encoder */
    int32_t *row_of; /* [patches] the encoder's row of a patch, tile by tile, row by row */
    int32_t *turn;   /* [rows of the encoder, 3] */
    int32_t *images, *windows;
    int32_t *first;                   /* [tiles + 1] the first patch of a tile */
    struct lf_sight_tile *tile;       /* [tiles] of lf_sight_fill_media */
    struct lf_sight_picture *picture; /* [tiles] */
    float *pixels;                    /* [patches, patch_dim]; none with m.encoded */
    /* [1 + taps, rows of the encoder, C] with m.encoded, in its type: the output, then taps */
    uint8_t *encoded;
    /* with m.drops: samples and offsets of the encoder's rows [0] and of features [1] */
    int64_t *sample[2];
    int32_t *offset[2];
    int64_t n_windows;
    char *block;
};

/* Rows of the decoder: select, put, lines, token, places, runs. */
int lf_sight_place(lf_sight *s, const struct lf_sight_batch *b, lf_err *err);

#endif
