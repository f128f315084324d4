/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of tasks.h: documents and their items.
 */
#ifndef LF_INFER_TASKS_PRIV_H
#define LF_INFER_TASKS_PRIV_H

#include "engine/base/mem.h"
#include "engine/infer/tasks.h"

typedef struct eval_task {
    enum lf_task_kind kind;
    const char *name, *path;
    const char *sha256; /* of what was measured, hex: the file, or the split's shards (lf_shardset_id) */
    size_t first_doc, n_docs;
} eval_task;

typedef struct eval_doc {
    size_t task;
    size_t first_item, n_items;
    double tokens, words, bytes; /* rolling */
    size_t gold;                 /* multiple_choice */
    const double *choice_chars, *choice_bytes;
} eval_doc;

struct lf_tasks {
    const lf_tokenizer *tok;
    lf_tok_state *state;
    int32_t prefix;
    int64_t max_context;
    lf_arena *arena; /* token ids, names */
    eval_task *tasks;
    eval_doc *docs;
    lf_score_item *items;
    size_t n_tasks, cap_tasks, n_docs, cap_docs, n_items, cap_items, n_shards;
};

#endif
