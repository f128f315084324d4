/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside lf-tokenize: the options (tokenize.c), the ordered pipeline (tokenize_pipe.c), the
 * tokenizer artifact (tokenize_vocab.c), shards with their records (tokenize_shards.c), the
 * manifest (tokenize_finish.c), the work of several ranks together (tokenize_ranks.c) and what
 * shards hold (tokenize_show.h).
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
#include "stages/tokenize_media.h"
#include "stages/tokenize_show.h"

enum { SPLIT_TRAIN, SPLIT_VALID, N_SPLITS };
extern const char *const lf_tokenize_split_names[N_SPLITS];

/* ---- ranks ---- */
struct tok_batch;
typedef struct tok_ranks {
    lf_comm *comm; /* NULL: alone */
    int rank, size;
    bool *over; /* [size]: the exchange with that rank has ended */
    /* rank 0: gets the batches of all ranks, in order */
    int (*sink)(void *ctx, struct tok_batch *b, lf_err *err);
    void *sink_ctx;
} tok_ranks;

/* ---- options ---- */
typedef struct tokenize {
    tok_ranks *k;
    const lf_optset *o;
    const char **inputs;
    lf_energon_opts energon; /* of corpus */
    lf_glue glue;            /* task NULL: inputs are no files of GLUE */
    lf_corpus_args corpus;
    lf_shape_opts shape;
    tok_media media;
    const char **columns, **roles;
    const char *binary[2];     /* the columns of pictures */
    const char **read_columns; /* the columns of parquet that are read, see corpus.columns */
    lf_rowdocs_opts rows;      /* tok, chat and eos_id are set once the tokenizer is there */
    lf_chat *chat;             /* owns rows.chat */
    const char *chat_file;     /* NULL: the tokenizer's own template */
    /* file is NULL, because chat_file is among the tokenizer's files by then */
    lf_chat_opts chat_opts;
    char chat_sha[LF_HASH_HEX];
    char no_chat[sizeof(((lf_err *)0)->text)];
    bool skip_bad, drop_non_prefix;
    unsigned told; /* number of left-out rows that were named in the log; atomic */
    bool doctor, json;
    tok_show show;
    size_t doctor_memory;
    uint64_t seq_length;        /* doctor */
    const char *tokenizer_path; /* NULL: train */
    enum { VOCAB_BYTE_BPE, VOCAB_SP_BPE, VOCAB_UNIGRAM } vocab_type;
    /* used by byte_bpe; the other kinds read vocab_size and specials only */
    lf_bpe_train_args train;
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
    /* out directories to adopt from: those of earlier starts, oldest first, then out itself */
    const char **dirs;
    size_t n_dirs;
    /* hash of the identity options; run adds the labels and lengths of the sources */
    char options_sha[LF_HASH_HEX];
    bool reader_left;
} tokenize;

/* ---- pipeline ---- */
typedef struct tok_record {
    size_t at, len; /* in batch.raw */
    enum lf_corpus_form form;
    size_t source;
    uint64_t line;
    size_t member;      /* offset in batch.names + 1, 0 none */
    const char *passed; /* of the corpus (lf_corpus_record) */
    const lf_energon *folder;
} tok_record;

/* A record's documents: none when it is left out, two for a pair. */
typedef struct tok_doc {
    size_t n_ids, n_first; /* tokens; those of the first document */
    uint64_t text_bytes, trained;
    size_t rest_len; /* in batch.rest */
    float margin;
    uint8_t fate, kind, split; /* lf_row_fate, lf_row_kind */
    bool masked;               /* some tokens of the document are not trained */
    bool has_margin, label;
    uint32_t n_pics; /* of each document, in batch.pic_bytes */
    bool truncated, no_eos, double_bos, seam, empty_answer, other_prompt;
} tok_doc;

/* How many entries of batch.pics are the record's: each document has its own. */
static inline uint64_t lf_tokenize_uses(const tok_doc *d)
{
    return (uint64_t)d->n_pics * (d->kind == LF_ROW_PAIR ? 2 : 1);
}

/* The counts over records. */
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

/* Records in order. One thread makes the batch, one thread works on it, and the sink gets batches
 * in order. */
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
    /* pictures of the documents, lf_shard_picture without its bytes; these, one after the other,
     * once for the two documents of a pair */
    lf_buf pics, pic_bytes;
    tok_doc *docs;
    size_t cap_docs;
    uint64_t replaced;
    lf_err err;
    int rc;
    int state;
} tok_batch;

/* The place to begin. Records of sources before `source` are not read. The first record of `source`
 * has the ordinal `ordinal`. Records below `skip_to` are read but not passed on. */
typedef struct tok_start {
    size_t source;
    uint64_t ordinal, skip_to;
} tok_start;

typedef struct tok_pipe {
    lf_corpus *corpus;
    tok_start start;
    /* 0: no limit; counted from ordinal 0 (bytes_before covers the records before start.skip_to) */
    uint64_t max_docs, max_bytes;
    uint64_t bytes_before; /* raw bytes of the records before start.skip_to, for max_bytes */
    int threads;
    size_t batch_records; /* the most records of a batch; 0: the usual number */
    /* work is called only for the batches of this rank; ranks 0: for all batches */
    int rank, ranks;
    int (*work)(void *ctx, int thread, tok_batch *b, lf_err *err);
    int (*sink)(void *ctx, tok_batch *b, lf_err *err); /* NULL: none */
    void *ctx, *sink_ctx;
    const char *what; /* name in progress lines */
    /* set when the reading thread still waits for input: the corpus must then not be closed */
    bool *reader_left;
} tok_pipe;

/* Run to the end of the corpus. LF_EINTR when a stop was asked for. */
int lf_tokenize_pipe(const tok_pipe *p, lf_err *err);
/* Writes "file.jsonl:12" or "a.tar: member:12" to buf, for messages. */
void lf_tokenize_where(char *buf, size_t cap, const lf_corpus *c, const tok_batch *b, size_t i);

/* ---- several ranks; with one rank these do nothing ---- */
int lf_tokenize_ranks_open(tok_ranks *k, lf_comm *comm, lf_err *err);
void lf_tokenize_ranks_close(tok_ranks *k);
/* The sinks of the pipeline: the first for rank 0 (it passes every batch on to k->sink), the second
 * for the other ranks. ctx is the tok_ranks. */
int lf_tokenize_ranks_take(void *ctx, tok_batch *b, lf_err *err);
int lf_tokenize_ranks_give(void *ctx, tok_batch *b, lf_err *err);
/* Call it after a pipeline with these sinks, whatever its result rc. Returns the common result,
 * with the failures of other ranks. */
int lf_tokenize_ranks_end(tok_ranks *k, int rc, lf_err *err);
/* Collective. Adds the counts of all ranks to those of rank 0. */
int lf_tokenize_ranks_words(const tok_ranks *k, lf_word_counts *words, lf_err *err);
/* Collective. Gives rank 0's text, number or flag to all ranks. */
int lf_tokenize_ranks_text(const tok_ranks *k, lf_buf *text, lf_err *err);
int lf_tokenize_ranks_u64(const tok_ranks *k, uint64_t *v, size_t n, lf_err *err);

/* ---- the tokenizer artifact ---- */
/* Load, adopt or train the tokenizer and publish OUT/tokenizer. *eos_id -1: no end of document is
 * appended. Collective. */
int lf_tokenize_get_tokenizer(tokenize *s, lf_corpus *c, lf_tokenizer **out, int64_t *eos_id,
                              lf_err *err);

/* The chat template of the tokenizer's files, where there is one; it sets s->rows.chat and
 * s->chat_sha. block has the files as they are sent between ranks. */
int lf_tokenize_get_chat(tokenize *s, const lf_tokenizer *t, const lf_buf *block, const char *name,
                         lf_err *err);

/* ---- rows ---- */
/* The row state of one thread. */
typedef struct tok_rows {
    tokenize *s;
    lf_tok_state *state;
    lf_rowdocs docs;
    lf_buf text; /* text of a plain document */
    tok_pics pics;
} tok_rows;
/* Turns record i into its documents, r->docs. *text becomes the text that chooses its split
 * (borrowed from r). A bad row is counted or an error; s->skip_bad and s->drop_non_prefix decide
 * which. */
int lf_tokenize_row(tok_rows *r, tok_batch *b, size_t i, const char *where, const lf_buf **text,
                    lf_err *err);
/* Puts the documents into the batch, as its record i. */
int lf_tokenize_row_put(const tok_rows *r, tok_batch *b, size_t i, const lf_buf *text, int split,
                        lf_err *err);

/* ---- the doctor ---- */
int lf_tokenize_doctor(tokenize *s, lf_err *err);
int lf_tokenize_decoders(const lf_optset *o, lf_err *err); /* lf_stage.tell */

/* ---- shards ---- */
typedef struct tok_shard {
    char name[32];
    lf_shard_stat stat;
    uint64_t text_bytes, trained;
    bool there;
} tok_shard;

/* What a finished group of shards leaves on disk: its files and the place where the next group
 * begins. */
typedef struct tok_group {
    tok_shard shard[N_SPLITS];
    uint64_t next; /* ordinal of the first record that is not in this group or an earlier one */
    size_t source; /* the source of record `next`, or the last source */
    uint64_t source_first;
    uint64_t raw_bytes, replaced, counts[N_COUNTS]; /* sums since ordinal 0 */
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
    bool any_kind; /* info.rows is the kind of the documents so far */
    tok_group at;  /* the running sums and the place */
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
/* Adopt the finished groups of earlier starts. Fills groups and counts. */
int lf_tokenize_adopt(tok_writer *w, lf_err *err);
json_t *lf_tokenize_group_json(const tok_writer *w, const tok_group *g);
json_t *lf_tokenize_counts_json(const uint64_t *counts);
/* Publish OUT/shards. */
int lf_tokenize_finish(tok_writer *w, lf_err *err);
/* The entropy of a count vector in nats per token. */
double lf_tokenize_entropy(const uint64_t *counts, size_t n);

#endif
