/* SPDX-License-Identifier: Apache-2.0
 *
 * The documents of tasks and their items; for the files of tasks.h only.
 */
#ifndef LF_INFER_TASKS_PRIV_H
#define LF_INFER_TASKS_PRIV_H

#include <stdbool.h>

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/infer/look.h"
#include "engine/infer/tasks.h"

typedef struct eval_task {
    enum lf_task_kind kind;
    const char *name, *path;
    /* hash of the data, hex: of the file, or of the shards of the split (lf_shardset_id) */
    const char *sha256;
    size_t first_doc, n_docs;
    json_t *head; /* of requests: their header line, owned */
} eval_task;

typedef struct eval_doc {
    size_t task;
    size_t first_item, n_items;
    double tokens, words, bytes; /* rolling */
    size_t gold;                 /* multiple_choice */
    const double *choice_chars, *choice_bytes;
    /* of requests */
    int64_t id;
    size_t first_gen, n_gens;
    json_t *requests; /* the list of its request lines, owned */
} eval_doc;

/* A text to generate. */
typedef struct eval_gen {
    const int32_t *prompt;
    size_t n_prompt;
    const char *const *until; /* [n_until] */
    size_t n_until;
    int64_t max_tokens, repeats;
    lf_sample_params params;
    const struct lf_gen_media *media; /* NULL: no pictures */
} eval_gen;

/* What stands before an answer: a text, and the pictures that it has the placeholders of. */
typedef struct eval_context {
    lf_buf rendered, text; /* without and with placeholders */
    lf_buf tail;           /* white space behind text, where continuations follow: it is theirs */
    struct lf_gen_sights *sights; /* NULL: no pictures */
    const void *pictures;         /* of the first prompt that begins so; the others share them */
    json_t *of;                   /* the members that it was made of, owned; NULL: nothing yet */
} eval_context;

struct lf_tasks {
    const lf_tokenizer *tok;
    lf_tok_state *state;
    int32_t prefix;
    int64_t max_context;
    /* the model is an encoder-decoder: a context is a source, which ends with source_end (-1: as
     * its tokenizer has it) */
    bool pairs;
    int64_t source_end;
    lf_arena *arena; /* token ids, names */
    eval_task *tasks;
    eval_doc *docs;
    lf_score_item *items;
    const struct lf_gen_media **media; /* [n_items] pictures of each; NULL: none */
    eval_gen *gens;
    json_t *groups; /* group lines of request files */
    bool plain_rolling;
    const char *think_end;      /* in the arena, or NULL */
    const lf_gen_defaults *see; /* NULL: neither pictures nor messages */
    char *dir;                  /* of the file of documents, in the arena; NULL: none */
    eval_context context;       /* the last one */
    size_t n_tasks, cap_tasks, n_docs, cap_docs, n_items, cap_items, cap_media, n_shards, n_gens,
        cap_gens, n_truncated;
};

/* To build a task: lf_tasks_begin, then for each document begin_doc, its items, end_doc. */
int lf_tasks_begin(lf_tasks *t, enum lf_task_kind kind, const char *name, const char *path,
                   const uint8_t sha256[LF_HASH_BYTES], lf_err *err);
int lf_tasks_begin_doc(lf_tasks *t, eval_doc **out, lf_err *err);
void lf_tasks_end_doc(lf_tasks *t);

/* Ids of a source. */
int lf_tasks_encode_source(lf_tasks *t, const char *text, size_t len, lf_ids *ids, lf_err *err);
int lf_tasks_encode(lf_tasks *t, const char *text, size_t len, bool with_special, lf_ids *ids,
                    lf_err *err);
int lf_tasks_add_item(lf_tasks *t, const int32_t *tokens, size_t n, size_t first, lf_err *err);
/* Add the items of one continuation of a context, and those of the rolling windows of a text. */
int lf_tasks_add_continuation(lf_tasks *t, eval_context *c, const char *cont, size_t cont_len,
                              lf_err *err);
int lf_tasks_add_windows(lf_tasks *t, const char *text, size_t len, size_t *n_tokens, lf_err *err);
/* Add whole documents. with_prefix has n + 1 ids in the arena. */
int lf_tasks_add_rolling_text(lf_tasks *t, const char *text, size_t len, lf_err *err);
int lf_tasks_add_rolling(lf_tasks *t, const int32_t *with_prefix, size_t n, double words,
                         double bytes, lf_err *err);
/* Is token i of a prompt a placeholder of its pictures? m: NULL, it has none. */
static inline bool lf_tasks_is_picture(const struct lf_gen_media *m, size_t i)
{
    return m && m->feature[i] >= 0;
}

/* The context of a document or request o: the text of this member, or messages through the chat
 * template, with the pictures of "images". *out is the one of the call before where these are the
 * same, and is kept until the next call. LF_EINVAL: a picture is broken, or the text has not a mark
 * for each; the message names it. */
int lf_tasks_context(lf_tasks *t, json_t *o, const char *member, eval_context **out, lf_err *err);
void lf_tasks_forget(lf_tasks *t);                   /* the context */
json_t *lf_tasks_given(json_t *o, const char *name); /* a member that is not null, else NULL */
/* The pictures of n ids, in the arena, that begin with those of the context; NULL: it has none. */
int lf_tasks_place(lf_tasks *t, eval_context *c, const int32_t *ids, size_t n,
                   const struct lf_gen_media **out, lf_err *err);

/* The output_type of a task of requests: "multiple_choice", "loglikelihood",
 * "loglikelihood_rolling", "generate_until". */
enum lf_output_type { LF_OUT_CHOICE, LF_OUT_LL, LF_OUT_ROLLING, LF_OUT_GENERATE, LF_OUT_TYPES };
int lf_output_type_of(const eval_task *k);
int64_t lf_tasks_doc_id(const lf_tasks *t, size_t index);

/* Checks metrics and filters of a header. LF_ENOTSUP: one is unknown; the message names it. */
int lf_requests_check_head(json_t *head, lf_err *err);

/* Adds the results of the tasks of requests to out ({"results", "configs", ...}). lines are the
 * sample lines of all documents. Writes samples_<task>.jsonl to dir unless that is NULL. */
int lf_requests_results(const lf_tasks *t, json_t *const *lines, const struct lf_eval_opts *o,
                        const char *dir, json_t *out, lf_err *err);

#endif
