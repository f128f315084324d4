/* SPDX-License-Identifier: Apache-2.0
 *
 * One planted fault for each rule of the checker, found and named.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/tap/tap.h"
#include "tests/unit/pipe_util.h"

static int find(const struct lf_pipe *p, int rank, enum lf_pipe_op op, int chunk, int micro,
                enum lf_pipe_dir dir)
{
    for (int i = 0; i < p->list[rank].n; i++) {
        const struct lf_pipe_item *it = &p->list[rank].item[i];
        if (it->op == op && it->chunk == chunk && it->micro == micro &&
            (op <= LF_PIPE_Z || it->dir == dir))
            return i;
    }
    tap_bail("there is no such item");
}

/* An item of a list whose kinds have one chunk, in the direction of activations. */
static int at(const struct lf_pipe *p, int rank, enum lf_pipe_op op, int micro)
{
    return find(p, rank, op, 0, micro, LF_PIPE_ACTIVATION);
}

static struct lf_pipe_item take(struct lf_pipe *p, int rank, int i)
{
    struct lf_pipe_list *l = &p->list[rank];
    const struct lf_pipe_item it = l->item[i];
    memmove(&l->item[i], &l->item[i + 1], (size_t)(l->n - i - 1) * sizeof it);
    l->n--;
    return it;
}

static void insert(struct lf_pipe *p, int rank, int i, struct lf_pipe_item it)
{
    struct lf_pipe_list *l = &p->list[rank];
    l->item = realloc(l->item, (size_t)(l->n + 1) * sizeof it);
    if (!l->item)
        tap_bail("no memory");
    memmove(&l->item[i + 1], &l->item[i], (size_t)(l->n - i) * sizeof it);
    l->item[i] = it;
    l->n++;
}

/* Moves the item at `from` to before the one that is at `to`. */
static void move(struct lf_pipe *p, int rank, int from, int to)
{
    const struct lf_pipe_item it = take(p, rank, from);
    insert(p, rank, to > from ? to - 1 : to, it);
}

static void found(struct lf_pipe *p, const char *text, const char *name)
{
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_pipe_walk(NULL, p, NULL, &err), LF_EINVAL, &err, text, name);
    lf_pipe_fini(p);
}

/* Lists without faults pass the same way; all faults begin with one of these. */
static struct lf_pipe fine(enum lf_pipe_kind kind, bool messages)
{
    struct lf_pipe p = messages ? pipe_sending(kind, 3, 1, 6, (struct lf_pipe_message_opts){0})
                                : pipe_made(kind, 3, 1, 6);
    lf_err err = LF_ERR_INIT;
    if (lf_pipe_walk(NULL, &p, NULL, &err) < 0)
        tap_bail("%s", err.text);
    return p;
}

static void passes(void)
{
    struct lf_pipe p = fine(LF_PIPE_ZB_H1, false);
    take(&p, 1, at(&p, 1, LF_PIPE_W, 3));
    found(&p, "rank 1, W of micro-batch 3, chunk 0 is missing", "a W is missing");
    p = fine(LF_PIPE_1F1B, false);
    take(&p, 2, at(&p, 2, LF_PIPE_Z, 5));
    found(&p, "rank 2, B of micro-batch 5, chunk 0 is missing", "a Z is missing");
    p = fine(LF_PIPE_1F1B, false);
    p.list[0].n = 0;
    found(&p, "rank 0, F of micro-batch 0, chunk 0 is missing", "a list is empty");
    p = fine(LF_PIPE_1F1B, false);
    insert(&p, 1, 3, p.list[1].item[0]);
    found(&p, "rank 1, F of micro-batch 0, chunk 0 is there twice", "an F is there twice");
    p = fine(LF_PIPE_ZB_H1, false);
    const int b = at(&p, 2, LF_PIPE_B, 0);
    insert(&p, 2, b + 1, p.list[2].item[b]);
    p.list[2].item[b + 1].op = LF_PIPE_Z;
    found(&p, "rank 2, Z of micro-batch 0, chunk 0 is there twice", "a Z behind a B");
    p = fine(LF_PIPE_1F1B, false);
    move(&p, 2, at(&p, 2, LF_PIPE_Z, 0), 0);
    found(&p, "rank 2, Z of micro-batch 0, chunk 0 comes before its F", "a Z before its F");
    p = fine(LF_PIPE_ZB_H1, false);
    move(&p, 0, at(&p, 0, LF_PIPE_W, 0), at(&p, 0, LF_PIPE_B, 0));
    found(&p, "rank 0, W of micro-batch 0, chunk 0 comes before its B", "a W before its B");
    p = fine(LF_PIPE_1F1B, false);
    move(&p, 0, at(&p, 0, LF_PIPE_Z, 1), at(&p, 0, LF_PIPE_Z, 0));
    found(&p, "rank 0, Z of micro-batch 0, chunk 0 comes behind micro-batch 1: backward passes",
          "backward passes change places");
    p = fine(LF_PIPE_ZB_H1, false);
    move(&p, 0, at(&p, 0, LF_PIPE_B, 1), at(&p, 0, LF_PIPE_B, 0));
    found(&p, "rank 0, B of micro-batch 0, chunk 0 comes behind micro-batch 1: backward passes",
          "gradients of inputs change places");
    p = fine(LF_PIPE_ZB_H1, false);
    move(&p, 2, at(&p, 2, LF_PIPE_W, 5), at(&p, 2, LF_PIPE_W, 4));
    found(&p, "rank 2, W of micro-batch 4, chunk 0 comes behind micro-batch 5: backward passes",
          "gradients of weights change places");
    p = pipe_made(LF_PIPE_INTERLEAVED, 1, 2, 2);
    move(&p, 0, find(&p, 0, LF_PIPE_F, 1, 0, 0), 0);
    found(&p, "rank 0, F of micro-batch 0, chunk 1 comes before that of chunk 0, which it reads",
          "a chunk before the one that it reads");
    p = pipe_made(LF_PIPE_INTERLEAVED, 1, 2, 1);
    move(&p, 0, find(&p, 0, LF_PIPE_Z, 0, 0, 0), find(&p, 0, LF_PIPE_Z, 1, 0, 0));
    found(&p, "rank 0, Z of micro-batch 0, chunk 0 comes before that of chunk 1, which it reads",
          "and backwards");
    p = pipe_forward(LF_PIPE_1F1B, 2, 1, 2);
    p.list[1].item[1].op = LF_PIPE_Z;
    p.list[1].item[1].micro = 0;
    found(&p, "rank 1, Z of micro-batch 0, chunk 0 is in lists that only go forwards",
          "a Z where there is only F");
    p = pipe_forward(LF_PIPE_INTERLEAVED, 2, 2, 2);
    take(&p, 0, 3);
    found(&p, "rank 0, F of micro-batch 1, chunk 1 is missing", "and an F is missing");
}

static void items(void)
{
    struct lf_pipe p = fine(LF_PIPE_1F1B, false);
    p.list[1].item[2].op = LF_PIPE_OPS;
    found(&p, "rank 1 has an item 8 of micro-batch ", "an item of no kind");
    p = fine(LF_PIPE_1F1B, false);
    p.list[1].item[0].micro = 6;
    found(&p, "rank 1 has an item 0 of micro-batch 6, chunk 0", "a micro-batch too many");
    p = fine(LF_PIPE_1F1B, false);
    p.list[1].item[0].chunk = 1;
    found(&p, "rank 1 has an item 0 of micro-batch 0, chunk 1", "a chunk too many");
    p = fine(LF_PIPE_1F1B, false);
    p.list[0].item[0].op = LF_PIPE_SEND;
    found(&p, "chunk 0, to rank -1 has no other end", "a message in lists without them");
    p = fine(LF_PIPE_1F1B, true);
    p.list[2].item[at(&p, 2, LF_PIPE_RECV, 0)].op = LF_PIPE_SEND;
    found(&p, "rank 2, send of the activation of micro-batch 0, chunk 0, to rank 1 has no other",
          "the last pipeline stage sends an activation");
    p = fine(LF_PIPE_1F1B, true);
    p.list[1].item[at(&p, 1, LF_PIPE_SEND, 0)].peer = 0;
    found(&p, "to rank 0 has tag 0, but the other end is rank 2 with tag 0", "another rank");
    p = fine(LF_PIPE_1F1B, true);
    p.list[1].item[at(&p, 1, LF_PIPE_RECV, 0)].tag = 3;
    found(&p, "from rank 0 has tag 3, but the other end is rank 0 with tag 0", "another tag");
    p = fine(LF_PIPE_1F1B, true);
    p.list[1].item[at(&p, 1, LF_PIPE_RECV, 0)].dir = LF_PIPE_DIRS;
    found(&p, "receive of the unknown data of micro-batch 0, chunk 0, from rank 0 has no other end",
          "a message in no direction");
    p = pipe_sending(LF_PIPE_INTERLEAVED, 1, 2, 1, (struct lf_pipe_message_opts){0});
    struct lf_pipe_item send = p.list[0].item[0];
    send.op = LF_PIPE_SEND;
    send.peer = send.tag = 0;
    insert(&p, 0, 1, send);
    found(&p,
          "rank 0, send of the activation of micro-batch 0, chunk 0, to rank 0 has no other end",
          "a rank sends to itself");
}

static void slots(void)
{
    struct lf_pipe p = fine(LF_PIPE_1F1B, false);
    p.list[0].item[1].slot = p.list[0].item[0].slot;
    found(&p, "rank 0, F of micro-batch 1, chunk 0 has slot 0, which holds micro-batch 0",
          "a slot that is in use");
    p = fine(LF_PIPE_1F1B, false);
    p.list[0].item[at(&p, 0, LF_PIPE_Z, 0)].slot = 1;
    found(&p, "rank 0, Z of micro-batch 0, chunk 0 has slot 1, which holds micro-batch 1",
          "the slot of another micro-batch");
    p = fine(LF_PIPE_GPIPE, false);
    p.list[2].item[at(&p, 2, LF_PIPE_Z, 1)].slot = 0;
    found(&p, "rank 2, Z of micro-batch 1, chunk 0 has slot 0, which is empty", "an empty slot");
    p = fine(LF_PIPE_1F1B, false);
    p.list[2].item[0].slot = 1;
    found(&p, "rank 2, F of micro-batch 0, chunk 0 has slot 1, which its chunk has not",
          "a slot too many");
}

static void receives(void)
{
    struct lf_pipe p = fine(LF_PIPE_1F1B, true);
    take(&p, 1, at(&p, 1, LF_PIPE_WAIT_RECV, 2));
    found(&p,
          "rank 1, F of micro-batch 2, chunk 0 reads receive buffer 0 before its input is there: "
          "the wait is missing",
          "a wait is left out");
    p = fine(LF_PIPE_1F1B, true);
    move(&p, 1, at(&p, 1, LF_PIPE_RECV, 2), at(&p, 1, LF_PIPE_F, 0));
    found(
        &p,
        "rank 1, receive of the activation of micro-batch 2, chunk 0, from rank 0 goes into buffer "
        "0, which micro-batch 0 is still in",
        "a receive into a buffer that is still read");
    p = fine(LF_PIPE_1F1B, true);
    take(&p, 1, at(&p, 1, LF_PIPE_RECV, 2));
    found(&p, "micro-batch 2, chunk 0, from rank 0 finds no such receive in buffer 0",
          "a receive is left out");
    p = fine(LF_PIPE_1F1B, true);
    p.list[1].item[at(&p, 1, LF_PIPE_F, 1)].recv_buffer = 0;
    found(&p,
          "rank 1, F of micro-batch 1, chunk 0 reads receive buffer 0 before its input is there",
          "the buffer of another message");
    p = fine(LF_PIPE_1F1B, true);
    p.list[1].item[at(&p, 1, LF_PIPE_F, 1)].recv_buffer = 2;
    found(&p, "rank 1, F of micro-batch 1, chunk 0 reads receive buffer 2, which its chunk has not",
          "a receive buffer too many for F");
    p = fine(LF_PIPE_1F1B, true);
    p.list[1].item[at(&p, 1, LF_PIPE_RECV, 1)].recv_buffer = 2;
    found(&p, "from rank 0 has buffer 2, which its chunk has not", "and for a receive");
    p = fine(LF_PIPE_1F1B, true);
    const struct lf_pipe_item again = p.list[1].item[at(&p, 1, LF_PIPE_RECV, 5)];
    insert(&p, 1, p.list[1].n, again);
    found(&p,
          "the lists end while the activation of micro-batch 5 to rank 1, chunk 0 is still in a "
          "receive buffer",
          "a receive too many");
}

static void sends(void)
{
    struct lf_pipe p = fine(LF_PIPE_1F1B, true);
    move(&p, 0, at(&p, 0, LF_PIPE_SEND, 0), at(&p, 0, LF_PIPE_SEND, 1) + 1);
    found(&p,
          "rank 1, receive of the activation of micro-batch 0, chunk 0, from rank 0 comes where "
          "rank 0 sends micro-batch 1 with tag 0",
          "two sends change places");
    p = fine(LF_PIPE_1F1B, true);
    take(&p, 0, at(&p, 0, LF_PIPE_WAIT_SEND, 0));
    found(&p, "rank 0, F of micro-batch 2, chunk 0 writes send buffer 0, which micro-batch 0 is",
          "a wait for a send is left out");
    p = fine(LF_PIPE_1F1B, true);
    move(&p, 0, at(&p, 0, LF_PIPE_SEND, 1), at(&p, 0, LF_PIPE_F, 1));
    found(&p, "micro-batch 1, chunk 0, to rank 1 finds no such output in buffer 1",
          "a send before what it sends");
    p = fine(LF_PIPE_1F1B, true);
    take(&p, 0, at(&p, 0, LF_PIPE_WAIT_SEND, 5));
    found(
        &p,
        "the lists end while the activation of micro-batch 5 to rank 1, chunk 0 is still in a send "
        "buffer",
        "the last wait is left out");
    p = fine(LF_PIPE_1F1B, true);
    take(&p, 0, at(&p, 0, LF_PIPE_SEND, 3));
    found(&p, "micro-batch 3, chunk 0, to rank 1 finds no such send in buffer 1",
          "a send is left out");
    p = fine(LF_PIPE_1F1B, true);
    p.list[0].item[at(&p, 0, LF_PIPE_F, 1)].send_buffer = 2;
    found(&p, "rank 0, F of micro-batch 1, chunk 0 writes send buffer 2, which its chunk has not",
          "a send buffer too many for F");
    p = fine(LF_PIPE_1F1B, true);
    p.list[0].item[at(&p, 0, LF_PIPE_SEND, 1)].send_buffer = -1;
    found(&p, "to rank 1 has buffer -1, which its chunk has not", "and for a send");
}

/* Two chunks of one pair of ranks: messages are not told apart by their tags alone. */
static void pair_order(void)
{
    struct lf_pipe p = pipe_sending(LF_PIPE_INTERLEAVED, 3, 2, 3, (struct lf_pipe_message_opts){0});
    /* Rank 0 does F of micro-batch 2, chunk 0, and sends it before F of micro-batch 0, chunk 1. */
    move(&p, 1, find(&p, 1, LF_PIPE_RECV, 1, 0, LF_PIPE_ACTIVATION),
         find(&p, 1, LF_PIPE_RECV, 0, 2, LF_PIPE_ACTIVATION));
    found(&p,
          "rank 1, receive of the activation of micro-batch 0, chunk 1, from rank 0 comes where "
          "rank 0 "
          "sends micro-batch 2 with tag 0",
          "a receive of another chunk comes first");
    p = pipe_sending(LF_PIPE_INTERLEAVED, 2, 2, 2, (struct lf_pipe_message_opts){0});
    struct lf_pipe_item *one = &p.list[1].item[find(&p, 1, LF_PIPE_RECV, 0, 0, 0)];
    struct lf_pipe_item *two = &p.list[1].item[find(&p, 1, LF_PIPE_RECV, 1, 0, 0)];
    const struct lf_pipe_item kept = *one;
    *one = *two;
    *two = kept;
    found(&p,
          "rank 1, receive of the activation of micro-batch 0, chunk 1, from rank 0 comes where "
          "rank 0 "
          "sends micro-batch 0 with tag 0",
          "receives of one micro-batch for two chunks change places");
    p = pipe_made(LF_PIPE_GPIPE, 2, 1, 2);
    lf_err err = LF_ERR_INIT;
    move(&p, 1, 1, 0);
    if (lf_pipe_add_messages(&p, &(struct lf_pipe_message_opts){.buffers = 2}, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_pipe_walk(NULL, &p, NULL, &err), 0, &err, NULL,
           "a rank may take micro-batches in another order where it has buffers for all");
    lf_pipe_fini(&p);
    p = pipe_made(LF_PIPE_GPIPE, 2, 1, 2);
    move(&p, 1, 1, 0);
    tap_rc(lf_pipe_add_messages(&p, &(struct lf_pipe_message_opts){.buffers = 1}, &err), LF_EINVAL,
           &err,
           "rank 1, F of micro-batch 1, chunk 0: its receive stands behind others that have no "
           "buffer; "
           "1 are not enough",
           "else it is told so");
    tap_ok(!p.messages && p.recv_buffers[LF_PIPE_ACTIVATION][1] == 0 && p.list[1].n == 4,
           "and the lists stay as they are");
    p.list[1].item[0] = p.list[1].item[1];
    tap_rc(lf_pipe_add_messages(&p, NULL, &err), LF_EINVAL, &err, "is there twice",
           "lists that are broken get no messages");
    lf_pipe_fini(&p);
}

/* Between two chunks of one rank. */
static void one_rank(void)
{
    struct lf_pipe p = pipe_grouped(1, 2, 2, 2);
    lf_err err = LF_ERR_INIT;
    if (lf_pipe_add_messages(&p, NULL, &err) < 0)
        tap_bail("%s", err.text);
    p.list[0].item[find(&p, 0, LF_PIPE_F, 0, 1, 0)].send_buffer = 0;
    found(&p, "rank 0, F of micro-batch 1, chunk 0 writes send buffer 0, which micro-batch 0 is",
          "an output over one that is not read yet");
}

int main(void)
{
    TAP(14, passes());
    TAP(9, items());
    TAP(4, slots());
    TAP(7, receives());
    TAP(7, sends());
    TAP(6, pair_order());
    TAP(1, one_rank());
    return tap_done();
}
