/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts with pictures. A sequence of a round knows the document of its prompt, so its pictures
 * are read from the shards wherever they are needed: once for a group while it is generated, and
 * for each micro-batch of a model. */
#include <stdlib.h>

#include "engine/model/sight.h"
#include "engine/post/pg_priv.h"

/* The sets of p->eyes. */
enum { PROMPTS, PTX, SETS };

int64_t lf_pg_most_tiles(const lf_pg *p)
{
    return lf_sight_bounds(&p->mc, p->c->max_patches, p->c->max_tiles, 1).vision.images - 1;
}

/* pictures: which set has some. */
static int check_options(const lf_pg *p, const bool pictures[SETS], lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    if (!c->max_patches && c->max_tiles)
        return lf_fail(err, LF_EINVAL, "max_tiles bounds pictures, which need max_patches too");
    for (int k = 0; k < SETS; k++)
        if (pictures[k] && !c->max_patches)
            return lf_fail(err, LF_EINVAL,
                           "%s has %s with pictures, and only text is taken here: give "
                           "max_patches, and a model that sees",
                           k == PTX ? c->ptx_data : c->data, k == PTX ? "documents" : "prompts");
    if (c->max_patches && !p->mc.vision.family)
        return lf_fail(err, LF_EINVAL,
                       "max_patches = %lld, but the model sees no pictures ([model] has no "
                       "vision.family)",
                       (long long)c->max_patches);
    return 0;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Leaves prompts out whose pictures no micro-batch holds; the sizes of the others. */
static int choose_prompts(lf_pg *p, lf_err *err)
{
    const lf_pictures *from = lf_shard_eyes_pictures(p->eyes);
    const int64_t patches = p->c->max_patches, tiles = lf_pg_most_tiles(p);
    struct lf_pictures_size need = {0};
    uint64_t kept = 0;
    p->longest = 0;
    for (uint64_t i = 0; i < p->n_docs; i++) {
        const struct lf_pictures_size s = lf_pictures_size(from, p->docs[i]);
        need.patches = most(need.patches, s.patches);
        need.tiles = most(need.tiles, s.tiles);
        if (s.patches > patches || s.tiles > tiles)
            continue;
        p->docs[kept++] = p->docs[i];
        p->longest = most(p->longest, (int64_t)lf_shardset_doc_len(p->data, p->docs[i]));
        p->seen.patches = most(p->seen.patches, s.patches);
        p->seen.tiles = most(p->seen.tiles, s.tiles);
        p->seen.tokens = most(p->seen.tokens, s.tokens);
    }
    if (!kept)
        return lf_fail(err, LF_EINVAL,
                       "%s: the pictures of no prompt fit into a micro-batch; max_patches = %lld "
                       "and max_tiles = %lld hold those of each",
                       p->c->data, (long long)need.patches, (long long)need.tiles);
    if (kept < p->n_docs)
        lf_run_log(&p->run, 1,
                   "%llu of %llu prompts have too many pictures and are left out; max_patches = "
                   "%lld and max_tiles = %lld hold those of each",
                   (unsigned long long)(p->n_docs - kept), (unsigned long long)p->n_docs,
                   (long long)need.patches, (long long)need.tiles);
    p->n_docs = kept;
    return 0;
}

int lf_pg_see_open(lf_pg *p, lf_err *err)
{
    const lf_shardset *const sets[SETS] = {p->data, p->ptx};
    const char *const called[] = {p->c->data, p->c->ptx_data, "what data and ptx_data hold"};
    bool pictures[SETS];
    for (int k = 0; k < SETS; k++)
        pictures[k] = sets[k] && lf_shardset_sees(sets[k]);
    int rc = check_options(p, pictures, err);
    if (rc != 0 || !(pictures[PROMPTS] || pictures[PTX]))
        return rc;
    rc = lf_shard_eyes_open(&p->eyes, sets, p->ptx ? SETS : 1,
                            called[pictures[PTX] + (pictures[PROMPTS] && pictures[PTX])], &p->mc,
                            err);
    if (rc == 0) {
        p->gen_eyes = lf_prompt_eyes(lf_shard_eyes_pictures(p->eyes), &p->mc);
        rc = choose_prompts(p, err);
    }
    return rc;
}

int lf_pg_see_plan(lf_pg *p, lf_err *err)
{
    const int rc = check_options(p, (const bool[SETS]){false}, err);
    if (rc == 0 && p->c->max_patches)
        p->seen = (struct lf_pictures_size){p->c->max_patches, lf_pg_most_tiles(p), p->longest};
    return rc;
}

void lf_pg_see_models(lf_pg *p)
{
    lf_pg_model *const models[] = {p->actor, p->generator, p->ref, p->critic};
    for (size_t i = 0; p->eyes && i < sizeof models / sizeof *models; i++)
        if (models[i])
            lf_pg_model_see(models[i], lf_shard_eyes_pictures(p->eyes));
}

int lf_pg_see_reward(lf_pg *p, lf_err *err)
{
    const lf_model_config *rm = lf_rm_config(p->reward_model);
    if (!p->eyes || !p->seen.tiles)
        return 0;
    if (!rm->vision.family)
        return lf_fail(err, LF_EINVAL, "reward_model: %s sees no pictures, which the prompts have",
                       p->c->reward_model);
    if (rm->image_token != p->mc.image_token || rm->vision.patch_dim != p->mc.vision.patch_dim)
        return lf_fail(err, LF_EINVAL,
                       "reward_model: %s takes pictures otherwise than the policy: patches of %lld "
                       "numbers at token %lld, not of %lld at token %lld",
                       p->c->reward_model, (long long)rm->vision.patch_dim,
                       (long long)rm->image_token, (long long)p->mc.vision.patch_dim,
                       (long long)p->mc.image_token);
    return lf_rm_see(p->reward_model, lf_shard_eyes_pictures(p->eyes), err);
}

/* ---- sequences ---- */

bool lf_pg_sees(const lf_pg *p, uint64_t doc)
{
    return p->eyes && lf_shardset_pictures(p->data, doc) > 0;
}

static void see(struct lf_pg_doc *d, uint64_t number, const struct lf_pictures_size *s)
{
    d->sees = s->tiles > 0;
    d->doc = number;
    d->patches = s->patches;
    d->tiles = s->tiles;
}

void lf_pg_see_doc(const lf_pg *p, struct lf_pg_doc *d, uint64_t doc)
{
    if (!lf_pg_sees(p, doc))
        return;
    const struct lf_pictures_size s = lf_pictures_size(lf_shard_eyes_pictures(p->eyes), doc);
    see(d, doc, &s);
}

struct lf_pictures_size lf_pg_ptx_size(const lf_pg *p, uint64_t doc)
{
    return p->eyes ? lf_pictures_size(lf_shard_eyes_pictures(p->eyes), lf_shard_eyes_doc(PTX, doc))
                   : (struct lf_pictures_size){0};
}

void lf_pg_ptx_see_doc(const lf_pg *p, struct lf_pg_doc *d, uint64_t doc)
{
    const struct lf_pictures_size s = lf_pg_ptx_size(p, doc);
    see(d, lf_shard_eyes_doc(PTX, doc), &s);
}

int lf_pg_sight_of(const struct lf_gen_media **out, const lf_pg *p, uint64_t doc,
                   const lf_gen_job *job, lf_arena *a, lf_err *err)
{
    *out = NULL;
    return p->eyes ? lf_prompt_sight(out, lf_shard_eyes_pictures(p->eyes), &p->gen_eyes, doc, job,
                                     a, err)
                   : 0;
}
