/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of the pictures of shards: see encode.h. */
#include "engine/train/encode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/f16.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/graph/exec.h"
#include "engine/model/sight.h"
#include "engine/model/weights.h"
#include "engine/store/partial.h"
#include "engine/train/loader_priv.h"

/* The documents of one file of shards, which become one file of features. */
struct part {
    size_t set;
    uint64_t from, to;
    int64_t tiles, patches;      /* of all its pictures, one that comes twice counted twice */
    struct lf_partial_part have; /* it is there already */
    int64_t bytes;
};

/* Parts [first, end), whose pictures go through the encoder together: a pass takes the time of
 * max_patches, so small files share one. */
struct group {
    size_t first, end;
};
enum { GROUP_FILES = 64 }; /* are open at once */

/* A file of features that is being written. */
struct output {
    struct lf_features_keys keys;
    lf_features_writer *w;
};

struct encode {
    const struct lf_encode_opts *o;
    lf_comm *comm; /* NULL: alone */
    lf_model_config mc;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    struct lf_decoder_media m;
    int chain;
    lf_sight *sight;

    lf_shardset **set; /* [n_sets] */
    size_t n_sets, cap_sets;
    struct lf_loader_media media;
    struct part *part;
    size_t n_parts, cap_parts;
    uint64_t pictures, done; /* of all ranks; of this one */

    struct lf_features_info info;
    size_t row_bytes;
    int record; /* of lf_partial_begin, rank 0; -1: none */

    /* a pass */
    lf_media_batch batch;
    lf_features_writer **to; /* [tiles] where a picture goes */
    size_t *number;          /* [tiles] and its number in that file */
    uint8_t *rows;           /* [R, C] of one output, in the compute type */
    uint8_t *stored;         /* [R, W] as they are stored */
};

static int rank_of(const struct encode *e)
{
    return e->comm ? e->comm->rank : 0;
}

static int ranks_of(const struct encode *e)
{
    return e->comm ? e->comm->size : 1;
}

static int agree(const struct encode *e, int rc, lf_err *err)
{
    return e->comm ? lf_comm_agree_stop(e->comm, rc, err) : rc;
}

static void tell(const struct encode *e, const char *text)
{
    if (rank_of(e) == 0)
        e->o->log(2, text);
}

/* ---- the encoder ---- */

/* All but the encoder stays where it is. */
static void leave_rest(lf_pstore *ps)
{
    for (int i = 0; i < lf_pstore_count(ps); i++)
        if (!lf_weights_is_vision(lf_pstore_desc(ps, i)->name))
            lf_pstore_leave(ps, lf_pstore_desc(ps, i)->name);
}

static int make_plan(struct encode *e, lf_err *err)
{
    const struct lf_encode_opts *o = e->o;
    const struct lf_plan_opts po = {.target = lf_target_device(o->device),
                                    .threads = o->threads,
                                    .compute = o->compute,
                                    .mode = o->numeric};
    if (!e->mc.vision.family || lf_model_sees_alone(&e->mc) || lf_model_is_dual(&e->mc))
        return lf_fail(
            err, LF_EINVAL, "%s: features are those of a model that sees and speaks; this one %s",
            o->checkpoint, e->mc.vision.family ? "has no decoder of text" : "has no vision.family");
    e->m = lf_sight_bounds(&e->mc, o->max_patches, o->max_tiles, 1);
    e->dec = lf_decoder_create(&e->mc, 1, err);
    e->ps = e->dec ? lf_pstore_create(err) : NULL;
    int rc = e->ps ? lf_decoder_declare(e->dec, e->ps, err) : err->rc;
    if (rc != 0)
        return rc;
    leave_rest(e->ps);
    if (!(e->plan = lf_plan_create(e->ps, &po, err)))
        return err->rc;
    lf_graph *g = lf_decoder_encoder_graph(e->dec, e->ps, "encode", &e->m, err);
    if (!g)
        return err->rc;
    e->chain = lf_plan_add(e->plan, g, &(struct lf_chain_opts){0}, err);
    lf_graph_destroy(g);
    return e->chain < 0 ? e->chain : lf_plan_finish(e->plan, err);
}

/* With the weights that c has. */
static int bind(struct encode *e, const lf_ckpt *c, lf_err *err)
{
    const struct lf_device_opts d = {.device = e->o->device,
                                     .rank = rank_of(e),
                                     .local_rank = e->comm ? e->comm->local_rank : 0,
                                     .threads = e->o->threads};
    e->back = lf_back_create(&d, err);
    e->ex = e->back ? lf_exec_create(e->plan, e->back, &(struct lf_exec_opts){0}, err) : NULL;
    return e->ex ? lf_weights_load_vision(e->ps, c, LF_WEIGHTS_PREFIX, err) : err->rc;
}

/* Opens the checkpoint, whose weights are those that were asked for. Averages that are not there
 * are no checkpoint that is not there yet, so lf_encode_plan must not see LF_ENOENT for them. */
static int open_ckpt(lf_ckpt **c, const struct lf_encode_opts *o, enum lf_ckpt_check check,
                     int threads, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    const int rc = lf_ckpt_open_checked(c, o->checkpoint, check, threads, err);
    if (rc != 0 || !o->averages || lf_ckpt_averages(*c, &why) == 0)
        return rc;
    return lf_fail(err, why.rc == LF_ENOENT ? LF_EINVAL : why.rc, "%s", why.text);
}

static int open_encoder(struct encode *e, lf_err *err)
{
    lf_ckpt *c = NULL;
    int rc = open_ckpt(&c, e->o, LF_CKPT_CHECK_STRUCTURE, e->o->threads, err);
    if (rc == 0)
        rc = lf_weights_config(&e->mc, c, err);
    if (rc == 0)
        rc = make_plan(e, err);
    if (rc == 0)
        rc = lf_encoder_identity(e->info.encoder_sha256, c, LF_WEIGHTS_PREFIX, err);
    if (rc == 0)
        rc = bind(e, c, err);
    lf_ckpt_close(c);
    return rc;
}

/* ---- shards ---- */

static void add_doc(struct part *p, const lf_shardset *s, uint64_t d)
{
    p->to = d + 1;
    for (uint64_t i = 0, n = lf_shardset_pictures(s, d); i < n; i++) {
        lf_shard_picture said;
        lf_shardset_picture_get(s, d, i, &said);
        p->tiles += said.tiles;
        p->patches += (int64_t)said.tiles * said.grid_h * said.grid_w;
    }
}

static int add_parts(struct encode *e, size_t set, lf_err *err)
{
    const lf_shardset *s = e->set[set];
    const uint64_t n = lf_shardset_get_info(s)->n_docs;
    const char *file, *last = NULL;
    for (uint64_t d = 0; d < n; d++) {
        uint64_t index;
        if (!lf_shardset_pictures(s, d))
            continue;
        lf_shardset_locate(s, d, &file, &index);
        if (!last || strcmp(last, file) != 0) {
            const int rc = lf_grow(&e->part, &e->cap_parts, e->n_parts, sizeof *e->part, err);
            if (rc != 0)
                return rc;
            e->part[e->n_parts++] = (struct part){.set = set, .from = d};
        }
        add_doc(&e->part[e->n_parts - 1], s, d);
        last = file;
        e->pictures += lf_shardset_pictures(s, d);
    }
    return 0;
}

static int check_source(struct encode *e, const char *dir, const lf_shardset *s, lf_err *err)
{
    const lf_loader_config c = {.max_patches = (int32_t)e->m.vision.patches,
                                .patch_bytes = (int32_t)e->mc.vision.patch_dim,
                                .image_token = e->mc.image_token};
    int rc = lf_loader_media_source(&e->media, &e->media.on, s, dir, err);
    if (rc == 0 && lf_shardset_sees(s))
        rc = lf_loader_media_check(&e->media, &c, dir, err);
    const size_t most = lf_shardset_picture_most(s);
    e->media.file_bytes = most > e->media.file_bytes ? most : e->media.file_bytes;
    return rc;
}

static int open_split(struct encode *e, const char *dir, const char *split, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int rc = lf_grow(&e->set, &e->cap_sets, e->n_sets, sizeof *e->set, err);
    if (rc != 0)
        return rc;
    rc = lf_shardset_open(&e->set[e->n_sets], dir, split, &why);
    if (rc == LF_ENOENT && strcmp(split, "valid") == 0) /* there need be none */
        return 0;
    if (rc != 0)
        return lf_fail(err, rc, "%s", why.text);
    rc = check_source(e, dir, e->set[e->n_sets++], err);
    return rc == 0 ? add_parts(e, e->n_sets - 1, err) : rc;
}

static int open_data(struct encode *e, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < e->o->n_data && rc == 0; i++) {
        rc = open_split(e, e->o->data[i], "train", err);
        if (rc == 0)
            rc = open_split(e, e->o->data[i], "valid", err);
    }
    if (rc == 0 && !e->n_parts)
        rc = lf_fail(err, LF_EINVAL,
                     "%s has no pictures, so there is nothing that an encoder could say",
                     e->o->data[0]);
    if (rc != 0)
        return rc;
    e->media.file = lf_malloc(e->media.file_bytes + 1, 1, err);
    lf_hash_hex(e->info.processor_sha256, e->media.made_by);
    return e->media.file ? 0 : LF_ENOMEM;
}

/* ---- room ---- */

/* Sizes of rows. */
static int size_rows(struct encode *e, lf_err *err)
{
    static const char *const words[] = {"f32", "bf16", "fp16"};
    enum lf_h5_type type;
    snprintf(e->info.precision, sizeof e->info.precision, "%s",
             words[e->o->compute == LF_BF16  ? 1
                   : e->o->compute == LF_F16 ? 2
                                             : 0]);
    e->info.width = (1 + e->mc.vision.taps.n) * lf_vision_width(&e->mc.vision);
    const int rc = lf_features_type(&type, e->info.precision, err);
    if (rc == 0)
        e->row_bytes = (size_t)e->info.width * lf_h5_type_bytes(type);
    e->batch.row_bytes = 3 * e->media.processor.patches.side * e->media.processor.patches.side;
    return rc;
}

static size_t output_bytes(const struct encode *e)
{
    return (size_t)(e->m.vision.rows * lf_vision_width(&e->mc.vision)) *
           lf_dtype_size(e->o->compute);
}

static int make_room(struct encode *e, lf_err *err)
{
    const size_t tiles = (size_t)e->m.vision.images;
    lf_media_batch *b = &e->batch;
    const int rc = size_rows(e, err);
    if (rc != 0)
        return rc;
    b->tile = lf_calloc(tiles, sizeof *b->tile, err);
    b->picture = lf_calloc(tiles, sizeof *b->picture, err);
    b->patches = lf_calloc((size_t)e->m.vision.patches, (size_t)b->row_bytes, err);
    e->to = lf_calloc(tiles, sizeof *e->to, err);
    e->number = lf_calloc(tiles, sizeof *e->number, err);
    e->rows = lf_calloc(output_bytes(e), 1, err);
    e->stored = lf_calloc((size_t)e->m.vision.rows, e->row_bytes, err);
    e->sight = lf_sight_create(&e->mc, &e->m, 1, err);
    return b->tile && b->picture && b->patches && e->to && e->number && e->rows && e->stored &&
                   e->sight
               ? 0
               : LF_ENOMEM;
}

/* What make_room takes, and the file of a picture. */
static double room_bytes(const struct encode *e)
{
    const struct lf_vision_rows *v = &e->m.vision;
    const size_t tile =
        sizeof *e->batch.tile + sizeof *e->batch.picture + sizeof *e->to + sizeof *e->number;
    return (double)v->images * (double)tile + (double)v->patches * e->batch.row_bytes +
           (double)output_bytes(e) + (double)v->rows * (double)e->row_bytes +
           (double)lf_sight_bytes(&e->mc, &e->m, 1) + (double)e->media.file_bytes;
}

/* ---- a pass ---- */

/* Puts output number `part` of the pass, [R, C], into its columns of the stored rows, which have
 * fp16 as f32. */
static void store_rows(const struct encode *e, int64_t part, int64_t n)
{
    const int64_t C = lf_vision_width(&e->mc.vision);
    const size_t size = lf_dtype_size(e->o->compute), width = (size_t)C * size,
                 each = e->row_bytes / (size_t)(1 + e->mc.vision.taps.n);
    for (int64_t r = 0; r < n; r++) {
        const uint8_t *from = e->rows + (size_t)r * width;
        uint8_t *to = e->stored + (size_t)r * e->row_bytes + (size_t)part * each;
        if (e->o->compute != LF_F16)
            memcpy(to, from, width);
        for (int64_t i = 0; e->o->compute == LF_F16 && i < C; i++) {
            uint16_t half;
            memcpy(&half, from + (size_t)i * size, sizeof half);
            const float x = lf_f32_of_f16(half);
            memcpy(to + (size_t)i * sizeof x, &x, sizeof x);
        }
    }
}

static int read_output(const struct encode *e, int64_t part, int64_t n, lf_err *err)
{
    char name[48];
    snprintf(name, sizeof name, part ? "encoded.%lld" : "encoded", (long long)part - 1);
    const int rc = lf_exec_read(e->ex, e->chain, 0, name, e->rows, output_bytes(e), err);
    if (rc == 0)
        store_rows(e, part, n);
    return rc;
}

static int put_pictures(const struct encode *e, lf_err *err)
{
    const lf_media_batch *b = &e->batch;
    const int cls = lf_sight_class_rows(&e->mc);
    size_t row = 0;
    int rc = 0;
    for (int32_t i = 0; i < b->n_pictures && rc == 0; i++) {
        const struct lf_media_picture *p = &b->picture[i];
        const struct lf_media_tile *t = &b->tile[p->first_tile];
        rc = lf_features_put(e->to[i], e->number[i], e->stored + row * e->row_bytes, err);
        row += (size_t)p->tiles * ((size_t)t->grid_h * (size_t)t->grid_w + (size_t)cls);
    }
    return rc;
}

static void empty(lf_media_batch *b)
{
    b->n_pictures = b->n_tiles = 0;
    b->n_patches = 0;
}

/* Runs the encoder over what the batch has, which is empty then. */
static int pass(struct encode *e, lf_err *err)
{
    lf_media_batch *b = &e->batch;
    const struct lf_sight_media in = {.media = b, .processor = &e->media.processor};
    const int64_t n = b->n_patches + (int64_t)b->n_tiles * lf_sight_class_rows(&e->mc);
    if (!b->n_pictures)
        return 0;
    int rc = lf_sight_fill_encoder(e->sight, &in, err);
    if (rc == 0)
        rc = lf_sight_write_encoder(e->sight, e->ex, e->chain, 0, err);
    if (rc == 0)
        rc = lf_sight_write_pixels(e->sight, e->ex, e->chain, 0, err);
    if (rc == 0)
        rc = lf_exec_run(e->ex, e->chain, LF_FWD, 0, LF_FIRST, err);
    for (int64_t p = 0; p <= e->mc.vision.taps.n && rc == 0; p++)
        rc = read_output(e, p, n, err);
    if (rc == 0)
        rc = put_pictures(e, err);
    empty(b);
    return rc == 0 && e->o->stop() ? lf_fail(err, LF_EINTR, "stopped") : rc;
}

static bool fits(const struct encode *e, int64_t tiles, int64_t patches)
{
    return e->batch.n_tiles + tiles < e->m.vision.images &&
           e->batch.n_patches + patches <= e->m.vision.patches;
}

/* Picture i of a document. */
struct which {
    const lf_shardset *set;
    uint64_t doc, i;
};

/* Which becomes picture number `number` of w. */
static int add_picture(struct encode *e, const struct which *p, lf_features_writer *w,
                       size_t number, lf_err *err)
{
    lf_media_batch *b = &e->batch;
    lf_shard_picture said;
    lf_pixels x = {0};
    lf_shardset_picture_get(p->set, p->doc, p->i, &said);
    const int64_t n = (int64_t)said.tiles * said.grid_h * said.grid_w;
    int rc = fits(e, said.tiles, n) ? 0 : pass(e, err); /* of those before it */
    if (rc != 0)
        return rc;
    if (!fits(e, said.tiles, n))
        rc = lf_fail(err, LF_EINVAL,
                     "it has %lld patches in %d tiles: raise max_patches to that, or max_tiles",
                     (long long)n, said.tiles);
    else
        rc = lf_loader_media_read(&e->media, &x, p->set, p->doc, p->i, &said, err);
    if (rc != 0)
        return lf_loader_media_blame(p->set, p->doc, p->i, err);
    e->to[b->n_pictures] = w;
    e->number[b->n_pictures] = number;
    b->picture[b->n_pictures++] = (struct lf_media_picture){
        .first_tile = b->n_tiles, .tiles = x.tiles, .layout = x.layout, .from = x.from};
    for (int32_t t = 0; t < x.tiles; t++)
        b->tile[b->n_tiles++] = (struct lf_media_tile){x.grid_h, x.grid_w};
    memcpy(b->patches + b->n_patches * b->row_bytes, x.rows, (size_t)(n * b->row_bytes));
    b->n_patches += n;
    lf_pixels_fini(&x);
    return 0;
}

/* ---- files ---- */

/* The keys of a part. */
static int find_keys(const struct encode *e, const struct part *p, struct lf_features_keys *keys,
                     lf_err *err)
{
    const lf_shardset *set = e->set[p->set];
    for (uint64_t d = p->from; d < p->to; d++)
        for (uint64_t i = 0, n = lf_shardset_pictures(set, d); i < n; i++) {
            const int64_t at = lf_loader_media_key(keys, set, d, i, err);
            if (at < 0)
                return (int)at;
        }
    return 0;
}

/* Hands each picture of a part to the encoder, once. */
static int each_picture(struct encode *e, const struct part *p, struct output *out, lf_err *err)
{
    const lf_shardset *set = e->set[p->set];
    size_t next = 0; /* the first picture that was not met yet */
    for (uint64_t d = p->from; d < p->to; d++)
        for (uint64_t i = 0, n = lf_shardset_pictures(set, d); i < n; i++) {
            const int64_t at = lf_loader_media_key(&out->keys, set, d, i, err);
            if (at < 0)
                return (int)at;
            e->done++;
            if ((size_t)at < next)
                continue;
            const struct which which = {set, d, i};
            const int rc = add_picture(e, &which, out->w, next++, err);
            if (rc != 0)
                return rc;
            e->o->progress((double)e->done, (double)e->pictures);
        }
    return 0;
}

static void name_of(char name[48], size_t part)
{
    snprintf(name, 48, "features-%05zu.h5", part);
}

static int begin_part(struct encode *e, size_t k, struct output *out, lf_err *err)
{
    char name[48];
    name_of(name, k);
    char *path = lf_path_join(e->o->out, name, err);
    int rc = path ? find_keys(e, &e->part[k], &out->keys, err) : LF_ENOMEM;
    if (rc == 0 && unlink(path) != 0 && lf_io_exists(path))
        rc = lf_fail_errno(err, "cannot remove %s, which is not whole", path);
    if (rc == 0)
        rc = lf_features_create(&out->w, path, &e->info, &out->keys, lf_sight_class_rows(&e->mc),
                                err);
    free(path);
    return rc;
}

static int end_part(struct part *p, struct output *out, lf_err *err)
{
    struct lf_features_stat stat;
    lf_features_writer *w = out->w;
    out->w = NULL; /* which is freed in every case */
    const int rc = lf_features_finish(w, &stat, err);
    if (rc == 0) {
        p->have.have = true;
        p->bytes = stat.bytes;
        memcpy(p->have.sha256, stat.sha256, sizeof stat.sha256);
    }
    return rc;
}

static int make_group(struct encode *e, struct group g, lf_err *err)
{
    struct output out[GROUP_FILES] = {0};
    const size_t n = g.end - g.first;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = begin_part(e, g.first + i, &out[i], err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = each_picture(e, &e->part[g.first + i], &out[i], err);
    if (rc == 0)
        rc = pass(e, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = end_part(&e->part[g.first + i], &out[i], err);
    for (size_t i = 0; i < n; i++) {
        lf_features_abort(out[i].w);
        lf_features_keys_fini(&out[i].keys);
    }
    empty(&e->batch);
    return rc;
}

/* ---- earlier starts ---- */

/* Everything that the bytes follow from. */
static int make_key(char hex[LF_HASH_HEX], const struct encode *e, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    char mode[32];
    snprintf(mode, sizeof mode, "%s %d", LF_FEATURES_FORMAT, (int)e->o->numeric);
    lf_hash_update(h, mode, strlen(mode) + 1);
    lf_hash_update(h, &e->info.encoder_sha256, sizeof e->info.encoder_sha256);
    lf_hash_update(h, &e->info.processor_sha256, sizeof e->info.processor_sha256);
    lf_hash_update(h, e->info.precision, strlen(e->info.precision) + 1);
    for (size_t i = 0; i < e->n_sets; i++)
        lf_hash_update(h, lf_shardset_id(e->set[i]), LF_HASH_BYTES);
    lf_hash_final(h, digest);
    lf_hash_destroy(h);
    lf_hash_hex(hex, digest);
    return 0;
}

/* Is file k of an earlier start whole? It is linked to out where it lies elsewhere. */
static bool take_over(struct encode *e, size_t k, const char *from)
{
    struct part *p = &e->part[k];
    uint8_t sha[LF_HASH_BYTES];
    char name[48];
    name_of(name, k);
    char *path = lf_path_join(e->o->out, name, NULL);
    bool good = path && (strcmp(from, e->o->out) == 0 || lf_io_exists(path) ||
                         lf_partial_link(from, e->o->out, name));
    good = good && lf_tree_hash_file(sha, &p->bytes, path, NULL) == 0 &&
           memcmp(sha, p->have.sha256, sizeof sha) == 0;
    free(path);
    return good;
}

static int forget(const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, LF_PARTIAL_FILE, err);
    const int rc = !path ? LF_ENOMEM : lf_io_exists(path) ? lf_partial_end(dir, err) : 0;
    free(path);
    return rc;
}

/* Rank 0. */
static int look_back(struct encode *e, lf_err *err)
{
    char key[LF_HASH_HEX];
    const char *from = NULL;
    const lf_resume r = {.key = key, .dirs = e->o->from, .n_dirs = e->o->n_from};
    lf_partial_part *have = lf_calloc(e->n_parts, sizeof *have, err);
    int rc = have ? make_key(key, e, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_mkdirs(e->o->out, 0750, err);
    if (rc == 0)
        lf_partial_find(&from, have, e->n_parts, &r, key);
    for (size_t k = 0; k < e->n_parts && rc == 0 && from; k++) {
        e->part[k].have = have[k];
        if (have[k].have)
            e->part[k].have.have = have[k].have = take_over(e, k, from);
    }
    if (rc == 0) /* of the start before this one; a kill between the two costs its files */
        rc = forget(e->o->out, err);
    if (rc == 0)
        rc = lf_partial_begin(&e->record, e->o->out, key, have, e->n_parts, err);
    free(have);
    return rc;
}

/* All ranks hear which files are there. Collective. */
static int share_parts(struct encode *e, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    if (!e->comm)
        return 0;
    const size_t bytes = rank_of(e) == 0 ? e->n_parts * sizeof *e->part : 0;
    int rc = lf_comm_gather_blobs(e->comm, e->part, bytes, &all, err);
    if (rc == 0 && all.offset[1] == e->n_parts * sizeof *e->part)
        memcpy(e->part, all.data, all.offset[1]);
    else if (rc == 0)
        rc = lf_fail(err, LF_EINVAL, "the ranks see other shards than each other");
    lf_comm_blobs_fini(&all);
    return rc;
}

/* ---- all of them ---- */

/* The next files that are missing, from k on, as many as fit a pass together; none: first is
 * n_parts. */
static struct group missing(const struct encode *e, size_t k)
{
    while (k < e->n_parts && e->part[k].have.have)
        k++;
    struct group g = {k, k};
    int64_t tiles = 0, patches = 0;
    for (; g.end < e->n_parts && !e->part[g.end].have.have && g.end - k < GROUP_FILES; g.end++) {
        tiles += e->part[g.end].tiles;
        patches += e->part[g.end].patches;
        if (g.end > k && !fits(e, tiles, patches))
            break;
    }
    return g;
}

/* What the ranks have made in this round. Collective. */
static int collect(struct encode *e, const struct group *of, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    const struct group mine = of[rank_of(e)];
    int rc = e->comm ? lf_comm_gather_blobs(e->comm, e->part + mine.first,
                                            (mine.end - mine.first) * sizeof *e->part, &all, err)
                     : 0;
    for (int r = 0; r < ranks_of(e) && rc == 0; r++) {
        if (e->comm)
            memcpy(e->part + of[r].first, all.data + all.offset[r],
                   (of[r].end - of[r].first) * sizeof *e->part);
        for (size_t k = of[r].first; k < of[r].end && e->record >= 0; k++)
            lf_partial_add(e->record, k, e->part[k].have.sha256);
    }
    lf_comm_blobs_fini(&all);
    return rc;
}

static int make_all(struct encode *e, lf_err *err)
{
    const int ranks = ranks_of(e);
    struct group *of = lf_calloc((size_t)ranks, sizeof *of, err), next = missing(e, 0);
    int rc = agree(e, of ? 0 : LF_ENOMEM, err);
    while (rc == 0 && next.first < e->n_parts) {
        for (int r = 0; r < ranks; r++) {
            of[r] = next;
            next = missing(e, next.end);
        }
        rc = agree(e, make_group(e, of[rank_of(e)], err), err);
        if (rc == 0)
            rc = collect(e, of, err);
    }
    free(of);
    return rc;
}

/* Rank 0. */
static int publish(struct encode *e, lf_err *err)
{
    lf_artifact a = {0};
    int64_t bytes = 0;
    int rc = lf_artifact_init(&a, "features", err);
    for (size_t k = 0; k < e->n_parts && rc == 0; k++) {
        char name[48];
        name_of(name, k);
        rc = lf_artifact_add(&a, name, e->part[k].bytes, e->part[k].have.sha256, err);
        bytes += e->part[k].bytes;
    }
    if (rc == 0 &&
        (json_object_set_new(a.meta, "encoder_sha256", json_string(e->info.encoder_sha256)) ||
         json_object_set_new(a.meta, "processor_sha256", json_string(e->info.processor_sha256)) ||
         json_object_set_new(a.meta, "precision", json_string(e->info.precision)) ||
         json_object_set_new(a.meta, "uses", json_integer((json_int_t)e->pictures)) ||
         json_object_set_new(a.meta, "width", json_integer(e->info.width))))
        rc = lf_fail(err, LF_ENOMEM, "manifest: out of memory");
    if (rc == 0)
        rc = lf_artifact_publish(&a, e->o->out, err);
    if (rc == 0)
        rc = lf_partial_end(e->o->out, err);
    lf_artifact_fini(&a);
    if (rc == 0) {
        char text[200], size[32];
        snprintf(
            text, sizeof text, "done: %s of features in %zu file%s, of %llu picture%s in documents",
            lf_fmt_bytes(size, sizeof size, (double)bytes), e->n_parts, e->n_parts == 1 ? "" : "s",
            (unsigned long long)e->pictures, e->pictures == 1 ? "" : "s");
        tell(e, text);
    }
    return rc;
}

static void fini(struct encode *e)
{
    if (e->record >= 0)
        close(e->record);
    lf_exec_destroy(e->ex);
    lf_back_destroy(e->back);
    lf_plan_destroy(e->plan);
    lf_pstore_destroy(e->ps);
    lf_decoder_destroy(e->dec);
    lf_sight_destroy(e->sight);
    for (size_t i = 0; i < e->n_sets; i++)
        lf_shardset_close(e->set[i]);
    void *const blocks[] = {e->set,           e->part,          e->media.file, e->batch.tile,
                            e->batch.picture, e->batch.patches, e->to,         e->number,
                            e->rows,          e->stored};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

int lf_encode_run(const struct lf_encode_opts *o, lf_comm *comm, lf_err *err)
{
    struct encode e = {.o = o, .comm = comm, .record = -1};
    int rc = open_encoder(&e, err);
    if (rc == 0)
        rc = open_data(&e, err);
    if (rc == 0)
        rc = make_room(&e, err);
    if (rc == 0 && rank_of(&e) == 0)
        rc = look_back(&e, err);
    rc = agree(&e, rc, err);
    if (rc == 0)
        rc = share_parts(&e, err);
    rc = agree(&e, rc, err);
    if (rc == 0)
        rc = make_all(&e, err);
    if (rc == 0)
        rc = agree(&e, rank_of(&e) == 0 ? publish(&e, err) : 0, err);
    fini(&e);
    return rc;
}

/* ---- the plan ---- */

/* Bytes of all files of all ranks. */
static int size_files(const struct encode *e, double *bytes, lf_err *err)
{
    int rc = 0;
    *bytes = 0;
    for (size_t k = 0; k < e->n_parts && rc == 0; k++) {
        struct lf_features_keys keys = {0};
        rc = find_keys(e, &e->part[k], &keys, err);
        *bytes += (double)lf_features_bytes(&keys, e->row_bytes, lf_sight_class_rows(&e->mc));
        lf_features_keys_fini(&keys);
    }
    return rc;
}

/* What follows from the shards: files, and memory beside that of the graph. */
static int plan_data(struct encode *e, json_t *plan, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    double disk = 0;
    int rc = open_data(e, &why);
    if (rc == LF_ENOENT) {
        json_t *notes = json_pack("[s]", "the size of the features, and of the memory for their "
                                         "pictures, follows from data that does not exist yet");
        return notes && json_object_set_new(plan, "notes", notes) == 0
                   ? 0
                   : lf_fail(err, LF_ENOMEM, "plan: out of memory");
    }
    if (rc != 0)
        return lf_fail(err, rc, "%s", why.text);
    rc = size_rows(e, err);
    if (rc == 0)
        rc = size_files(e, &disk, err);
    if (rc != 0)
        return rc;
    json_t *bytes = json_object_get(plan, "bytes");
    const char *const grow[] = {"host", "total"};
    int bad = json_object_set_new(plan, "disk_bytes", json_integer((json_int_t)disk));
    for (int i = 0; i < 2; i++) {
        const double is = json_number_value(json_object_get(bytes, grow[i])) + room_bytes(e);
        bad |= json_object_set_new(bytes, grow[i], json_integer((json_int_t)is));
    }
    return bad ? lf_fail(err, LF_ENOMEM, "plan: out of memory") : 0;
}

int lf_encode_plan(json_t **out, const struct lf_encode_opts *o, lf_err *err)
{
    struct encode e = {.o = o, .record = -1};
    lf_ckpt *c = NULL;
    int rc = open_ckpt(&c, o, LF_CKPT_CHECK_READS, 1, err);
    if (rc == 0)
        rc = lf_weights_config(&e.mc, c, err);
    if (rc == 0)
        rc = make_plan(&e, err);
    json_t *plan = rc == 0 ? lf_plan_json(e.plan, err) : NULL;
    if (rc == 0)
        rc = plan ? plan_data(&e, plan, err) : LF_ENOMEM;
    if (rc == 0)
        *out = json_incref(plan);
    json_decref(plan);
    lf_ckpt_close(c);
    fini(&e);
    return rc;
}
