/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of lf-tokenize: options as read (tokenize.c), the ordered pipeline (tokenize_pipe.c), the
 * tokenizer artifact (tokenize_vocab.c), shards with their records (tokenize_shards.c), the
 * manifest (tokenize_finish.c) and what several ranks do together (tokenize_ranks.c).
 */
#ifndef LF_STAGES_TOKENIZE_PRIV_H
#define LF_STAGES_TOKENIZE_PRIV_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/frame.h"
#include "engine/base/hash.h"
#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/comm/comm.h"
#include "engine/store/shard.h"
#include "engine/text/chat/chat.h"
#include "engine/text/chat/shape.h"
#include "engine/text/corpus/corpus.h"
#include "engine/text/corpus/rowdocs.h"
#include "engine/text/corpus/rowjson.h"
#include "engine/text/token/tokenizer.h"
#include "engine/text/vocab/train_bpe.h"
#include "engine/text/vocab/train_sp.h"

enum { SPLIT_TRAIN, SPLIT_VALID, N_SPLITS };
extern const char *const lf_tokenize_split_names[N_SPLITS];

/* ---- ranks ---- */
struct tok_batch;
typedef struct tok_ranks {
    lf_comm *comm; /* NULL: alone */
    int rank, size;
    bool *over; /* [size]: nothing more is said with that rank */
    /* rank 0: where batches of all ranks go, in order */
    int (*sink)(void *ctx, struct tok_batch *b, lf_err *err);
    void *sink_ctx;
} tok_ranks;

/* ---- options ---- */
typedef struct tokenize {
    tok_ranks *k;
    const lf_optset *o;
    const char **inputs;
    lf_corpus_args corpus;
    lf_shape_opts shape;
    const char **columns, **roles;
    const char **read_columns; /* of parquet; corpus.columns */
    lf_rowdocs_opts rows;      /* tok, chat, eos_id: once the tokenizer is there */
    lf_chat *chat;             /* rows.chat, owned */
    const char *chat_file;     /* NULL: the tokenizer's own */
    lf_chat_opts chat_opts;    /* file is NULL: chat_file is among the tokenizer's files by then */
    char chat_sha[LF_HASH_HEX];
    char no_chat[sizeof(((lf_err *)0)->text)];
    bool skip_bad, drop_non_prefix;
    unsigned told; /* rows left out that were named in the log; atomic */
    bool doctor, json;
    size_t doctor_memory;
    const char *tokenizer_path; /* NULL: train */
    enum { VOCAB_BYTE_BPE, VOCAB_SP_BPE, VOCAB_UNIGRAM } vocab_type;
    lf_bpe_train_args train; /* byte_bpe; the others read vocab_size and specials */
    double coverage;
    const char **specials;
    int64_t train_bytes;
    bool append_eos;
    const char *eos_token;
    unsigned flags; /* lf_tok_flags of encoding */
    double valid_fraction;
    int64_t valid_seed;
    uint64_t shard_tokens;
    int dtype; /* 0 auto, else bytes */
    uint64_t limit_docs, limit_bytes;
    int threads;
    const char *out, *metrics;
    /* out directories to adopt from: earlier ones, oldest first, then out itself */
    const char **dirs;
    size_t n_dirs;
    /* of the identity options; run adds the sources' labels and lengths */
    char options_sha[LF_HASH_HEX];
    bool reader_left;
} tokenize;

/* ---- pipeline ---- */
typedef struct tok_record {
    size_t at, len; /* in batch.raw */
    enum lf_corpus_form form;
    size_t source;
    uint64_t line;
    size_t member; /* offset in batch.names + 1, 0 none */
} tok_record;

/* A record's documents: none when it is left out, two of a pair. */
typedef struct tok_doc {
    size_t n_ids, n_first; /* tokens; of them in the first document */
    uint64_t text_bytes, trained;
    size_t rest_len; /* in batch.rest */
    float margin;
    uint8_t fate, kind, split; /* lf_row_fate, lf_row_kind */
    bool masked;               /* some of its tokens are not trained */
    bool has_margin, label;
    bool truncated, no_eos, double_bos, seam, empty_answer, other_prompt;
} tok_doc;

/* What is counted over records. */
enum {
    COUNT_FATE,
    COUNT_TRUNCATED = LF_ROW_FATES,
    COUNT_NO_EOS,
    COUNT_DOUBLE_BOS,
    COUNT_SEAM,
    COUNT_EMPTY_ANSWER,
    COUNT_OTHER_PROMPT,
    N_COUNTS
};
const char *lf_tokenize_count_name(int k);

/* Records in order, made by one thread, worked on by one thread, given to the sink in order. */
typedef struct tok_batch {
    lf_buf raw, names;
    tok_record *recs;
    size_t n, cap;
    uint64_t index; /* number of the batch: rank index % P works on it */
    uint64_t first; /* ordinal of the first record */
    int64_t bytes_done;
    lf_ids ids;
    lf_buf mask; /* [ids.n] 0 or 1, or empty: all 1 */
    lf_buf rest; /* other columns of prompts, one after the other */
    tok_doc *docs;
    size_t cap_docs;
    uint64_t replaced;
    lf_err err;
    int rc;
    int state;
} tok_batch;

/* Where to begin: records of sources before `source` are not read; the first record of `source` has
 * ordinal `ordinal`; records below `skip_to` are read but not passed on. */
typedef struct tok_start {
    size_t source;
    uint64_t ordinal, skip_to;
} tok_start;

typedef struct tok_pipe {
    lf_corpus *corpus;
    tok_start start;
    /* 0: no limit; counted from ordinal 0, so bytes only with a start there */
    uint64_t max_docs, max_bytes;
    uint64_t bytes_before; /* raw bytes of the records before start.skip_to, for max_bytes */
    int threads;
    int rank, ranks; /* work is called for this rank's batches only; 0 ranks: for all */
    int (*work)(void *ctx, int thread, tok_batch *b, lf_err *err);
    int (*sink)(void *ctx, tok_batch *b, lf_err *err); /* NULL: none */
    void *ctx, *sink_ctx;
    const char *what; /* for progress */
    /* set when the reading thread still waits for input: the corpus must not be closed */
    bool *reader_left;
} tok_pipe;

/* Run to the end of the corpus; LF_EINTR when a stop was asked for. */
int lf_tokenize_pipe(const tok_pipe *p, lf_err *err);
/* "file.jsonl:12" or "a.tar: member:12" for messages. */
void lf_tokenize_where(char *buf, size_t cap, const lf_corpus *c, const tok_batch *b, size_t i);

/* ---- several ranks; with one, nothing happens ---- */
int lf_tokenize_ranks_open(tok_ranks *k, lf_comm *comm, lf_err *err);
void lf_tokenize_ranks_close(tok_ranks *k);
/* Sinks of the pipeline: of rank 0 (passes every batch on to k->sink) and of the others. ctx is the
 * tok_ranks. */
int lf_tokenize_ranks_take(void *ctx, tok_batch *b, lf_err *err);
int lf_tokenize_ranks_give(void *ctx, tok_batch *b, lf_err *err);
/* After a pipeline with these sinks, however it went (rc); returns what came of it, other ranks'
 * failures included. */
int lf_tokenize_ranks_end(tok_ranks *k, int rc, lf_err *err);
/* Collective: add the counts of all ranks to rank 0's. */
int lf_tokenize_ranks_words(const tok_ranks *k, lf_word_counts *words, lf_err *err);
/* Collective: rank 0's text, number, flag on all ranks. */
int lf_tokenize_ranks_text(const tok_ranks *k, lf_buf *text, lf_err *err);
int lf_tokenize_ranks_u64(const tok_ranks *k, uint64_t *v, size_t n, lf_err *err);

/* ---- the tokenizer artifact ---- */
/* Load, adopt or train the tokenizer, publish OUT/tokenizer. *eos_id -1: none is appended.
 * Collective. */
int lf_tokenize_get_tokenizer(tokenize *s, lf_corpus *c, lf_tokenizer **out, int64_t *eos_id,
                              lf_err *err);

/* The chat template of the tokenizer's files (a block as they travel), where there is one:
 * s->rows.chat, s->chat_sha. */
int lf_tokenize_get_chat(tokenize *s, const lf_tokenizer *t, const lf_buf *block, const char *name,
                         lf_err *err);

/* ---- rows ---- */
/* One thread's. */
typedef struct tok_rows {
    tokenize *s;
    lf_tok_state *state;
    lf_rowdocs docs;
    lf_buf text; /* of a plain document */
} tok_rows;
/* Record i to its documents: r->docs, and what its split is chosen by in *text (borrowed from r).
 * Rows that are at fault are counted or errors, by s->skip_bad and s->drop_non_prefix. */
int lf_tokenize_row(tok_rows *r, tok_batch *b, size_t i, const char *where, const lf_buf **text,
                    lf_err *err);
/* The documents to the batch, as its record i. */
int lf_tokenize_row_put(const tok_rows *r, tok_batch *b, size_t i, const lf_buf *text, int split,
                        lf_err *err);

/* ---- the doctor ---- */
int lf_tokenize_doctor(tokenize *s, lf_err *err);

/* ---- shards ---- */
typedef struct tok_shard {
    char name[32];
    lf_shard_stat stat;
    uint64_t text_bytes, trained;
    bool there;
} tok_shard;

/* What a finished group of shards leaves on disk: its files and where the next group begins. */
typedef struct tok_group {
    tok_shard shard[N_SPLITS];
    uint64_t next; /* ordinal of the first record that is not in this group or an earlier one */
    size_t source; /* source that record `next` is in, or the last one */
    uint64_t source_first;
    uint64_t raw_bytes, replaced, counts[N_COUNTS]; /* sums from the very start */
} tok_group;

typedef struct tok_writer {
    tokenize *s;
    const lf_tokenizer *t;
    const lf_corpus *corpus;
    lf_shard_info info;
    int token_bytes;
    char fingerprint[LF_HASH_HEX];
    char *dir;      /* OUT/shards */
    char *progress; /* OUT/progress */
    tok_group *groups;
    size_t n_groups, cap_groups;
    /* The open group. */
    lf_shard_writer *w[N_SPLITS];
    uint64_t text_bytes[N_SPLITS], trained[N_SPLITS];
    bool any_kind; /* info.rows is that of the documents so far */
    tok_group at;  /* running sums and place */
    size_t last_source;
    bool any_source;
    uint64_t *counts[N_SPLITS]; /* token counts over all groups */
    lf_frame_writer *metrics;
    double t0;
    uint64_t tokens_at_start;
} tok_writer;

int lf_tokenize_writer_open(tok_writer *w, tokenize *s, const lf_tokenizer *t, const lf_corpus *c,
                            int64_t eos_id, lf_err *err);
/* The pipeline's sink (sink_ctx is the tok_writer). */
int lf_tokenize_writer_sink(void *ctx, tok_batch *b, lf_err *err);
int lf_tokenize_close_group(tok_writer *w, lf_err *err);
void lf_tokenize_writer_fini(tok_writer *w);
/* Adopt finished groups of earlier starts; fills groups and counts. */
int lf_tokenize_adopt(tok_writer *w, lf_err *err);
json_t *lf_tokenize_group_json(const tok_writer *w, const tok_group *g);
json_t *lf_tokenize_counts_json(const uint64_t *counts);
/* Publish OUT/shards. */
int lf_tokenize_finish(tok_writer *w, lf_err *err);
/* Nats per token of a count vector. */
double lf_tokenize_entropy(const uint64_t *counts, size_t n);

#endif
