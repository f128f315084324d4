/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of prompts: see prompt_sight.h. */
#include "engine/post/prompt_sight.h"

#include "engine/media/batch.h"
#include "engine/media/processor.h"

lf_gen_eyes lf_prompt_eyes(const lf_pictures *from, const lf_model_config *model)
{
    return (lf_gen_eyes){.processor = *from->processor, .expand = *from->expand, .model = *model};
}

struct of_doc {
    const lf_pictures *from;
    uint64_t doc;
};

static int read_one(void *arg, int32_t i, lf_pixels *out, lf_err *err)
{
    const struct of_doc *o = arg;
    return o->from->read(o->from->arg, o->doc, (uint64_t)i, out, err);
}

/* Room for the pictures of a document. */
static int make_room(struct lf_gen_sights *s, const lf_pictures *from, uint64_t doc, lf_arena *a,
                     lf_err *err)
{
    const struct lf_pictures_size size = lf_pictures_size(from, doc);
    struct of_doc *o = lf_arena_alloc(a, 1, sizeof *o, err);
    const size_t n = (size_t)from->count(from->arg, doc);
    s->tile = lf_arena_alloc(a, (size_t)size.tiles, sizeof *s->tile, err);
    s->picture = lf_arena_alloc(a, n, sizeof *s->picture, err);
    if (!o || !s->tile || !s->picture)
        return LF_ENOMEM;
    *o = (struct of_doc){from, doc};
    s->n = (int32_t)n;
    s->n_patches = size.patches;
    s->row_bytes = 3 * from->processor->patches.side * from->processor->patches.side;
    s->read = read_one;
    s->arg = o;
    return 0;
}

/* Their sizes, without looking at them. */
static int measure(struct lf_gen_sights *s, const lf_pictures *from, uint64_t doc, lf_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < s->n && rc == 0; i++) {
        lf_shard_picture said;
        lf_pixels x = {0};
        from->get(from->arg, doc, (uint64_t)i, &said);
        rc = lf_processor_plan(&x, from->processor, (lf_size){(int32_t)said.w, (int32_t)said.h},
                               s->n == 1, err);
        s->picture[i] = (struct lf_media_picture){.first_tile = s->n_tiles,
                                                  .tiles = said.tiles,
                                                  .layout = x.layout,
                                                  .from = x.from,
                                                  .rows = said.count};
        for (int32_t k = 0; k < said.tiles; k++)
            s->tile[s->n_tiles++] = (struct lf_media_tile){said.grid_h, said.grid_w};
    }
    return rc;
}

int lf_prompt_sight(const struct lf_gen_media **out, const lf_pictures *from,
                    const lf_gen_eyes *eyes, uint64_t doc, const lf_gen_job *job, lf_arena *a,
                    lf_err *err)
{
    struct lf_gen_sights s = {0};
    *out = NULL;
    if (from->count(from->arg, doc) == 0)
        return 0;
    int rc = make_room(&s, from, doc, a, err);
    if (rc == 0)
        rc = measure(&s, from, doc, err);
    return rc != 0 ? rc : lf_gen_sights_place(out, &s, eyes, job, a, err);
}
