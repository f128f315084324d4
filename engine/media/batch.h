/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of a micro-batch, as the loader gives them and a vision tower takes them. Rows of
 * bytes are those of patch.h; floats are made of them where they are needed (lf_norm_rows).
 */
#ifndef LF_MEDIA_BATCH_H
#define LF_MEDIA_BATCH_H

#include <stdint.h>

#include "engine/media/grid.h"

/* One picture through the tower. */
struct lf_media_tile {
    int32_t grid_h, grid_w;
};

/* Placeholders, and the tiles whose features take their rows. A picture of Gemma's pan and scan,
 * whose crops stand apart in the text, is as many of these as it has tiles. */
struct lf_media_picture {
    int32_t first_tile, tiles;
    lf_size layout, from; /* lf_pixels */
    /* placeholders: the first row in [B * T], how many; others may stand between (expand.h,
     * lf_expand_apart) */
    int64_t first_row, rows;
};

typedef struct lf_media_batch {
    int32_t n_tiles, n_pictures, row_bytes;
    int64_t n_patches;
    struct lf_media_tile *tile;
    struct lf_media_picture *picture;
    /* [n_patches][row_bytes], tiles one after the other, in order of pictures, in order of rows of
     * the batch */
    uint8_t *patches;
    /* Where features are read in place of pictures (engine/store/features.h): [n_encoded]
     * [encoded_bytes] rows of the encoder in the same order, as they are stored, and no patches */
    uint8_t *encoded;
    int64_t n_encoded;
    int32_t encoded_bytes;
} lf_media_batch;

#endif
