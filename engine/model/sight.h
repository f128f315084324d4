/* SPDX-License-Identifier: Apache-2.0
 *
 * What the pictures of a micro-batch put into the inputs of a graph (vision.h, composed.h): where
 * patches and class tokens stand, which learned position they have, windows, which feature goes to
 * which token, and the three positions of a token. All of it follows from sizes alone.
 *
 * Learned positions of another grid than that of the table are resampled: bicubically with
 * a = -0.75, half-pixel centres and a clamped border, as PyTorch does (CLIP, SigLIP, InternViT,
 * DINOv2); or, with rope, bilinearly between the corners (Qwen3-VL). With vision.buckets nothing is
 * resampled: a patch has the position of the table that lies at its share of the side (Idefics 3).
 * With vision.smooth_positions it has a mean of those within max(S / n, 1) of its centre, S a side
 * of the table and n of the picture, by weights that fall linearly (SigLIP 2).
 *
 * M-RoPE positions of a document (Qwen2-VL): cur = 0; a token of text has cur on all axes, then
 * cur += 1; the picture of h x w merged patches has (cur, cur + row, cur + column), then
 * cur += max(h, w).
 */
#ifndef LF_MODEL_SIGHT_H
#define LF_MODEL_SIGHT_H

#include "engine/media/batch.h"
#include "engine/media/processor.h"
#include "engine/model/composed.h"

/* One picture that goes through the encoder: patches of its sides. */
struct lf_sight_tile {
    int32_t h, w;
};

/* A picture of a document, in one tile or several that lie behind each other. */
struct lf_sight_picture {
    int32_t tile, tiles; /* the first, how many */
    /* with projector.newline: columns and rows of the tiles behind the first one, which is all of
     * the picture; 0: there are none */
    int32_t cols, rows;
    int32_t from_w, from_h; /* pixels of the picture as it came; those beside it are cut off */
};

struct lf_sight_batch {
    int32_t n_tiles, n_pictures;
    const struct lf_sight_tile *tile;
    const struct lf_sight_picture *picture;
    /* patches come in blocks of so many each way, row by row, and row by row in a block */
    int32_t merge;
    bool as_given; /* the encoder has them in that order, also where projector.merge is another */
    int64_t rows;  /* tokens */
    const int32_t *tokens;    /* [rows] image_token where a picture's rows go */
    const int32_t *positions; /* [rows] 0 where a document begins */
};

/* Bounds for so many patches and tiles in a graph of `rows` tokens; tiles 0: a sixteenth of the
 * patches. */
struct lf_decoder_media lf_sight_bounds(const lf_model_config *c, int64_t patches, int64_t tiles,
                                        int64_t rows);
/* How many tokens a picture takes. LF_EINVAL: its grid does not go with merge or pool. */
int64_t lf_sight_tokens(const lf_model_config *c, const struct lf_sight_batch *b,
                        const struct lf_sight_picture *p, lf_err *err);

/* The three positions of b->rows tokens, [rows, 3]; returns that of a token behind them. */
int32_t lf_sight_turns(const lf_model_config *c, const struct lf_sight_batch *b, int32_t *places);

typedef struct lf_sight lf_sight;
/* Room for a micro-batch of these bounds; m is copied. Nothing is allocated later. */
lf_sight *lf_sight_create(const lf_model_config *c, const struct lf_decoder_media *m, int64_t rows,
                          lf_err *err);
void lf_sight_destroy(lf_sight *s);
size_t lf_sight_bytes(const lf_model_config *c, const struct lf_decoder_media *m, int64_t rows);
/* Computes everything. LF_EINVAL: there are more pictures than room, or the tokens of pictures are
 * not as many as their rows. */
int lf_sight_fill(lf_sight *s, const struct lf_sight_batch *b, lf_err *err);
/* Computes what the encoder alone takes: no tokens and pictures of b are looked at. LF_EINVAL:
 * there is more than room for. */
int lf_sight_rows(lf_sight *s, const struct lf_sight_batch *b, lf_err *err);
/* [rows] what the graph takes as tokens: -1 where a picture's row goes. */
const int32_t *lf_sight_token_rows(const lf_sight *s);
/* Where encoder row r takes its pixels from: the number of the patch in the order of the batch.
 * Without windows patch r is row r, unless patches come otherwise than projector.merge puts them
 * beside each other. [patches] */
const int32_t *lf_sight_patch_order(const lf_sight *s);
/* Where m of lf_sight_create has own_rows: lf_sight_write writes features of these rows of all from
 * here on. row [own_rows], of what was filled newly. */
void lf_sight_own(lf_sight *s, const int32_t *row);
/* Writes all inputs but vision.pixels, tokens, places and runs. */
int lf_sight_write(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err);
/* Those of the encoder alone, which lf_sight_write leaves out where its rows are given. */
int lf_sight_write_encoder(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err);
/* The three positions of every token, [rows, 3], where rope_sections is given, else NULL. */
const int32_t *lf_sight_places(const lf_sight *s);
/* The block of every token, [rows, 2], with mask = image_blocks (lf_decoder_runs), else NULL. */
const int32_t *lf_sight_runs(const lf_sight *s);
/* Writes places and runs, where these are inputs. Every chunk of layers has them. */
int lf_sight_write_rows(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err);

/* The same from files (engine/media): sizes, and pixels normalised. */
struct lf_sight_media {
    const lf_media_batch *media;
    const lf_processor *processor;     /* NULL where media has no pictures */
    const int32_t *tokens, *positions; /* as of lf_sight_batch */
    /* [rows / row_tokens] the sample of each row_tokens tokens; NULL: rows have no samples */
    const int64_t *samples;
    int64_t row_tokens;
};
/* Refuses patches of another size than the encoder's. */
int lf_sight_check_patches(const struct lf_sight_media *in, int64_t patch_dim, lf_err *err);
/* Where m of lf_sight_create was `encoded`, media has the encoder's rows. */
int lf_sight_fill_media(lf_sight *s, const struct lf_sight_media *in, lf_err *err);
/* Fills what a graph of the encoder alone takes: no tokens are looked at. */
int lf_sight_fill_encoder(lf_sight *s, const struct lf_sight_media *in, lf_err *err);
/* Writes pixels, or the encoder's rows. */
int lf_sight_write_pixels(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err);
/* Where m of lf_sight_create drops and samples were given: writes samples and offsets, which graphs
 * of training alone have. Within a sample offsets ascend from 0 on, so that dropout of a picture is
 * the same wherever its sample stands, on whichever rank. */
int lf_sight_write_samples(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err);
/* Rows of a tile that are none of its patches. */
int lf_sight_class_rows(const lf_model_config *c);

#endif
