/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of a run: opened, checked, and what it will take in memory. */
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/model/dual.h"
#include "engine/train/loop_priv.h"

/* Content of this much is read again at the start without being asked for: seconds, where training
 * takes hours. */
#define VERIFY_BYTES ((int64_t)4 << 30)

/* Megatron's order is made for a run of so many samples. */
static int run_samples(int64_t *samples, const struct lf_train_config *c, lf_err *err)
{
    int64_t steps;
    lf_schedule lr;
    return c->megatron_order && *samples == 0 ? lf_train_length(&steps, samples, &lr, c, 0, err)
                                              : 0;
}

static enum lf_rows rows_of(const struct lf_train_config *c)
{
    return c->objective ? c->objective->rows : LF_ROWS_PLAIN;
}

lf_loader_config lf_train_loader_config(const struct lf_train_config *c, const lf_model_config *mc)
{
    lf_loader_config lc = {.n_sources = c->n_sources,
                           .T = c->seq_length,
                           .B = c->micro_batch,
                           .policy = c->packing,
                           .max_segs = c->max_docs,
                           .seed = c->seed,
                           .n_ramp = c->n_ramp,
                           .n_skip = c->n_skip,
                           .megatron = c->megatron_order ? &c->megatron : NULL,
                           .rows = rows_of(c),
                           .mismatched = c->objective && c->objective->mismatched,
                           .pictures = lf_train_pictures(c),
                           .augment = c->objective ? c->objective->augment : NULL,
                           .repeats = c->objective ? c->objective->repeats : 0,
                           .mlm = c->mlm,
                           .nsp = c->nsp,
                           .seq2seq = c->seq2seq.source_length ? &c->seq2seq : NULL,
                           .decoder_start = mc ? (int32_t)mc->decoder_start : 0};
    if (mc && c->max_patches) {
        const struct lf_decoder_media m =
            lf_sight_bounds(mc, c->max_patches, c->max_tiles, (int64_t)lc.B * lc.T);
        lc.max_patches = (int32_t)c->max_patches;
        lc.max_tiles = (int32_t)m.vision.images - 1;
        lc.patch_bytes = (int32_t)mc->vision.patch_dim;
        lc.image_token = lc.pictures ? -1 : mc->image_token;
        if (c->n_features) {
            lc.encoded_bytes = (int32_t)(lf_train_feature_width(mc) *
                                         (c->compute == LF_BF16 ? 2 : (int64_t)sizeof(float)));
            lc.max_encoded = m.vision.rows;
        }
    }
    return lc;
}

lf_loader_config lf_train_valid_config(const struct lf_train_config *c, const lf_model_config *mc,
                                       size_t n_sources)
{
    lf_loader_config lc = lf_train_loader_config(c, mc);
    lc.mode = LF_LOADER_VALID;
    lc.n_sources = n_sources;
    lc.megatron = NULL;
    return lc;
}

int lf_train_open_loader(lf_loader **out, const lf_trainer *t, int rank, int ranks, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    lf_loader_source *src = lf_arena_alloc(t->run.arena, c->n_sources, sizeof(*src), err);
    lf_loader_ramp *ramp = lf_arena_alloc(t->run.arena, c->n_ramp, sizeof(*ramp), err);
    if (!src || !ramp)
        return LF_ENOMEM;
    for (size_t i = 0; i < c->n_ramp; i++)
        ramp[i] = (lf_loader_ramp){c->ramp[i].from_sample, c->ramp[i].samples};
    for (size_t i = 0; i < c->n_sources; i++) {
        src[i] = c->sources[i];
        if (src[i].weight > 0 || c->megatron_order) /* there, without weights, samples count */
            continue;
        lf_shardset *s = NULL;
        int rc = lf_shardset_open(&s, src[i].dir, "train", err);
        if (rc != 0)
            return rc;
        const lf_shard_info *info = lf_shardset_get_info(s);
        src[i].weight = (double)(lf_train_pictures(c) ? info->n_docs : info->n_tokens);
        lf_shardset_close(s);
        if (!(src[i].weight > 0))
            return lf_fail(err, LF_EINVAL, "%s: no tokens to train on", src[i].dir);
    }
    lf_loader_megatron mega = c->megatron;
    int rc = run_samples(&mega.samples, c, err);
    if (rc != 0)
        return rc;
    lf_loader_config lc = lf_train_loader_config(c, &t->mc);
    lc.features = t->features;
    lc.split = "train";
    lc.sources = src;
    lc.ramp = ramp;
    lc.skip = c->skip;
    lc.megatron = c->megatron_order ? &mega : NULL;
    lc.dp_rank = rank;
    lc.dp_size = ranks;
    lc.vocab_size = t->mc.vocab;
    return lf_loader_open(out, &lc, err);
}

/* 1: has a valid split, 0: has none. */
static int has_valid(const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    int rc = lf_artifact_load(&a, dir, "shards", err);
    for (size_t i = 0; rc == 0 && i < a.n_files; i++)
        if (lf_str_has_prefix(a.files[i].path, "valid-"))
            rc = 1;
    lf_artifact_fini(&a);
    return rc;
}

int lf_train_check_valid(const struct lf_train_config *c, lf_err *err)
{
    if (!c->keep_best && c->patience <= 0)
        return 0;
    for (size_t i = 0; i < c->n_valid; i++) {
        enum lf_artifact_state there;
        int rc = lf_artifact_state(&there, c->valid[i], err);
        if (rc == 0 && there == LF_ARTIFACT_ABSENT)
            return 0;
        rc = rc == 0 ? has_valid(c->valid[i], err) : rc;
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    return lf_fail(err, LF_EINVAL,
                   "%s compares validations, and no data has a valid split: give valid_data, or a "
                   "larger valid_fraction to the stage that made it, or leave %s out",
                   c->keep_best ? "keep_best" : "patience",
                   c->keep_best ? "keep_best" : "patience");
}

/* Each source of validation data alone. */
static int open_sets(lf_trainer *t, const lf_loader_config *all, lf_err *err)
{
    int rc = 0;
    t->vsets = lf_arena_alloc(t->run.arena, t->n_valid_dirs, sizeof(*t->vsets), err);
    if (!t->vsets)
        return LF_ENOMEM;
    memset(t->vsets, 0, t->n_valid_dirs * sizeof(*t->vsets));
    for (size_t k = 0; k < t->n_valid_dirs && rc == 0; k++) {
        lf_loader_config one = *all;
        one.sources = &all->sources[k];
        one.n_sources = 1;
        rc = lf_loader_open(&t->vsets[k], &one, err);
    }
    return rc;
}

static int open_valid(lf_trainer *t, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    lf_loader_source *src = lf_arena_alloc(t->run.arena, c->n_valid, sizeof(*src), err);
    size_t n = 0;
    t->valid_dirs = lf_arena_alloc(t->run.arena, c->n_valid, sizeof(*t->valid_dirs), err);
    t->vnames = lf_arena_alloc(t->run.arena, c->n_valid, sizeof(*t->vnames), err);
    if (!src || !t->valid_dirs || !t->vnames)
        return LF_ENOMEM;
    for (size_t i = 0; i < c->n_valid; i++) {
        int rc = has_valid(c->valid[i], err);
        if (rc < 0)
            return rc;
        if (rc != 0) {
            t->valid_dirs[n] = c->valid[i];
            t->vnames[n] = c->valid_names ? c->valid_names[i] : NULL;
            src[n++] = (lf_loader_source){c->valid[i], 1};
        } else if (c->valid_required)
            return lf_fail(err, LF_ENOENT, "%s has no valid split to validate on", c->valid[i]);
    }
    t->n_valid_dirs = n;
    if (!n)
        return 0;
    lf_loader_config lc = lf_train_valid_config(c, &t->mc, n);
    lc.features = t->features;
    lc.max_tokens = c->valid_tokens;
    lc.split = "valid";
    lc.sources = src;
    lc.dp_rank = t->who.data;
    lc.dp_size = t->who.data_ranks;
    lc.vocab_size = t->mc.vocab;
    int rc = lf_loader_open(&t->vdata, &lc, err);
    return rc || !c->valid_names ? rc : open_sets(t, &lc, err);
}

/* Compare the content of an artifact with its manifest, as far as `verify` asks for it. Lengths are
 * always compared. */
static int verify(const lf_trainer *t, const char *dir, const char *kind, lf_err *err)
{
    lf_artifact a = {0};
    int64_t bytes = 0;
    int rc = lf_artifact_load(&a, dir, kind, err);
    for (size_t i = 0; rc == 0 && i < a.n_files; i++)
        bytes += a.files[i].bytes;
    if (rc == 0 && (t->c->verify == LF_VERIFY_YES || bytes <= VERIFY_BYTES))
        rc = lf_artifact_check_hashes(&a, dir, t->c->threads, err);
    lf_artifact_fini(&a);
    return rc;
}

static int verify_all(const lf_trainer *t, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    int rc = 0;
    if (c->verify == LF_VERIFY_NO || !lf_train_first_rank(t))
        return 0;
    for (size_t i = 0; i < c->n_sources && rc == 0; i++)
        rc = verify(t, c->sources[i].dir, "shards", err);
    for (size_t i = 0; i < c->n_valid && rc == 0 && c->valid_required; i++)
        rc = verify(t, c->valid[i], "shards", err);
    for (size_t i = 0; i < c->n_features && rc == 0; i++)
        rc = verify(t, c->features[i], "features", err);
    return rc;
}

/* Of documents or units with pictures, and what would hold the largest of them. */
static void tell_left_out(const lf_trainer *t, const lf_loader *l, size_t source, const char *split)
{
    uint64_t needs[LF_PACK_AXES];
    uint64_t dropped, all = lf_loader_units(l, source, &dropped);
    if (!lf_loader_left_out(l, source))
        return;
    lf_loader_needs(l, source, needs);
    if (t->c->seq2seq.source_length) {
        lf_train_log(t, 1,
                     "%llu of %llu documents of a %s split have no source or no target, or more "
                     "tokens than source_length = %d and seq_length = %d hold, and are left out",
                     (unsigned long long)lf_loader_left_out(l, source), (unsigned long long)all,
                     split, t->c->seq2seq.source_length, t->c->seq_length);
        return;
    }
    if (lf_train_pictures(t->c)) {
        lf_train_log(t, 1,
                     "%llu of %llu documents of a %s split have no pictures, or too many, and are "
                     "left out; max_patches = %llu and max_tiles = %llu hold the pictures of each",
                     (unsigned long long)lf_loader_left_out(l, source),
                     (unsigned long long)lf_shardset_get_info(lf_loader_set(l, source))->n_docs,
                     split, (unsigned long long)needs[0], (unsigned long long)needs[1]);
        return;
    }
    const unsigned long long out = lf_loader_left_out(l, source), patches = needs[0],
                             tiles = needs[1];
    if (t->c->objective && t->c->objective->rows != LF_ROWS_PLAIN)
        lf_train_log(t, 1,
                     "%llu of %llu %s of a %s split have too many pictures and are left out; "
                     "max_patches = %llu and max_tiles = %llu hold those of each",
                     out, (unsigned long long)all, t->c->objective->units, split, patches, tiles);
    else
        lf_train_log(
            t, 1,
            "%llu of %llu documents of a %s split are empty, longer than seq_length = %d, or "
            "have too many pictures, and are left out; max_patches = %llu and max_tiles = %llu "
            "hold the pictures of each",
            out, (unsigned long long)all, split, t->c->seq_length, patches, tiles);
}

/* What does not fit is left out, but not in silence. */
static void tell_dropped(const lf_trainer *t, const lf_loader *l, size_t n, const char *split)
{
    for (size_t i = 0; i < n && l; i++) {
        uint64_t dropped, all = lf_loader_units(l, i, &dropped);
        if (dropped)
            lf_train_log(t, 1,
                         "%llu of %llu %s of a %s split are longer than seq_length = %d, or empty, "
                         "and left out",
                         (unsigned long long)dropped, (unsigned long long)all,
                         t->c->objective->units, split, t->c->seq_length);
        tell_left_out(t, l, i, split);
        if (lf_loader_cut(l, i) &&
            (t->c->packing == LF_PACK_BFD || lf_shardset_has_mask(lf_loader_set(l, i))))
            lf_train_log(t, 1,
                         "%llu of %llu documents of a %s split are longer than seq_length = %d and "
                         "are cut into pieces that "
                         "do not see each other",
                         (unsigned long long)lf_loader_cut(l, i),
                         (unsigned long long)lf_shardset_get_info(lf_loader_set(l, i))->n_docs,
                         split, t->c->seq_length);
    }
}

/* Of all sources one tokenizer, whose words the model has. */
static int check_words(lf_trainer *t, lf_err *err)
{
    const lf_shard_info *info = lf_loader_info(t->data, 0);
    int64_t most = 0;
    for (size_t i = 0; i < t->c->n_sources; i++) {
        const lf_shard_info *other = lf_loader_info(t->data, i);
        if (strcmp(other->tokenizer_sha256, info->tokenizer_sha256) != 0)
            return lf_fail(err, LF_EINVAL, "%s and %s were made with different tokenizers",
                           t->c->sources[0].dir, t->c->sources[i].dir);
        if (t->mc.vocab < other->vocab_size)
            t->mc.vocab = other->vocab_size;
        most = other->vocab_size > most ? other->vocab_size : most;
    }
    /* captions end with it, so it changes no number; an export needs it */
    if (lf_model_is_dual(&t->mc) && !t->mc.dual.padded && t->mc.dual.end_token < 0)
        t->mc.dual.end_token = info->eos_id;
    /* what was unknown where [model] leaves the vocabulary to the data */
    if (lf_model_is_dual(&t->mc) && lf_dual_check(&t->mc, err) != 0)
        return LF_EINVAL;
    char unused[240];
    if (lf_train_word_unused(unused, sizeof unused, t->c, t->mc.vocab, most))
        lf_train_log(t, 1, "%s", unused);
    if (t->vdata &&
        strcmp(lf_loader_info(t->vdata, 0)->tokenizer_sha256, info->tokenizer_sha256) != 0)
        return lf_fail(err, LF_EINVAL,
                       "valid_data and data (%s) were made with different tokenizers",
                       t->c->sources[0].dir);
    return 0;
}

/* What an objective needs of a validation, before anything is trained. */
static int check_valid(const lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    const int64_t n = t->vdata ? lf_loader_samples(t->vdata) : 0;
    return !o || !t->vdata || n >= o->least_valid
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "the valid split has %lld %s, and this objective compares %lld at least; "
                         "prepare more (valid_fraction), raise valid_tokens, or set valid_interval "
                         "= 0 for no validation",
                         (long long)n, o->units ? o->units : "samples", (long long)o->least_valid);
}

int lf_train_open_data(lf_trainer *t, lf_err *err)
{
    int rc = verify_all(t, err);
    if (rc == 0)
        rc = lf_train_open_features(t, err);
    if (rc == 0)
        rc = lf_train_open_loader(&t->data, t, t->who.data, t->who.data_ranks, err);
    if (rc == 0)
        rc = open_valid(t, err);
    if (rc != 0)
        return rc;
    tell_dropped(t, t->data, t->c->n_sources, "train");
    tell_dropped(t, t->vdata, t->n_valid_dirs, "valid");
    if ((rc = check_valid(t, err)) != 0)
        return rc;
    memcpy(t->tokenizer, lf_loader_info(t->data, 0)->tokenizer_sha256, sizeof(t->tokenizer));
    if (lf_train_words(t->c) && (rc = check_words(t, err)) != 0)
        return rc;
    rc = lf_train_length(&t->total_steps, &t->total_samples, &t->lr, t->c,
                         (int64_t)lf_loader_source_samples(t->data, 0), err);
    lf_train_early_begin(t);
    if (rc == 0 && t->total_samples > lf_loader_samples(t->data))
        rc = lf_fail(
            err, LF_EINVAL,
            "the run takes %lld samples, Megatron's order has %lld; raise megatron_samples%s",
            (long long)t->total_samples, (long long)lf_loader_samples(t->data),
            t->c->n_sources > 1 && !t->c->megatron.weighted ? ", or give data_weights" : "");
    return rc;
}

/* Of one split as the manifest counts it; 0 when it is not there (yet) or does not say. */
static size_t split_bytes(const struct lf_train_config *c, const lf_loader_config *lc,
                          const char *dir, const char *split)
{
    lf_artifact a = {0};
    size_t n = 0;
    if (lf_artifact_load(&a, dir, "shards", NULL) == 0) {
        json_t *s = json_object_get(json_object_get(a.meta, "splits"), split);
        int64_t docs = json_integer_value(json_object_get(s, "docs"));
        int64_t tokens = json_integer_value(json_object_get(s, "tokens"));
        int64_t samples = c->megatron.samples;
        if (docs > 0 && tokens > 0 && lc->megatron)
            n = run_samples(&samples, c, NULL)
                    ? 0
                    : lf_loader_megatron_bytes(c->seq_length, (uint64_t)docs, (uint64_t)tokens,
                                               (uint64_t)samples);
        else if (docs > 0 && tokens > 0)
            n = lf_loader_index_bytes(lc, (uint64_t)docs, (uint64_t)tokens);
    }
    lf_artifact_fini(&a);
    return n;
}

size_t lf_train_data_bytes(const struct lf_train_config *c, const lf_model_config *mc)
{
    const lf_loader_config train = lf_train_loader_config(c, mc);
    const lf_loader_config all = lf_train_valid_config(c, mc, c->n_valid);
    const lf_loader_config one = lf_train_valid_config(c, mc, 1);
    size_t n = lf_loader_slot_bytes(&train), most = 0, valid = 0, sets = 0;
    for (size_t i = 0; i < c->n_sources; i++) {
        size_t index = split_bytes(c, &train, c->sources[i].dir, "train");
        n += index;
        most = index > most ? index : most;
    }
    for (size_t i = 0; i < c->n_valid; i++) {
        size_t index = split_bytes(c, &all, c->valid[i], "valid");
        valid += index;
        sets += index ? 1 : 0;
        most = index > most ? index : most;
    }
    n += valid ? lf_loader_slot_bytes(&all) + valid : 0;
    if (c->valid_names) /* each set is opened once more, for itself */
        n += sets * lf_loader_slot_bytes(&one) + valid;
    if (c->objective && c->objective->prepare) /* a pass over one split at a time, beside those */
        n += lf_loader_slot_bytes(&one) + most;
    return n;
}
