/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of engine/pipe share.
 */
#ifndef LF_PIPE_PIPE_PRIV_H
#define LF_PIPE_PIPE_PRIV_H

#include "engine/pipe/pipe.h"

/* Generators append the items of one rank to a list that has room for three items a chunk and
 * micro-batch. */
void lf_pipe_order_gpipe(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
void lf_pipe_order_1f1b(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
void lf_pipe_order_interleaved(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
void lf_pipe_order_forward(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
void lf_pipe_order_zb_h1(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
void lf_pipe_order_zb_v(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
void lf_pipe_order_dualpipe_v(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);
void lf_pipe_order_forward_v(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank);

static inline void lf_pipe_push(struct lf_pipe_list *l, enum lf_pipe_op op, int chunk, int micro)
{
    l->item[l->n++] = (struct lf_pipe_item){.op = (uint8_t)op,
                                            .chunk = (int16_t)chunk,
                                            .micro = micro,
                                            .slot = -1,
                                            .peer = -1,
                                            .tag = -1,
                                            .recv_buffer = -1,
                                            .send_buffer = -1};
}

/* Gives every item a slot, the lowest that is free at its F, and sets p->slots. */
int lf_pipe_give_slots(struct lf_pipe *p, lf_err *err);

static inline int lf_pipe_stages(const struct lf_pipe_spec *s)
{
    return s->ranks * s->chunks;
}

static inline int lf_pipe_at(const struct lf_pipe_spec *s, int rank, int chunk)
{
    return rank * s->chunks + chunk;
}

static inline bool lf_pipe_computes(const struct lf_pipe_item *it)
{
    return it->op <= LF_PIPE_Z;
}

/* Between two neighbouring pipeline stages there is one channel for each direction. */
struct lf_pipe_edge {
    enum lf_pipe_dir dir;
    int channel;     /* dir * S + pipeline stage of the reader */
    int rank, chunk; /* the other end */
    int tag;
    int ahead; /* messages that the order itself keeps under way, beside one */
};

/* What F, B or Z reads of another pipeline stage, and what another one reads of it. False: it does
 * not read, or is not read. A message has the edge of the item that it belongs to. */
bool lf_pipe_input(struct lf_pipe_edge *e, const struct lf_pipe_spec *s, int rank,
                   const struct lf_pipe_item *it);
bool lf_pipe_output(struct lf_pipe_edge *e, const struct lf_pipe_spec *s, int rank,
                    const struct lf_pipe_item *it);

/* "rank 1, F of micro-batch 3, chunk 0", with "to" or "from" for messages. */
const char *lf_pipe_item_name(char *buf, size_t cap, int rank, const struct lf_pipe_item *it);

/* The rules of walk.h that need no clock. */
int lf_pipe_check(const struct lf_pipe *p, lf_err *err);

#endif
