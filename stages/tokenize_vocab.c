/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer of a run: the one named, the one an earlier start trained, or one trained
 * now. Whichever it is, OUT/tokenizer is published before the first token is written.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/token/tokenizer_files.h"
#include "engine/text/token/uniclass.h"
#include "stages/stage.h"
#include "stages/tokenize_priv.h"

#define FILE_NAME  "tokenizer.json"
#define GEN_NAME   "generation_config.json"
#define MODEL_NAME "tokenizer.model" /* beside it, of the types that sentencepiece has */

typedef struct counting {
    tokenize *s;
    const lf_corpus *corpus;
    lf_tok_state **states; /* byte_bpe */
    uint8_t *cls;          /* the other types */
    lf_word_counts **counts;
} counting;

static int count_text(counting *c, int thread, const lf_buf *text, lf_err *err)
{
    unsigned strict = c->s->flags & LF_TOK_STRICT;
    if (c->s->vocab_type == VOCAB_BYTE_BPE)
        return lf_word_counts_text(c->counts[thread], c->states[thread], text->data, text->len,
                                   strict, NULL, err);
    return lf_sp_count_words(c->counts[thread], c->cls, text->data, text->len, strict != 0, NULL,
                             err);
}

static int count_batch(void *ctx, int thread, tok_batch *b, lf_err *err)
{
    counting *c = ctx;
    lf_buf text;
    lf_buf_init(&text);
    int rc = 0;
    for (size_t i = 0; i < b->n && rc == 0; i++) {
        char where[1024];
        const tok_record *r = &b->recs[i];
        lf_tokenize_where(where, sizeof(where), c->corpus, b, i);
        rc = lf_corpus_text(
            &c->s->corpus,
            &(lf_corpus_record){.raw = b->raw.data + r->at, .len = r->len, .form = r->form}, where,
            &text, NULL, err);
        if (rc != 0)
            break;
        rc = count_text(c, thread, &text, err);
        if (rc != 0)
            rc = lf_err_prefix(err, "%s", where);
    }
    lf_buf_fini(&text);
    return rc;
}

static int count_words(tokenize *s, lf_corpus *corpus, lf_word_counts **out, lf_err *err)
{
    size_t n = (size_t)s->threads;
    counting c = {.s = s, .corpus = corpus};
    lf_tokenizer *cutter = lf_bpe_train_cutter(&s->train, err);
    c.states = lf_calloc(n, sizeof(*c.states), err);
    c.counts = lf_calloc(n, sizeof(*c.counts), err);
    c.cls = lf_uniclass_create(err);
    int rc = cutter && c.states && c.counts && c.cls ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++) {
        c.states[i] = lf_tok_state_create(cutter, err);
        c.counts[i] = c.states[i] ? lf_word_counts_create(err) : NULL;
        rc = c.counts[i] ? 0 : LF_ENOMEM;
    }
    tok_pipe p = {.corpus = corpus,
                  .threads = s->threads,
                  .work = count_batch,
                  .ctx = &c,
                  .what = "counting words"};
    p.rank = s->k->rank;
    p.ranks = s->k->size;
    p.reader_left = &s->reader_left;
    p.max_docs = s->limit_docs;
    p.max_bytes = s->limit_bytes;
    if (s->train_bytes && (!p.max_bytes || (uint64_t)s->train_bytes < p.max_bytes))
        p.max_bytes = (uint64_t)s->train_bytes;
    if (rc == 0)
        rc = lf_tokenize_pipe(&p, err);
    for (size_t i = 1; i < n && rc == 0; i++)
        rc = lf_word_counts_merge(c.counts[0], c.counts[i], err);
    rc = lf_stage_agree(s->k->comm, rc, err);
    if (rc == 0)
        rc = lf_tokenize_ranks_words(s->k, c.counts[0], err);
    if (rc == 0) {
        *out = c.counts[0];
        c.counts[0] = NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (c.counts)
            lf_word_counts_destroy(c.counts[i]);
        if (c.states)
            lf_tok_state_destroy(c.states[i]);
    }
    free(c.counts);
    free(c.states);
    free(c.cls);
    lf_tokenizer_destroy(cutter);
    return rc;
}

static int train_progress(void *arg, size_t done, size_t total)
{
    (void)total;
    lf_progress_update(arg, (double)done);
    return lf_stop_requested() ? LF_EINTR : 0;
}

static int add_file(lf_tok_files *f, const char *name, lf_err *err)
{
    lf_buf_init(&f->v[f->n].data);
    f->v[f->n].name = lf_strdup(name, err);
    return f->v[f->n].name ? (f->n++, 0) : LF_ENOMEM;
}

/* SentencePiece's types: tokenizer.json and tokenizer.model, packed. */
static int train_sp(const tokenize *s, const lf_word_counts *words, lf_progress *p, lf_buf *packed,
                    size_t *n, lf_err *err)
{
    lf_sp_train_args a = {.kind = s->vocab_type == VOCAB_SP_BPE ? LF_SP_BPE : LF_SP_UNIGRAM,
                          .specials = s->train.specials,
                          .n_specials = s->train.n_specials,
                          .vocab_size = s->train.vocab_size,
                          .min_frequency = s->train.min_frequency,
                          .coverage = s->coverage,
                          .max_piece = 16,
                          .threads = s->threads};
    lf_sp_vocab v = {0};
    lf_tok_files f = {0};
    int rc = lf_sp_train(&v, &a, words, train_progress, p, err);
    if (rc == 0)
        rc = add_file(&f, FILE_NAME, err);
    if (rc == 0)
        rc = lf_sp_write_json(&v, &f.v[0].data, err);
    if (rc == 0)
        rc = add_file(&f, MODEL_NAME, err);
    if (rc == 0)
        rc = lf_sp_write_model(&v, &f.v[1].data, err);
    if (rc == 0)
        rc = lf_tok_files_pack(&f, packed, err);
    *n = v.n;
    lf_tok_files_fini(&f);
    lf_sp_vocab_fini(&v);
    return rc;
}

/* Collective: all count, rank 0 trains. */
static int train(tokenize *s, lf_corpus *corpus, lf_buf *json, lf_err *err)
{
    lf_word_counts *words = NULL;
    size_t n = 0;
    int rc = count_words(s, corpus, &words, err);
    if (rc != 0 || s->k->rank > 0) {
        lf_word_counts_destroy(words);
        return rc;
    }
    if (lf_word_counts_size(words) == 0)
        rc = lf_fail(err, LF_EINVAL, "the inputs hold no text to train a tokenizer on");
    if (rc == 0) {
        lf_progress p;
        lf_log(2, "training a tokenizer on %zu different words", lf_word_counts_size(words));
        lf_progress_begin(&p, "training the tokenizer", "tokens", 0, (double)s->train.vocab_size);
        rc = s->vocab_type == VOCAB_BYTE_BPE
                 ? lf_bpe_train(&s->train, words, train_progress, &p, json, &n, err)
                 : train_sp(s, words, &p, json, &n, err);
        p.done = (double)n;
        if (rc == 0)
            lf_progress_end(&p);
    }
    if (rc == 0 && n < s->train.vocab_size)
        lf_log(1, "the text gives a vocabulary of %zu tokens only, not %zu", n,
               s->train.vocab_size);
    lf_word_counts_destroy(words);
    return rc;
}

/* The tokenizer.model that a trained tokenizer.json has beside it. */
static int add_model(lf_tok_files *f, const char *dir, lf_err *err)
{
    char *file = lf_path_join(dir, MODEL_NAME, err);
    int rc = file ? add_file(f, MODEL_NAME, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_read_file(file, LF_TOK_FILE_MAX, &f->v[f->n - 1].data, err);
    free(file);
    return rc;
}

/* Any form of tokenizer, a file or a directory, as one block of bytes; both: also a tokenizer.model
 * beside a tokenizer.json. */
static int read_block(const char *path, bool both, lf_buf *block, lf_err *err)
{
    lf_tok_files f;
    int rc = lf_tok_files_read(&f, path, err);
    if (rc == 0 && both && f.form == LF_TOK_FORM_JSON && (rc = add_model(&f, path, err)) != 0)
        lf_tok_files_fini(&f);
    if (rc == 0) {
        rc = lf_tok_files_pack(&f, block, err);
        lf_tok_files_fini(&f);
    }
    return rc;
}

/* Read DIR/tokenizer into json when an earlier start published it; 1 yes, 0 no. */
static int adopt(const tokenize *s, const char *dir, lf_buf *json, lf_err *err)
{
    lf_artifact a = {0};
    enum lf_artifact_state state;
    char *sub = lf_path_join(dir, "tokenizer", err);
    lf_err why = LF_ERR_INIT;
    int rc = sub ? lf_artifact_state(&state, sub, &why) : LF_ENOMEM;
    if (rc != 0 && why.rc)
        rc = lf_fail(err, rc, "%s", why.text);
    if (rc == 0 && state == LF_ARTIFACT_PRESENT) {
        rc = lf_artifact_load(&a, sub, "tokenizer", err);
        const char *made = rc == 0 ? json_string_value(json_object_get(a.meta, "made_from")) : NULL;
        if (rc == 0 && (!made || strcmp(made, s->options_sha) != 0))
            rc = lf_fail(err, LF_EINVAL, "%s was made with other options; use another out", sub);
        int whole = rc == 0 ? lf_artifact_check_hashes(&a, sub, 1, &why) : rc;
        if (rc == 0 && whole == LF_EFORMAT && strcmp(dir, s->out) != 0)
            lf_log(1, "passing over %s: %s", sub,
                   why.text); /* trained again: the same text gives the same one */
        else if (rc == 0 && whole < 0)
            rc = lf_fail(err, whole, "%s", why.text);
        else if (rc == 0)
            rc = read_block(sub, s->vocab_type != VOCAB_BYTE_BPE, json, err);
        rc = rc == 0 && whole == 0 ? 1 : rc;
    } else if (rc == 0 && state != LF_ARTIFACT_ABSENT) {
        lf_log(1, "passing over %s: %s", sub, why.text);
    }
    lf_artifact_fini(&a);
    free(sub);
    return rc;
}

/* OUT/tokenizer is there already: it must be this one, or shards would lie beside a tokenizer that
 * they do not fit. */
static int check_published(const char *dir, const lf_tokenizer *t, lf_err *err)
{
    lf_artifact a = {0};
    int rc = lf_artifact_load(&a, dir, "tokenizer", err);
    const char *sha = json_string_value(json_object_get(a.meta, "sha256"));
    if (rc == 0 && (!sha || strcmp(sha, lf_tokenizer_sha256(t)) != 0))
        rc = lf_fail(err, LF_EEXIST, "%s holds another tokenizer; use another out", dir);
    lf_artifact_fini(&a);
    return rc;
}

static int publish(const tokenize *s, const lf_tokenizer *t, const lf_buf *json, int64_t eos_id,
                   lf_err *err)
{
    lf_artifact a = {0};
    enum lf_artifact_state state = LF_ARTIFACT_ABSENT;
    lf_tok_files f = {.n = 0};
    char *dir = lf_path_join(s->out, "tokenizer", err);
    lf_err why = LF_ERR_INIT;
    int rc = dir ? lf_io_mkdirs(dir, 0750, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_artifact_state(&state, dir, &why);
    if (rc != 0 && why.rc)
        rc = lf_fail(err, rc, "%s", why.text);
    if (rc == 0 && state == LF_ARTIFACT_PRESENT)
        rc = check_published(dir, t, err);
    if (rc != 0 || state == LF_ARTIFACT_PRESENT)
        goto out;
    if (state != LF_ARTIFACT_ABSENT) {
        rc = lf_fail(err, LF_EFORMAT, "%s is damaged (%s); remove it", dir, why.text);
        goto out;
    }
    rc = lf_tok_files_unpack(&f, json->data, json->len, FILE_NAME, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "tokenizer", err);
    for (size_t i = 0; i < f.n && rc == 0; i++) {
        char *file = lf_path_join(dir, f.v[i].name, err);
        rc = file ? lf_io_write_file(file, f.v[i].data.data, f.v[i].data.len, LF_ARTIFACT_MODE, err)
                  : LF_ENOMEM;
        if (rc == 0)
            rc = lf_artifact_add_hashed(&a, dir, f.v[i].name, err);
        free(file);
    }
    if (rc == 0) {
        json_object_set_new(a.meta, "made_from", json_string(s->options_sha));
        json_object_set_new(a.meta, "trained", json_boolean(!s->tokenizer_path));
        json_object_set_new(a.meta, "vocab_size", json_integer(lf_tokenizer_vocab_size(t)));
        json_object_set_new(a.meta, "eos_id", json_integer(eos_id));
        json_object_set_new(a.meta, "sha256", json_string(lf_tokenizer_sha256(t)));
        rc = lf_artifact_publish(&a, dir, err);
    }
out:
    lf_artifact_fini(&a);
    lf_tok_files_fini(&f);
    free(dir);
    return rc;
}

/* The id that ends documents, -1 when append_eos = no. */
static int find_eos(const tokenize *s, const lf_tokenizer *t, int64_t *eos_id, lf_err *err)
{
    *eos_id = -1;
    if (!s->append_eos)
        return 0;
    *eos_id = s->eos_token ? lf_tokenizer_find(t, s->eos_token) : lf_tokenizer_eos(t);
    if (*eos_id >= 0)
        return 0;
    if (s->eos_token)
        return lf_fail(err, LF_EINVAL, "the tokenizer has no token \"%s\" (eos_token)",
                       s->eos_token);
    return lf_fail(err, LF_EINVAL,
                   "the tokenizer has no end-of-document token under a usual name; set eos_token "
                   "or append_eos = no");
}

/* What is there already into json: 1 found, 0 it must be trained. */
static int look_for(const tokenize *s, lf_buf *json, lf_err *err)
{
    int rc = 0;
    if (s->tokenizer_path) {
        rc = read_block(s->tokenizer_path, false, json, err);
        return rc == 0 ? 1 : rc;
    }
    for (size_t i = 0; i < s->n_dirs && rc == 0; i++)
        rc = adopt(s, s->dirs[i], json, err);
    return rc;
}

/* The user's template among the tokenizer's files: it takes the place of theirs, here and for every
 * later stage. A block of one file is a tokenizer.json, whatever its name was where it came
 * from. */
static int put_chat(const tokenize *s, lf_buf *block, lf_err *err)
{
    lf_tok_files f = {.n = 0};
    lf_buf *to = NULL;
    int rc = lf_tok_files_unpack(&f, block->data, block->len, FILE_NAME, err);
    for (size_t i = 0; rc == 0 && i < f.n; i++)
        if (strcmp(f.v[i].name, LF_CHAT_FILE) == 0)
            to = &f.v[i].data;
    if (rc == 0 && !to) {
        rc = f.n < LF_TOK_FILES_MAX ? add_file(&f, LF_CHAT_FILE, err)
                                    : lf_fail(err, LF_EINVAL, "too many tokenizer files");
        to = rc == 0 ? &f.v[f.n - 1].data : NULL;
    }
    if (to) {
        lf_buf_clear(to);
        rc = lf_io_read_file(s->chat_file, LF_TOK_FILE_MAX, to, err);
    }
    lf_buf_clear(block);
    if (rc == 0)
        rc = lf_tok_files_pack(&f, block, err);
    lf_tok_files_fini(&f);
    return rc;
}

int lf_tokenize_get_chat(tokenize *s, const lf_tokenizer *t, const lf_buf *block, const char *name,
                         lf_err *err)
{
    lf_tok_files f = {.n = 0};
    lf_err why = LF_ERR_INIT;
    if (s->shape.shape == LF_SHAPE_TEXT)
        return 0;
    int rc = lf_tok_files_unpack(&f, block->data, block->len, name, err);
    if (rc != 0)
        return rc;
    s->chat = lf_chat_from_files(&f, name, t, &s->chat_opts, &why);
    lf_tok_files_fini(&f);
    s->rows.chat = s->chat;
    s->shape.reads = s->chat ? lf_chat_reads : NULL;
    s->shape.reads_arg = s->chat;
    s->rows.no_chat = s->no_chat;
    snprintf(s->no_chat, sizeof(s->no_chat), "%s", s->chat ? "" : why.text);
    if (s->chat)
        memcpy(s->chat_sha, lf_chat_sha256(s->chat), LF_HASH_HEX);
    return s->chat || why.rc == LF_ENOENT ? 0 : lf_fail(err, why.rc, "%s", why.text);
}

/* eos_token_id of a generation_config.json: what it has, the tokenizer's EOS, and the end of a
 * turn. */
static int add_end(json_t *gen, const lf_tokenizer *t, int64_t end)
{
    json_t *had = json_object_get(gen, "eos_token_id"), *list = json_array(), *v;
    const int64_t more[] = {had ? -1 : lf_tokenizer_eos(t), end};
    int bad = !list;
    size_t i;
    if (json_is_integer(had))
        bad |= json_array_append(list, had);
    json_array_foreach(had, i, v) bad |= json_array_append(list, v);
    for (int k = 0; k < 2; k++) {
        bool there = more[k] < 0;
        json_array_foreach(list, i, v) there = there || json_integer_value(v) == more[k];
        if (!there)
            bad |= json_array_append_new(list, json_integer(more[k]));
    }
    return bad ? (json_decref(list), LF_ENOMEM) : json_object_set_new(gen, "eos_token_id", list);
}

/* A model that has learnt conversations ends its turns as they do: what stops its generation goes
 * with the tokenizer.
 */
static int put_turn_end(const tokenize *s, const lf_tokenizer *t, int64_t eos_id, lf_buf *block,
                        lf_err *err)
{
    lf_tok_files f = {.n = 0};
    lf_buf *to = NULL;
    json_t *gen = NULL;
    int64_t end = -1;
    int rc = s->chat ? lf_chat_turn_end(s->chat, &end, err) : 0;
    if (rc != 0 || end < 0 || end == lf_tokenizer_eos(t))
        return rc;
    const uint8_t *name = NULL;
    size_t n = 0;
    if (lf_tokenizer_text(t, (uint32_t)end, &name, &n) && end != eos_id)
        lf_log(2,
               "turns end with %.*s, which is not the end of a document; eos_token = %.*s makes it "
               "that",
               (int)n, name, (int)n, name);
    rc = lf_tok_files_unpack(&f, block->data, block->len, FILE_NAME, err);
    for (size_t i = 0; rc == 0 && i < f.n; i++)
        if (strcmp(f.v[i].name, GEN_NAME) == 0)
            to = &f.v[i].data;
    if (rc == 0)
        gen = to ? lf_json_load_text(to->data, to->len, GEN_NAME, err) : json_object();
    if (rc == 0 && !to && (rc = add_file(&f, GEN_NAME, err)) == 0)
        to = &f.v[f.n - 1].data;
    if (rc == 0)
        rc = gen ? add_end(gen, t, end) : LF_EFORMAT;
    char *text = rc == 0 ? lf_json_dump(gen, err) : NULL;
    if (text) {
        lf_buf_clear(to);
        lf_buf_adds(to, text);
        lf_buf_clear(block);
        rc = lf_tok_files_pack(&f, block, err);
    } else if (rc == 0) {
        rc = LF_ENOMEM;
    }
    free(text);
    json_decref(gen);
    lf_tok_files_fini(&f);
    return rc;
}

/* The tokenizer's files on every rank. Collective. */
static int get_json(tokenize *s, lf_corpus *c, lf_buf *json, lf_err *err)
{
    int rc = s->k->rank == 0 ? look_for(s, json, err) : 0;
    uint64_t found = rc == 1;
    rc = lf_stage_agree(s->k->comm, rc < 0 ? rc : 0, err);
    if (rc == 0)
        rc = lf_tokenize_ranks_u64(s->k, &found, 1, err);
    if (rc == 0 && !found)
        rc = lf_stage_agree(s->k->comm, train(s, c, json, err), err);
    if (rc == 0 && s->chat_file && s->k->rank == 0)
        rc = put_chat(s, json, err);
    rc = lf_stage_agree(s->k->comm, rc, err);
    return rc != 0 ? rc : lf_tokenize_ranks_text(s->k, json, err);
}

int lf_tokenize_get_tokenizer(tokenize *s, lf_corpus *c, lf_tokenizer **out, int64_t *eos_id,
                              lf_err *err)
{
    lf_buf json;
    lf_buf_init(&json);
    lf_tokenizer *t = NULL;
    const char *name = s->tokenizer_path ? s->tokenizer_path : FILE_NAME;
    int rc = get_json(s, c, &json, err);
    if (rc == 0) {
        t = lf_tokenizer_parse(json.data, json.len, name, err);
        rc = t ? find_eos(s, t, eos_id, err) : LF_EFORMAT;
        if (rc == 0)
            rc = lf_tokenize_get_chat(s, t, &json, name, err);
        if (rc == 0 && s->k->rank == 0)
            rc = put_turn_end(s, t, *eos_id, &json, err);
        if (rc == 0 && s->k->rank == 0)
            rc = publish(s, t, &json, *eos_id, err);
        rc = lf_stage_agree(s->k->comm, rc, err);
    }
    lf_buf_fini(&json);
    if (rc == 0)
        *out = t;
    else
        lf_tokenizer_destroy(t);
    return rc;
}
