/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of pipeline parallelism, as data.
 *
 * The layers of a model are cut into S = P v pipeline stages. Each of P ranks holds v of them, its
 * chunks: rank r the pipeline stages c P + r, c = 0 .. v-1; or, where a kind goes forth and back
 * over the ranks in a V, the pipeline stages r and 2P-1-r, so that rank 0 has the first and the
 * last. (A stage without the word pipeline is one step of a run, such as pretrain.) A step sends m
 * micro-batches through all pipeline stages forwards and then backwards. A schedule is one list of
 * items per rank, which that rank does in this order:
 *
 *   F  the forward pass of a chunk
 *   B  the gradient of the chunk's input
 *   W  the gradients of the chunk's weights; it needs what F and B saved
 *   Z  B and W at once
 *
 * With r the rank, the lists and their closed forms are, where F, B and W are also the times of a
 * whole rank's layers, equal on all ranks, and messages take none:
 *
 *   kind         forwards first        idle of a rank     most micro-batches alive on rank r
 *   gpipe        m                     (P-1) (F+B+W)      m
 *   1f1b         min(P-1-r, m)         (P-1) (F+B+W)      min(P-r, m)
 *   interleaved  2(P-1-r) + (v-1) N    (P-1) (F+B+W)/v    (2(P-1-r) + (v-1) N + 1) / v, at most m
 *   zb-h1        min(P-1-r, m)         (P-1) (F+B-W)      min(P, m)
 *   zb-v         2(P-1-r) + 1          (P-1) F/2          (min(2P-1-r, m) + min(r+1, m)) / 2
 *   dualpipe-v   2(P-1-r)              (P-1) F/2          P + 1/2
 *
 * With m < P it is different for two: interleaved is idle for (P-1 + (v-1) (P-m)) (F+B+W)/v, and
 * zb-h1 for (P-1) (F+B) - (m-1) W. Both of zb-h1 are for W <= F and W <= B. Idle times of zb-v
 * and dualpipe-v are for F = B = W and m >= 2P-1. Their first forwards are those of chunk 0 alone,
 * before both chunks take turns. With m < 2P-1 zb-v leaves out what the list for 2P-1 has more;
 * dualpipe-v needs m >= 2P.
 *
 * A micro-batch is alive on a chunk from its F to the last of its B and W, or its Z. One that is
 * alive on one of v chunks counts 1/v. Interleaved lists go through groups of N micro-batches: all
 * of a group through one chunk, then through the next. The idle time holds if N >= P and m mod N is
 * 0 or >= P. Else it may be larger, and with N = P a remainder of 1 to P-3 can make the order
 * cyclic: then it hangs, whatever moves the messages. N is therefore the smallest that fulfils the
 * rule; m < P takes N = P and has one group. With v = 1 interleaved is 1f1b.
 *
 * Backward passes of a chunk ascend in micro-batch in every list, so that gradients are summed in
 * the order of one rank.
 *
 * Lists that only go forwards (`forward`) have every F and nothing else, for a loss that is
 * measured and not trained. They go in groups of N = P as interleaved lists do, and a chunk has one
 * slot, whose micro-batch is done when its F is. With equal F they are idle for (P-1) F/v, and for
 * (v-1) (P - m mod P) F/v more where P does not divide m. In a V the chunks take turns, and ranks
 * are idle for (P-1) F: the last one begins P-1 passes behind the first, and ends P-1 before it.
 *
 * Sources: GPipe, arXiv 1811.06965; 1F1B, arXiv 2006.09503; interleaving, arXiv 2104.04473; ZB-H1
 * and ZB-V, arXiv 2401.10241; DualPipe, arXiv 2412.19437, of which dualpipe-v is the half that one
 * copy of the model needs. The rule for N was found with the checker of walk.h.
 *
 * Lists are made once for each m, before the first step. They are walked without allocation.
 */
#ifndef LF_PIPE_PIPE_H
#define LF_PIPE_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_pipe_kind {
    LF_PIPE_GPIPE,
    LF_PIPE_1F1B,
    LF_PIPE_INTERLEAVED,
    LF_PIPE_ZB_H1,
    LF_PIPE_ZB_V,
    LF_PIPE_DUALPIPE_V,
    LF_PIPE_KINDS
};

enum lf_pipe_op {
    LF_PIPE_F,
    LF_PIPE_B,
    LF_PIPE_W,
    LF_PIPE_Z,
    LF_PIPE_SEND,      /* starts a message from a send buffer and does not wait */
    LF_PIPE_RECV,      /* gives a receive buffer to a message that will come; does not wait */
    LF_PIPE_WAIT_SEND, /* the send buffer may be written again */
    LF_PIPE_WAIT_RECV, /* the message is in the receive buffer */
    LF_PIPE_OPS
};

/* What a message carries: an activation to the next pipeline stage, or the gradient of an
 * activation to the one before. */
enum lf_pipe_dir { LF_PIPE_ACTIVATION, LF_PIPE_GRADIENT, LF_PIPE_DIRS };

/* A number that an item does not have is -1. */
struct lf_pipe_item {
    uint8_t op;          /* enum lf_pipe_op */
    uint8_t dir;         /* enum lf_pipe_dir, of messages and waits; else 0 */
    int16_t chunk;       /* of this rank */
    int32_t micro;       /* the micro-batch, 0 .. m-1 */
    int32_t slot;        /* F, B, W, Z: where the chunk saves for the backward pass */
    int32_t peer;        /* messages, waits: the other rank */
    int32_t tag;         /* messages, waits: 2 * chunk of the reader + dir */
    int32_t recv_buffer; /* RECV and its wait; F, B, Z: the buffer that the input is in */
    int32_t send_buffer; /* SEND and its wait; F, B, Z: the buffer that the output goes to */
};

struct lf_pipe_list {
    struct lf_pipe_item *item;
    int n;
};

struct lf_pipe_spec {
    enum lf_pipe_kind kind;
    int ranks;         /* P >= 1 */
    int chunks;        /* v >= 1; lf_pipe_kind_chunks */
    int micro_batches; /* m >= 1 */
    int group;         /* N of interleaved; 0: by the rule above */
    bool forward;      /* F alone */
};

/* Index of per-chunk arrays: rank * spec.chunks + chunk. */
struct lf_pipe {
    struct lf_pipe_spec spec;  /* group is the N that was used; 0 for other kinds but forwards */
    bool messages;             /* the lists have messages and buffers */
    struct lf_pipe_list *list; /* [ranks] */
    int *slots;                /* per chunk: the most micro-batches alive at once in its list */
    int *recv_buffers[LF_PIPE_DIRS]; /* per chunk; 0 without messages */
    int *send_buffers[LF_PIPE_DIRS];
};

/* Makes the lists, without messages. LF_EINVAL: a size is below 1 or too large, or the kind has no
 * such chunks or groups, or needs more micro-batches. lf_pipe_fini frees what p holds, and takes a
 * zeroed object or NULL. */
int lf_pipe_init(struct lf_pipe *p, const struct lf_pipe_spec *spec, lf_err *err);
void lf_pipe_fini(struct lf_pipe *p);

/* Adds messages, waits and buffers to lists without them. Every output of a chunk whose reader is
 * on another rank is sent as soon as it is there. A list ends when its last sends are done.
 *
 * A receive is posted as soon as its buffer is free, which is when the item that reads it is done:
 * that item keeps what it needs later in its slot. All messages from one rank to another are
 * received in the order in which they are sent, whatever their tags are. So a transport without
 * tags needs one channel for each direction of a pair.
 *
 * A chunk has `buffers` for receives and as many for sends, in each direction, and uses them in
 * turn; it never has more than micro-batches. Where interleaved lists go round from the last rank
 * to the first or back, N - P messages wait between two chunks. There the reader has N - P buffers
 * more, and if receives are late the writer too: with fewer some lists are slower, and some hang.
 * With two, all lists of this header take as long as with any number where all times are equal. In
 * a V a rank reads one activation behind gradients that were sent after it, so that one buffer is
 * too few.
 *
 * Where the reader is another chunk of the same rank, nothing is sent. The output goes straight
 * into the reader's receive buffer, and send_buffer names that one. There are as many of them as
 * the list needs.
 *
 * LF_EINVAL: there are messages already; the lists break a rule of walk.h; buffers is negative or
 * above 2^20, or too small for a rank that reads in another order than is sent. */
struct lf_pipe_message_opts {
    int buffers; /* 0: 2 */
    bool late;   /* a receive stands where its data is needed, for receives that block */
};
int lf_pipe_add_messages(struct lf_pipe *p, const struct lf_pipe_message_opts *o, lf_err *err);

/* Where pipeline stages live: s = stage(rank, chunk), and the other way round. */
int lf_pipe_stage(const struct lf_pipe_spec *s, int rank, int chunk);
void lf_pipe_place(int *rank, int *chunk, const struct lf_pipe_spec *s, int stage);

/* The N of interleaved lists. */
int lf_pipe_group(int ranks, int micro_batches);

/* Chunks that a rank has; 0: as many as are asked for. */
int lf_pipe_kind_chunks(enum lf_pipe_kind kind);
/* Are there B and W? */
bool lf_pipe_kind_splits(enum lf_pipe_kind kind);
/* The fewest micro-batches that so many ranks need. */
int lf_pipe_kind_least(enum lf_pipe_kind kind, int ranks);
/* Do pipeline stages go forth and back over the ranks? */
bool lf_pipe_in_v(const struct lf_pipe_spec *s);
/* Or from the last rank to the first, so that these two exchange messages? */
bool lf_pipe_goes_round(const struct lf_pipe_spec *s);

/* "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v". lf_pipe_kind_parse:
 * LF_EINVAL, with the nearest name. */
const char *lf_pipe_kind_name(enum lf_pipe_kind kind);
int lf_pipe_kind_parse(enum lf_pipe_kind *out, const char *name, lf_err *err);

#endif
