/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of documents in graphs whose rows the caller packs: reinforcement learning and scoring
 * (engine/post), which have no loader. Which rows are pictures is known from the places of the
 * pictures that were added. A placeholder anywhere else, such as one that a model has drawn, is a
 * token like any other.
 */
#ifndef LF_TRAIN_SEEN_H
#define LF_TRAIN_SEEN_H

#include "engine/graph/exec.h"
#include "engine/media/expand.h"
#include "engine/media/processor.h"
#include "engine/model/decoder.h"
#include "engine/store/shard.h"
#include "engine/train/own_rows.h"

/* Where the pictures of documents come from, by number of a document; borrowed by its users. */
typedef struct lf_pictures {
    void *arg; /* of the functions */
    const lf_processor *processor;
    const lf_expand *expand;
    int64_t image_token;
    uint64_t (*count)(void *arg, uint64_t doc);
    /* places, tiles and sides of picture i; its bytes are not asked for */
    void (*get)(void *arg, uint64_t doc, uint64_t i, lf_shard_picture *out);
    /* decodes and processes it, to those tiles and sides */
    int (*read)(void *arg, uint64_t doc, uint64_t i, lf_pixels *out, lf_err *err);
} lf_pictures;

/* What all pictures of a document are: patches, tiles, placeholders. */
struct lf_pictures_size {
    int64_t patches, tiles, tokens;
};
struct lf_pictures_size lf_pictures_size(const lf_pictures *p, uint64_t doc);

/* Those of splits of shards; what they are called is for messages. sets outlive *out, which is NULL
 * where none has a document with pictures. LF_EINVAL: these were prepared for another model or for
 * two, or the model sees nothing. */
typedef struct lf_shard_eyes lf_shard_eyes;
int lf_shard_eyes_open(lf_shard_eyes **out, const lf_shardset *const *sets, size_t n,
                       const char *called, const lf_model_config *mc, lf_err *err);
/* The number of a document of a set. */
static inline uint64_t lf_shard_eyes_doc(size_t set, uint64_t doc)
{
    return (uint64_t)set << 48 | doc;
}
void lf_shard_eyes_close(lf_shard_eyes *e); /* NULL is fine */
const lf_pictures *lf_shard_eyes_pictures(const lf_shard_eyes *e);

/* ---- a micro-batch ---- */

typedef struct lf_seen lf_seen;
/* Room for micro-batches of `rows` rows with these bounds (lf_sight_bounds); bounds are copied, mc
 * is borrowed. */
int lf_seen_create(lf_seen **out, const lf_model_config *mc, const struct lf_decoder_media *bounds,
                   int64_t rows, lf_err *err);
void lf_seen_destroy(lf_seen *s); /* NULL is fine */
size_t lf_seen_bytes(const lf_model_config *mc, const struct lf_decoder_media *bounds,
                     int64_t rows);
/* Begins a micro-batch without pictures; later ones are those of `from` (NULL: there are none). */
void lf_seen_begin(lf_seen *s, const lf_pictures *from);
/* Adds the pictures of a document whose first token stands at `row`; tokens [rows] are those of the
 * micro-batch. In the order of rows. LF_EFORMAT: its placeholders are not where they should be, or
 * there is no room. */
int lf_seen_add(lf_seen *s, uint64_t doc, const int32_t *tokens, int64_t row, lf_err *err);
/* The rows of the micro-batch, which its pictures go into. */
struct lf_seen_rows {
    const int32_t *tokens, *positions; /* [rows] */
    const struct lf_own_rows *mine;    /* those of the graph; NULL: all */
};
/* Writes the inputs of pictures, tokens and, where there are such, places of slot 0 of a chain. Of
 * a model that reads no text it looks at no rows (r may be NULL). */
int lf_seen_write(lf_seen *s, lf_exec *ex, int chain, const struct lf_seen_rows *r, lf_err *err);

#endif
