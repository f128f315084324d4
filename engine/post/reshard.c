/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from one layout to another: see reshard.h. */
#include "engine/post/reshard.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/f16.h"
#include "engine/base/mem.h"
#include "engine/post/reshard_priv.h"

#define MESSAGE ((size_t)4 << 20) /* bytes */

struct lf_reshard {
    lf_comm *comm; /* borrowed; NULL: one rank */
    lf_pstore *from, *to;
    int ranks, me;
    struct lf_reshard_pair *send, *recv; /* [ranks] */
    char *out, *in;                      /* [MESSAGE] */
    char *window[2];                     /* [LF_RESHARD_WINDOW] for reading, for writing */
    float *wide;                         /* of what is written */
};

/* ---- between stores and messages ---- */

/* Is a run worth a copy of its own? */
static bool is_long(const struct lf_reshard_io *f, const struct lf_reshard_run *run, size_t size)
{
    return (size_t)run->count * size >= f->room / 8;
}

static bool in_window(const struct lf_reshard_io *f, int tensor, int64_t at, int64_t count)
{
    return f->tensor == tensor && at >= f->first && at + count <= f->end;
}

/* Reads the window from element `at` of what is kept of the tensor on. */
static int load(struct lf_reshard_io *f, int tensor, const struct lf_pview *v, int64_t at,
                lf_err *err)
{
    const size_t size = lf_dtype_size(v->dtype);
    const int64_t most = (int64_t)(f->room / size), left = v->count - at;
    f->tensor = tensor;
    f->first = f->end = at;
    const int64_t n = left < most ? left : most;
    int rc = lf_pstore_fetch(f->ps, f->window, (const char *)v->data + (size_t)at * size,
                             (size_t)n * size, err);
    f->end = rc == 0 ? at + n : at;
    return rc;
}

int lf_reshard_read(void *io, const struct lf_reshard_run *run, size_t offset, lf_err *err)
{
    struct lf_reshard_io *f = io;
    const int tensor = run->piece->tensor;
    const size_t size = lf_dtype_size(run->piece->dtype), bytes = (size_t)run->count * size;
    struct lf_pview v;
    if (lf_pstore_view(f->ps, tensor, run->piece->kind, &v) != 1)
        return lf_fail(err, LF_EINVAL, "a tensor to move is not in memory");
    if (is_long(f, run, size))
        return lf_pstore_fetch(f->ps, f->buf + offset,
                               (const char *)v.data + (size_t)run->at * size, bytes, err);
    int rc = in_window(f, tensor, run->at, run->count) ? 0 : load(f, tensor, &v, run->at, err);
    if (rc == 0)
        memcpy(f->buf + offset, f->window + (size_t)(run->at - f->first) * size, bytes);
    return rc;
}

/* Elements [at, at + n) of the flattened box of a tensor. */
static int write_elements(struct lf_reshard_io *f, int tensor, enum lf_dtype dtype, const char *src,
                          int64_t at, int64_t n, lf_err *err)
{
    const int64_t most = (int64_t)(f->room / sizeof(uint16_t));
    int rc = 0;
    if (dtype != LF_F16)
        return lf_pstore_write_part(f->ps, tensor, LF_P_MASTER, dtype, src,
                                    (const int64_t[]){at, at + n}, err);
    for (int64_t from = 0; from < n && rc == 0; from += most) {
        const int64_t k = n - from < most ? n - from : most;
        for (int64_t e = 0; e < k; e++)
            f->wide[e] = lf_f32_of_f16(((const uint16_t *)(const void *)src)[from + e]);
        rc = lf_pstore_write_part(f->ps, tensor, LF_P_MASTER, LF_F32, f->wide,
                                  (const int64_t[]){at + from, at + from + k}, err);
    }
    return rc;
}

int lf_reshard_flush(struct lf_reshard_io *f, lf_err *err)
{
    const bool changed = f->changed;
    const int64_t first = f->first, n = f->end - f->first;
    f->changed = false;
    f->end = f->first;
    return changed ? write_elements(f, f->tensor,
                                    lf_pstore_type(f->ps, lf_pstore_weights(f->ps, f->tensor)),
                                    f->window, first, n, err)
                   : 0;
}

int lf_reshard_write(void *io, const struct lf_reshard_run *run, size_t offset, lf_err *err)
{
    struct lf_reshard_io *f = io;
    const int into = run->piece->into;
    const size_t size = lf_dtype_size(run->piece->dtype);
    struct lf_pview v;
    int rc = in_window(f, into, run->to, run->count) ? 0 : lf_reshard_flush(f, err);
    if (rc == 0 && lf_pstore_view(f->ps, into, lf_pstore_weights(f->ps, into), &v) != 1)
        rc = lf_fail(err, LF_EINVAL, "a tensor to write is not in memory");
    if (rc != 0)
        return rc;
    if (f->first == f->end) {
        if (is_long(f, run, size) || v.dtype != run->piece->dtype)
            return write_elements(f, into, run->piece->dtype, f->buf + offset, run->to, run->count,
                                  err);
        rc = load(f, into, &v, run->to, err);
    }
    if (rc != 0)
        return rc;
    memcpy(f->window + (size_t)(run->to - f->first) * size, f->buf + offset,
           (size_t)run->count * size);
    f->changed = true;
    return 0;
}

static struct lf_reshard_cursor begin(const struct lf_reshard_pair *pair, bool trained)
{
    return (struct lf_reshard_cursor){.pair = pair, .trained = trained};
}

static size_t all_bytes(const struct lf_reshard_pair *pair, bool trained, int64_t *messages)
{
    struct lf_reshard_cursor c = begin(pair, trained);
    size_t sum = 0;
    for (size_t n; (n = lf_reshard_take(&c, MESSAGE, NULL, NULL, NULL, NULL)) > 0; sum += n)
        (*messages)++;
    return sum;
}

struct lf_reshard_moved lf_reshard_planned(const lf_reshard *x, bool trained)
{
    struct lf_reshard_moved m = {0};
    int64_t other = 0;
    for (int r = 0; r < x->ranks; r++)
        if (r == x->me) {
            m.copied += (double)all_bytes(&x->recv[r], trained, &other);
        } else {
            m.sent += (double)all_bytes(&x->send[r], trained, &m.messages);
            m.received += (double)all_bytes(&x->recv[r], trained, &other);
        }
    return m;
}

static struct lf_reshard_io reader(const lf_reshard *x)
{
    return (struct lf_reshard_io){
        .ps = x->from, .buf = x->out, .window = x->window[0], .room = LF_RESHARD_WINDOW};
}

static struct lf_reshard_io writer(const lf_reshard *x, char *message)
{
    return (struct lf_reshard_io){.ps = x->to,
                                  .buf = message,
                                  .window = x->window[1],
                                  .room = LF_RESHARD_WINDOW,
                                  .wide = x->wide};
}

static int copy_own(lf_reshard *x, bool trained, double *bytes, lf_err *err)
{
    struct lf_reshard_cursor read = begin(&x->recv[x->me], trained), write = read;
    struct lf_reshard_io from = reader(x), to = writer(x, x->out);
    int rc = 0;
    for (size_t n = 1; rc == 0 && n > 0; *bytes += (double)n) {
        n = lf_reshard_take(&read, MESSAGE, lf_reshard_read, &from, &rc, err);
        (void)lf_reshard_take(&write, MESSAGE, lf_reshard_write, &to, &rc, err);
    }
    return rc != 0 ? rc : lf_reshard_flush(&to, err);
}

/* Both directions of one message; each is there on both sides or on neither. */
static int exchange(lf_reshard *x, int to, size_t out, int from, size_t in, lf_err *err)
{
    lf_comm_req q[2] = {{NULL}, {NULL}};
    const int tag = lf_comm_tag(LF_COMM_PLAIN, 0);
    int rc = in ? lf_comm_irecv(x->comm, x->in, in, from, tag, &q[0], err) : 0;
    if (rc == 0 && out)
        rc = lf_comm_isend(x->comm, x->out, out, to, tag, &q[1], err);
    return rc != 0 ? rc : lf_comm_wait_all(q, 2, err);
}

/* A rank sends to the one `by` ranks on while it hears from the one `by` ranks back. What fails
 * here alone (*rc) stops no message, so that the others need not wait. */
static int shift(lf_reshard *x, int by, bool trained, int *rc, lf_err *err)
{
    const int to = (x->me + by) % x->ranks, from = (x->me - by + x->ranks) % x->ranks;
    struct lf_reshard_cursor send = begin(&x->send[to], trained),
                             recv = begin(&x->recv[from], trained);
    struct lf_reshard_io read = reader(x), write = writer(x, x->in);
    for (;;) {
        struct lf_reshard_cursor ahead = recv;
        const size_t out = lf_reshard_take(&send, MESSAGE, lf_reshard_read, &read, rc, err),
                     in = lf_reshard_take(&ahead, MESSAGE, NULL, NULL, NULL, NULL);
        if (!out && !in) {
            *rc = *rc ? *rc : lf_reshard_flush(&write, err);
            return 0;
        }
        const int lost = exchange(x, to, out, from, in, *rc ? NULL : err);
        if (lost != 0)
            return lost;
        if (in)
            (void)lf_reshard_take(&recv, MESSAGE, lf_reshard_write, &write, rc, err);
    }
}

int lf_reshard_run(lf_reshard *x, bool trained, struct lf_reshard_moved *moved, lf_err *err)
{
    struct lf_comm_counts before = {0}, after = {0};
    int rc = 0, lost = 0;
    *moved = (struct lf_reshard_moved){0};
    if (x->comm)
        lf_comm_counted(x->comm, &before);
    rc = copy_own(x, trained, &moved->copied, err);
    for (int by = 1; by < x->ranks && lost == 0; by++)
        lost = shift(x, by, trained, &rc, err);
    if (x->comm)
        lf_comm_counted(x->comm, &after);
    moved->received = (double)(after.message.bytes_received - before.message.bytes_received);
    moved->sent = (double)(after.message.bytes_sent - before.message.bytes_sent);
    moved->messages = (int64_t)(after.message.sent - before.message.sent);
    return rc != 0 ? rc : lost;
}

/* ---- the plan ---- */

/* A number for each node: the lowest of its ranks. */
static void number_nodes(int *node, const lf_comm *comm)
{
    for (int r = 0; r < comm->size; r++) {
        node[r] = r;
        for (int q = 0; q < r && node[r] == r; q++)
            if (strcmp(lf_comm_peer_host(comm, q), lf_comm_peer_host(comm, r)) == 0)
                node[r] = q;
    }
}

static int my_entries(struct lf_reshard_entry *e, const lf_pstore *from, const lf_pstore *to,
                      lf_err *err)
{
    for (int i = 0; i < lf_pstore_count(from); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(from, i);
        const int into = lf_pstore_find(to, d->name);
        if (into < 0)
            return lf_fail(err, LF_EINVAL, "there is no %s in the model that is to have it",
                           d->name);
        lf_reshard_entry_of(&e[i], from, to, i, into);
    }
    return lf_pstore_count(from) == lf_pstore_count(to)
               ? 0
               : lf_fail(err, LF_EINVAL, "a model of %d tensors and one of %d",
                         lf_pstore_count(from), lf_pstore_count(to));
}

static int make_plan(lf_reshard *x, lf_err *err)
{
    const size_t n = (size_t)lf_pstore_count(x->from), ranks = (size_t)x->ranks;
    struct lf_comm_blobs blobs = {0};
    struct lf_reshard_entry *mine = lf_calloc(n + 1, sizeof *mine, err);
    int *node = lf_calloc(ranks, sizeof *node, err);
    int rc = mine && node && x->out && x->in && x->window[0] && x->window[1] && x->wide &&
                     x->send && x->recv
                 ? my_entries(mine, x->from, x->to, err)
                 : LF_ENOMEM;
    struct lf_reshard_all all = {.entry = mine, .node = node, .ranks = x->ranks};
    if (x->comm) {
        rc = lf_comm_agree_ok(x->comm, rc, err);
        rc = rc != 0 ? rc : lf_comm_gather_blobs(x->comm, mine, n * sizeof *mine, &blobs, err);
        all.entry = (const struct lf_reshard_entry *)(const void *)blobs.data;
        if (rc == 0)
            number_nodes(node, x->comm);
    }
    if (rc == 0)
        rc = lf_reshard_pairs(&all, x->from, x->to, x->me, x->send, x->recv, err);
    lf_comm_blobs_fini(&blobs);
    free(mine);
    free(node);
    return x->comm ? lf_comm_agree_ok(x->comm, rc, err) : rc;
}

int lf_reshard_create(lf_reshard **out, lf_comm *comm, lf_pstore *from, lf_pstore *to, lf_err *err)
{
    lf_reshard *x = lf_calloc(1, sizeof *x, err);
    int rc = comm ? lf_comm_agree_ok(comm, x ? 0 : LF_ENOMEM, err) : x ? 0 : LF_ENOMEM;
    if (rc != 0) {
        free(x);
        return rc;
    }
    *x = (lf_reshard){.comm = comm,
                      .from = from,
                      .to = to,
                      .ranks = comm ? comm->size : 1,
                      .me = comm ? comm->rank : 0};
    x->send = lf_calloc((size_t)x->ranks, sizeof *x->send, err);
    x->recv = lf_calloc((size_t)x->ranks, sizeof *x->recv, err);
    x->out = lf_malloc(MESSAGE, 1, err);
    x->in = lf_malloc(MESSAGE, 1, err);
    x->window[0] = lf_malloc(LF_RESHARD_WINDOW, 1, err);
    x->window[1] = lf_malloc(LF_RESHARD_WINDOW, 1, err);
    x->wide = lf_malloc(LF_RESHARD_WINDOW / sizeof(uint16_t), sizeof *x->wide, err);
    rc = make_plan(x, err);
    if (rc != 0) {
        lf_reshard_destroy(x);
        return rc;
    }
    *out = x;
    return 0;
}

void lf_reshard_destroy(lf_reshard *x)
{
    if (!x)
        return;
    for (int r = 0; r < x->ranks; r++) {
        if (x->send)
            free(x->send[r].v);
        if (x->recv)
            free(x->recv[r].v);
    }
    free(x->send);
    free(x->recv);
    free(x->out);
    free(x->in);
    free(x->window[0]);
    free(x->window[1]);
    free(x->wide);
    free(x);
}
