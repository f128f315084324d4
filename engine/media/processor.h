/* SPDX-License-Identifier: Apache-2.0
 *
 * What a vision model's preprocessor_config.json does to a picture, equal bit for bit to
 * transformers 5.23 with its torchvision or its PIL processors (resize.h says how these differ).
 *
 *   kind            classes of the file                what happens
 *   LF_PROC_FIT     CLIP, Llava, Siglip, Bit           pad to a square where asked, resize, crop
 *   LF_PROC_NAFLEX  Siglip2                            up to max_num_patches patches, shape kept
 *   LF_PROC_SMART   Qwen2VL (Qwen2-, 2.5-, 3-VL)       sides multiples of patch x merge, shape kept
 *   LF_PROC_TILES   GotOcr2 (InternVL)                 tiles by the nearest ratio, then all of it
 *   LF_PROC_ANYRES  LlavaNext, LlavaOnevision          all of it, then tiles of the best pinpoint
 *   LF_PROC_PAN     Gemma3                             all of it, then crops of a long picture
 *   LF_PROC_SPLIT   Idefics3, SmolVLM                  tiles of a picture of their size, then all
 *   LF_PROC_WITHIN  Pixtral                            at most so large, shape kept
 *
 * PaliGemma uses Siglip's class and DINOv2 Bit's. Each class may end in Fast or Pil. A key that is
 * not known, or not for its class, is refused by name; null counts as absent, as in transformers.
 */
#ifndef LF_MEDIA_PROCESSOR_H
#define LF_MEDIA_PROCESSOR_H

#include "engine/media/grid.h"
#include "engine/media/patch.h"

enum lf_processor_kind {
    LF_PROC_FIT,
    LF_PROC_NAFLEX,
    LF_PROC_SMART,
    LF_PROC_TILES,
    LF_PROC_ANYRES,
    LF_PROC_PAN,
    LF_PROC_SPLIT,
    LF_PROC_WITHIN
};
/* LF_TILES_MAX: of one picture. A file that asks for tiles of a pixel would fill any memory. */
enum { LF_PINPOINTS_MAX = 256, LF_TILES_MAX = 4096 };

/* Filled by lf_processor_read, constant afterwards; no memory of its own. */
typedef struct lf_processor {
    const char *class_name; /* "CLIPImageProcessor" */
    enum lf_processor_kind kind;
    enum lf_resize_manner manner;
    enum lf_resize_filter filter;
    bool do_resize, do_crop;
    bool pad_square;  /* before resizing, with the mean colour */
    lf_size size;     /* 0 x 0: by `shortest` or `longest`; LF_PROC_WITHIN: at most */
    int32_t shortest; /* 0: by `size` */
    int32_t longest;  /* LF_PROC_SPLIT, before tiles are cut; 0: by `size` */
    int32_t tile;     /* LF_PROC_SPLIT: pixels of a tile's side */
    lf_size crop;     /* where do_crop */
    double mean[3], std[3], rescale_factor;
    int64_t min_pixels, max_pixels; /* LF_PROC_SMART */
    int32_t max_patches;            /* LF_PROC_NAFLEX: rows of a picture, padding included */
    bool do_tiles;                  /* LF_PROC_TILES, _PAN, _SPLIT: more than all of it */
    int32_t min_tiles, max_tiles;   /* LF_PROC_TILES */
    int32_t n_pinpoints;            /* LF_PROC_ANYRES */
    lf_size pinpoints[LF_PINPOINTS_MAX];
    bool tile_alone;               /* LF_PROC_ANYRES: tiles only for a picture that is alone */
    int32_t pan_min_crop, pan_max; /* LF_PROC_PAN */
    double pan_min_ratio;          /* the same */
    lf_patches patches;
    float table[3][256]; /* patch.h */
} lf_processor;

typedef struct lf_processor_opts {
    enum lf_resize_manner manner;
    int32_t patch; /* of the vision tower: pixels a side. 0 where the file says it */
} lf_processor_opts;

/* Reads the text of a preprocessor_config.json, or of a processor_config.json with the member
 * image_processor. name: of the file, for messages. LF_ENOTSUP: a class that is not read;
 * LF_EFORMAT: the rest. */
int lf_processor_read(lf_processor *out, const char *text, size_t len, const char *name,
                      const lf_processor_opts *o, lf_err *err);

/* A picture as rows of bytes (patch.h), each patch once. */
typedef struct lf_pixels {
    uint8_t *rows;          /* [tiles][grid_h grid_w][row_bytes], owned */
    int32_t tiles;          /* pictures that go through the tower, all of one size */
    int32_t grid_h, grid_w; /* patches of a tile */
    int32_t row_bytes;      /* 3 P P */
    lf_size layout;         /* columns and rows of the tiles beside all of it; 0 x 0: none */
    lf_size from;           /* the picture before anything was done */
} lf_pixels;

/* alone: the picture is the only one of its sample. LF_EINVAL: a shape that the processor does not
 * take, or a size that does not divide into patches. */
int lf_processor_run(lf_pixels *out, const lf_processor *p, const lf_image *im, bool alone,
                     lf_err *err);
void lf_pixels_fini(lf_pixels *x);
/* The same in two steps, for what changes the picture in between. The first gives the picture that
 * goes through the tower (LF_ENOTSUP: it is more than one), the second its rows; from: the size
 * before anything was done. */
int lf_processor_tile(lf_image *out, const lf_processor *p, const lf_image *im, bool alone,
                      lf_err *err);
int lf_processor_rows(lf_pixels *out, const lf_processor *p, const lf_image *tile, lf_size from,
                      lf_err *err);

/* What one tile becomes where no side of it is given, of this size so far; for plan.c. */
lf_size lf_processor_fitted(const lf_processor *p, lf_size from);
/* To which size a picture is brought before it is cut into tiles of LF_PROC_SPLIT. */
int lf_processor_split(lf_size *out, const lf_processor *p, lf_size from, lf_err *err);
/* Do pixels of a side make whole blocks of merge x merge patches? */
bool lf_processor_divides(const lf_processor *p, int32_t pixels);

/* The same without a picture, by its size alone: all but the rows, which stay NULL. */
int lf_processor_plan(lf_pixels *out, const lf_processor *p, lf_size from, bool alone, lf_err *err);

/* The rows as floats; dst holds lf_pixels_floats(p, x) of them. */
int64_t lf_pixels_floats(const lf_processor *p, const lf_pixels *x);
void lf_pixels_normalize(float *dst, const lf_processor *p, const lf_pixels *x);

#endif
