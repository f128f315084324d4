/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages in the lists: where they stand, slots and buffers, and which ways to block hang, for all
 * of 8 ranks, 24 micro-batches and 4 chunks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/tap/tap.h"
#include "tests/unit/pipe_util.h"

/* All items of a rank: R receive, r its wait, S send, s its wait, each with a or g for activation
 * or gradient and the micro-batch; buffers behind ":". */
static const char *all_items(const struct lf_pipe *p, int rank)
{
    static char text[4096];
    size_t at = 0;
    for (int i = 0; i < p->list[rank].n && at + 32 < sizeof text; i++) {
        const struct lf_pipe_item *it = &p->list[rank].item[i];
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s%c", i ? " " : "", "FBWZSRsr"[it->op]);
        if (it->op > LF_PIPE_Z)
            at += (size_t)snprintf(text + at, sizeof text - at, "%c", "ag"[it->dir]);
        at += (size_t)snprintf(text + at, sizeof text - at, "%d", it->micro);
        if (it->recv_buffer >= 0 || it->send_buffer >= 0)
            at += (size_t)snprintf(text + at, sizeof text - at, ":%.*s%.*s", it->recv_buffer >= 0,
                                   &"0123456789"[it->recv_buffer >= 0 ? it->recv_buffer : 0],
                                   it -> send_buffer >= 0,
                                   &"abcdefghij"[it->send_buffer >= 0 ? it->send_buffer : 0]);
    }
    return text;
}

static void written_lists(void)
{
    struct lf_pipe p = pipe_sending(LF_PIPE_1F1B, 3, 1, 4, (struct lf_pipe_message_opts){0});
    tap_str(all_items(&p, 0),
            "Rg0:0 Rg1:1 F0:a Sa0:a F1:b Sa1:b sa0:a F2:a Sa2:a rg0:0 Z0:0 Rg2:0 sa1:b F3:b Sa3:b "
            "rg1:1 Z1:1 Rg3:1 rg2:0 Z2:0 rg3:1 Z3:1 sa2:a sa3:b",
            "the first rank");
    tap_str(all_items(&p, 2),
            "Ra0:0 Ra1:1 ra0:0 F0:0 Ra2:0 Z0:a Sg0:a ra1:1 F1:1 Ra3:1 Z1:b Sg1:b ra2:0 F2:0 sg0:a "
            "Z2:a Sg2:a ra3:1 F3:1 sg1:b Z3:b Sg3:b sg2:a sg3:b",
            "the last rank");
    lf_pipe_fini(&p);
    p = pipe_sending(LF_PIPE_ZB_H1, 3, 1, 2,
                     (struct lf_pipe_message_opts){.buffers = 1, .late = true});
    tap_str(all_items(&p, 1),
            "Ra0:0 ra0:0 F0:0a Sa0:a Ra1:0 ra1:0 sa0:a F1:0a Sa1:a Rg0:0 rg0:0 B0:0a Sg0:a Rg1:0 "
            "rg1:0 sg0:a B1:0a Sg1:a W0 W1 sa1:a sg1:a",
            "late receives, one buffer, a rank between two");
    lf_pipe_fini(&p);
    /* All on one rank: outputs go straight into the buffer of the next chunk. */
    p = pipe_grouped(1, 2, 4, 2);
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_pipe_add_messages(&p, NULL, &err), 0, &err, NULL, "one rank has no messages");
    tap_str(all_items(&p, 0),
            "F0:a F1:b F0:0 Z0:a F1:1 Z1:b F2:a Z0:0 F3:b Z1:1 F2:0 Z2:a F3:1 Z3:b Z2:0 Z3:1",
            "but buffers between its chunks");
    tap_ok(p.recv_buffers[LF_PIPE_ACTIVATION][1] == 2 && p.recv_buffers[LF_PIPE_GRADIENT][0] == 2 &&
               p.recv_buffers[LF_PIPE_ACTIVATION][0] == 0 &&
               p.send_buffers[LF_PIPE_ACTIVATION][0] == 0,
           "as many as the list needs");
    lf_pipe_fini(&p);
}

static void members(void)
{
    struct lf_pipe p = pipe_sending(LF_PIPE_INTERLEAVED, 2, 2, 5, (struct lf_pipe_message_opts){0});
    int wrong = 0, messages = 0;
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < p.list[r].n; i++) {
            const struct lf_pipe_item *it = &p.list[r].item[i];
            const bool sends = it->op == LF_PIPE_SEND || it->op == LF_PIPE_WAIT_SEND;
            const int stage = 2 * it->chunk + r, reader = !sends    ? stage
                                                          : it->dir ? stage - 1
                                                                    : stage + 1;
            if (it->op <= LF_PIPE_Z) {
                wrong += it->peer != -1 || it->tag != -1 || it->slot < 0;
                continue;
            }
            messages++;
            wrong += it->peer != 1 - r || it->tag != 2 * (reader / 2) + it->dir || it->slot != -1;
            wrong += sends ? it->recv_buffer != -1 || it->send_buffer < 0
                           : it->send_buffer != -1 || it->recv_buffer < 0;
        }
    /* Three borders, two directions, five micro-batches; a message and its wait at both ends. */
    tap_i64(messages, 3 * 2 * 5 * 4, "messages and waits");
    tap_i64(wrong, 0, "name the other rank, and the reader's chunk and the direction as tag");
    tap_i64(p.spec.group, 3, "groups of P + 1");
    tap_ok(p.recv_buffers[LF_PIPE_ACTIVATION][1] == 3 && p.recv_buffers[LF_PIPE_ACTIVATION][2] == 2,
           "where the order goes round, one more waits; else two buffers are enough");
    tap_ok(p.recv_buffers[LF_PIPE_GRADIENT][2] == 3 && p.recv_buffers[LF_PIPE_GRADIENT][0] == 2 &&
               p.recv_buffers[LF_PIPE_GRADIENT][3] == 0,
           "so do gradients; the last pipeline stage receives none");
    lf_pipe_fini(&p);
}

/* The most that are alive at once, counted per chunk. */
static int most_alive(const struct lf_pipe_list *l, int chunk)
{
    int live = 0, most = 0;
    for (int i = 0; i < l->n; i++) {
        if (l->item[i].chunk != chunk)
            continue;
        live += l->item[i].op == LF_PIPE_F;
        most = live > most ? live : most;
        live -= l->item[i].op == LF_PIPE_W || l->item[i].op == LF_PIPE_Z;
    }
    return most;
}

static double end_of(const struct lf_pipe *p, struct lf_pipe_walk_opts o)
{
    struct lf_pipe_timing t = pipe_timed(p, o);
    const double end_s = t.end_s;
    lf_pipe_timing_fini(&t);
    return end_s;
}

static bool hangs(const struct lf_pipe *p, bool blocking_recv, bool rendezvous)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_pipe_walk_opts o = {.blocking_recv = blocking_recv, .rendezvous = rendezvous};
    const bool failed = lf_pipe_walk(NULL, p, &o, &err) < 0;
    if (failed && !strstr(err.text, "cyclic"))
        tap_bail("%s", err.text);
    return failed;
}

struct count {
    int slower, slots, hang, late_hang, front, both;
};

static void count_case(struct count *n, enum lf_pipe_kind kind, int ranks, int v, int m)
{
    const struct lf_pipe_walk_opts o = {.message_s = 0.125};
    struct lf_pipe plain = pipe_made(kind, ranks, v, m);
    struct lf_pipe early = pipe_sending(kind, ranks, v, m, (struct lf_pipe_message_opts){0});
    const struct lf_pipe_message_opts few = {.buffers = pipe_bent(kind) ? 2 : 1, .late = true};
    struct lf_pipe late = pipe_sending(kind, ranks, v, m, few);
    n->slower += !(fabs(end_of(&plain, o) - end_of(&early, o)) < 1e-9);
    for (int r = 0; r < ranks; r++)
        for (int c = 0; c < v; c++)
            n->slots += plain.slots[r * v + c] != most_alive(&plain.list[r], c);
    n->hang += hangs(&early, false, true);
    n->late_hang += hangs(&late, true, false);
    n->front += hangs(&early, true, false) != (ranks > 1);
    const bool cross = kind != LF_PIPE_GPIPE && ranks > 1 && m > 1;
    n->both += v == 1 && hangs(&late, true, true) != cross;
    lf_pipe_fini(&plain);
    lf_pipe_fini(&early);
    lf_pipe_fini(&late);
}

static void all_lists(enum lf_pipe_kind kind)
{
    struct count n = {0};
    for (int ranks = 1; ranks <= PIPE_RANKS; ranks++)
        for (int m = pipe_least(kind, ranks); m <= PIPE_MICRO; m++)
            for (int v = pipe_first_chunks(kind); v <= pipe_most_chunks(kind); v++)
                count_case(&n, kind, ranks, v, m);
    tap_i64(n.slower, 0, "two buffers are enough to be as fast as without waits for buffers");
    tap_i64(n.slots, 0, "slots are as many as micro-batches alive");
    tap_i64(n.hang, 0, "early receives do not hang, also where sends wait for them");
    tap_i64(n.late_hang, 0, "late receives may block, with one buffer each, or two in a V");
    tap_i64(n.front, 0, "early receives that block hang as soon as there are two ranks");
    tap_i64(n.both, 0, "sends and receives that both block hang where passes cross");
}

/* What stands in a cycle is named: waits of an order that is cyclic by itself, and sends and
 * receives that block. */
static void cyclic_orders(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe p = pipe_grouped(4, 3, 5, 4);
    if (lf_pipe_add_messages(&p, NULL, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_pipe_walk(NULL, &p, NULL, &err), LF_EINVAL, &err,
           "rank 0, wait for the receive of the activation of micro-batch 4, chunk 2, from rank 3 "
           "waits for rank 3, send of the activation of micro-batch 4, chunk 1, to rank 0",
           "an order that is cyclic without messages is so with them");
    lf_pipe_fini(&p);
    p = pipe_sending(LF_PIPE_1F1B, 2, 1, 2,
                     (struct lf_pipe_message_opts){.buffers = 1, .late = true});
    const struct lf_pipe_walk_opts o = {.blocking_recv = true, .rendezvous = true};
    tap_rc(
        lf_pipe_walk(NULL, &p, &o, &err), LF_EINVAL, &err,
        "rank 0, send of the activation of micro-batch 1, chunk 0, to rank 1 waits for rank 1, "
        "receive of the activation of micro-batch 1, chunk 0, from rank 0; rank 1, send of the "
        "gradient of micro-batch 0, chunk 0, to rank 0 waits for rank 0, receive of the gradient "
        "of micro-batch 0, chunk 0, from rank 1",
        "two sends that wait for each other's receive are named");
    lf_pipe_fini(&p);
}

static void refusals(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe p = pipe_made(LF_PIPE_1F1B, 2, 1, 2);
    tap_rc(lf_pipe_add_messages(&p, &(struct lf_pipe_message_opts){.buffers = -1}, &err), LF_EINVAL,
           &err, "1 to 2^20 buffers", "a negative number of buffers");
    tap_rc(lf_pipe_add_messages(&p, &(struct lf_pipe_message_opts){.buffers = (1 << 20) + 1}, &err),
           LF_EINVAL, &err, "1 to 2^20 buffers", "one that is too large");
    tap_ok(!p.messages && p.list[0].n == 4, "leaves the lists as they are");
    tap_rc(lf_pipe_add_messages(&p, &(struct lf_pipe_message_opts){.buffers = 1 << 20}, &err), 0,
           &err, NULL, "a large one");
    tap_i64(p.recv_buffers[LF_PIPE_ACTIVATION][1], 2, "is as many as micro-batches");
    tap_rc(lf_pipe_add_messages(&p, NULL, &err), LF_EINVAL, &err, "messages already", "twice");
    lf_pipe_fini(&p);
}

int main(void)
{
    TAP(6, written_lists());
    TAP(5, members());
    for (int k = 0; k < LF_PIPE_KINDS; k++)
        TAP(6, all_lists((enum lf_pipe_kind)k));
    TAP(2, cyclic_orders());
    TAP(6, refusals());
    return tap_done();
}
