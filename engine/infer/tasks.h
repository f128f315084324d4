/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation tasks: documents in, one sample line per document out, results from the lines.
 * Definitions follow lm-evaluation-harness:
 *
 *   rolling          whole texts, each token once (score.h, context_len 1, a prefix token in
 *                    front): word_perplexity, byte_perplexity, bits_per_byte, and token_perplexity
 *                    = exp(-sum ll / tokens)
 *   multiple_choice  {"context", "choices": [...], "gold": i}: log-likelihood of " " + choice; acc,
 *                    acc_norm (per character of the choice), acc_bytes (per byte); the first index
 *                    on ties
 *   last_word        {"text"}: the last word given the rest; acc (greedy) and perplexity =
 *                    exp(-mean ll)
 *   requests         any task of the harness, written by an exporter (below), or the documents
 *                    {"context", "target"} of a built-in task that generates: with metrics,
 *                    filters, groups and standard errors of the harness (filter.h, metric.h)
 *
 * loglikelihood(ctx, cont): white space at the end of ctx moves to the front of cont. The ids of
 * cont are those of tok(ctx + cont) behind the first len(tok(ctx)). Of a longer sequence the last
 * max_context + 1 tokens are kept. An empty ctx is the prefix token.
 *
 * A text that begins with the text of the prefix token gets no second BOS.
 *
 * Documents of multiple_choice and requests may have pictures: "images", a list of paths (eyes.h),
 * one for each mark <image> of the text. They may have "messages" for the chat template in the
 * place of a text. Documents of shards have the pictures that they were made with. A text with its
 * pictures is never cut. What stands behind pictures is scored over the cache of generation.
 *
 * A file of requests has JSON lines of three kinds (stages/harness.py writes them):
 *     {"task", "output_type": "multiple_choice" | "loglikelihood" | "loglikelihood_rolling" |
 *      "generate_until", "version", "n_shot",
 *      "metrics": [{"metric", "aggregation", "higher_is_better", "kwargs"?}],
 *      "filters": [{"name", "steps": [...]}], "original"?, "multiple_target"?, "config"?}
 *     {"task", "doc_id", "idx", "kind": "loglikelihood" | "loglikelihood_rolling" |
 *      "generate_until", "ctx" | "messages", "cont" | "gen": {...}, "images"?, "repeats"?,
| "messages", "cont" | "gen": {...}, "images"?, "repeats"?,| "gen": {...}, "repeats"?,
 *      "doc": {"gold", "chars", "bytes" | "words", "bytes" | "target", "doc_hash",
 *              "prompt_hash", "target_hash", "doc"}}
 *     {"group", "tasks": [...], "metrics": [{"metric", "weight_by_size", "filter_list"?}],
 *      "alias"?, "version"?}
 * Requests stand behind the header of their task. Those of a document stand together with idx 0, 1,
 * ...; "doc" stands with idx 0. gen has until, max_gen_toks (and its other names), temperature,
 * do_sample, top_p and top_k.
 *
 * Sample lines hold everything that the results need. So a stopped run continues behind the last
 * line, and results are made from the file alone.
 */
#ifndef LF_INFER_TASKS_H
#define LF_INFER_TASKS_H

#include <jansson.h>

#include "engine/base/str.h"
#include "engine/infer/gen.h"
#include "engine/infer/request.h"
#include "engine/infer/score.h"
#include "engine/store/shard.h"
#include "engine/text/token/tokenizer.h"

enum lf_task_kind { LF_TASK_ROLLING = 0, LF_TASK_CHOICE, LF_TASK_LAST_WORD, LF_TASK_REQUESTS };
const char *lf_task_kind_name(enum lf_task_kind k);

typedef struct lf_tasks lf_tasks;

/* tok may be NULL when only shards are measured; words and bytes are then unknown. prefix is the id
 * in front of a text and for an empty context; -1 without tok: the end-of-document token of the
 * shards. max_context is that of the model. */
lf_tasks *lf_tasks_create(const lf_tokenizer *tok, int32_t prefix, int64_t max_context,
                          lf_err *err);
void lf_tasks_destroy(lf_tasks *t);
/* The model is an encoder-decoder, before there are documents: a context is its source, with the
 * tokens that the tokenizer adds to a text, a continuation what it says, and max_context bounds
 * each of them. So does lm-eval with seq2seq models. A source ends with `end`, which is added where
 * the tokenizer adds none (-1: never). */
void lf_tasks_answer(lf_tasks *t, int64_t end);

/* Adds a task from a file, whose name without folder and ending is that of the task. For rolling a
 * .jsonl file has {"text"} in each line; any other file is one document. limit > 0: only the first
 * `limit` documents. LF_EEXIST: there is a task of that name. */
int lf_tasks_add_file(lf_tasks *t, enum lf_task_kind kind, const char *path, int64_t limit,
                      lf_err *err);
/* One split of a shards artifact. */
struct lf_task_shards {
    const lf_shardset *set; /* with `sight` it outlives the tasks, as what `arg` points to does */
    const char *dir, *split;
    /* *out, in the arena: the pictures of a document of which job has all tokens behind another
     * one; NULL: it has none. sight is NULL where no document has pictures. */
    int (*sight)(void *arg, uint64_t doc, const lf_gen_job *job, lf_arena *a,
                 const struct lf_gen_media **out, lf_err *err);
    void *arg;
    bool prompts; /* the tokens of the model's prompts see each other (mask = prefix) */
};
/* Adds a rolling task over it, named "<split>" or "<split>-<n>". The end token of a document is
 * scored too; placeholders of pictures are not, and with `prompts`, of a document with pictures,
 * nothing before its first trained token. LF_EINVAL: a document with pictures, which is never cut,
 * is longer than the model reads, or has no token to score. */
int lf_tasks_add_shards(lf_tasks *t, const struct lf_task_shards *s, int64_t limit, lf_err *err);

/* Adds the tasks of a file of requests. A document that is given twice, or an unknown kind, metric
 * or filter is an error that names the line. */
int lf_tasks_add_requests(lf_tasks *t, const char *path, int64_t limit, lf_err *err);
/* A task of texts to generate: JSON lines {"context": text, "target": text or list of texts},
 * measured by exact match. */
struct lf_task_generate {
    const char *const *until;
    size_t n_until;
    int64_t max_tokens;
    /* exact: without white space around; number: compares the last number of both; regex: compares
     * the last match with the target */
    enum { LF_MATCH_EXACT, LF_MATCH_NUMBER, LF_MATCH_REGEX } match;
    const char *regex;
};
int lf_tasks_add_generate(lf_tasks *t, const char *path, const struct lf_task_generate *g,
                          int64_t limit, lf_err *err);

/* Called before documents are added. plain_rolling: rolling texts get no BOS of the tokenizer in
 * front, which the harness would score too. think_end: a generated text counts only behind this
 * string; NULL: all of it counts. */
int lf_tasks_settle(lf_tasks *t, bool plain_rolling, const char *think_end, lf_err *err);
/* Called before documents are added: what reads their pictures and messages, d->eyes, d->chat and
 * d->chat_arg, each of which may be NULL. d outlives t. Paths of pictures begin at d->eyes->dir,
 * or, where that is NULL, in the folder of the file of documents. */
void lf_tasks_see(lf_tasks *t, const lf_gen_defaults *d);

size_t lf_tasks_n_docs(const lf_tasks *t);
size_t lf_tasks_n_gens(const lf_tasks *t);      /* texts to generate */
size_t lf_tasks_n_truncated(const lf_tasks *t); /* contexts that were cut in front to fit */
/* The most patches and tiles that the pictures of a prompt have; 0: there are none. */
void lf_tasks_sights(const lf_tasks *t, int64_t *patches, int64_t *tiles);

struct lf_eval_models {
    const lf_score_model *score;
    const lf_gen_model *gen; /* NULL: nothing is generated, nothing shared */
    bool no_sharing;
    const int32_t *end; /* end tokens of generated texts */
    size_t n_end;
    uint64_t seed; /* for requests with sampling */
};
/* Scores documents [first, first + n) and appends their lines to out. */
int lf_tasks_score(lf_tasks *t, const struct lf_eval_models *m, size_t first, size_t n, lf_buf *out,
                   bool (*stop)(void), lf_err *err);
/* Checks that this is the line of document `index`. LF_EFORMAT: it is not. */
int lf_tasks_check_line(const lf_tasks *t, size_t index, const char *line, size_t len, lf_err *err);

struct lf_eval_opts {
    int64_t bootstrap_iters;
};

/* Makes the results from a file of sample lines, in the form of the harness. The caller owns them.
 *     {"results":{task:{"alias",metric:value,metric_stderr:value}},
 *      "n-samples":{task:{"original","effective"}},
 *      "configs":{task:{"task","kind","source","source_sha256"}}}
 * source is a file name. source_sha256 identifies the data: the tree hash of the file, or
 * lf_shardset_id. With requests there are also "groups", "group_subtasks", "versions", "n-shot" and
 * "higher_is_better". dir (may be NULL) gets samples_<task>.jsonl for every task of requests, in
 * the form of the harness. */
json_t *lf_tasks_results(const lf_tasks *t, const char *samples_path, const struct lf_eval_opts *o,
                         const char *dir, lf_err *err);

#endif
