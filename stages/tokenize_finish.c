/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ends of a run's shards: adopting the groups that earlier starts finished, and the
 * manifest.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "stages/tokenize_priv.h"

#define READ_TOKENS 65536

static int get_u64(uint64_t *out, json_t *o, const char *key, const char *path, lf_err *err)
{
    int64_t v = 0;
    int rc = lf_json_get_i64(&v, o, key, true, path, err);
    if (rc == 0 && v < 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: %s is negative", path, key);
    if (rc == 0)
        *out = (uint64_t)v;
    return rc;
}

static int read_shard_row(tok_group *g, json_t *o, size_t group, const char *path, lf_err *err)
{
    const char *split = NULL, *name = NULL, *hex = NULL;
    uint64_t bytes = 0;
    int rc = lf_json_get_str(&split, o, "split", true, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&name, o, "path", true, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&hex, o, "tree_sha256", true, path, err);
    if (rc != 0)
        return rc;
    int k = strcmp(split, lf_tokenize_split_names[SPLIT_TRAIN]) == 0 ? SPLIT_TRAIN : SPLIT_VALID;
    tok_shard *s = &g->shard[k];
    snprintf(s->name, sizeof(s->name), "%s-%05zu.h5", lf_tokenize_split_names[k], group);
    if (s->there || strcmp(split, lf_tokenize_split_names[k]) != 0 || strcmp(name, s->name) != 0)
        return lf_fail(err, LF_EFORMAT, "%s: not a record of this stage", path);
    if ((rc = lf_artifact_parse_hex(s->stat.sha256, hex, err)) != 0)
        return lf_err_prefix(err, "%s", path);
    s->there = true;
    rc = get_u64(&s->stat.n_docs, o, "docs", path, err);
    if (rc == 0)
        rc = get_u64(&s->stat.n_tokens, o, "tokens", path, err);
    if (rc == 0)
        rc = get_u64(&s->text_bytes, o, "text_bytes", path, err);
    if (rc == 0)
        rc = get_u64(&s->trained, o, "trained", path, err);
    if (rc == 0)
        rc = get_u64(&bytes, o, "bytes", path, err);
    s->stat.bytes = (int64_t)bytes;
    return rc;
}

static int read_record(const tok_writer *w, tok_group *g, size_t group, const char *path,
                       lf_err *err)
{
    const char *fingerprint = NULL;
    json_t *shards = NULL, *o, *j = lf_json_load_file(path, 1 << 20, err);
    uint64_t source = 0;
    size_t i;
    int rc = j ? lf_json_get_str(&fingerprint, j, "fingerprint", true, path, err) : LF_EFORMAT;
    if (rc == 0 && strcmp(fingerprint, w->fingerprint) != 0)
        rc = lf_fail(err, LF_EINVAL,
                     "%s was made with other options, inputs or another tokenizer; use another out",
                     path);
    if (rc == 0)
        rc = lf_json_get_array(&shards, j, "shards", true, path, err);
    json_array_foreach(shards, i, o)
    {
        if (rc == 0)
            rc = read_shard_row(g, o, group, path, err);
    }
    if (rc == 0)
        rc = get_u64(&g->next, j, "next", path, err);
    if (rc == 0)
        rc = get_u64(&source, j, "source", path, err);
    if (rc == 0)
        rc = get_u64(&g->source_first, j, "source_first", path, err);
    if (rc == 0)
        rc = get_u64(&g->raw_bytes, j, "raw_bytes", path, err);
    if (rc == 0)
        rc = get_u64(&g->replaced, j, "replaced", path, err);
    json_t *counts = NULL;
    if (rc == 0)
        rc = lf_json_get_object(&counts, j, "counts", true, path, err);
    for (int k = 0; k < N_COUNTS && rc == 0; k++)
        if (k != COUNT_FATE + LF_ROW_KEPT)
            rc = get_u64(&g->counts[k], counts, lf_tokenize_count_name(k), path, err);
    g->source = (size_t)source;
    json_decref(j);
    return rc;
}

/* Is a shard what its record says? */
static int check_shard(const tok_shard *s, const char *path, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    int64_t bytes = 0;
    int rc = lf_tree_hash_file(digest, &bytes, path, err);
    if (rc == 0 && (bytes != s->stat.bytes || memcmp(digest, s->stat.sha256, LF_HASH_BYTES) != 0))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s is not what its record says; remove it and its record in progress/", path);
    return rc;
}

/* Count the tokens of a shard that was checked. */
static int recount(tok_writer *w, const tok_shard *s, uint64_t *counts, const char *path,
                   lf_err *err)
{
    lf_shard *sh = NULL;
    int32_t *buf = lf_malloc(READ_TOKENS, sizeof(*buf), err);
    int rc = buf ? lf_shard_open(&sh, path, err) : LF_ENOMEM;
    if (rc == 0) {
        w->info.rows = lf_shard_get_info(sh)->rows;
        w->any_kind = true;
    }
    for (uint64_t at = 0; rc == 0 && at < s->stat.n_tokens; at += READ_TOKENS) {
        size_t n =
            s->stat.n_tokens - at < READ_TOKENS ? (size_t)(s->stat.n_tokens - at) : READ_TOKENS;
        rc = lf_shard_read(sh, at, n, buf, err);
        for (size_t i = 0; rc == 0 && i < n; i++)
            if (buf[i] >= 0 && buf[i] < w->info.vocab_size)
                counts[buf[i]]++;
    }
    lf_shard_close(sh);
    free(buf);
    return rc;
}

/* Make DIR/sub/name available below OUT: a hard link, or a copy where links are refused. */
static int take_file(const tok_writer *w, const char *dir, const char *sub, const char *name,
                     lf_err *err)
{
    char from[4096], to[4096];
    snprintf(from, sizeof(from), "%s/%s/%s", dir, sub, name);
    snprintf(to, sizeof(to), "%s/%s/%s", w->s->out, sub, name);
    /* resume_from may name out itself, and in other words: what is there already must not be
     * removed. */
    struct stat a, b;
    if (stat(from, &a) != 0)
        return lf_fail_errno(err, "cannot look at %s", from);
    if (stat(to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return 0;
    if (strcmp(sub, "shards") == 0 && unlink(to) != 0 &&
        errno != ENOENT) /* half written, without a record */
        return lf_fail_errno(err, "cannot replace %s", to);
    lf_err why = LF_ERR_INIT;
    int rc = lf_io_link_or_copy(from, to, LF_ARTIFACT_MODE, &why);
    return rc == 0 || rc == LF_EEXIST ? 0 : lf_fail(err, rc, "%s", why.text);
}

/* Are all shards of a group below dir? Asked before any of them is counted. */
static bool group_there(const tok_group *g, const char *dir)
{
    char path[4096];
    for (int k = 0; k < N_SPLITS; k++) {
        snprintf(path, sizeof(path), "%s/shards/%s", dir, g->shard[k].name);
        if (g->shard[k].there && !lf_io_exists(path)) {
            lf_log(1, "%s is gone; it and what follows is made again", path);
            return false;
        }
    }
    return true;
}

/* Are all shards of a group below dir what the record says? 1 yes, 0 no. One below out itself is an
 * error: it would be in the way. */
static int group_whole(const tok_writer *w, const tok_group *g, const char *dir, lf_err *err)
{
    char path[4096];
    lf_err why = LF_ERR_INIT;
    int rc = 0;
    for (int k = 0; k < N_SPLITS && rc == 0; k++) {
        snprintf(path, sizeof(path), "%s/shards/%s", dir, g->shard[k].name);
        rc = g->shard[k].there ? check_shard(&g->shard[k], path, &why) : 0;
    }
    if (rc == 0)
        return 1;
    if (rc != LF_EFORMAT || strcmp(dir, w->s->out) == 0)
        return lf_fail(err, rc, "%s", why.text);
    lf_log(1, "%s is damaged; it and what follows is made again", path);
    return 0;
}

/* Adopt group n_groups from dir when it is finished there: 1 yes, 0 no. */
static int adopt_group(tok_writer *w, const char *dir, lf_err *err)
{
    tok_group g = {0};
    char name[32], path[4096];
    snprintf(name, sizeof(name), "%05zu.json", w->n_groups);
    if ((size_t)snprintf(path, sizeof(path), "%s/progress/%s", dir, name) >= sizeof(path) - 64)
        return lf_fail(err, LF_EINVAL, "%s: path too long", dir);
    if (!lf_io_exists(path))
        return 0;
    int rc = read_record(w, &g, w->n_groups, path, err);
    if (rc == 0 && !group_there(&g, dir)) /* purged: redo from here */
        return 0;
    if (rc == 0 && (rc = group_whole(w, &g, dir, err)) <= 0)
        return rc;
    if (rc >= 0)
        rc = lf_grow(&w->groups, &w->cap_groups, w->n_groups, sizeof(*w->groups), err);
    for (int k = 0; k < N_SPLITS && rc == 0; k++) {
        if (!g.shard[k].there)
            continue;
        snprintf(path, sizeof(path), "%s/shards/%s", dir, g.shard[k].name);
        rc = recount(w, &g.shard[k], w->counts[k], path, err);
        if (rc == 0)
            rc = take_file(w, dir, "shards", g.shard[k].name, err);
    }
    if (rc == 0)
        rc = lf_io_fsync_path(w->dir, err);
    if (rc == 0)
        rc = take_file(w, dir, "progress", name, err);
    if (rc == 0)
        rc = lf_io_fsync_path(w->progress, err);
    if (rc != 0)
        return rc;
    w->groups[w->n_groups++] = g;
    w->at = g;
    memset(w->at.shard, 0, sizeof(w->at.shard));
    return 1;
}

int lf_tokenize_adopt(tok_writer *w, lf_err *err)
{
    int rc = 1;
    while (rc == 1) {
        rc = 0;
        for (size_t i = 0; i < w->s->n_dirs && rc == 0; i++)
            rc = adopt_group(w, w->s->dirs[i], err);
    }
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < w->n_groups; i++)
        for (int k = 0; k < N_SPLITS; k++)
            w->tokens_at_start += w->groups[i].shard[k].stat.n_tokens;
    if (w->n_groups > 0) {
        w->any_source = true;
        w->last_source = w->at.source;
        lf_log(2, "going on after %zu finished shard groups, at document %llu", w->n_groups,
               (unsigned long long)w->at.next);
    }
    return 0;
}

static json_t *split_json(const tok_writer *w, int k)
{
    uint64_t docs = 0, tokens = 0, bytes = 0, files = 0, trained = 0;
    for (size_t i = 0; i < w->n_groups; i++) {
        const tok_shard *s = &w->groups[i].shard[k];
        docs += s->stat.n_docs;
        tokens += s->stat.n_tokens;
        bytes += s->text_bytes;
        trained += s->trained;
        files += s->there;
    }
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:f,s:f}", "shards", (json_int_t)files, "docs",
                     (json_int_t)docs, "tokens", (json_int_t)tokens, "trained", (json_int_t)trained,
                     "text_bytes", (json_int_t)bytes, "bytes_per_token",
                     tokens ? (double)bytes / (double)tokens : 0.0, "unigram_entropy",
                     tokens ? lf_tokenize_entropy(w->counts[k], (size_t)w->info.vocab_size) : 0.0);
}

static json_t *sources_json(const tok_writer *w, lf_err *err)
{
    size_t n;
    const lf_corpus_source *src = lf_corpus_sources(w->corpus, &n);
    json_t *out = json_array();
    for (size_t i = 0; i < n && out; i++) {
        uint8_t digest[LF_HASH_BYTES];
        char hex[LF_HASH_HEX] = "";
        int64_t bytes = src[i].bytes;
        if (bytes >= 0) {
            int64_t now = 0;
            int rc = lf_tree_hash_file(digest, &now, src[i].path, err);
            if (rc == 0 && now != bytes)
                rc = lf_fail(err, LF_EINVAL, "%s changed while it was read", src[i].path);
            if (rc != 0) {
                json_decref(out);
                return NULL;
            }
            lf_hash_hex(hex, digest);
        }
        json_array_append_new(out, bytes >= 0
                                       ? json_pack("{s:s,s:I,s:s}", "path", src[i].label, "bytes",
                                                   (json_int_t)bytes, "tree_sha256", hex)
                                       : json_pack("{s:s}", "path", src[i].label));
    }
    return out;
}

static void log_summary(const json_t *splits)
{
    for (int k = 0; k < N_SPLITS; k++) {
        const json_t *s = json_object_get(splits, lf_tokenize_split_names[k]);
        if (json_integer_value(json_object_get(s, "tokens")) > 0)
            lf_log(2,
                   "%s: %lld documents, %lld tokens, %lld of them trained, %.3f bytes a token, "
                   "unigram entropy %.4f "
                   "nats a "
                   "token",
                   lf_tokenize_split_names[k],
                   (long long)json_integer_value(json_object_get(s, "docs")),
                   (long long)json_integer_value(json_object_get(s, "tokens")),
                   (long long)json_integer_value(json_object_get(s, "trained")),
                   json_real_value(json_object_get(s, "bytes_per_token")),
                   json_real_value(json_object_get(s, "unigram_entropy")));
    }
}

/* Rows that were left out, and what is odd about others; empty documents are nobody's fault. */
static void log_counts(const tok_writer *w)
{
    static const char *const meant[] = {
        ": longer than max_length, and cut",
        ": the end-of-document token does not end them; eos_token names another",
        ": they begin with two BOS",
        ": the tokens of the prompt alone do not begin those of the whole; end prompts between "
        "words",
        ": an answer is white space only",
        ": the answers of a pair are to different questions"};
    const uint64_t *n = w->at.counts;
    for (int k = 0; k < N_COUNTS; k++)
        if (n[k] && k != COUNT_FATE + LF_ROW_KEPT && k != COUNT_FATE + LF_ROW_EMPTY &&
            (k != COUNT_NO_EOS || w->info.eos_id >= 0 || w->s->chat))
            lf_log(1, "%llu of %llu rows %s%s%s", (unsigned long long)n[k],
                   (unsigned long long)w->at.next,
                   k < LF_ROW_FATES         ? "left out: "
                   : k < COUNT_EMPTY_ANSWER ? "are "
                                            : "have ",
                   lf_tokenize_count_name(k), k < LF_ROW_FATES ? "" : meant[k - LF_ROW_FATES]);
}

/* Documents to learn from, and none of their tokens is trained? */
static int check_trained(const tok_writer *w, lf_err *err)
{
    uint64_t trained = 0, tokens = 0;
    for (size_t i = 0; i < w->n_groups; i++)
        for (int k = 0; k < N_SPLITS; k++) {
            trained += w->groups[i].shard[k].trained;
            tokens += w->groups[i].shard[k].stat.n_tokens;
        }
    if (trained > 0 || w->info.rows == LF_ROWS_PROMPTS ||
        tokens == w->at.counts[COUNT_FATE + LF_ROW_KEPT])
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "none of %llu tokens is trained; look at a few rows with --doctor",
                   (unsigned long long)tokens);
}

/* The content of a document decides where it goes, so of few all may go to one side. */
static int check_split(const tok_writer *w, lf_err *err)
{
    uint64_t docs[N_SPLITS] = {0};
    for (size_t i = 0; i < w->n_groups; i++)
        for (int k = 0; k < N_SPLITS; k++)
            docs[k] += w->groups[i].shard[k].stat.n_docs;
    if (!(w->s->valid_fraction > 0))
        return 0;
    if (docs[SPLIT_TRAIN] == 0)
        return lf_fail(err, LF_EINVAL,
                       "valid_fraction = %g: all documents (%llu) went to validation, and none is "
                       "left to train on; more documents (doc_split), or another valid_seed",
                       w->s->valid_fraction, (unsigned long long)docs[SPLIT_VALID]);
    if (docs[SPLIT_VALID] == 0)
        lf_log(1,
               "valid_fraction = %g keeps none of %llu document%s for validation; give a larger "
               "one, more documents (doc_split), or another valid_seed",
               w->s->valid_fraction, (unsigned long long)docs[SPLIT_TRAIN],
               docs[SPLIT_TRAIN] > 1 ? "s" : "");
    return 0;
}

int lf_tokenize_finish(tok_writer *w, lf_err *err)
{
    lf_artifact a = {0};
    int rc = lf_tokenize_close_group(w, err);
    if (rc == 0)
        log_counts(w);
    if (rc == 0 && w->n_groups == 0)
        rc = lf_fail(err, LF_EINVAL, "the inputs hold no document%s",
                     w->at.next > w->at.counts[COUNT_FATE + LF_ROW_EMPTY] ? " that is not left out"
                                                                          : "");
    if (rc == 0)
        rc = check_trained(w, err);
    if (rc == 0)
        rc = check_split(w, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "shards", err);
    for (size_t i = 0; i < w->n_groups && rc == 0; i++)
        for (int k = 0; k < N_SPLITS && rc == 0; k++) {
            const tok_shard *s = &w->groups[i].shard[k];
            if (s->there)
                rc = lf_artifact_add(&a, s->name, s->stat.bytes, s->stat.sha256, err);
        }
    json_t *sources = rc == 0 ? sources_json(w, err) : NULL;
    if (rc == 0 && !sources)
        rc = err && err->rc ? err->rc : LF_ENOMEM;
    if (rc != 0)
        goto out;
    json_t *splits = json_pack("{s:o,s:o}", "train", split_json(w, SPLIT_TRAIN), "valid",
                               split_json(w, SPLIT_VALID));
    json_object_set_new(a.meta, "format",
                        json_string(w->info.processor ? LF_SHARD_FORMAT_MEDIA : LF_SHARD_FORMAT));
    json_object_set_new(a.meta, "made_from", json_string(w->s->options_sha));
    json_object_set_new(a.meta, "tokenizer_sha256", json_string(w->info.tokenizer_sha256));
    json_object_set_new(a.meta, "vocab_size", json_integer(w->info.vocab_size));
    json_object_set_new(a.meta, "eos_id", json_integer(w->info.eos_id));
    json_object_set_new(a.meta, "token_bytes", json_integer(w->token_bytes));
    json_object_set_new(a.meta, "records", json_integer((json_int_t)w->at.next));
    json_object_set_new(a.meta, "rows", json_string(lf_rows_name(w->info.rows)));
    json_object_set_new(a.meta, "empty_documents",
                        json_integer((json_int_t)w->at.counts[COUNT_FATE + LF_ROW_EMPTY]));
    json_object_set_new(a.meta, "counts", lf_tokenize_counts_json(w->at.counts));
    if (w->s->chat)
        json_object_set_new(a.meta, "chat_sha256", json_string(w->s->chat_sha));
    json_object_set_new(a.meta, "invalid_utf8_replaced", json_integer((json_int_t)w->at.replaced));
    json_object_set_new(a.meta, "splits", splits);
    json_object_set(a.meta, "sources", sources);
    rc = lf_artifact_publish(&a, w->dir, err);
    if (rc == 0 && w->at.replaced)
        lf_log(1, "%llu invalid UTF-8 sequences were replaced by U+FFFD",
               (unsigned long long)w->at.replaced);
    if (rc == 0)
        log_summary(splits);
out:
    json_decref(sources);
    lf_artifact_fini(&a);
    return rc;
}
