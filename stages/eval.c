/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-eval: options, wiring, one call of the engine. Output: OUT/results/{samples.jsonl,
 * results.json}; the samples are continued after a stop and the results are made from them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/infer/runner.h"
#include "engine/infer/tasks.h"
#include "engine/model/same_tokenizer.h"
#include "engine/post/prompt_sight.h"
#include "stages/chat_in.h"
#include "stages/infer_common.h"
#include "stages/infer_ranks.h"
#include "stages/opts.h"
#include "stages/stage.h"

/* A split of shards, and what looks at its pictures; eyes NULL: it has none. */
struct split {
    lf_shardset *set;
    lf_shard_eyes *eyes;
    lf_gen_eyes gen;
};

typedef struct eval {
    lf_comm *comm; /* NULL: alone */
    struct lf_infer_ranks ranks;
    const char *checkpoint, *tokenizer_path, *split, *prefix, *out, *metrics;
    const char *processor, *media_dir; /* NULL: not given */
    const char **data, **text, **choice, **last, **requests, **generate, **until, **from;
    size_t n_data, n_text, n_choice, n_last, n_requests, n_generate, n_from, block;
    int64_t limit, slots; /* slots as they were given */
    struct lf_task_generate g;
    struct lf_eval_opts opts;
    struct lf_eval_models models;
    bool rolling_bos;
    const char *think_end;
    int32_t *end;
    struct lf_runner_opts run;
    char *adapter; /* run.adapter, where it was found */
    lf_tokenizer *tok;
    struct lf_chat_in chat;
    lf_gen_eyes eyes;
    lf_gen_defaults talk, see; /* the template once it is loaded; what tasks get */
    struct split *splits;      /* [n_data] */
    lf_tasks *tasks;
    lf_lines *lines;
} eval;

static bool first(const eval *e)
{
    return !e->comm || e->comm->rank == 0;
}

static void destroy(void *self)
{
    eval *e = self;
    if (!e)
        return;
    lf_lines_close(e->lines);
    lf_tasks_destroy(e->tasks);
    for (size_t i = 0; e->splits && i < e->n_data; i++) {
        lf_shard_eyes_close(e->splits[i].eyes);
        lf_shardset_close(e->splits[i].set);
    }
    free(e->splits);
    lf_gen_eyes_fini(&e->eyes);
    lf_chat_in_fini(&e->chat);
    lf_tokenizer_destroy(e->tok);
    free(e->data);
    free(e->text);
    free(e->choice);
    free(e->last);
    free(e->requests);
    free(e->generate);
    free(e->until);
    free(e->end);
    free(e->from);
    free(e->adapter);
    free(e);
}

static void read_requests_options(eval *e, const lf_optset *o)
{
    e->rolling_bos = lf_optset_bool(o, "rolling_bos");
    e->think_end = lf_optset_str(o, "think_end");
    e->opts.bootstrap_iters = lf_optset_int(o, "bootstrap");
    e->models.no_sharing = !lf_optset_bool(o, "share");
    e->models.seed = (uint64_t)lf_optset_int(o, "seed");
    e->g.max_tokens = lf_optset_int(o, "max_tokens");
    e->g.match = lf_optset_choice(o, "match");
    e->g.regex = lf_optset_str(o, "regex");
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    eval *e = lf_calloc(1, sizeof *e, err);
    if (!e)
        return LF_ENOMEM;
    *self = e;
    e->checkpoint = lf_optset_str(o, "checkpoint");
    e->tokenizer_path = lf_optset_str(o, "tokenizer");
    e->split = lf_optset_str(o, "split");
    e->prefix = lf_optset_str(o, "prefix");
    e->out = lf_optset_str(o, "out");
    e->metrics = lf_optset_str(o, "metrics");
    e->processor = lf_optset_str(o, "processor");
    e->media_dir = lf_optset_str(o, "media_dir");
    e->chat = (struct lf_chat_in){.tokenizer_path = e->tokenizer_path,
                                  .opts = {.file = lf_optset_str(o, "chat_template"),
                                           .name = lf_optset_str(o, "chat_name"),
                                           .vars = lf_optset_str(o, "chat_vars")}};
    e->limit = lf_optset_int(o, "limit");
    e->block = (size_t)lf_optset_int(o, "block");
    int64_t rows = lf_optset_int(o, "micro_tokens");
    e->run = (struct lf_runner_opts){.threads = lf_stage_threads(o),
                                     .device = lf_stage_device(o),
                                     .compute = lf_stage_precision(o),
                                     .fast = lf_optset_choice(o, "numeric") == 1,
                                     .max_context = lf_optset_int(o, "max_context"),
                                     .slots = lf_optset_int(o, "slots"),
                                     .max_rows = lf_optset_int(o, "step_rows"),
                                     .kv_tokens = lf_optset_int(o, "kv_tokens"),
                                     .page_tokens = lf_optset_int(o, "page_tokens"),
                                     .switching = lf_optset_choice(o, "longrope") == 1,
                                     .score_rows = rows,
                                     .score_docs = rows < 256 ? rows : 256};
    e->run.adapter = lf_optset_str(o, "adapter");
    e->run.averages = lf_optset_choice(o, "weights") == 1;
    read_requests_options(e, o);
    int rc = lf_infer_ranks_read(&e->ranks, o, err);
    if (rc == 0)
        rc = lf_infer_strings(&e->data, &e->n_data, o, "data", err);
    if (rc == 0)
        rc = lf_infer_strings(&e->text, &e->n_text, o, "text", err);
    if (rc == 0)
        rc = lf_infer_strings(&e->choice, &e->n_choice, o, "multiple_choice", err);
    if (rc == 0)
        rc = lf_infer_strings(&e->last, &e->n_last, o, "last_word", err);
    if (rc == 0)
        rc = lf_infer_strings(&e->requests, &e->n_requests, o, "requests", err);
    if (rc == 0)
        rc = lf_infer_strings(&e->generate, &e->n_generate, o, "generate", err);
    if (rc == 0)
        rc = lf_infer_strings(&e->until, &e->g.n_until, o, "until", err);
    e->g.until = e->until;
    if (rc == 0)
        rc = lf_infer_strings(&e->from, &e->n_from, o, "resume_from", err);
    size_t texts = e->n_text + e->n_choice + e->n_last + e->n_requests + e->n_generate;
    if (rc == 0 && e->n_data + texts == 0)
        rc = lf_fail(err, LF_EINVAL,
                     "nothing to measure: give data, text, multiple_choice, last_word, generate or "
                     "requests");
    if (rc == 0 && texts > 0 && !e->tokenizer_path)
        rc = lf_fail(err, LF_EINVAL,
                     "text, multiple_choice, last_word, generate and requests need tokenizer =");
    if (rc == 0 && e->g.match == LF_MATCH_REGEX && !e->g.regex)
        rc = lf_fail(err, LF_EINVAL, "match = regex needs regex = PATTERN");
    e->slots = e->run.slots;
    if (rc == 0 && !(e->requests[0] || e->generate[0] || e->choice[0]))
        e->run.slots = 0; /* neither generated nor shared: no cache, unless pictures are found */
    if (rc == 0 && e->prefix && !e->tokenizer_path)
        rc = lf_fail(err, LF_EINVAL, "prefix = TOKEN needs tokenizer = to find it in");
    return rc;
}

/* ---- tasks ---- */

/* The token in front of texts. */
static int find_prefix(const eval *e, int32_t *out, lf_err *err)
{
    static const char *const usual[] = {"<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>"};
    int64_t id = -1;
    if (!e->tok) {
        *out = -1; /* what the shards say */
        return 0;
    }
    if (e->prefix && (id = lf_tokenizer_find(e->tok, e->prefix)) < 0)
        return lf_fail(err, LF_EINVAL, "prefix: the tokenizer has no token '%s'", e->prefix);
    if (id < 0)
        id = lf_tokenizer_bos(e->tok);
    for (size_t i = 0; id < 0 && i < sizeof usual / sizeof *usual; i++)
        id = lf_tokenizer_find(e->tok, usual[i]);
    if (id < 0)
        id = lf_tokenizer_eos(e->tok);
    if (id < 0)
        return lf_fail(err, LF_EINVAL,
                       "the tokenizer has no BOS or end-of-document token; name one with prefix =");
    *out = (int32_t)id;
    return 0;
}

/* The template is read when the first messages come: other tasks do without one. */
static int talk(void *arg, json_t *messages, json_t *tools, json_t *kwargs, lf_buf *out,
                lf_err *err)
{
    eval *e = arg;
    int rc = e->chat.chat ? 0 : lf_chat_in_load(&e->chat, e->tok, &e->talk, err);
    if (rc == 0 && !e->talk.chat)
        rc = lf_fail(err, LF_EINVAL,
                     "'messages' needs the tokenizer of a chat model: there is no chat template");
    return rc != 0 ? rc : e->talk.chat(e->talk.chat_arg, messages, tools, kwargs, out, err);
}

/* What reads the pictures and messages of documents. */
static int open_senses(eval *e, const lf_model_config *model, lf_err *err)
{
    bool have = false;
    int rc = lf_infer_eyes(&e->eyes, &have, e->processor, e->tokenizer_path, model, err);
    if (rc == 0 && e->media_dir && !(e->eyes.dir = lf_strdup(e->media_dir, err)))
        rc = LF_ENOMEM;
    e->see = (lf_gen_defaults){.eyes = have ? &e->eyes : NULL, .chat = talk, .chat_arg = e};
    return rc;
}

static int look_at(void *arg, uint64_t doc, const lf_gen_job *job, lf_arena *a,
                   const struct lf_gen_media **out, lf_err *err)
{
    const struct split *s = arg;
    return lf_prompt_sight(out, lf_shard_eyes_pictures(s->eyes), &s->gen, doc, job, a, err);
}

static int open_eyes(struct split *s, const char *dir, const lf_model_config *model, lf_err *err)
{
    const lf_shardset *const sets[] = {s->set};
    const int rc = lf_shard_eyes_open(&s->eyes, sets, 1, dir, model, err);
    if (rc == 0 && s->eyes)
        s->gen = lf_prompt_eyes(lf_shard_eyes_pictures(s->eyes), model);
    return rc;
}

static int add_shards(eval *e, size_t i, const lf_model_config *model, lf_err *err)
{
    struct split *s = &e->splits[i];
    int rc = lf_shardset_open(&s->set, e->data[i], e->split, err);
    if (rc == 0)
        rc = open_eyes(s, e->data[i], model, err);
    const struct lf_task_shards t = {.set = s->set,
                                     .dir = e->data[i],
                                     .split = e->split,
                                     .sight = s->eyes ? look_at : NULL,
                                     .arg = s,
                                     .prompts = model->mask == LF_MASK_PREFIX};
    return rc != 0 ? rc : lf_tasks_add_shards(e->tasks, &t, e->limit, err);
}

/* seen: those alone whose documents may have pictures. */
static int add_listed(eval *e, bool seen, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && !seen && i < e->n_text; i++)
        rc = lf_tasks_add_file(e->tasks, LF_TASK_ROLLING, e->text[i], e->limit, err);
    for (size_t i = 0; rc == 0 && i < e->n_choice; i++)
        rc = lf_tasks_add_file(e->tasks, LF_TASK_CHOICE, e->choice[i], e->limit, err);
    for (size_t i = 0; rc == 0 && !seen && i < e->n_last; i++)
        rc = lf_tasks_add_file(e->tasks, LF_TASK_LAST_WORD, e->last[i], e->limit, err);
    for (size_t i = 0; rc == 0 && i < e->n_generate; i++)
        rc = lf_tasks_add_generate(e->tasks, e->generate[i], &e->g, e->limit, err);
    for (size_t i = 0; rc == 0 && i < e->n_requests; i++)
        rc = lf_tasks_add_requests(e->tasks, e->requests[i], e->limit, err);
    return rc;
}

static int add_files(eval *e, const lf_model_config *model, lf_err *err)
{
    int rc = 0;
    if (!(e->splits = lf_calloc(e->n_data + 1, sizeof *e->splits, err)))
        return LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < e->n_data; i++)
        rc = add_shards(e, i, model, err);
    return rc == 0 ? add_listed(e, false, err) : rc;
}

/* Without documents as yet. */
static int open_tasks(eval *e, const lf_model_config *model, lf_err *err)
{
    int32_t prefix;
    const int64_t max_context = e->run.max_context ? e->run.max_context : model->max_positions;
    int rc = e->tokenizer_path ? lf_infer_tokenizer(&e->tok, e->tokenizer_path, err) : 0;
    if (rc == 0 && e->tok)
        rc = lf_infer_same_tokenizer(e->checkpoint, e->run.adapter, e->tok, e->tokenizer_path, err);
    if (rc == 0)
        rc = find_prefix(e, &prefix, err);
    if (rc == 0 && !(e->tasks = lf_tasks_create(e->tok, prefix, max_context, err)))
        rc = LF_ENOMEM;
    if (rc == 0 && lf_model_is_seq2seq(model))
        lf_tasks_answer(e->tasks, e->tok ? lf_tokenizer_eos(e->tok) : -1);
    if (rc == 0)
        rc = lf_tasks_settle(e->tasks, !e->rolling_bos, e->think_end, err);
    if (rc == 0)
        rc = open_senses(e, model, err);
    if (rc == 0)
        lf_tasks_see(e->tasks, &e->see);
    return rc;
}

/* Before the model is loaded: how large its pictures are is part of its plan. */
static int add_tasks(eval *e, lf_err *err)
{
    lf_model_config model;
    int rc = lf_runner_config(&model, e->checkpoint, err);
    for (size_t i = 0; rc == 0 && i < e->n_data; i++)
        rc = lf_same_tokenizer_data(e->checkpoint, e->data[i], err);
    if (rc == 0)
        rc = open_tasks(e, &model, err);
    if (rc == 0)
        rc = add_files(e, &model, err);
    if (rc == 0)
        lf_tasks_sights(e->tasks, &e->run.max_patches, &e->run.max_tiles);
    if (rc == 0 && e->run.max_patches > 0)
        e->run.slots = e->slots; /* pictures are seen over the cache */
    if (rc == 0 && lf_tasks_n_gens(e->tasks) > 0)
        rc =
            lf_infer_end_tokens(&e->end, &e->models.n_end, e->tok, e->tokenizer_path, NULL, 0, err);
    e->models.end = e->end;
    if (rc == 0 && lf_tasks_n_truncated(e->tasks) > 0 && first(e))
        lf_log(1, "%zu contexts are longer than the model reads; their beginnings are left out",
               lf_tasks_n_truncated(e->tasks));
    return rc;
}

/* ---- the plan ---- */

static int64_t most(int64_t a, uint64_t b)
{
    return a > (int64_t)b ? a : (int64_t)b;
}

/* Room for the largest pictures of a document, over the cache, as lf_tasks_sights has it. */
static void make_room(eval *e, const lf_shardset *set)
{
    const uint64_t docs = lf_shardset_get_info(set)->n_docs;
    if (!lf_shardset_sees(set))
        return;
    e->run.slots = e->slots;
    for (uint64_t d = 0; d < docs && (e->limit <= 0 || d < (uint64_t)e->limit); d++) {
        uint64_t tiles;
        e->run.max_patches = most(e->run.max_patches, lf_shardset_patches(set, d, &tiles));
        e->run.max_tiles = most(e->run.max_tiles, tiles);
    }
}

static int plan_shards(eval *e, bool *unknown, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < e->n_data && rc == 0; i++) {
        lf_shardset *set = NULL;
        lf_err why = LF_ERR_INIT;
        rc = lf_shardset_open(&set, e->data[i], e->split, &why);
        if (rc == 0) {
            make_room(e, set);
            lf_shardset_close(set);
        } else if (rc == LF_ENOENT) {
            *unknown = true;
            rc = 0;
        } else {
            rc = lf_fail(err, rc, "%s", why.text);
        }
    }
    return rc;
}

/* Files whose documents may have pictures are read as in the run, which looks at their sizes. */
static int plan_documents(eval *e, const lf_model_config *model, bool *unknown, lf_err *err)
{
    const char *const with[] = {e->tokenizer_path, e->processor, e->media_dir};
    int64_t patches, tiles;
    if (e->n_choice + e->n_generate + e->n_requests == 0)
        return 0;
    if (!lf_infer_there(with, 3) || !lf_infer_there(e->choice, e->n_choice) ||
        !lf_infer_there(e->generate, e->n_generate) ||
        !lf_infer_there(e->requests, e->n_requests)) {
        *unknown = true;
        return 0;
    }
    int rc = open_tasks(e, model, err);
    if (rc == 0)
        rc = add_listed(e, true, err);
    if (rc != 0)
        return rc;
    lf_tasks_sights(e->tasks, &patches, &tiles);
    e->run.max_patches = most(e->run.max_patches, (uint64_t)patches);
    e->run.max_tiles = most(e->run.max_tiles, (uint64_t)tiles);
    return 0;
}

/* *unknown: a model that sees is to measure what is not there yet. */
static int plan_pictures(eval *e, bool *unknown, lf_err *err)
{
    lf_model_config model;
    const char *missing;
    int rc = lf_infer_plan_config(&model, &missing, e->checkpoint, e->run.adapter, false, err);
    if (rc != 0 || missing || !model.vision.family)
        return rc;
    rc = plan_shards(e, unknown, err);
    return rc == 0 ? plan_documents(e, &model, unknown, err) : rc;
}

static int plan(void *self, json_t *out, lf_err *err)
{
    eval *e = self;
    bool unknown = false;
    e->run.with = lf_infer_with(&e->ranks);
    int rc = plan_pictures(e, &unknown, err);
    if (rc == 0)
        rc = lf_infer_plan(out, e->checkpoint, &e->run, err);
    if (rc == 0)
        rc = lf_infer_ranks_plan(&e->ranks, out, err);
    return rc == 0 && unknown ? lf_infer_plan_unseen(out, "data", err) : rc;
}

static int check_line(void *arg, size_t index, const char *line, size_t len, lf_err *err)
{
    return lf_tasks_check_line(((eval *)arg)->tasks, index, line, len, err);
}

/* Append the lines of all groups of ranks, in their order; rank 0 writes. */
static int append(eval *e, lf_buf *mine, lf_err *err)
{
    int rc = lf_infer_ranks_gather(&e->ranks, e->comm, mine, err);
    return rc == 0 && first(e) ? lf_lines_append(e->lines, mine->data, mine->len, err) : rc;
}

/* Blocks of documents, dealt to the groups of ranks in turn. */
static int score_all(eval *e, lf_runner *r, size_t kept, lf_err *err)
{
    lf_score_model m;
    lf_gen_model gen;
    lf_progress p;
    lf_buf out;
    size_t n = lf_tasks_n_docs(e->tasks), groups = (size_t)e->ranks.who.data_ranks,
           ahead = (size_t)e->ranks.who.data * e->block;
    int rc = lf_runner_score_model(r, &m, err);
    if (rc == 0 && e->run.slots > 0)
        rc = lf_runner_gen_model(r, &gen, err);
    e->models.score = &m;
    e->models.gen = e->run.slots > 0 ? &gen : NULL;
    lf_buf_init(&out);
    if (first(e))
        lf_progress_begin(&p, "eval", "documents", (double)kept, (double)n);
    for (size_t at = kept; rc == 0 && at < n;) {
        size_t from = at + ahead < n ? at + ahead : n,
               k = n - from < e->block ? n - from : e->block;
        lf_buf_clear(&out);
        lf_infer_ranks_begin(&e->ranks);
        rc = lf_tasks_score(e->tasks, &e->models, from, k, &out, lf_group_stop, err);
        rc = lf_stage_agree(e->comm, lf_group_end(&e->ranks.group, rc, err), err);
        if (rc == 0)
            rc = lf_stage_agree(e->comm, append(e, &out, err), err);
        at = n - at < groups * e->block ? n : at + groups * e->block;
        if (first(e))
            lf_progress_update(&p, (double)at);
    }
    if (first(e))
        lf_progress_end(&p);
    lf_buf_fini(&out);
    if (rc == LF_EINTR && first(e))
        (void)lf_lines_sync(e->lines, NULL);
    return rc;
}

/* One metrics record with every number, and a log line for each. */
static int report(eval *e, json_t *results, lf_err *err)
{
    const char *task, *metric;
    json_t *metrics, *value, *all = json_object_get(results, "results");
    lf_buf rec;
    lf_buf_init(&rec);
    lf_buf_addf(&rec, "{\"step\":0,\"t\":%.3f", lf_wall_s());
    json_object_foreach(all, task, metrics)
    {
        json_object_foreach(metrics, metric, value)
        {
            if (!json_is_number(value))
                continue;
            size_t len = strcspn(metric, ",");
            lf_buf_addf(&rec, ",\"%s.%.*s\":%.17g", task, (int)len, metric,
                        json_number_value(value));
            if (!strstr(metric, "_stderr"))
                lf_log(2, "%s %.*s %.6g", task, (int)len, metric, json_number_value(value));
        }
    }
    lf_buf_addc(&rec, '}');
    int rc = lf_buf_check(&rec, err);
    if (rc == 0 && e->metrics) {
        lf_frame_writer *w = lf_frame_writer_open(e->metrics, err);
        rc = w ? lf_frame_append(w, rec.data, rec.len, err) : LF_EIO;
        int closed = lf_frame_writer_close(w, rc != 0 ? NULL : err);
        if (rc == 0)
            rc = closed;
    }
    lf_buf_fini(&rec);
    return rc;
}

/* The samples of a task of requests in the harness's form. */
static int add_samples(lf_artifact *a, const char *dir, const char *task, lf_err *err)
{
    char name[300];
    snprintf(name, sizeof name, "samples_%.255s.jsonl", task);
    for (char *c = name; *c; c++)
        *c = *c == '/' ? '_' : *c;
    return lf_artifact_add_hashed(a, dir, name, err);
}

static int publish(eval *e, const char *dir, lf_runner *r, lf_err *err)
{
    lf_artifact a = {0};
    json_t *results = NULL, *fp = NULL;
    char *samples = lf_path_join(dir, "samples.jsonl", err),
         *file = lf_path_join(dir, "results.json", err), *text = NULL;
    int rc = samples && file ? lf_lines_finish(e->lines, err) : LF_ENOMEM;
    if (rc == 0 && !(results = lf_tasks_results(e->tasks, samples, &e->opts, dir, err)))
        rc = LF_EFORMAT;
    if (rc == 0)
        rc = (fp = lf_runner_fingerprint(r, err)) ? lf_infer_ranks_sign(&e->ranks, fp, err)
                                                  : LF_ENOMEM;
    if (rc == 0) {
        json_object_set_new(results, "checkpoint_identity", json_string(lf_runner_identity(r)));
        json_object_set(results, "fingerprint", fp);
        text = json_dumps(results, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        rc = text ? lf_io_write_file(file, text, strlen(text), 0640, err)
                  : lf_fail(err, LF_ENOMEM, "out of memory");
    }
    if (rc == 0)
        rc = lf_artifact_init(&a, "results", err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, dir, "results.json", err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, dir, "samples.jsonl", err);
    const char *task;
    json_t *v;
    json_object_foreach(json_object_get(results, "versions"), task,
                        v) if (rc == 0 &&
                               json_object_get(json_object_get(results, "n-samples"), task)) rc =
        add_samples(&a, dir, task, err);
    if (rc == 0)
        json_object_set(a.meta, "results", json_object_get(results, "results"));
    if (rc == 0)
        rc = report(e, results, err);
    if (rc == 0)
        rc = lf_artifact_publish(&a, dir, err);
    lf_artifact_fini(&a);
    json_decref(results);
    json_decref(fp);
    free(text);
    free(samples);
    free(file);
    return rc;
}

static int load(eval *e, lf_runner **r, lf_err *err)
{
    const int rc = lf_runner_open(r, e->checkpoint, &e->run, err);
    if (rc == 0) {
        const struct lf_plan_memory mem = lf_infer_ranks_planned(&e->ranks, lf_runner_planned(*r));
        lf_infer_tell_memory(e->comm, &mem);
    }
    return rc;
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    eval *e = self;
    lf_runner *r = NULL;
    size_t kept = 0;
    bool done = false;
    e->comm = comm;
    e->run.rank = comm ? comm->rank : 0;
    e->run.local_rank = comm ? comm->local_rank : 0;
    if (!e->out)
        return lf_fail(err, LF_EINVAL, "give --out DIR to write results below");
    /* a rank may be slow for long, or read for long; one that is dead is noticed all the same */
    if (comm)
        lf_comm_phase(comm, "evaluation", 0);
    char *dir = lf_path_join(e->out, "results", err);
    int rc = dir ? lf_infer_done(comm, dir, &done, err) : LF_ENOMEM;
    if (rc == 0 && done && first(e))
        lf_log(2, "%s is complete already", dir);
    if (rc == 0 && !done) {
        rc = lf_infer_adapter(&e->adapter, comm, &e->run.adapter, e->checkpoint, e->out,
                              e->run.threads, err);
        if (rc == 0)
            rc = lf_infer_ranks_open(&e->ranks, comm, err);
        e->run.with = lf_infer_with(&e->ranks);
        if (rc == 0)
            rc = lf_stage_agree(e->comm, add_tasks(e, err), err);
        if (rc == 0)
            rc = lf_stage_agree(e->comm, load(e, &r, err), err);
        if (rc == 0)
            rc = lf_infer_lines(comm, &e->lines, "results",
                                &(struct lf_lines_place){.dir = dir,
                                                         .name = "samples.jsonl",
                                                         .from = e->from,
                                                         .n_from = e->n_from,
                                                         .check = check_line,
                                                         .arg = e},
                                &kept, err);
        if (rc == 0 && kept > 0 && first(e))
            lf_log(2, "continuing behind %zu of %zu documents", kept, lf_tasks_n_docs(e->tasks));
        if (rc == 0)
            rc = score_all(e, r, kept, err);
        if (rc == 0)
            rc = lf_stage_agree(e->comm, first(e) ? publish(e, dir, r, err) : 0, err);
    }
    lf_infer_ranks_close(&e->ranks, rc);
    lf_runner_close(r);
    free(dir);
    return rc;
}

static void profile(void *self, struct lf_profile *p)
{
    ((eval *)self)->run.profile = p;
}

int main(int argc, char **argv)
{
    static const lf_stage stage = {.table = &lf_eval_opts,
                                   .words = "text",
                                   .setup = setup,
                                   .plan = plan,
                                   .run = run,
                                   .destroy = destroy,
                                   .ranks = true,
                                   .profile = profile};
    return lf_stage_main(&stage, argc, argv);
}
