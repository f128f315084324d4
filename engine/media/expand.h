/* SPDX-License-Identifier: Apache-2.0
 *
 * Placeholders: what stands in the text for a picture. A chat template writes one mark for each
 * picture; the mark is replaced by as many placeholders as the model will put features there, with
 * texts around them, on the rendered text and before it is tokenized. Equal to the processors of
 * transformers 5.23, named here by their class (processor_class of the files):
 *
 *   class             placeholders of a picture             mark             stands for a mark
 *   Llava             patches, a class token more or less   image_token      image_token * n
 *   LlavaNext         all of it, and the tiles without      image_token      image_token * n
 *   LlavaOnevision    their borders and with a line end
 *                     after each row
 *   Qwen2VL 2_5 3VL   patches / merge^2                     image_token      image_token * n
 *   InternVL          image_seq_length each tile            image_token      begin, n, end
 *   Gemma3            image_seq_length each tile            begin            "\n\n" begin, n, end
 *                                                                            "\n\n"; crops apart
 *   PaliGemma         image_seq_length                      image_token      image_token * n
 *   Idefics3 SmolVLM  image_seq_len each tile               image_token      fake, where the tile
 *                                                                            is, n; fake at last
 *   Pixtral           patches / spatial_merge_size^2        image_token      n of a row, break; end
 *                                                                            behind the last
 *   CLIP Siglip       none: a picture is beside its text    image_token      nothing; it may lack
 *
 * PaliGemma besides puts BOS behind the last picture and a line end behind the prompt. Two classes
 * change what the file of the image processor says unless they are told otherwise: InternVL cuts
 * into tiles, and Gemma3 does not pan.
 */
#ifndef LF_MEDIA_EXPAND_H
#define LF_MEDIA_EXPAND_H

#include "engine/base/str.h"
#include "engine/media/processor.h"

enum lf_expand_kind {
    LF_EXPAND_LLAVA,
    LF_EXPAND_LLAVA_NEXT,
    LF_EXPAND_ONEVISION,
    LF_EXPAND_QWEN,
    LF_EXPAND_INTERNVL,
    LF_EXPAND_GEMMA3,
    LF_EXPAND_PALIGEMMA,
    LF_EXPAND_IDEFICS3,
    LF_EXPAND_PIXTRAL,
    LF_EXPAND_BESIDE
};
enum { LF_EXPAND_TEXT = 64 }; /* bytes of a token's text, with its NUL */

typedef struct lf_expand {
    const char *class_name; /* "LlavaProcessor" */
    enum lf_expand_kind kind;
    char image_token[LF_EXPAND_TEXT]; /* the placeholder */
    /* around placeholders; of Idefics3 what is before each tile and before all of it; of Pixtral
     * what is behind each row and behind the last */
    char begin[LF_EXPAND_TEXT], end[LF_EXPAND_TEXT], bos[LF_EXPAND_TEXT];
    int32_t patch; /* of the vision tower; 0: the image processor's file says it */
    /* image_seq_length; num_image_tokens of LlavaOnevision; image_seq_len of Idefics3 */
    int32_t seq_length;
    int32_t merge;      /* spatial_merge_size of Pixtral */
    int32_t additional; /* num_additional_image_tokens */
    bool drop_first;    /* vision_feature_select_strategy = default */
    int32_t max_ratio;  /* the number in vision_aspect_ratio of LlavaOnevision */
    bool tiles, pan;    /* crop_to_patches of InternVL, do_pan_and_scan of Gemma3 */
} lf_expand;

/* The texts of files, NULL where there is none. A setting is taken from the first that has it:
 * given (an object of settings by the names above), tokenizer (tokenizer_config.json: texts of
 * tokens), processor (processor_config.json), image_processor (preprocessor_config.json:
 * processor_class, image_seq_length), model (config.json: patch_size of vision_config). */
typedef struct lf_expand_files {
    const char *given, *tokenizer, *processor, *image_processor, *model;
} lf_expand_files;

/* LF_EFORMAT: a file is no JSON object, a setting is wrong or lacking, a given one is unknown;
 * LF_ENOTSUP: a class that is not known. */
int lf_expand_read(lf_expand *out, const lf_expand_files *f, lf_err *err);
/* Appends what lf_expand_read makes the same of, as `given`. */
void lf_expand_write(lf_buf *out, const lf_expand *e);
/* Appends the text of the image processor's file as this processor uses it. */
int lf_expand_image_processor(lf_buf *out, const lf_expand *e, const char *text, const char *name,
                              lf_err *err);
/* Reads back what the two functions before wrote: all that pictures and placeholders depend on. */
int lf_expand_open(lf_processor *p, lf_expand *e, const char *image_processor, const char *settings,
                   const char *name, lf_err *err);

/* Where a processor's files are. */
typedef struct lf_expand_place {
    const char *path;      /* a model's directory, or the one file of its image processor */
    const char *tokenizer; /* directory whose tokenizer_config.json counts first; NULL: none */
    const char *given;     /* as of lf_expand_files */
} lf_expand_place;
/* What lf_expand_open reads back; to be initialised by the caller. */
typedef struct lf_expand_texts {
    lf_buf *image_processor, *settings;
} lf_expand_texts;
/* All of the above from files. LF_ENOENT: the directory has no preprocessor_config.json. */
int lf_expand_load(lf_processor *p, lf_expand *e, const lf_expand_texts *out,
                   const lf_expand_place *at, lf_err *err);

/* The placeholders of a picture that becomes x; x->rows is not read. alone: as lf_processor_run. */
int64_t lf_expand_count(const lf_expand *e, const lf_processor *p, const lf_pixels *x, bool alone);

/* A text's picture. */
typedef struct lf_expand_picture {
    int64_t count; /* lf_expand_count */
    int32_t tiles;
    lf_size layout; /* columns and rows of tiles beside all of it; of Pixtral, of placeholders */
} lf_expand_picture;
lf_expand_picture lf_expand_measure(const lf_expand *e, const lf_processor *p, const lf_pixels *x,
                                    bool alone);
/* Are pictures beside their text, so that no token of it stands for them? */
static inline bool lf_expand_beside(const lf_expand *e)
{
    return e->kind == LF_EXPAND_BESIDE;
}
/* May other tokens stand between the placeholders of one picture? */
bool lf_expand_apart(const lf_expand *e);

const char *lf_expand_mark(const lf_expand *e);
/* Replaces the k-th mark of the text by what stands for v[k]. place[n_place] are offsets in the
 * text, ascending, which move with what they stand at. A text with more marks than pictures is
 * LF_EFORMAT, and so is one with fewer unless `part` says that it is the beginning of a text. */
struct lf_expand_places {
    size_t *v, n;
    bool part;
};
int lf_expand_text(const lf_expand *e, const lf_expand_picture *v, size_t n, lf_buf *text,
                   const struct lf_expand_places *places, lf_err *err);

#endif
