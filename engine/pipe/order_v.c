/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders over a V: ZB-V and DualPipeV, and lists that only go forwards. A rank has one chunk on the
 * way from the first rank to the last, chunk 0, and one on the way back, chunk 1.
 */
#include "engine/pipe/pipe_priv.h"

/* What a list has so far. */
struct maker {
    struct lf_pipe_list *l;
    int m;
    int next[LF_PIPE_Z][2]; /* [F, B or W][chunk]: the next micro-batch */
    int put_off;            /* items before this one have no W to come */
};

/* Micro-batches from m on are those that a longer list would have: leaving out the same ones on
 * every rank keeps what is left in an order that can be done. */
static void add(struct maker *k, enum lf_pipe_op op, int chunk)
{
    const int micro = k->next[op][chunk]++;
    if (micro < k->m)
        lf_pipe_push(k->l, op, chunk, micro);
}

static void add_b_w(struct maker *k, int chunk)
{
    add(k, LF_PIPE_B, chunk);
    add(k, LF_PIPE_W, chunk);
}

static void add_z(struct maker *k, int chunk)
{
    lf_pipe_push(k->l, LF_PIPE_Z, chunk, k->next[LF_PIPE_B][chunk]++);
}

/* The W of the first B that has none yet. */
static void add_oldest_w(struct maker *k)
{
    while (k->l->item[k->put_off].op != LF_PIPE_B)
        k->put_off++;
    const struct lf_pipe_item b = k->l->item[k->put_off++];
    lf_pipe_push(k->l, LF_PIPE_W, b.chunk, b.micro);
}

/* Forward passes until the first micro-batch is back; then a rank does F, B and W of its chunks in
 * turn, so that each new F takes the memory of a W. At the end it does all B that others wait for
 * before the W that it put off. The order is one for at least 2P-1 micro-batches. */
void lf_pipe_order_zb_v(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    const int behind = s->ranks - 1 - rank, m = s->micro_batches, least = 2 * s->ranks - 1;
    struct maker k = {.l = l, .m = m};
    for (int i = 0; i < 2 * behind + 1; i++)
        add(&k, LF_PIPE_F, 0);
    for (int i = 0; i < rank; i++) {
        add(&k, LF_PIPE_F, 1);
        add(&k, LF_PIPE_F, 0);
    }
    for (int i = 0; i <= behind; i++) {
        add(&k, LF_PIPE_F, 1);
        add_b_w(&k, 1);
    }
    for (int i = s->ranks; i < (m > least ? m : least); i++) {
        add(&k, LF_PIPE_F, 0);
        add_b_w(&k, 0);
        add(&k, LF_PIPE_F, 1);
        add_b_w(&k, 1);
    }
    for (int i = 0; i < rank; i++) {
        add(&k, LF_PIPE_B, 0);
        add(&k, LF_PIPE_B, 1);
    }
    for (int i = 0; i <= behind; i++)
        add_b_w(&k, 0);
    for (int i = 0; i < 2 * rank; i++)
        add(&k, LF_PIPE_W, i < rank ? 1 : 0);
}

/* The eight phases of DualPipe, halved. Pairs of F and Z stand side by side, for ranks that can
 * exchange rows of one beside the other. */
void lf_pipe_order_dualpipe_v(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    const int behind = s->ranks - 1 - rank, m = s->micro_batches;
    struct maker k = {.l = l, .m = m};
    for (int i = 0; i < 2 * behind; i++)
        add(&k, LF_PIPE_F, 0);
    for (int i = 0; i < 2 * (rank + 1); i++)
        add(&k, LF_PIPE_F, i % 2);
    for (int i = 0; i < behind; i++) {
        add(&k, LF_PIPE_B, 1);
        add_oldest_w(&k);
        add(&k, LF_PIPE_F, 1);
    }
    for (int i = 0; i < m - 2 * s->ranks + rank + 1; i++) {
        add(&k, LF_PIPE_F, 0);
        add_z(&k, 1);
        add(&k, LF_PIPE_F, 1);
        add_z(&k, 0);
    }
    for (int i = 0; i < behind; i++) {
        add_z(&k, 1);
        add(&k, LF_PIPE_F, 1);
        add_z(&k, 0);
    }
    for (int i = 0; i <= rank; i++) /* as many whole as split */
        add_z(&k, 1 - i % 2);
    for (int i = rank + 1; i < 2 * (rank + 1); i++)
        add(&k, LF_PIPE_B, 1 - i % 2);
    for (int i = 0; i < behind; i++) {
        add_oldest_w(&k);
        add(&k, LF_PIPE_B, 0);
    }
    for (int i = 0; i <= rank; i++)
        add_oldest_w(&k);
}

/* Chunk 0 of micro-batch i at moment 2i + r, chunk 1 at 2i + 2P-1-r: no two of a rank are at one
 * moment, and each reads what the moment before has made, so it cannot hang. */
void lf_pipe_order_forward_v(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    struct maker k = {.l = l, .m = s->micro_batches};
    for (int i = 0; i < s->ranks - rank; i++)
        add(&k, LF_PIPE_F, 0);
    for (int i = 0; i < s->micro_batches; i++) {
        add(&k, LF_PIPE_F, 1);
        add(&k, LF_PIPE_F, 0);
    }
}
