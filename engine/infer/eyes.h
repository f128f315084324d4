/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures in requests: from the files that a model's processor consists of, to prompts with
 * placeholders and what generation needs of their pictures.
 *
 * A request has pictures in "images", a list, or a single one in "image", or in the content lists
 * of its messages ({"type": "image", "image" | "path" | "url": path}), where a part without a path
 * takes the next of "images". A picture is a path, a data: URL of base64, or {bytes, path} of
 * parquet. Relative paths begin where the requests' file lies. The k-th mark of the text stands for
 * the k-th picture.
 */
#ifndef LF_INFER_EYES_H
#define LF_INFER_EYES_H

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/infer/gen.h"
#include "engine/media/expand.h"
#include "engine/model/config.h"

typedef struct lf_gen_eyes {
    lf_processor processor;
    lf_expand expand;
    lf_model_config model;
    char *dir; /* of relative paths, owned; NULL: the working directory */
} lf_gen_eyes;

/* Reads the processor of `from` (lf_expand_load); tokenizer: the one that is used. LF_EINVAL: the
 * model sees nothing. */
int lf_gen_eyes_load(lf_gen_eyes *e, const char *from, const char *tokenizer,
                     const lf_model_config *model, lf_err *err);
void lf_gen_eyes_fini(lf_gen_eyes *e);

/* The pictures of a request, in an arena. */
struct lf_gen_sights {
    const char **path; /* [n]; NULL: they come from read (look.h) */
    int (*read)(void *arg, int32_t i, lf_pixels *out, lf_err *err);
    void *arg;
    int32_t n;
    struct lf_media_tile *tile;
    struct lf_media_picture *picture;
    int32_t n_tiles, row_bytes;
    int64_t n_patches;
};

/* Collects the pictures of a request; images and messages may be NULL. *out is NULL: none. */
int lf_gen_sights_collect(struct lf_gen_sights **out, const lf_gen_eyes *e, const json_t *images,
                          const json_t *messages, lf_arena *a, lf_err *err);
/* Measures them and replaces the marks of the text. Where s is NULL, which says that there are no
 * pictures, a mark is refused. */
int lf_gen_sights_expand(struct lf_gen_sights *s, const lf_gen_eyes *e, lf_buf *text, lf_arena *a,
                         lf_err *err);
/* Of the encoded prompt. LF_EINVAL: it has not as many tokens of pictures as these have rows. */
int lf_gen_sights_place(const struct lf_gen_media **out, const struct lf_gen_sights *s,
                        const lf_gen_eyes *e, const lf_gen_job *job, lf_arena *a, lf_err *err);

#endif
