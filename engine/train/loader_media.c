/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of a micro-batch: from the files in the shards to rows of patches. A picture was
 * decoded when its shard was made, so one that cannot be decoded now is damage.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/loader_priv.h"

/* ---- which processor ---- */

/* The texts are canonical, so the same settings have the same hash. */
static int hash_texts(uint8_t out[LF_HASH_BYTES], const lf_shard_info *info, lf_err *err)
{
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    lf_hash_update(h, info->processor, strlen(info->processor) + 1);
    lf_hash_update(h, info->settings, strlen(info->settings) + 1);
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    return 0;
}

int lf_loader_media_source(struct lf_loader_media *m, bool *have, const lf_shardset *set,
                           const char *dir, lf_err *err)
{
    const lf_shard_info *info = lf_shardset_get_info(set);
    uint8_t made_by[LF_HASH_BYTES];
    lf_processor p;
    lf_expand e;
    if (!lf_shardset_sees(set))
        return 0;
    int rc = lf_expand_open(&p, &e, info->processor, info->settings, dir, err);
    if (rc < 0)
        return rc;
    if ((rc = hash_texts(made_by, info, err)) < 0)
        return rc;
    if (*have &&
        (memcmp(m->made_by, made_by, sizeof made_by) != 0 || m->image_token != info->image_token))
        return lf_fail(err, LF_EINVAL,
                       "%s: its pictures were prepared for another processor than those of the "
                       "sources before it",
                       dir);
    *have = true;
    memcpy(m->made_by, made_by, sizeof made_by);
    m->processor = p;
    m->expand = e;
    m->image_token = info->image_token;
    return 0;
}

static int32_t bytes_of(const lf_processor *p)
{
    return 3 * p->patches.side * p->patches.side;
}

int lf_loader_media_check(const struct lf_loader_media *m, const lf_loader_config *c,
                          const char *dir, lf_err *err)
{
    const int32_t bytes = bytes_of(&m->processor);
    if (!c->max_patches)
        return lf_fail(err, LF_EINVAL,
                       "%s has pictures, and only text is trained on here: give max_patches, "
                       "and a model that sees",
                       dir);
    if (bytes > c->patch_bytes || c->patch_bytes % bytes)
        return lf_fail(err, LF_EINVAL,
                       "%s: its patches are of %d x %d pixels (%s), which is not what the model "
                       "takes: its patches have %d numbers",
                       dir, m->processor.patches.side, m->processor.patches.side,
                       m->processor.class_name, c->patch_bytes);
    if (c->image_token >= 0 && c->image_token != m->image_token)
        return lf_fail(err, LF_EINVAL,
                       "%s: pictures stand at token %lld, in the model at token %lld", dir,
                       (long long)m->image_token, (long long)c->image_token);
    return 0;
}

size_t lf_loader_media_bytes(const lf_loader_config *c)
{
    const size_t rows = c->encoded_bytes ? (size_t)c->max_encoded * (size_t)c->encoded_bytes
                                         : (size_t)c->max_patches * (size_t)c->patch_bytes;
    return rows +
           (size_t)c->max_tiles * (sizeof(struct lf_media_tile) + sizeof(struct lf_media_picture));
}

/* ---- one picture ---- */

/* Puts the patches of x behind those that are there. */
static int add_tiles(const struct lf_loader_media *m, lf_media_batch *to, const lf_pixels *x,
                     lf_err *err)
{
    const int64_t rows = (int64_t)x->tiles * x->grid_h * x->grid_w;
    if (to->n_tiles + x->tiles > m->max_tiles || to->n_patches + rows > m->max_patches)
        return lf_fail(err, LF_EFORMAT, "a micro-batch has no room for it");
    for (int32_t i = 0; i < x->tiles; i++)
        to->tile[to->n_tiles++] = (struct lf_media_tile){x->grid_h, x->grid_w};
    if (!m->features)
        memcpy(to->patches + to->n_patches * to->row_bytes, x->rows,
               (size_t)(rows * to->row_bytes));
    to->n_patches += rows;
    return 0;
}

/* Finds the placeholders of p at row *at or, after other tokens, behind it; *at moves past them.
 * Where the processor sets none apart they are one run. Rows below `end` are the document's. */
static int take_run(struct lf_media_picture *p, const struct lf_loader_media *m,
                    const lf_loader_batch *b, int64_t *at, int64_t end, lf_err *err)
{
    while (*at < end && b->tokens[*at] != m->image_token)
        ++*at;
    const bool apart = lf_expand_apart(&m->expand);
    int64_t n = 0;
    p->first_row = *at;
    for (; *at < end && n < p->rows && (apart || b->tokens[*at] == m->image_token); ++*at)
        n += b->tokens[*at] == m->image_token;
    return n == p->rows
               ? 0
               : lf_fail(err, LF_EFORMAT, "its %lld placeholders are not where the shard says",
                         (long long)p->rows);
}

int lf_loader_media_put(const struct lf_loader_media *m, lf_loader_batch *b, const lf_pixels *x,
                        const lf_shard_picture *said, int64_t at, lf_err *err)
{
    lf_media_batch *to = &b->media;
    const int32_t runs = m->expand.kind == LF_EXPAND_GEMMA3 ? x->tiles : 1;
    const int64_t end = (int64_t)b->B * b->T;
    int rc = add_tiles(m, to, x, err);
    for (int32_t i = 0; i < runs && rc == 0; i++) {
        struct lf_media_picture p = {.first_tile = to->n_tiles - x->tiles + i,
                                     .tiles = x->tiles / runs,
                                     .layout = x->layout,
                                     .from = x->from,
                                     .rows = said->count / (uint32_t)runs};
        if (m->alone) /* no placeholders were read */
            p.first_row = at;
        else
            rc = take_run(&p, m, b, &at, end, err);
        to->picture[to->n_pictures++] = p;
    }
    return rc;
}

/* Is it what the shard says? */
static int check_said(const lf_pixels *x, const lf_shard_picture *said, int rc, lf_err *err)
{
    if (rc == 0 &&
        (x->tiles != said->tiles || x->grid_h != said->grid_h || x->grid_w != said->grid_w ||
         x->from.w != (int32_t)said->w || x->from.h != (int32_t)said->h))
        rc = lf_fail(err, LF_EFORMAT,
                     "it becomes %d tiles of %d x %d patches, the shard says %d of %d x %d",
                     x->tiles, x->grid_h, x->grid_w, said->tiles, said->grid_h, said->grid_w);
    return rc;
}

static int process(lf_pixels *x, const struct lf_loader_media *m, const lf_shard_picture *said,
                   bool alone, lf_err *err)
{
    lf_image im = {0};
    int rc = lf_image_decode(&im, m->file, said->n, NULL, err);
    if (rc == 0)
        rc = lf_processor_run(x, &m->processor, &im, alone, err);
    lf_image_fini(&im);
    return check_said(x, said, rc, err);
}

/* A picture that is changed at random goes through the tower in one tile. */
static int change(lf_image *to, const struct lf_loader_media *m, const lf_shard_picture *said,
                  const lf_image *im, lf_draws *d, lf_err *err)
{
    const int32_t side = m->processor.patches.side;
    const lf_size size = {said->grid_w * side, said->grid_h * side};
    if (said->tiles != 1)
        return lf_fail(err, LF_ENOTSUP,
                       "it becomes %d tiles, and pictures are changed at random (crop_scale, flip, "
                       "rand_ops) in one; take a processor that makes one tile",
                       said->tiles);
    struct lf_augment a = *m->augment;
    int rc;
    for (int c = 0; c < 3; c++) /* what normalises to 0 */
        a.fill[c] = (uint8_t)fmin(255, fmax(0, nearbyint(m->processor.mean[c] * 255)));
    if (a.crop_scale > 0) {
        const struct lf_cutout box = lf_augment_box(d, (lf_size){im->w, im->h}, a.crop_scale);
        rc = lf_augment_cut(to, im, &box, size, err);
    } else {
        rc = lf_processor_tile(to, &m->processor, im, true, err);
    }
    return rc != 0 ? rc : lf_augment_change(to, &a, d, err);
}

int lf_loader_media_changed(const struct lf_loader_media *m, lf_pixels *x, const lf_shardset *set,
                            const struct lf_loader_place *at, const lf_shard_picture *said,
                            lf_err *err)
{
    lf_image im = {0}, to = {0};
    lf_draws d = lf_draws_of(m->augment->seed, LF_SITE_AUGMENT, at->sample, (uint32_t)at->i);
    int rc = lf_shardset_picture_read(set, at->doc, at->i, m->file, err);
    if (rc == 0)
        rc = lf_image_decode(&im, m->file, said->n, NULL, err);
    if (rc == 0)
        rc = change(&to, m, said, &im, &d, err);
    if (rc == 0)
        rc = lf_processor_rows(x, &m->processor, &to, (lf_size){im.w, im.h}, err);
    lf_image_fini(&im);
    lf_image_fini(&to);
    return check_said(x, said, rc, err);
}

int lf_loader_media_read(const struct lf_loader_media *m, lf_pixels *x, const lf_shardset *set,
                         uint64_t doc, uint64_t i, const lf_shard_picture *said, lf_err *err)
{
    int rc = lf_shardset_picture_read(set, doc, i, m->file, err);
    return rc < 0 ? rc : process(x, m, said, lf_shardset_pictures(set, doc) == 1, err);
}

int lf_loader_media_blame(const lf_shardset *set, uint64_t doc, uint64_t i, lf_err *err)
{
    const char *file;
    uint64_t index;
    lf_shardset_locate(set, doc, &file, &index);
    return lf_err_prefix(err, "%s: document %llu, picture %llu", file, (unsigned long long)index,
                         (unsigned long long)i + 1);
}

/* ---- features in place of pictures ---- */

static struct lf_features_key key_of(const lf_shard_picture *said, bool alone)
{
    struct lf_features_key k = {
        .tiles = said->tiles, .grid_h = said->grid_h, .grid_w = said->grid_w, .alone = alone};
    memcpy(k.sha256, said->sha256, sizeof k.sha256);
    return k;
}

int64_t lf_loader_media_key(struct lf_features_keys *keys, const lf_shardset *set, uint64_t doc,
                            uint64_t i, lf_err *err)
{
    lf_shard_picture said;
    lf_shardset_picture_get(set, doc, i, &said);
    const struct lf_features_key k = key_of(&said, lf_shardset_pictures(set, doc) == 1);
    return lf_features_add(keys, &k, err);
}

int lf_loader_media_featured(const struct lf_loader_media *m, const lf_shardset *set,
                             const char *dir, lf_err *err)
{
    char hex[LF_HASH_HEX];
    lf_hash_hex(hex, m->made_by);
    if (strcmp(hex, lf_features_get_info(m->features)->processor_sha256) != 0)
        return lf_fail(err, LF_EINVAL,
                       "features were made of pictures as another processor prepares them than "
                       "that of %s: make them of these shards",
                       dir);
    for (uint64_t d = 0; d < lf_shardset_get_info(set)->n_docs; d++)
        for (uint64_t i = 0, n = lf_shardset_pictures(set, d); i < n; i++) {
            lf_shard_picture said;
            size_t number;
            lf_shardset_picture_get(set, d, i, &said);
            const struct lf_features_key k = key_of(&said, n == 1);
            if (lf_features_rows(m->features, &k, &number) >= 0)
                continue;
            lf_fail(err, LF_EINVAL, "there are no features of it: make them of these shards");
            return lf_loader_media_blame(set, d, i, err);
        }
    return 0;
}

/* Its rows behind those of the batch; *x is what its picture becomes, without patches. */
static int read_encoded(const struct lf_loader_media *m, lf_media_batch *to, lf_pixels *x,
                        const lf_shard_picture *said, bool alone, lf_err *err)
{
    const struct lf_features_key k = key_of(said, alone);
    const lf_size from = {(int32_t)said->w, (int32_t)said->h};
    size_t number;
    const int64_t n = lf_features_rows(m->features, &k, &number);
    int rc = lf_processor_plan(x, &m->processor, from, alone, err);
    if (rc != 0)
        return rc;
    if (n < 0 || x->tiles != said->tiles || x->grid_h != said->grid_h || x->grid_w != said->grid_w)
        return lf_fail(err, LF_EFORMAT, "there are no features of what it becomes");
    if (to->n_encoded + n > m->max_encoded)
        return lf_fail(err, LF_EFORMAT, "a micro-batch has no room for its features");
    rc =
        lf_features_read(m->features, number, to->encoded + to->n_encoded * to->encoded_bytes, err);
    to->n_encoded += n;
    return rc;
}

/* One picture of a cut, whose tokens stand from row `first` on. */
static int fill_picture(const struct lf_loader_media *m, lf_loader_batch *b, const lf_shardset *set,
                        const struct lf_units_cut *cut, int64_t first, uint64_t i, lf_err *err)
{
    lf_shard_picture said;
    lf_pixels x = {0};
    lf_shardset_picture_get(set, cut->doc, i, &said);
    if (!lf_units_sees(&said, cut))
        return 0;
    const int64_t at = m->alone ? first : first + (int64_t)(said.first - cut->from);
    const struct lf_loader_place place = {cut->doc, i, b->sample_ids[first / b->T]};
    int rc = m->augment    ? lf_loader_media_changed(m, &x, set, &place, &said, err)
             : m->features ? read_encoded(m, &b->media, &x, &said,
                                          lf_shardset_pictures(set, cut->doc) == 1, err)
                           : lf_loader_media_read(m, &x, set, cut->doc, i, &said, err);
    if (rc == 0)
        rc = lf_loader_media_put(m, b, &x, &said, at, err);
    lf_pixels_fini(&x);
    return rc < 0 ? lf_loader_media_blame(set, cut->doc, i, err) : 0;
}

int lf_loader_media_fill(const struct lf_loader_media *m, lf_loader_batch *b,
                         const struct lf_units *u, const struct lf_unit_part *p, int64_t first,
                         lf_err *err)
{
    struct lf_units_cut cut[LF_UNIT_PARTS];
    const int n = lf_units_cuts(u, p, cut);
    int rc = 0;
    for (int k = 0; k < n; k++)
        for (uint64_t i = 0; i < lf_shardset_pictures(u->set, cut[k].doc) && rc == 0; i++)
            rc = fill_picture(m, b, u->set, &cut[k], first + cut[k].at, i, err);
    return rc;
}
