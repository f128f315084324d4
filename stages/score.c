/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-score: options, wiring, one call of the engine. Output: OUT/scores/{scores.jsonl,
 * results.json, best.jsonl, embeddings.h5}; the scores are continued after a stop and the results
 * are made from them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/model/sight.h"
#include "engine/post/rm_rows.h"
#include "stages/infer_common.h"
#include "stages/infer_ranks.h"
#include "stages/opts.h"
#include "stages/score_classes.h"
#include "stages/score_vectors.h"
#include "stages/stage.h"
#include "stages/tokenize_media.h"

typedef struct score {
    lf_comm *comm; /* NULL: alone */
    struct lf_infer_ranks ranks;
    const char *checkpoint, *tokenizer_path, *chat_file, *out, *metrics;
    const char *classes, **captions; /* of zero-shot classification */
    const char **data, **columns, **roles, **from;
    size_t n_captions, n_data, n_from, block;
    bool append_eos, best;
    struct lf_rm_opts run;
    char *adapter; /* run.adapter, where it was found */
    lf_glue glue;  /* task NULL: inputs are no files of GLUE */
    struct lf_rm_rows_opts rows_opts;
    char no_chat[1024];
    lf_tokenizer *tok;
    lf_chat *chat;
    lf_rm *rm;
    lf_rm_rows *rows;
    lf_lines *lines;
    tok_media media;
    tok_pics pics;
    struct lf_rm_rows_media hook;
} score;

static void destroy(void *self)
{
    score *s = self;
    if (!s)
        return;
    lf_lines_close(s->lines);
    lf_rm_rows_destroy(s->rows);
    if (s->pics.m)
        lf_tokenize_pics_fini(&s->pics);
    lf_tokenize_media_fini(&s->media);
    lf_rm_close(s->rm);
    lf_chat_destroy(s->chat);
    lf_tokenizer_destroy(s->tok);
    free(s->adapter);
    free(s->data);
    free(s->columns);
    free(s->roles);
    free(s->from);
    free(s->captions);
    free(s);
}

/* ---- pictures ---- */

static int read_row(void *arg, lf_row *out, const lf_shape_opts *o, const lf_corpus_record *r,
                    const char *where, lf_err *err)
{
    uint64_t replaced = 0;
    return lf_tokenize_pics_row(&((score *)arg)->pics, out, o, r, where, &replaced, err);
}

static int place(void *arg, const lf_rowdocs *d, lf_err *err)
{
    return lf_tokenize_pics_place(&((score *)arg)->pics, d, err);
}

static size_t pictures(void *arg, const lf_shard_picture **v, const char **bytes)
{
    const score *s = arg;
    *v = s->pics.v;
    *bytes = s->pics.bytes.data;
    return s->pics.n;
}

/* Rows are read with their pictures where a processor is given. */
static int open_media(score *s, lf_err *err)
{
    struct lf_rm_rows_opts *r = &s->rows_opts;
    const lf_model_config *mc = lf_rm_config(s->rm);
    r->sees = mc->vision.family != 0;
    if (!s->media.on)
        return 0;
    if (!mc->vision.family || !s->run.patches)
        return lf_fail(err, LF_EINVAL, "processor is for rows with pictures: %s",
                       mc->vision.family ? "give max_patches"
                                         : "the model sees none (it has no vision.family)");
    int rc = lf_tokenize_media_tokens(&s->media, s->tok, &r->docs, err);
    const int64_t side = s->media.processor.patches.side;
    if (rc == 0 && mc->vision.patch_dim % (3 * side * side))
        rc =
            lf_fail(err, LF_EINVAL,
                    "processor: its patches are of %lld x %lld pixels, which is not what the model "
                    "takes: its patches have %lld numbers",
                    (long long)side, (long long)side, (long long)mc->vision.patch_dim);
    if (rc == 0 && !lf_model_classifies(mc) &&
        lf_model_is_dual(mc) != lf_expand_beside(&s->media.expand))
        return lf_fail(err, LF_EINVAL,
                       "processor: %s puts pictures %s their texts, and this model wants them "
                       "otherwise; name another with placeholders, such as {\"processor_class\": "
                       "\"CLIPProcessor\"}",
                       s->media.expand.class_name,
                       lf_expand_beside(&s->media.expand) ? "beside" : "into");
    if (rc == 0 && !lf_model_classifies(mc) && !lf_model_is_dual(mc) &&
        s->media.image_token != mc->image_token)
        rc = lf_fail(err, LF_EINVAL,
                     "processor: pictures stand at token %lld, in the model at token %lld",
                     (long long)s->media.image_token, (long long)mc->image_token);
    lf_tokenize_pics_init(&s->pics, &s->media);
    s->hook = (struct lf_rm_rows_media){.arg = s,
                                        .processor = &s->media.processor,
                                        .expand = &s->media.expand,
                                        .image_token = s->media.image_token,
                                        .row = read_row,
                                        .place = place,
                                        .pictures = pictures};
    r->media = &s->hook;
    r->patches = s->run.patches;
    r->tiles = lf_sight_bounds(mc, s->run.patches, s->run.tiles, 1).vision.images - 1;
    return rc;
}

/* The choices of the option, in its order. */
static const enum lf_shape shapes[] = {
    LF_SHAPE_AUTO,       LF_SHAPE_TEXT,     LF_SHAPE_PROMPT_COMPLETION,
    LF_SHAPE_MESSAGES,   LF_SHAPE_SHAREGPT, LF_SHAPE_ALPACA,
    LF_SHAPE_PREFERENCE, LF_SHAPE_UNPAIRED, LF_SHAPE_PROMPT};

static int read_rows(score *s, const lf_optset *o, lf_err *err)
{
    struct lf_rm_rows_opts *r = &s->rows_opts;
    r->shape.shape = shapes[lf_optset_choice(o, "shape")];
    r->docs.flags = (lf_optset_choice(o, "special_in_text") == 0 ? LF_TOK_SPECIAL_TEXT : 0u) |
                    (lf_optset_bool(o, "add_template") ? LF_TOK_TEMPLATE : 0u);
    r->docs.any_order = true;
    r->normalized = lf_optset_bool(o, "normalized");
    r->ids = lf_optset_bool(o, "token_ids");
    s->append_eos = lf_optset_bool(o, "append_eos");
    s->chat_file = lf_optset_str(o, "chat_template");
    int rc = lf_infer_strings(&s->data, &s->n_data, o, "inputs", err);
    if (rc == 0)
        rc = lf_infer_strings(&s->columns, &r->shape.n_columns, o, "columns", err);
    if (rc == 0)
        rc = lf_infer_strings(&s->roles, &r->shape.n_roles, o, "roles", err);
    if (rc != 0)
        return rc;
    r->shape.columns = s->columns;
    r->shape.roles = s->roles;
    rc = lf_glue_set(&s->glue, lf_optset_str(o, "glue"), lf_optset_str(o, "glue_between"), err);
    if (rc == 0 && s->glue.task && r->shape.shape != LF_SHAPE_PROMPT &&
        r->shape.shape != LF_SHAPE_AUTO)
        rc = lf_fail(err, LF_EINVAL, "glue makes rows of prompts: say shape = prompt");
    if (s->glue.task) {
        r->glue = &s->glue;
        r->shape.shape = LF_SHAPE_PROMPT;
    }
    return rc != 0 ? rc : lf_shape_check(&r->shape, err);
}

/* What is made of texts. */
static int read_reading(score *s, const lf_optset *o, lf_err *err)
{
    static const char *const of_vectors[] = {"pooling", "normalize"};
    static const char *const of_scores[] = {"normalized", "best"};
    struct lf_rm_reading *r = &s->run.reading;
    const int64_t separator = lf_optset_int(o, "separator");
    *r = (struct lf_rm_reading){.labels = true,
                                .embed = lf_optset_choice(o, "give") == 1,
                                .answers = lf_optset_choice(o, "give") == 2,
                                .end = -1,
                                .pool = (enum lf_rm_pool)lf_optset_choice(o, "pooling"),
                                .unit = lf_optset_bool(o, "normalize"),
                                .pairs = separator >= 0,
                                .separator = separator};
    for (size_t i = 0; i < 2; i++) {
        if (!r->embed && lf_optset_is_set(o, of_vectors[i]))
            return lf_fail(err, LF_EINVAL, "%s belongs to give = embeddings", of_vectors[i]);
        if ((r->embed || r->answers) && lf_optset_bool(o, of_scores[i]))
            return lf_fail(err, LF_EINVAL, "%s belongs to give = scores", of_scores[i]);
    }
    if (r->answers && r->pairs)
        return lf_fail(err, LF_EINVAL, "separator is of pairs of texts, not of give = logprobs");
    r->labels = !r->answers;
    if ((r->embed || r->answers) && s->classes)
        return lf_fail(err, LF_EINVAL, "classes belongs to give = scores");
    if (s->n_captions && !s->classes)
        return lf_fail(err, LF_EINVAL, "class_caption is of classes, which are not given");
    return 0;
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    score *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return LF_ENOMEM;
    *self = s;
    s->checkpoint = lf_optset_str(o, "checkpoint");
    s->tokenizer_path = lf_optset_str(o, "tokenizer");
    s->out = lf_optset_str(o, "out");
    s->metrics = lf_optset_str(o, "metrics");
    s->classes = lf_optset_str(o, "classes");
    s->block = (size_t)lf_optset_int(o, "block");
    s->best = lf_optset_bool(o, "best");
    const int64_t rows = lf_optset_int(o, "micro_tokens");
    s->run = (struct lf_rm_opts){.adapter = lf_optset_str(o, "adapter"),
                                 .averages = lf_optset_choice(o, "weights") == 1,
                                 .threads = lf_stage_threads(o),
                                 .device = lf_stage_device(o),
                                 .compute = lf_stage_precision(o),
                                 .fast = lf_optset_choice(o, "numeric") == 1,
                                 .max_context = lf_optset_int(o, "max_context"),
                                 .rows = rows,
                                 .patches = lf_optset_int(o, "max_patches"),
                                 .tiles = lf_optset_int(o, "max_tiles"),
                                 .docs = rows < 256 ? rows : 256};
    int rc = lf_infer_ranks_read(&s->ranks, o, err);
    if (rc == 0)
        rc = lf_infer_strings(&s->captions, &s->n_captions, o, "class_caption", err);
    if (rc == 0)
        rc = read_reading(s, o, err);
    if (rc == 0)
        rc = lf_tokenize_media_setup(
            &s->media,
            &(struct tok_media_opts){.processor = lf_optset_str(o, "processor"),
                                     .tokenizer = s->tokenizer_path,
                                     .dir = lf_optset_str(o, "media_dir"),
                                     .placeholders = lf_optset_str(o, "placeholders")},
            err);
    if (rc == 0)
        rc = read_rows(s, o, err);
    return rc != 0 ? rc : lf_infer_strings(&s->from, &s->n_from, o, "resume_from", err);
}

static int plan(void *self, json_t *out, lf_err *err)
{
    score *s = self;
    lf_model_config c;
    const char *missing = NULL;
    s->run.with = lf_infer_with(&s->ranks);
    int rc = lf_infer_plan_config(&c, &missing, s->checkpoint, s->run.adapter, true, err);
    if (rc == 0 && missing)
        rc = lf_infer_plan_note(out, missing, err);
    json_t *p = rc == 0 && !missing ? lf_rm_plan(&c, &s->run, err) : NULL;
    if (rc == 0 && !missing && !p)
        return err && err->rc ? err->rc : LF_ENOMEM;
    if (p && json_object_update_missing(out, p) != 0)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(p);
    return rc != 0 ? rc : lf_infer_ranks_plan(&s->ranks, out, err);
}

static bool first(const score *s)
{
    return !s->comm || s->comm->rank == 0;
}

/* A tokenizer without a template is fine while no row has turns. */
static int load_chat(score *s, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    s->chat = lf_chat_load(s->tokenizer_path, s->tok, &(lf_chat_opts){.file = s->chat_file}, &why);
    snprintf(s->no_chat, sizeof s->no_chat, "%s", s->chat ? "" : why.text);
    return s->chat || why.rc == LF_ENOENT ? 0 : lf_fail(err, why.rc, "%s", why.text);
}

static enum lf_rm_gives gives(const score *s)
{
    const lf_model_config *mc = lf_rm_config(s->rm);
    if (s->run.reading.answers)
        return LF_RM_GIVES_LOGPROB;
    if (s->run.reading.embed)
        return LF_RM_GIVES_VECTOR;
    if (lf_model_classifies(mc) || lf_model_is_dual(mc))
        return LF_RM_GIVES_LABELS;
    if (mc->output != LF_OUTPUT_LABELS)
        return LF_RM_GIVES_SCORE;
    return mc->labels_of == LF_LABELS_OF_SPAN ? LF_RM_GIVES_SPAN : LF_RM_GIVES_LABELS;
}

/* Captions of classes, which a model with two towers holds pictures against. */
static int describe_classes(score *s, lf_err *err)
{
    const struct lf_rm_rows_opts *r = &s->rows_opts;
    const struct lf_score_classes c = {.file = s->classes,
                                       .caption = s->captions,
                                       .n_captions = s->n_captions,
                                       .tok = s->tok,
                                       .flags = r->docs.flags,
                                       .eos = r->docs.eos_id};
    if (s->classes)
        return lf_score_add_classes(s->rm, &c, err);
    return lf_model_is_dual(lf_rm_config(s->rm)) && !s->run.reading.embed
               ? lf_fail(err, LF_EINVAL,
                         "this model compares pictures and texts ([model] dual.dim): give classes, "
                         "a file of their names, or take give = embeddings")
               : 0;
}

static int load(score *s, lf_err *err)
{
    struct lf_rm_rows_opts *r = &s->rows_opts;
    int rc = lf_infer_tokenizer(&s->tok, s->tokenizer_path, err);
    if (rc == 0)
        s->run.reading.end = lf_tokenizer_eos(s->tok);
    if (rc == 0)
        rc = lf_rm_open(&s->rm, s->checkpoint, &s->run, err);
    if (rc == 0)
        rc = lf_infer_same_tokenizer(s->checkpoint, s->run.adapter, s->tok, s->tokenizer_path, err);
    if (rc == 0)
        rc = load_chat(s, err);
    if (rc != 0)
        return rc;
    if (s->append_eos && lf_tokenizer_eos(s->tok) < 0)
        return lf_fail(err, LF_EINVAL,
                       "the tokenizer has no end-of-document token; say append_eos = no");
    r->docs.tok = s->tok;
    r->docs.chat = s->chat;
    r->docs.no_chat = s->no_chat;
    r->docs.eos_id = s->append_eos ? lf_tokenizer_eos(s->tok) : -1;
    r->max_context = lf_rm_max_context(s->rm);
    r->gives = gives(s);
    r->one_answer = lf_model_is_seq2seq(lf_rm_config(s->rm));
    if (s->run.reading.separator >= lf_rm_config(s->rm)->vocab)
        return lf_fail(err, LF_EINVAL, "separator = %lld: the vocabulary has %lld words",
                       (long long)s->run.reading.separator, (long long)lf_rm_config(s->rm)->vocab);
    if (s->best && r->gives != LF_RM_GIVES_SCORE)
        return lf_fail(err, LF_EINVAL,
                       "best belongs to scores, and this model gives labels ([model] output = "
                       "labels)");
    if ((rc = describe_classes(s, err)) != 0 || (rc = open_media(s, err)) != 0)
        return rc;
    s->rows = lf_rm_rows_create(r, err);
    rc = s->rows ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < s->n_data && rc == 0; i++)
        rc = lf_rm_rows_add_file(s->rows, s->data[i], err);
    return rc;
}

static int check_line(void *arg, size_t index, const char *line, size_t len, lf_err *err)
{
    return lf_rm_rows_check_line(((score *)arg)->rows, index, line, len, err);
}

/* Append the lines of all groups of ranks, in their order; rank 0 writes. */
static int append(score *s, lf_buf *mine, lf_err *err)
{
    int rc = lf_infer_ranks_gather(&s->ranks, s->comm, mine, err);
    return rc == 0 && first(s) ? lf_lines_append(s->lines, mine->data, mine->len, err) : rc;
}

/* Blocks of rows, dealt to the groups of ranks in turn. */
static int score_all(score *s, size_t kept, lf_err *err)
{
    lf_progress p;
    lf_buf out;
    const size_t n = lf_rm_rows_n(s->rows), groups = (size_t)s->ranks.who.data_ranks,
                 ahead = (size_t)s->ranks.who.data * s->block;
    int rc = 0;
    lf_buf_init(&out);
    const struct lf_plan_memory mem = lf_infer_ranks_planned(&s->ranks, lf_rm_planned(s->rm));
    lf_infer_tell_memory(s->comm, &mem);
    if (first(s))
        lf_progress_begin(&p, "score", "rows", (double)kept, (double)n);
    for (size_t at = kept; rc == 0 && at < n;) {
        size_t from = at + ahead < n ? at + ahead : n,
               k = n - from < s->block ? n - from : s->block;
        lf_buf_clear(&out);
        lf_infer_ranks_begin(&s->ranks);
        rc = lf_rm_rows_score(s->rows, s->rm, from, k, &out, lf_group_stop, err);
        rc = lf_stage_agree(s->comm, lf_group_end(&s->ranks.group, rc, err), err);
        if (rc == 0)
            rc = lf_stage_agree(s->comm, append(s, &out, err), err);
        at = n - at < groups * s->block ? n : at + groups * s->block;
        if (first(s))
            lf_progress_update(&p, (double)at);
    }
    if (first(s))
        lf_progress_end(&p);
    lf_buf_fini(&out);
    if (rc == LF_EINTR && first(s))
        (void)lf_lines_sync(s->lines, NULL);
    return rc;
}

/* ---- results ---- */

static void add_numbers(lf_buf *rec, const char *prefix, json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v)
    {
        if (!json_is_number(v))
            continue;
        lf_buf_addf(rec, ",\"%s%s\":%.17g", prefix, key, json_number_value(v));
    }
}

/* One metrics record and the lines of log. */
static int report(const score *s, json_t *results, lf_err *err)
{
    json_t *pairs = json_object_get(results, "pairs"), *scores = json_object_get(results, "scores"),
           *logprobs = json_object_get(results, "logprobs"),
           *labels = json_object_get(results, "labels"), *v, *one;
    const char *key, *name;
    lf_buf rec;
    lf_buf_init(&rec);
    lf_buf_addf(&rec, "{\"step\":0,\"t\":%.3f", lf_wall_s());
    add_numbers(&rec, "", results);
    add_numbers(&rec, "score_", scores);
    add_numbers(&rec, "logprob_", logprobs);
    add_numbers(&rec, "pair_", pairs);
    add_numbers(&rec, "label_", labels);
    json_object_foreach(labels, key, v) lf_log(2, "labels: %s %.6g", key, json_number_value(v));
    json_object_foreach(json_object_get(results, "label_subsets"), name, one)
        json_object_foreach(one, key, v)
            lf_log(2, "labels of %s: %s %.6g", name, key, json_number_value(v));
    lf_buf_addc(&rec, '}');
    if (json_integer_value(json_object_get(results, "errors")))
        lf_log(1, "%lld of %lld rows could not be scored; scores.jsonl says why",
               (long long)json_integer_value(json_object_get(results, "errors")),
               (long long)json_integer_value(json_object_get(results, "rows")));
    if (scores)
        lf_log(2, "%lld scores, mean %.4f, standard deviation %.4f",
               (long long)json_integer_value(json_object_get(scores, "n")),
               json_number_value(json_object_get(scores, "mean")),
               json_number_value(json_object_get(scores, "std")));
    if (logprobs)
        lf_log(2, "%lld answers, mean log-probability %.4f",
               (long long)json_integer_value(json_object_get(logprobs, "n")),
               json_number_value(json_object_get(logprobs, "mean")));
    if (pairs)
        lf_log(2, "%lld pairs, accuracy %.4f (standard error %.4f), margin %.4f",
               (long long)json_integer_value(json_object_get(pairs, "n")),
               json_number_value(json_object_get(pairs, "accuracy")),
               json_number_value(json_object_get(pairs, "accuracy_stderr")),
               json_number_value(json_object_get(pairs, "margin")));
    int rc = lf_buf_check(&rec, err);
    if (rc == 0 && s->metrics) {
        lf_frame_writer *w = lf_frame_writer_open(s->metrics, err);
        rc = w ? lf_frame_append(w, rec.data, rec.len, err) : LF_EIO;
        int closed = lf_frame_writer_close(w, rc != 0 ? NULL : err);
        if (rc == 0)
            rc = closed;
    }
    lf_buf_fini(&rec);
    return rc;
}

static int write_results(const score *s, const char *dir, json_t *results, lf_err *err)
{
    char *file = lf_path_join(dir, "results.json", err), *text = NULL;
    json_t *fp = lf_rm_fingerprint(s->rm, err);
    int rc = file && fp ? lf_infer_ranks_sign(&s->ranks, fp, err) : LF_ENOMEM;
    if (rc == 0 &&
        (json_object_set_new(results, "checkpoint_identity", json_string(lf_rm_identity(s->rm))) ||
         json_object_set(results, "fingerprint", fp) ||
         !(text = json_dumps(results, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_io_write_file(file, text, strlen(text), 0640, err);
    json_decref(fp);
    free(text);
    free(file);
    return rc;
}

static int write_best(const score *s, const char *dir, const char *scores, lf_err *err)
{
    lf_buf best;
    char *file = lf_path_join(dir, "best.jsonl", err);
    lf_buf_init(&best);
    int rc = file ? lf_rm_rows_best(s->rows, scores, &best, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_write_file(file, best.data, best.len, 0640, err);
    lf_buf_fini(&best);
    free(file);
    return rc;
}

/* embeddings.h5, where there are vectors. */
static int add_vectors(const score *s, lf_artifact *a, const char *dir, const char *scores,
                       lf_err *err)
{
    const int64_t rows = (int64_t)lf_rm_rows_n(s->rows);
    if (!s->run.reading.embed || !rows)
        return 0;
    char *file = lf_path_join(dir, "embeddings.h5", err);
    int rc = file ? lf_score_write_vectors(&(struct lf_score_vectors){.lines = scores,
                                                                      .file = file,
                                                                      .rows = rows,
                                                                      .width = lf_rm_width(s->rm)},
                                           err)
                  : LF_ENOMEM;
    free(file);
    return rc != 0 ? rc : lf_artifact_add_hashed(a, dir, "embeddings.h5", err);
}

static int publish(score *s, const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    char *scores = lf_path_join(dir, "scores.jsonl", err);
    json_t *results = NULL;
    int rc = scores ? lf_lines_finish(s->lines, err) : LF_ENOMEM;
    if (rc == 0 && !(results = lf_rm_rows_results(s->rows, scores, err)))
        rc = err && err->rc ? err->rc : LF_EFORMAT;
    if (rc == 0)
        rc = lf_artifact_init(&a, "scores", err);
    if (rc == 0 && json_object_set_new(a.meta, "results", json_deep_copy(results)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = write_results(s, dir, results, err);
    if (rc == 0 && s->best)
        rc = write_best(s, dir, scores, err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, dir, "scores.jsonl", err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, dir, "results.json", err);
    if (rc == 0 && s->best)
        rc = lf_artifact_add_hashed(&a, dir, "best.jsonl", err);
    if (rc == 0)
        rc = add_vectors(s, &a, dir, scores, err);
    if (rc == 0)
        rc = report(s, results, err);
    if (rc == 0)
        rc = lf_artifact_publish(&a, dir, err);
    lf_artifact_fini(&a);
    json_decref(results);
    free(scores);
    return rc;
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    score *s = self;
    size_t kept = 0;
    bool done = false;
    s->comm = comm;
    s->run.rank = comm ? comm->rank : 0;
    s->run.local_rank = comm ? comm->local_rank : 0;
    if (!s->out)
        return lf_fail(err, LF_EINVAL, "give --out DIR to write scores below");
    /* a rank may be slow for long, or read for long; one that is dead is noticed all the same */
    if (comm)
        lf_comm_phase(comm, "scoring", 0);
    char *dir = lf_path_join(s->out, "scores", err);
    int rc = dir ? lf_infer_done(comm, dir, &done, err) : LF_ENOMEM;
    if (rc == 0 && done && first(s))
        lf_log(2, "%s is complete already", dir);
    if (rc == 0 && !done) {
        rc = lf_infer_adapter(&s->adapter, comm, &s->run.adapter, s->checkpoint, s->out,
                              s->run.threads, err);
        if (rc == 0)
            rc = lf_infer_ranks_open(&s->ranks, comm, err);
        s->run.with = lf_infer_with(&s->ranks);
        if (rc == 0)
            rc = lf_stage_agree(comm, load(s, err), err);
        if (rc == 0)
            rc = lf_infer_lines(comm, &s->lines, "scores",
                                &(struct lf_lines_place){.dir = dir,
                                                         .name = "scores.jsonl",
                                                         .from = s->from,
                                                         .n_from = s->n_from,
                                                         .check = check_line,
                                                         .arg = s},
                                &kept, err);
        if (rc == 0 && kept > 0 && first(s))
            lf_log(2, "continuing behind %zu of %zu rows", kept, lf_rm_rows_n(s->rows));
        if (rc == 0)
            rc = score_all(s, kept, err);
        if (rc == 0)
            rc = lf_stage_agree(comm, first(s) ? publish(s, dir, err) : 0, err);
    }
    lf_infer_ranks_close(&s->ranks, rc);
    free(dir);
    return rc;
}

static void profile(void *self, struct lf_profile *p)
{
    ((score *)self)->run.profile = p;
}

int main(int argc, char **argv)
{
    static const lf_stage stage = {.table = &lf_score_opts,
                                   .words = "inputs",
                                   .setup = setup,
                                   .plan = plan,
                                   .run = run,
                                   .destroy = destroy,
                                   .ranks = true,
                                   .profile = profile};
    return lf_stage_main(&stage, argc, argv);
}
