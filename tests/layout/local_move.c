/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls of the transport read and give: at once, or late, with the rules for the time between.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "tests/layout/local_priv.h"

enum { NAN_BYTE = 0xFF };

/* ---- what a call reads and gives ---- */

struct range {
    char *at;
    size_t bytes;
};

static size_t before(const size_t *counts, int r)
{
    return local_total(counts, r);
}

/* What side k gives. */
static struct range gives(const struct op *op, int k, const void *in, void *out)
{
    const struct lf_comm_call *a = &op->side[k].call;
    char *from = (char *)(uintptr_t)in;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        return (struct range){out, a->n * lf_comm_type_bytes(a->type)};
    case LF_COMM_REDUCE_SCATTER:
        return (struct range){from, local_total(a->counts, op->n) * lf_comm_type_bytes(a->type)};
    case LF_COMM_ALL_GATHER:
        return (struct range){(char *)out + before(a->counts, k), a->counts[k]};
    case LF_COMM_ALL_TO_ALL:
        return (struct range){from, local_total(a->counts, op->n)};
    case LF_COMM_BROADCAST:
        return (struct range){out, a->peer == k ? a->n : 0};
    case LF_COMM_SEND:
        return (struct range){from, a->n};
    default:
        return (struct range){NULL, 0};
    }
}

/* All of what side k gets; its own part of a gather is within. */
static struct range gets(const struct op *op, int k, void *out)
{
    const struct lf_comm_call *a = &op->side[k].call;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        return (struct range){out, a->n * lf_comm_type_bytes(a->type)};
    case LF_COMM_REDUCE_SCATTER:
        return (struct range){out, a->counts[k] * lf_comm_type_bytes(a->type)};
    case LF_COMM_ALL_GATHER:
        return (struct range){out, local_total(a->counts, op->n)};
    case LF_COMM_ALL_TO_ALL:
        return (struct range){out, local_total(a->from, op->n)};
    case LF_COMM_BROADCAST:
        return (struct range){out, a->peer == k ? 0 : a->n};
    case LF_COMM_RECV:
        return (struct range){out, a->n};
    default:
        return (struct range){NULL, 0};
    }
}

/* ---- moving ---- */

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

static void all_reduce(struct op *op)
{
    const struct lf_comm_call *a = &op->side[0].call;
    const void *x[LOCAL_RANKS];
    for (int r = 0; r < op->n; r++)
        x[r] = op->side[r].out;
    lf_reduce(op->side[0].out, x, op->n, a->n, a->type, a->op);
    for (int r = 1; r < op->n; r++)
        copy(op->side[r].out, op->side[0].out, a->n * lf_comm_type_bytes(a->type));
}

static void reduce_scatter(struct op *op)
{
    for (int r = 0; r < op->n; r++) {
        const struct lf_comm_call *a = &op->side[r].call;
        const size_t at = before(a->counts, r) * lf_comm_type_bytes(a->type);
        const void *x[LOCAL_RANKS + 1] = {a->seed};
        const int seed = a->seed != NULL;
        for (int s = 0; s < op->n; s++)
            x[s + seed] = (const char *)op->side[s].in + at;
        lf_reduce(op->side[r].out, x, op->n + seed, a->counts[r], a->type, LF_COMM_SUM);
    }
}

static void all_gather(struct op *op)
{
    for (int r = 0; r < op->n; r++)
        for (int s = 0; s < op->n; s++) {
            const size_t *bytes = op->side[s].call.counts, at = before(bytes, s);
            if (r != s)
                copy((char *)op->side[r].out + at, (char *)op->side[s].out + at, bytes[s]);
        }
}

static void all_to_all(struct op *op)
{
    for (int r = 0; r < op->n; r++)
        for (int s = 0; s < op->n; s++) {
            const size_t *from = op->side[r].call.from, *to = op->side[s].call.counts;
            copy((char *)op->side[r].out + before(from, s),
                 (const char *)op->side[s].in + before(to, r), from[s]);
        }
}

static void broadcast(struct op *op)
{
    const int root = op->side[0].call.peer;
    for (int r = 0; r < op->n; r++)
        if (r != root)
            copy(op->side[r].out, op->side[root].out, op->side[root].call.n);
}

static void carry_out(struct op *op)
{
    switch (op->side[0].call.what) {
    case LF_COMM_ALL_REDUCE:
        all_reduce(op);
        break;
    case LF_COMM_REDUCE_SCATTER:
        reduce_scatter(op);
        break;
    case LF_COMM_ALL_GATHER:
        all_gather(op);
        break;
    case LF_COMM_ALL_TO_ALL:
        all_to_all(op);
        break;
    case LF_COMM_BROADCAST:
        broadcast(op);
        break;
    case LF_COMM_SEND: /* side 0 sends to side 1 */
        copy(op->side[1].out, op->side[0].in, op->side[0].call.n);
        break;
    default:
        break;
    }
}

void local_complete(struct op *op)
{
    const enum local_fault fault = op->side[0].fault;
    if (fault != LOCAL_ALONE)
        carry_out(op);
    if (fault == LOCAL_TWICE)
        carry_out(op);
    op->done = true;
}

/* ---- late ---- */

int local_hide(struct op *op, int k, lf_err *err)
{
    struct side *s = &op->side[k];
    const struct range in = gives(op, k, s->call.in, s->call.out), out = gets(op, k, s->call.out);
    const bool in_place = s->call.what == LF_COMM_ALL_REDUCE || s->call.what == LF_COMM_ALL_GATHER;
    s->own = lf_malloc(1, in.bytes + 1, err);
    s->gift = lf_malloc(1, out.bytes + 1, err);
    if (!s->own || !s->gift)
        return LF_ENOMEM;
    copy(s->own, in.at, in.bytes);
    if (s->call.what == LF_COMM_REDUCE_SCATTER && s->call.seed) /* it stands before the others */
        copy(s->gift, s->call.seed, out.bytes);
    if (in_place)
        copy(s->gift, s->call.out, out.bytes);
    if (out.bytes)
        memset(out.at, NAN_BYTE, out.bytes);
    if (s->call.what == LF_COMM_ALL_GATHER)
        copy(in.at, s->own, in.bytes);
    s->in = s->own;
    s->out = s->call.what == LF_COMM_BROADCAST && s->call.peer == k ? s->own : s->gift;
    if (s->call.seed)
        s->call.seed = s->gift;
    return 0;
}

static const char *least(const char *a, const char *b)
{
    return a < b ? a : b;
}

/* Has the range the bytes `was`, outside of `but`? */
static bool same_outside(struct range r, const char *was, struct range but)
{
    const char *end = r.at + r.bytes, *from = but.at > r.at ? least(but.at, end) : r.at;
    const char *to = but.bytes ? least(but.at + but.bytes, end) : from;
    if (to < from)
        to = from;
    const size_t head = (size_t)(from - r.at), at = (size_t)(to - r.at);
    return memcmp(r.at, was, head) == 0 && memcmp(to, was + at, r.bytes - at) == 0;
}

/* Does it hold what local_hide has put there? */
static bool hidden(const char *at, size_t bytes)
{
    return bytes == 0 || ((unsigned char)*at == NAN_BYTE && memcmp(at, at + 1, bytes - 1) == 0);
}

/* Between beginning and end the caller may neither change what a call reads nor write to what it
 * gives. */
static const char *broken_rule(const struct op *op, int k)
{
    const struct side *s = &op->side[k];
    const struct range in = gives(op, k, s->call.in, s->f->call.out),
                       out = gets(op, k, s->f->call.out), nothing = {in.at, 0};
    const bool gather = s->call.what == LF_COMM_ALL_GATHER;
    if (s->call.what != LF_COMM_ALL_REDUCE && in.bytes &&
        !same_outside(in, s->own, gather ? nothing : out))
        return "what it reads was changed";
    /* A rank's own part of a gather is within. */
    const size_t own = gather ? (size_t)(in.at - out.at) : out.bytes,
                 behind = gather ? own + in.bytes : out.bytes;
    if (!hidden(out.at, own) || !hidden(out.at + behind, out.bytes - behind))
        return "what it gives was written to";
    return NULL;
}

int local_show(struct world *w, const struct op *op, int k)
{
    const struct side *s = &op->side[k];
    const struct range out = gets(op, k, s->f->call.out);
    const char *rule = broken_rule(op, k);
    char said[300] = "";
    struct text t = {said, sizeof said};
    if (!rule) {
        copy(out.at, s->gift, out.bytes);
        return 0;
    }
    local_say_call(&t, &s->call, op->group);
    return lf_fail(&w->err, LF_ECOMM,
                   "rank %d, %s, call %llu of communicator %u: %s before it was "
                   "done",
                   lf_comm_world_rank(s->f->c, s->f->c->rank), said, (unsigned long long)s->f->seq,
                   op->group->id, rule);
}
