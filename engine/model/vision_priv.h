/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows and merges of encoders with stages, as tables of constants, for vision.c. */
#ifndef LF_MODEL_VISION_PRIV_H
#define LF_MODEL_VISION_PRIV_H

#include "engine/model/vision.h"

/* Layers that run. */
static inline int64_t lf_vision_read_layers(const lf_vision_config *c)
{
    return c->read_layers ? c->read_layers : c->layers;
}

/* The windows of a layer. Rows of a picture are put into windows of `window` x `window` cells, from
 * the cell (shift, shift) on, and what is left behind the last window is the rest of the last one,
 * with the first `shift` rows and columns of the picture beside it, which do not attend to each
 * other: parts of a window are documents. Cells beyond the picture, where its side is no multiple
 * of the window, are rows of zeros. */
struct lf_windows {
    int64_t window, shift;
    int64_t padded; /* cells of a picture's side with those beyond it */
    int64_t rows;   /* of all pictures */
    int64_t docs, max_doc;
    bool plain; /* rows stand as they are: a picture is a window */
};
/* Of layer l, in a graph of these bounds. */
struct lf_windows lf_windows_of(const lf_vision_config *c, const struct lf_vision_rows *r,
                                int64_t l);
/* The window of a stage: with cosine no wider than the picture is there. */
int64_t lf_window_of(const lf_vision_config *c, int64_t stage);

/* Tables live as long as the encoder, as constants of graphs ask for them until plans are bound. */
struct lf_vision_tables;
struct lf_vision_tables *lf_vision_tables_create(lf_err *err);
void lf_vision_tables_destroy(struct lf_vision_tables *t);

/* Where constants are made: their names begin with prefix. */
struct lf_table_place {
    lf_graph *g;
    const char *prefix;
    struct lf_vision_tables *tables;
    const lf_vision_config *c;
    const struct lf_vision_rows *r;
};
/* Rows of the stage of layer l in windows; the transpose puts them back. */
struct lf_mix lf_table_windows(const struct lf_table_place *at, int64_t l);
/* i32 [docs + 1, 1], and i32 [rows, 1]: minus the number of a cell in a window whose rows are
 * 2 window - 1 apart, so that a difference of two says how far one is from the other. */
lf_val lf_table_cu(const struct lf_table_place *at, int64_t l);
lf_val lf_table_cells(const struct lf_table_place *at, int64_t l);
/* Four rows of stage s for each row of the next one: patches (0, 0), (1, 0), (0, 1), (1, 1). */
struct lf_mix lf_table_merge(const struct lf_table_place *at, int64_t s);
/* 0, 1, ..., n - 1. */
lf_val lf_table_numbers(const struct lf_table_place *at, int64_t n);
/* What the MLP of distances reads, f32 [(2 w - 1)^2, 2]: sign(u) log2(8 |u| + 1) / 3 for u = d / (t
 * - 1) and the distances d up and sideways, t the side of the windows that it was trained with. */
lf_val lf_table_distances(const struct lf_table_place *at, int64_t stage);

#endif
