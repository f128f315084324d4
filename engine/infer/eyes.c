/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of a processor, and pictures of requests: see eyes.h. */
#include "engine/infer/eyes.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/base64.h"
#include "engine/infer/look.h"

int lf_gen_eyes_load(lf_gen_eyes *e, const char *from, const char *tokenizer,
                     const lf_model_config *model, lf_err *err)
{
    lf_buf image, settings;
    if (!model->vision.family)
        return lf_fail(err, LF_EINVAL, "the model sees no pictures (it has no vision.family)");
    e->model = *model;
    lf_buf_init(&image);
    lf_buf_init(&settings);
    const int rc = lf_expand_load(&e->processor, &e->expand, &(lf_expand_texts){&image, &settings},
                                  &(lf_expand_place){from, tokenizer, NULL}, err);
    lf_buf_fini(&image);
    lf_buf_fini(&settings);
    return rc;
}

void lf_gen_eyes_fini(lf_gen_eyes *e)
{
    free(e->dir);
    *e = (lf_gen_eyes){0};
}

/* ---- which pictures ---- */

struct list {
    struct lf_gen_sights *s;
    const lf_gen_eyes *e;
    lf_arena *a;
    const json_t *images;
    size_t used, parts; /* of images; how many parts of messages are pictures */
    lf_err *err;
};

/* The bytes of a column of parquet become the URL that has them. */
static int add_bytes(struct list *l, const json_t *bytes)
{
    lf_buf url;
    lf_buf_init(&url);
    lf_buf_adds(&url, "data:;base64,");
    lf_base64_encode(&url, json_string_value(bytes), json_string_length(bytes));
    const int rc = lf_buf_check(&url, l->err);
    const char *kept = rc == 0 ? lf_arena_strdup(l->a, url.data, l->err) : NULL;
    lf_buf_fini(&url);
    if (kept)
        l->s->path[l->s->n++] = kept;
    return kept ? 0 : LF_ENOMEM;
}

static int add_path(struct list *l, const json_t *v)
{
    const json_t *bytes = json_object_get(v, "bytes");
    if (json_is_string(bytes))
        return add_bytes(l, bytes);
    const char *path = json_string_value(json_is_object(v) ? json_object_get(v, "path") : v);
    if (!path)
        return lf_fail(l->err, LF_EINVAL,
                       "a picture is no path, no data: URL and no object of bytes and path");
    if (strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0)
        return lf_fail(l->err, LF_ENOTSUP,
                       "pictures are files here, not %.*s...: fetch them beforehand", 5, path);
    if (strncmp(path, "file://", 7) == 0)
        path += 7;
    l->s->path[l->s->n] = path[0] == '/' || !l->e->dir || strncmp(path, "data:", 5) == 0
                              ? lf_arena_strdup(l->a, path, l->err)
                              : lf_arena_printf(l->a, l->err, "%s/%s", l->e->dir, path);
    return l->s->path[l->s->n++] ? 0 : LF_ENOMEM;
}

static bool is_picture(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && strncmp(type, "image", 5) == 0;
}

/* {"type": "image", "image": picture}, or "path", "url", "image_url": {"url": path}. NULL: the
 * part names none, and stands for the next of `images`. */
static const json_t *path_of(const json_t *part)
{
    static const char *const names[] = {"image", "path", "url", "image_url"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(part, names[i]);
        if (v && !json_is_null(v))
            return json_object_get(v, "url") ? json_object_get(v, "url") : v;
    }
    return NULL;
}

/* Calls each(l, part) for the parts of messages that are pictures; stops at a failure. */
static int each_part(struct list *l, const json_t *messages,
                     int (*each)(struct list *l, const json_t *part))
{
    int rc = 0;
    size_t i, k;
    json_t *m, *part;
    json_array_foreach(messages, i, m)
    {
        json_array_foreach(json_object_get(m, "content"), k, part)
        {
            if (rc == 0 && is_picture(part))
                rc = each(l, part);
        }
    }
    return rc;
}

static int count_part(struct list *l, const json_t *part)
{
    (void)part;
    l->parts++;
    return 0;
}

static int add_part(struct list *l, const json_t *part)
{
    const json_t *path = path_of(part);
    if (!path && !(path = json_array_get(l->images, l->used++)))
        return lf_fail(l->err, LF_EINVAL,
                       "a picture of a message has no path, and 'images' none "
                       "that is left");
    return add_path(l, path);
}

/* Pictures in the order of their marks: those of messages with parts by these, else `images`. */
static int add_all(struct list *l, const json_t *messages)
{
    const size_t listed = json_array_size(l->images);
    int rc = l->parts ? each_part(l, messages, add_part) : 0;
    while (rc == 0 && !l->parts && l->used < listed)
        rc = add_path(l, json_array_get(l->images, l->used++));
    if (rc == 0 && l->used < listed)
        rc = lf_fail(l->err, LF_EINVAL,
                     "'images' has %zu pictures, and the parts of the messages take %zu of them",
                     listed, l->used);
    return rc;
}

int lf_gen_sights_collect(struct lf_gen_sights **out, const lf_gen_eyes *e, const json_t *images,
                          const json_t *messages, lf_arena *a, lf_err *err)
{
    struct list l = {.e = e, .a = a, .images = images, .err = err};
    *out = NULL;
    if (images && !json_is_array(images))
        return lf_fail(err, LF_EINVAL, "'images' is not a list of paths");
    (void)each_part(&l, messages, count_part);
    if (!l.parts && !json_array_size(images))
        return 0;
    if (!e)
        return lf_fail(
            err, LF_EINVAL,
            "the request has pictures, but the model sees none, or nothing prepares them here: "
            "lf-generate and lf-eval do, with processor = the folder that has "
            "preprocessor_config.json");
    l.s = lf_arena_alloc(a, 1, sizeof *l.s, err);
    const char **path = lf_arena_alloc(a, l.parts + json_array_size(images), sizeof *path, err);
    if (!l.s || !path)
        return LF_ENOMEM;
    *l.s = (struct lf_gen_sights){.path = path};
    *out = l.s;
    return add_all(&l, messages);
}

/* ---- prompts ---- */

static int measure(struct lf_gen_sights *s, const lf_gen_eyes *e, lf_expand_picture *v, lf_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < s->n && rc == 0; i++) {
        lf_pixels x = {0};
        rc = lf_look_at(&x, &e->processor, s->path[i], s->n == 1, err);
        if (rc != 0)
            return rc; /* and x has nothing */
        v[i] = lf_expand_measure(&e->expand, &e->processor, &x, s->n == 1);
        s->picture[i] = (struct lf_media_picture){.first_tile = s->n_tiles,
                                                  .tiles = x.tiles,
                                                  .layout = x.layout,
                                                  .from = x.from,
                                                  .rows = v[i].count};
        s->row_bytes = x.row_bytes;
        s->n_tiles += x.tiles;
        s->n_patches += (int64_t)x.tiles * x.grid_h * x.grid_w;
        /* all tiles of a picture have one size; spread() repeats it */
        s->tile[i] = (struct lf_media_tile){x.grid_h, x.grid_w};
        lf_pixels_fini(&x);
    }
    return rc;
}

/* A tile for each of every picture, from one for each picture. */
static int spread(struct lf_gen_sights *s, lf_arena *a, lf_err *err)
{
    struct lf_media_tile *all = lf_arena_alloc(a, (size_t)s->n_tiles, sizeof *all, err);
    if (!all)
        return LF_ENOMEM;
    for (int32_t i = 0; i < s->n; i++)
        for (int32_t k = 0; k < s->picture[i].tiles; k++)
            all[s->picture[i].first_tile + k] = s->tile[i];
    s->tile = all;
    return 0;
}

/* A mark would be a token like others, and the model would answer as if it had seen something. */
static int refuse_mark(const lf_gen_eyes *e, const lf_buf *text, lf_err *err)
{
    const char *mark = lf_expand_mark(&e->expand);
    if (text->len == 0 || !memmem(text->data, text->len, mark, strlen(mark)))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "the text has the mark of a picture (%s), but no picture is given: name it in "
                   "'images'",
                   mark);
}

int lf_gen_sights_expand(struct lf_gen_sights *s, const lf_gen_eyes *e, lf_buf *text, lf_arena *a,
                         lf_err *err)
{
    if (!s)
        return refuse_mark(e, text, err);
    const size_t n = (size_t)s->n;
    lf_expand_picture *v = lf_arena_alloc(a, n, sizeof *v, err);
    s->tile = lf_arena_alloc(a, n, sizeof *s->tile, err);
    s->picture = lf_arena_alloc(a, n, sizeof *s->picture, err);
    int rc = v && s->tile && s->picture ? 0 : LF_ENOMEM;
    if (rc == 0)
        rc = measure(s, e, v, err);
    if (rc == 0)
        rc = spread(s, a, err);
    return rc != 0 ? rc : lf_expand_text(&e->expand, v, n, text, NULL, err);
}

/* The number of each picture's token, in their order. */
static int number(int32_t *feature, int64_t rows, const lf_gen_eyes *e, const lf_gen_job *job,
                  lf_err *err)
{
    int64_t n = 0;
    for (size_t i = 0; i < job->n_prompt; i++)
        feature[i] = job->prompt[i] == e->model.image_token ? (int32_t)n++ : -1;
    if (n == rows)
        return 0;
    return lf_fail(
        err, LF_EINVAL,
        "the prompt has %lld tokens %lld of pictures, whose rows are %lld: the tokenizer "
        "or the processor is of another model",
        (long long)n, (long long)e->model.image_token, (long long)rows);
}

/* Which tokens of the prompt see each other; NULL: there is no memory. */
static const int32_t *runs_of(const lf_gen_eyes *e, const lf_gen_job *job, lf_arena *a, lf_err *err)
{
    int32_t *runs = lf_arena_alloc(a, 2 * job->n_prompt, sizeof *runs, err),
            *position = lf_arena_alloc(a, job->n_prompt, sizeof *position, err);
    if (!runs || !position)
        return NULL;
    for (size_t i = 0; i < job->n_prompt; i++)
        position[i] = (int32_t)i;
    lf_decoder_runs(job->prompt, position, (int64_t)job->n_prompt, e->model.image_token, runs);
    return runs;
}

static int32_t turn(int32_t *places, const struct lf_gen_sights *s, const lf_gen_eyes *e,
                    const lf_gen_job *job, lf_arena *a, lf_err *err)
{
    struct lf_sight_tile *tile = lf_arena_alloc(a, (size_t)s->n_tiles, sizeof *tile, err);
    struct lf_sight_picture *picture = lf_arena_alloc(a, (size_t)s->n, sizeof *picture, err);
    int32_t *position = lf_arena_alloc(a, job->n_prompt, sizeof *position, err);
    if (!tile || !picture || !position)
        return LF_ENOMEM;
    for (int32_t i = 0; i < s->n_tiles; i++)
        tile[i] = (struct lf_sight_tile){s->tile[i].grid_h, s->tile[i].grid_w};
    for (int32_t i = 0; i < s->n; i++)
        picture[i] = (struct lf_sight_picture){.tile = s->picture[i].first_tile,
                                               .tiles = s->picture[i].tiles};
    for (size_t i = 0; i < job->n_prompt; i++)
        position[i] = (int32_t)i;
    const struct lf_sight_batch b = {.n_tiles = s->n_tiles,
                                     .n_pictures = s->n,
                                     .tile = tile,
                                     .picture = picture,
                                     .rows = (int64_t)job->n_prompt,
                                     .tokens = job->prompt,
                                     .positions = position};
    return lf_sight_turns(&e->model, &b, places);
}

int lf_gen_sights_place(const struct lf_gen_media **out, const struct lf_gen_sights *s,
                        const lf_gen_eyes *e, const lf_gen_job *job, lf_arena *a, lf_err *err)
{
    struct lf_gen_media *m = lf_arena_alloc(a, 1, sizeof *m, err);
    struct lf_look_pictures *p = lf_arena_alloc(a, 1, sizeof *p, err);
    lf_media_batch *b = lf_arena_alloc(a, 1, sizeof *b, err);
    int32_t *feature = lf_arena_alloc(a, job->n_prompt, sizeof *feature, err);
    int32_t *places = lf_arena_alloc(a, 3 * job->n_prompt, sizeof *places, err);
    int64_t rows = 0;
    if (!m || !p || !b || !feature || !places)
        return LF_ENOMEM;
    for (int32_t i = 0; i < s->n; i++)
        rows += s->picture[i].rows;
    *b = (lf_media_batch){.n_tiles = s->n_tiles,
                          .n_pictures = s->n,
                          .row_bytes = s->row_bytes,
                          .n_patches = s->n_patches,
                          .tile = s->tile,
                          .picture = s->picture};
    *p = (struct lf_look_pictures){.processor = &e->processor,
                                   .path = s->path,
                                   .read = s->read,
                                   .arg = s->arg,
                                   .n = s->n,
                                   .batch = b};
    int rc = number(feature, rows, e, job, err);
    *m = (struct lf_gen_media){
        .feature = feature, .n_features = rows, .places = places, .pictures = p};
    if (rc == 0 && e->model.mask == LF_MASK_IMAGE_BLOCKS && !(m->runs = runs_of(e, job, a, err)))
        rc = LF_ENOMEM;
    if (rc == 0 && e->model.rope_sections.n) {
        m->next = turn(places, s, e, job, a, err);
        rc = m->next < 0 ? m->next : 0;
    }
    *out = m;
    return rc;
}
