/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards are made in groups: train-NNNNN.h5 and valid-NNNNN.h5 of one group hold what lies between
 * two places of the corpus, and both are closed when either is full, so that one number says where
 * to go on. Invariants:
 *   1. a group is finished when its record OUT/progress/NNNNN.json is published; its shards were
 *      durable before;
 *   2. records are numbered without a gap; what is after the last one is redone from its `next`;
 *   3. where a group ends depends on the documents only, so a run that was killed makes the same
 *      files.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "stages/tokenize_priv.h"

const char *const lf_tokenize_split_names[N_SPLITS] = {"train", "valid"};

/* What must be equal for shards of two starts to belong together. */
static int make_fingerprint(tok_writer *w, lf_err *err)
{
    lf_buf b;
    uint8_t digest[LF_HASH_BYTES];
    lf_buf_init(&b);
    lf_buf_addf(&b, "lf-tokenize-2\n%s\n%s\n%lld\n%d\n%s\n", w->s->options_sha,
                lf_tokenizer_sha256(w->t), (long long)w->info.eos_id, w->token_bytes,
                w->s->chat_sha);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, b.data, b.len, err);
    if (rc == 0)
        lf_hash_hex(w->fingerprint, digest);
    lf_buf_fini(&b);
    return rc;
}

/* Which metrics records an earlier life of this file may keep: those of adopted groups. */
static int keep_metric(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    const tok_writer *w = ctx;
    json_t *j = lf_json_load_text(payload, n, "metrics", err);
    (void)offset;
    bool keep = j && json_integer_value(json_object_get(j, "step")) <= (json_int_t)w->n_groups;
    json_decref(j);
    return j ? keep : LF_EFORMAT;
}

int lf_tokenize_writer_open(tok_writer *w, tokenize *s, const lf_tokenizer *t, const lf_corpus *c,
                            int64_t eos_id, lf_err *err)
{
    size_t n_src;
    const lf_corpus_source *src = lf_corpus_sources(c, &n_src);
    *w = (tok_writer){.s = s, .t = t, .corpus = c};
    w->info.vocab_size = lf_tokenizer_vocab_size(t);
    w->info.eos_id = eos_id;
    w->info.source = n_src > 0 ? src[0].label : "";
    snprintf(w->info.tokenizer_sha256, sizeof(w->info.tokenizer_sha256), "%s",
             lf_tokenizer_sha256(t));
    if (s->media.on) {
        w->info.processor = s->media.image_processor.data;
        w->info.settings = s->media.settings.data;
        w->info.image_token = s->media.image_token;
    }
    w->token_bytes = s->dtype ? s->dtype : w->info.vocab_size <= 65536 ? 2 : 4;
    if (w->token_bytes == 2 && w->info.vocab_size > 65536)
        return lf_fail(err, LF_EINVAL,
                       "dtype = u16 cannot hold the ids of a vocabulary of %lld; use u32",
                       (long long)w->info.vocab_size);
    int rc = make_fingerprint(w, err);
    w->dir = rc == 0 ? lf_path_join(s->out, "shards", err) : NULL;
    w->progress = w->dir ? lf_path_join(s->out, "progress", err) : NULL;
    for (int k = 0; k < N_SPLITS && w->progress; k++)
        w->counts[k] = lf_calloc((size_t)w->info.vocab_size, sizeof(uint64_t), err);
    if (rc == 0)
        rc = w->progress && w->counts[0] && w->counts[1] ? 0 : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_mkdirs(w->dir, 0750, err);
    if (rc == 0)
        rc = lf_io_mkdirs(w->progress, 0750, err);
    if (rc == 0)
        rc = lf_tokenize_adopt(w, err);
    if (rc == 0 && s->metrics)
        rc = lf_frame_truncate(s->metrics, keep_metric, w, NULL, err);
    if (rc == 0 && s->metrics) {
        w->metrics = lf_frame_writer_open(s->metrics, err);
        rc = w->metrics ? 0 : LF_EIO;
    }
    w->t0 = lf_now_s();
    return rc;
}

void lf_tokenize_writer_fini(tok_writer *w)
{
    for (int k = 0; k < N_SPLITS; k++) {
        lf_shard_abort(w->w[k]);
        free(w->counts[k]);
    }
    lf_frame_writer_close(w->metrics, NULL);
    free(w->groups);
    free(w->dir);
    free(w->progress);
    memset(w, 0, sizeof(*w));
}

json_t *lf_tokenize_counts_json(const uint64_t *counts)
{
    json_t *o = json_object();
    for (int k = 0; k < N_COUNTS; k++)
        if (k != COUNT_FATE + LF_ROW_KEPT)
            json_object_set_new(o, lf_tokenize_count_name(k), json_integer((json_int_t)counts[k]));
    return o;
}

json_t *lf_tokenize_group_json(const tok_writer *w, const tok_group *g)
{
    json_t *shards = json_array();
    for (int k = 0; k < N_SPLITS; k++) {
        const tok_shard *s = &g->shard[k];
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, s->stat.sha256);
        if (s->there)
            json_array_append_new(shards, json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:s}", "split",
                                                    lf_tokenize_split_names[k], "path", s->name,
                                                    "docs", (json_int_t)s->stat.n_docs, "tokens",
                                                    (json_int_t)s->stat.n_tokens, "trained",
                                                    (json_int_t)s->trained, "text_bytes",
                                                    (json_int_t)s->text_bytes, "bytes",
                                                    (json_int_t)s->stat.bytes, "tree_sha256", hex));
    }
    return json_pack("{s:i,s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:o}", "lf_tokenize", 2, "fingerprint",
                     w->fingerprint, "shards", shards, "next", (json_int_t)g->next, "source",
                     (json_int_t)g->source, "source_first", (json_int_t)g->source_first,
                     "raw_bytes", (json_int_t)g->raw_bytes, "replaced", (json_int_t)g->replaced,
                     "counts", lf_tokenize_counts_json(g->counts));
}

static int write_record(tok_writer *w, const tok_group *g, lf_err *err)
{
    char name[32];
    snprintf(name, sizeof(name), "%05zu.json", w->n_groups);
    char *path = lf_path_join(w->progress, name, err);
    json_t *j = lf_tokenize_group_json(w, g);
    char *text = j ? lf_json_dump(j, err) : NULL;
    lf_err first = LF_ERR_INIT;
    int rc = path && text ? lf_io_publish(path, text, strlen(text), LF_ARTIFACT_MODE, &first)
                          : LF_ENOMEM;
    if (rc ==
        /* left from before an earlier shard was lost; its shards have just been replaced */
        LF_EEXIST) {
        lf_err_clear(&first);
        rc = unlink(path) == 0 ? lf_io_publish(path, text, strlen(text), LF_ARTIFACT_MODE, &first)
                               : lf_fail_errno(&first, "cannot replace %s", path);
    }
    if (rc != 0)
        rc = lf_fail(err, rc, "%s", first.rc ? first.text : "no memory for a shard record");
    free(text);
    json_decref(j);
    free(path);
    return rc;
}

static int write_metrics(tok_writer *w, lf_err *err)
{
    uint64_t tokens = 0, docs = 0;
    for (size_t i = 0; i < w->n_groups; i++)
        for (int k = 0; k < N_SPLITS; k++) {
            tokens += w->groups[i].shard[k].stat.n_tokens;
            docs += w->groups[i].shard[k].stat.n_docs;
        }
    double sec = lf_now_s() - w->t0;
    char line[320];
    int n =
        snprintf(line, sizeof(line),
                 "{\"step\":%zu,\"t\":%.3f,\"docs\":%llu,\"tokens\":%llu,\"tokens_per_s\":%.1f}",
                 w->n_groups, lf_wall_s(), (unsigned long long)docs, (unsigned long long)tokens,
                 sec > 0 ? (double)(tokens - w->tokens_at_start) / sec : 0.0);
    int rc = lf_frame_append(w->metrics, line, (size_t)n, err);
    return rc == 0 ? lf_frame_sync(w->metrics, err) : rc;
}

/* Finish the open shards and publish their record; nothing open: nothing done. */
int lf_tokenize_close_group(tok_writer *w, lf_err *err)
{
    if (!w->w[SPLIT_TRAIN] && !w->w[SPLIT_VALID])
        return 0;
    tok_group g = w->at;
    int rc = lf_grow(&w->groups, &w->cap_groups, w->n_groups, sizeof(*w->groups), err);
    for (int k = 0; k < N_SPLITS && rc == 0; k++) {
        tok_shard *s = &g.shard[k];
        *s = (tok_shard){
            .there = w->w[k] != NULL, .text_bytes = w->text_bytes[k], .trained = w->trained[k]};
        w->text_bytes[k] = w->trained[k] = 0;
        if (!s->there)
            continue;
        snprintf(s->name, sizeof(s->name), "%s-%05zu.h5", lf_tokenize_split_names[k], w->n_groups);
        rc = lf_shard_finish(w->w[k], &s->stat, err);
        w->w[k] = NULL;
    }
    if (rc == 0)
        rc = lf_io_fsync_path(w->dir, err); /* the names, before the record that counts on them */
    if (rc == 0)
        rc = write_record(w, &g, err);
    if (rc != 0)
        return rc;
    w->groups[w->n_groups++] = g;
    lf_log(3, "finished shards %zu: %llu and %llu tokens", w->n_groups - 1,
           (unsigned long long)g.shard[0].stat.n_tokens,
           (unsigned long long)g.shard[1].stat.n_tokens);
    return w->metrics ? write_metrics(w, err) : 0;
}

static int open_shard(tok_writer *w, int k, lf_err *err)
{
    char name[32];
    snprintf(name, sizeof(name), "%s-%05zu.h5", lf_tokenize_split_names[k], w->n_groups);
    char *path = lf_path_join(w->dir, name, err);
    int rc = path ? 0 : LF_ENOMEM;
    /* What a killed run left half written here has no record. */
    if (rc == 0 && unlink(path) != 0 && lf_io_exists(path))
        rc = lf_fail_errno(err, "cannot replace %s", path);
    if (rc == 0)
        rc = lf_shard_create(&w->w[k], path, &w->info, w->token_bytes, err);
    free(path);
    return rc;
}

/* One kind of rows in all shards: plain documents, pairs, labelled answers or prompts. */
static int check_kind(tok_writer *w, const tok_doc *d, uint64_t ordinal, lf_err *err)
{
    enum lf_rows kind = (enum lf_rows)d->kind;
    if (!w->any_kind)
        w->info.rows = kind;
    w->any_kind = true;
    if (w->info.rows == kind)
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "record %llu is of the kind %s, those before are %s; shards hold one kind: set "
                   "shape, or tokenize them "
                   "apart",
                   (unsigned long long)ordinal + 1, lf_rows_name(kind), lf_rows_name(w->info.rows));
}

#define SHARD_MEDIA_BYTES ((uint64_t)1 << 30) /* of pictures, at which a shard is closed */

/* Where the parts of a document stand in its batch. */
struct doc_parts {
    const uint32_t *ids;
    const uint8_t *mask; /* NULL: none of the batch */
    const char *rest;
    lf_shard_picture *pics;
    const char *bytes; /* of the first picture */
};

/* How many bytes the pictures of d have; each is told where its own stand. */
static uint64_t point_pictures(const tok_doc *d, const struct doc_parts *of)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < d->n_pics; i++) {
        /* both documents of a pair */
        for (uint64_t k = i; k < lf_tokenize_uses(d); k += d->n_pics)
            of->pics[k].bytes = of->bytes + n;
        n += of->pics[i].n;
    }
    return n;
}

/* By what is in the shard, repeated pictures once, and all that the document has. */
static bool is_full(const tok_writer *w, const tok_doc *d, const struct doc_parts *of)
{
    const lf_shard_writer *s = w->w[d->split];
    uint64_t n = 0;
    for (uint32_t i = 0; i < d->n_pics; i++)
        n += of->pics[i].n;
    return lf_shard_writer_tokens(s) + d->n_ids > w->s->shard_tokens ||
           (n > 0 && lf_shard_writer_media_bytes(s) + n > SHARD_MEDIA_BYTES);
}

/* A record's documents, one or the two of a pair. */
static int write_docs(tok_writer *w, const tok_doc *d, const struct doc_parts *of, lf_err *err)
{
    const uint32_t *ids = of->ids;
    const uint8_t *mask = d->masked ? of->mask : NULL;
    const char *rest = d->rest_len ? of->rest : NULL;
    int k = d->split, rc = 0;
    if (w->w[k] && is_full(w, d, of))
        rc = lf_tokenize_close_group(w, err);
    if (rc == 0 && !w->w[k])
        rc = open_shard(w, k, err);
    lf_shard_doc doc = {.tokens = ids,
                        .n = d->n_first,
                        .mask = mask,
                        .has_margin = d->has_margin,
                        .margin = d->margin,
                        .label = d->label,
                        .rest = rest,
                        .rest_len = d->rest_len,
                        .pictures = of->pics,
                        .n_pictures = d->n_pics};
    if (rc == 0)
        rc = lf_shard_append_doc(w->w[k], &doc, err);
    if (rc == 0 && w->info.rows == LF_ROWS_PAIRS) {
        doc = (lf_shard_doc){.tokens = ids + d->n_first,
                             .n = d->n_ids - d->n_first,
                             .mask = mask ? mask + d->n_first : NULL,
                             .pictures = of->pics + d->n_pics,
                             .n_pictures = d->n_pics};
        rc = lf_shard_append_doc(w->w[k], &doc, err);
    }
    if (rc != 0)
        return rc;
    w->text_bytes[k] += d->text_bytes;
    w->trained[k] += d->trained;
    for (size_t i = 0; i < d->n_ids; i++)
        w->counts[k][ids[i]]++;
    return 0;
}

static void count_doc(uint64_t *counts, const tok_doc *d)
{
    counts[COUNT_FATE + d->fate]++;
    counts[COUNT_TRUNCATED] += d->truncated;
    counts[COUNT_NO_EOS] += d->no_eos;
    counts[COUNT_DOUBLE_BOS] += d->double_bos;
    counts[COUNT_SEAM] += d->seam;
    counts[COUNT_EMPTY_ANSWER] += d->empty_answer;
    counts[COUNT_OTHER_PROMPT] += d->other_prompt;
}

int lf_tokenize_writer_sink(void *ctx, tok_batch *b, lf_err *err)
{
    tok_writer *w = ctx;
    struct doc_parts of = {.ids = b->ids.v,
                           .mask = b->mask.len ? (const uint8_t *)b->mask.data : NULL,
                           .rest = b->rest.data,
                           .pics = (lf_shard_picture *)(void *)b->pics.data,
                           .bytes = b->pic_bytes.data};
    w->at.replaced += b->replaced;
    for (size_t i = 0; i < b->n; i++) {
        const tok_record *r = &b->recs[i];
        const tok_doc *d = &b->docs[i];
        /* A group that is closed by this document ends before it: the place is moved on
         * afterwards. */
        if (!w->any_source || r->source != w->last_source) {
            w->at.source = w->last_source = r->source;
            w->at.source_first = b->first + i;
            w->any_source = true;
        }
        w->at.next = b->first + i;
        const uint64_t bytes = point_pictures(d, &of);
        int rc = d->n_ids > 0 ? check_kind(w, d, b->first + i, err) : 0;
        if (rc == 0 && d->n_ids > 0)
            rc = write_docs(w, d, &of, err);
        if (rc != 0)
            return rc;
        count_doc(w->at.counts, d);
        w->at.raw_bytes += r->len;
        w->at.next = b->first + i + 1;
        of.ids += d->n_ids;
        of.mask += of.mask ? d->n_ids : 0;
        of.rest += d->rest_len;
        of.pics += lf_tokenize_uses(d);
        of.bytes += bytes;
    }
    return 0;
}

double lf_tokenize_entropy(const uint64_t *counts, size_t n)
{
    double total = 0, h = 0;
    for (size_t i = 0; i < n; i++)
        total += (double)counts[i];
    for (size_t i = 0; i < n; i++)
        if (counts[i])
            h -= (double)counts[i] / total * log((double)counts[i] / total);
    return h;
}
