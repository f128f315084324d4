/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of a rank that has some of the layers: see pipe.h.
 */
#include "engine/train/pipe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"

/* A buffer for what crosses a cut, and what is under way with it. */
struct room {
    char *data;
    lf_comm_req req; /* of the host's transport */
    bool under_way;  /* over NCCL */
};
enum { RECEIVE, SEND };

struct lf_train_pipe {
    lf_comm *comm;                                           /* ranks by pipeline coordinate */
    struct room *room[LF_TRAIN_MAX_CHUNKS][LF_PIPE_DIRS][2]; /* in rooms */
    char *messages;         /* of all rooms, where GPUs go through the host; owned */
    struct room *rooms;     /* owned */
    lf_loader_batch *batch; /* [micro-batches of the longest list] of the step, owned */
    void *kept;             /* what they point to, owned */
    float *tied;            /* lf_train_pipe_tied; owned */
    lf_sight **sight;       /* [likewise] with max_patches, else NULL; owned */
    const lf_loader_step *ls;
    struct lf_train_sums *sums;
    const struct lf_train_forwards *forwards; /* under way; NULL: a step of training is */
    int asked;                                /* the first failure of its `each` */
    int32_t own; /* micro-batches of the list that this rank has; the others are of others */
};

/* ---- micro-batches of a step ---- */

/* Bytes of the arrays of a micro-batch of B sequences with so many documents; with `at` they are
 * taken from there. */
static size_t lay_batch(lf_loader_batch *b, char *at, const struct lf_train_config *c,
                        int64_t n_docs)
{
    const int64_t B = c->micro_batch, rows = B * c->seq_length,
                  sources = B * c->seq2seq.source_length, source_docs = sources ? n_docs + 1 : 0;
    const struct {
        void **array;
        size_t n, size;
    } part[] = {
        {(void **)&b->sample_ids, (size_t)B, sizeof(int64_t)},
        {(void **)&b->seg_doc, (size_t)n_docs, sizeof(int64_t)},
        {(void **)&b->tokens, (size_t)rows, sizeof(int32_t)},
        {(void **)&b->targets, (size_t)rows, sizeof(int32_t)},
        {(void **)&b->positions, (size_t)rows, sizeof(int32_t)},
        {(void **)&b->cu_seqlens, (size_t)n_docs + 1, sizeof(int32_t)},
        {(void **)&b->source_tokens, (size_t)sources, sizeof(int32_t)},
        {(void **)&b->source_positions, (size_t)sources, sizeof(int32_t)},
        {(void **)&b->source_cu_seqlens, (size_t)source_docs, sizeof(int32_t)},
        {(void **)&b->seg_source, (size_t)n_docs, sizeof(uint16_t)},
        {(void **)&b->seg_mismatched, (size_t)n_docs, sizeof(bool)},
        {(void **)&b->seg_nsp, (size_t)n_docs, sizeof(int8_t)},
    };
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        if (at)
            *part[i].array = at + bytes;
        bytes += (part[i].n * part[i].size + 7) / 8 * 8;
    }
    return bytes;
}

static size_t batch_bytes(const struct lf_train_config *c, const struct lf_train_cut *k,
                          int64_t n_docs)
{
    lf_loader_batch none;
    return lf_train_is_cut(k) ? (size_t)k->spec.micro_batches * lay_batch(&none, NULL, c, n_docs)
                              : 0;
}

/* Of the first rank, for the last one's gradients of a tied embedding. */
static size_t tied_bytes(const struct lf_train_model *m)
{
    return m->cut.chunk[0].part.first && !lf_plan_target(m->plan)->sm ? lf_pstore_tied_bytes(m->ps)
                                                                      : 0;
}

size_t lf_train_pipe_bytes(const struct lf_train_config *c, const struct lf_train_model *m)
{
    return batch_bytes(c, &m->cut, m->n_docs) + (lf_train_cut_on_host(m) ? m->cut.bytes : 0) +
           tied_bytes(m);
}

/* Keeps a copy of what the loader lends. */
static void keep(const lf_trainer *t, lf_loader_batch *to, const lf_loader_batch *b)
{
    const lf_loader_batch own = *to;
    const size_t rows = (size_t)t->m.rows, docs = (size_t)lf_train_max_docs(t->c);
    *to = *b;
    to->sample_ids = memcpy(own.sample_ids, b->sample_ids, (size_t)b->B * sizeof(int64_t));
    to->tokens = memcpy(own.tokens, b->tokens, rows * sizeof(int32_t));
    to->targets = memcpy(own.targets, b->targets, rows * sizeof(int32_t));
    to->positions = memcpy(own.positions, b->positions, rows * sizeof(int32_t));
    to->cu_seqlens = memcpy(own.cu_seqlens, b->cu_seqlens, (docs + 1) * sizeof(int32_t));
    if (b->S) {
        const size_t sources = (size_t)b->B * (size_t)b->S * sizeof(int32_t);
        to->source_tokens = memcpy(own.source_tokens, b->source_tokens, sources);
        to->source_positions = memcpy(own.source_positions, b->source_positions, sources);
        to->source_cu_seqlens =
            memcpy(own.source_cu_seqlens, b->source_cu_seqlens, (docs + 1) * sizeof(int32_t));
    }
    to->seg_doc = own.seg_doc;
    to->seg_source = own.seg_source;
    to->seg_mismatched = own.seg_mismatched;
    to->seg_nsp = b->seg_nsp ? own.seg_nsp : NULL;
    for (int32_t i = 0; i < b->n_segs; i++) {
        to->seg_doc[i] = b->seg_doc[i];
        to->seg_source[i] = b->seg_source[i];
        to->seg_mismatched[i] = b->seg_mismatched && b->seg_mismatched[i];
        if (b->seg_nsp)
            to->seg_nsp[i] = b->seg_nsp[i];
    }
    if (!b->seg_mismatched)
        to->seg_mismatched = NULL;
}

/* The next micro-batch of the data, which becomes number i of those that are kept. */
static int read_one(lf_trainer *t, lf_loader *data, int32_t i, lf_err *err)
{
    struct lf_train_pipe *p = t->pipe;
    const lf_loader_batch *b;
    const int rc = lf_loader_next(data, &b, err);
    if (rc != 0)
        return rc;
    keep(t, &p->batch[i], b);
    if (lf_train_find_texts(t, b, err)) /* ranks agree behind this, and nowhere in a list */
        return LF_EINVAL;
    return p->sight ? lf_train_see(p->sight[i], data, b, err) : 0;
}

static int read_all(lf_trainer *t, const lf_loader_step *ls, double *data_s, lf_err *err)
{
    const double t0 = lf_now_s();
    int rc = 0;
    for (int32_t i = 0; i < ls->n_micro && rc == 0; i++)
        rc = read_one(t, t->data, i, err);
    *data_s += lf_now_s() - t0;
    return lf_train_together(t, rc, err);
}

/* ---- opening and closing ---- */

static size_t count_rooms(const struct lf_train_cut *k)
{
    size_t n = 0;
    for (int i = 0; i < k->n_chunks; i++)
        for (int d = 0; d < LF_PIPE_DIRS; d++)
            n += (size_t)(k->chunk[i].buffers[d][RECEIVE] + k->chunk[i].buffers[d][SEND]);
    return n;
}

static int make_rooms(lf_trainer *t, lf_err *err)
{
    const struct lf_train_cut *k = &t->m.cut;
    struct lf_train_pipe *p = t->pipe;
    const size_t n = count_rooms(k);
    char *data = lf_train_cut_on_host(&t->m) ? (p->messages = lf_calloc(n, k->message, err))
                                             : lf_exec_state(t->m.ex, LF_TRAIN_CUT_STATE);
    struct room *next = p->rooms = lf_calloc(n + 1, sizeof *p->rooms, err);
    if (!p->rooms || !data)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        p->rooms[i].data = data + i * k->message;
    for (int i = 0; i < k->n_chunks; i++)
        for (int d = 0; d < LF_PIPE_DIRS; d++)
            for (int side = 0; side < 2; side++) {
                p->room[i][d][side] = next;
                next += k->chunk[i].buffers[d][side];
            }
    return 0;
}

static int make_sights(lf_trainer *t, lf_err *err)
{
    struct lf_train_pipe *p = t->pipe;
    const int n = t->m.cut.spec.micro_batches;
    if (!t->c->max_patches)
        return 0;
    if (!(p->sight = lf_calloc((size_t)n, sizeof *p->sight, err)))
        return LF_ENOMEM;
    for (int i = 0; i < n; i++)
        if (!(p->sight[i] = lf_sight_create(&t->mc, &t->m.media, t->m.rows, err)))
            return LF_ENOMEM;
    return 0;
}

int lf_train_pipe_open(lf_trainer *t, lf_err *err)
{
    const struct lf_train_cut *k = &t->m.cut;
    const size_t all = batch_bytes(t->c, k, t->m.n_docs),
                 each = all ? all / (size_t)k->spec.micro_batches : 0;
    if (!lf_train_is_cut(k))
        return 0;
    struct lf_train_pipe *p = t->pipe = lf_calloc(1, sizeof *p, err);
    if (!p)
        return LF_ENOMEM;
    p->comm = t->comms.pipeline;
    p->batch = lf_calloc((size_t)k->spec.micro_batches, sizeof *p->batch, err);
    p->kept = lf_calloc(all, 1, err);
    if (!p->batch || !p->kept ||
        (tied_bytes(&t->m) && !(p->tied = lf_malloc(tied_bytes(&t->m), 1, err))))
        return LF_ENOMEM;
    for (int i = 0; i < k->spec.micro_batches; i++)
        lay_batch(&p->batch[i], (char *)p->kept + (size_t)i * each, t->c, t->m.n_docs);
    const int rc = make_sights(t, err);
    return rc != 0 ? rc : make_rooms(t, err);
}

float *lf_train_pipe_tied(const lf_trainer *t)
{
    return t->pipe ? t->pipe->tied : NULL;
}

void lf_train_pipe_close(lf_trainer *t)
{
    struct lf_train_pipe *p = t->pipe;
    if (!p)
        return;
    for (int i = 0; p->sight && i < t->m.cut.spec.micro_batches; i++)
        lf_sight_destroy(p->sight[i]);
    free(p->sight);
    free(p->messages);
    free(p->rooms);
    free(p->batch);
    free(p->kept);
    free(p->tied);
    free(p);
    t->pipe = NULL;
}

/* ---- what crosses ---- */

static int copy_part(lf_back *b, bool on_host, void *to, const void *from, bool out, size_t bytes,
                     lf_err *err)
{
    if (!on_host && !b->ops->host_visible)
        return b->ops->move(b, to, from, bytes, err);
    if (!b->ops->host_visible)
        return out ? b->ops->copy_out(b, to, from, bytes, err)
                   : b->ops->copy_in(b, to, from, bytes, err);
    memcpy(to, from, bytes);
    return 0;
}

/* A part that a graph does not have is none of its neighbour's, too. */
int lf_train_pipe_copy(const lf_trainer *t, char *message, const struct lf_train_side *s,
                       lf_err *err)
{
    const bool on_host = !t->pipe || t->pipe->messages;
    int rc = 0;
    static const char *const names[LF_PIPE_DIRS][3] = {{"x", "source", "load"},
                                                       {"dx", "dsource", "load_total"}};
    const size_t at[3] = {0, t->m.cut.source_at, t->m.cut.sums_at};
    for (int i = 0; i < 3 && rc == 0; i++) {
        size_t bytes;
        void *cut = lf_exec_cut(t->m.ex, s->chain, s->slot, names[s->dir][i], s->out, &bytes);
        char *there = message + at[i];
        if (cut)
            rc = copy_part(t->m.back, on_host, s->out ? (void *)there : cut,
                           s->out ? cut : (void *)there, s->out, bytes, err);
    }
    return rc;
}

/* As the watchdog names messages. */
static int tag_of(const struct lf_pipe_item *it)
{
    return lf_comm_tag(LF_COMM_FORWARD + it->dir, it->tag / 2);
}

static int begin_message(lf_trainer *t, struct room *m, const struct lf_pipe_item *it, lf_err *err)
{
    lf_comm *c = t->pipe->comm;
    const size_t bytes = t->m.cut.message;
    if (t->dev.n_pairs) {
        m->under_way = true;
        return lf_devcomm_begin_message(
            &t->dev,
            &(struct lf_devcomm_message){.send = it->op == LF_PIPE_SEND,
                                         .peer = it->peer,
                                         .data = m->data,
                                         .bytes = bytes,
                                         .tag = tag_of(it),
                                         .mark = (size_t)(m - t->pipe->rooms)},
            err);
    }
    return it->op == LF_PIPE_SEND
               ? lf_comm_isend(c, m->data, bytes, it->peer, tag_of(it), &m->req, err)
               : lf_comm_irecv(c, m->data, bytes, it->peer, tag_of(it), &m->req, err);
}

/* Over NCCL what is computed from here on waits, and the host does not. */
static int end_message(lf_trainer *t, struct room *m, lf_err *err)
{
    const bool under_way = m->under_way;
    m->under_way = false;
    if (under_way)
        return lf_devcomm_end_message(&t->dev, (size_t)(m - t->pipe->rooms), err);
    return m->req.flight ? lf_comm_wait(&m->req, err) : 0;
}

/* ---- a step ---- */

/* Ranks that divide rows give each other outputs of theirs, so that none goes on alone. */
static int agree_rows(const lf_trainer *t, int rc, lf_err *err)
{
    return t->comms.context ? lf_comm_agree_ok(t->comms.context, rc, err) : rc;
}

/* A failure is told behind the list, whose messages others wait for until then. */
static int ask(lf_trainer *t, const struct lf_pipe_item *it, int chain, lf_err *err)
{
    struct lf_train_pipe *p = t->pipe;
    const struct lf_train_forwards *f = p->forwards;
    struct lf_train_view v = lf_train_view_of(t, chain, &p->batch[it->micro], f->valid_split, 0);
    v.data = f->data;
    v.slot = it->slot;
    if (f->each && p->asked == 0)
        p->asked = agree_rows(t, f->each(f->user, &v, err), err);
    return 0;
}

static int objective(lf_trainer *t, const struct lf_pipe_item *it, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    struct lf_train_pipe *p = t->pipe;
    if (!o)
        return 0;
    struct lf_train_view v =
        lf_train_view_of(t, t->m.cut.chunk[it->chunk].train, &p->batch[it->micro], false,
                         t->s.scaler.scale / (double)p->ls->units);
    v.slot = it->slot;
    int rc = o->after_forward(o->user, &v, p->sums->obj, p->sums->top, err);
    rc = agree_rows(t, rc, err);
    return lf_comm_agree_ok(t->comms.tensor, rc, err); /* others have no losses */
}

static int chain_of(const lf_trainer *t, const struct lf_pipe_item *it)
{
    const struct lf_train_chunk *h = &t->m.cut.chunk[it->chunk];
    const struct lf_train_forwards *f = t->pipe->forwards;
    return f && !f->train ? h->valid : h->train;
}

static enum lf_segment segment_of(const struct lf_pipe_item *it)
{
    return it->op == LF_PIPE_F   ? LF_FWD
           : it->op == LF_PIPE_B ? LF_BWD_INPUT
           : it->op == LF_PIPE_W ? LF_BWD_WEIGHT
                                 : LF_BWD;
}

static enum lf_variant variant_of(const lf_trainer *t, const struct lf_pipe_item *it)
{
    return it->micro && !t->pipe->forwards ? LF_ACCUM : LF_FIRST;
}

static int forward(lf_trainer *t, const struct lf_pipe_item *it, lf_err *err)
{
    const struct lf_train_pipe *p = t->pipe;
    const struct lf_decoder_chunk *part = &t->m.cut.chunk[it->chunk].part;
    const int chain = chain_of(t, it);
    const struct lf_train_inputs in = {chain, it->slot, part, p->sight ? p->sight[it->micro] : NULL,
                                       chain == t->m.cut.chunk[it->chunk].train};
    int rc = lf_train_write_inputs(t, &in, &p->batch[it->micro], err);
    if (rc == 0)
        rc = lf_exec_run(t->m.ex, chain, LF_FWD, it->slot, variant_of(t, it), err);
    lf_train_expect_run(t, chain, false);
    if (rc != 0 || !part->last)
        return rc;
    return p->forwards ? ask(t, it, chain, err) : objective(t, it, err);
}

static int backward(lf_trainer *t, const struct lf_pipe_item *it, lf_err *err)
{
    const struct lf_train_chunk *h = &t->m.cut.chunk[it->chunk];
    if (h->part.frozen)
        return 0;
    if (it->op != LF_PIPE_W)
        lf_train_expect_run(t, h->train, true);
    return lf_exec_run(t->m.ex, h->train, segment_of(it), it->slot, variant_of(t, it), err);
}

/* Of a micro-batch that this rank lacks. None of the ranks with its data coordinate has it, so no
 * message is sent; ranks that divide experts with this one have theirs, whose rows it takes. */
static int lacking(lf_trainer *t, const struct lf_pipe_item *it, lf_err *err)
{
    const bool f = it->op == LF_PIPE_F;
    if (it->op > LF_PIPE_Z || (!f && t->m.cut.chunk[it->chunk].part.frozen))
        return 0;
    lf_comm_pass(t->run.comm, it->micro + 1, !f);
    return lf_exec_idle_slot(t->m.ex, chain_of(t, it), segment_of(it), it->slot, variant_of(t, it),
                             err);
}

/* Where the output of a pass goes: into a message, or straight into what another chunk of this rank
 * reads. */
static struct room *room_of_output(const lf_trainer *t, const struct lf_pipe_item *it,
                                   enum lf_pipe_dir dir)
{
    const struct lf_train_cut *k = &t->m.cut;
    const int stage = k->chunk[it->chunk].stage;
    int rank, chunk;
    lf_pipe_place(&rank, &chunk, &k->spec, dir == LF_PIPE_ACTIVATION ? stage + 1 : stage - 1);
    return rank == t->who.pipeline ? &t->pipe->room[chunk][dir][RECEIVE][it->send_buffer]
                                   : &t->pipe->room[it->chunk][dir][SEND][it->send_buffer];
}

/* A pass: what it reads comes from a buffer, and what it makes goes to one. */
static int pass(lf_trainer *t, const struct lf_pipe_item *it, lf_err *err)
{
    const bool f = it->op == LF_PIPE_F;
    const enum lf_pipe_dir dir = f ? LF_PIPE_ACTIVATION : LF_PIPE_GRADIENT;
    struct lf_train_side s = {chain_of(t, it), it->slot, dir, false};
    lf_comm_pass(t->run.comm, it->micro + 1, !f);
    int rc = it->recv_buffer >= 0
                 ? lf_train_pipe_copy(
                       t, t->pipe->room[it->chunk][dir][RECEIVE][it->recv_buffer].data, &s, err)
                 : 0;
    if (rc == 0)
        rc = f ? forward(t, it, err) : backward(t, it, err);
    s.out = true;
    return rc == 0 && it->send_buffer >= 0
               ? lf_train_pipe_copy(t, room_of_output(t, it, dir)->data, &s, err)
               : rc;
}

/* A message that does not come is told with its own micro-batch. */
static int await(lf_trainer *t, struct room *m, const struct lf_pipe_item *it, lf_err *err)
{
    lf_comm_pass(t->run.comm, it->micro + 1, it->dir == LF_PIPE_GRADIENT);
    return end_message(t, m, err);
}

static int carry_out(lf_trainer *t, const struct lf_pipe_item *it, lf_err *err)
{
    struct room *const *room = t->pipe->room[it->chunk][it->dir];
    if (it->micro >= t->pipe->own)
        return lacking(t, it, err);
    switch ((enum lf_pipe_op)it->op) {
    case LF_PIPE_SEND:
        return begin_message(t, &room[SEND][it->send_buffer], it, err);
    case LF_PIPE_RECV:
        return begin_message(t, &room[RECEIVE][it->recv_buffer], it, err);
    case LF_PIPE_WAIT_SEND:
        return await(t, &room[SEND][it->send_buffer], it, err);
    case LF_PIPE_WAIT_RECV:
        return await(t, &room[RECEIVE][it->recv_buffer], it, err);
    default:
        return pass(t, it, err);
    }
}

static int walk(lf_trainer *t, const struct lf_pipe *lists, lf_err *err)
{
    const struct lf_pipe_list *mine = &lists->list[t->who.pipeline];
    int rc = 0;
    for (int i = 0; rc == 0 && i < mine->n; i++)
        rc = carry_out(t, &mine->item[i], err);
    lf_comm_pass(t->run.comm, 0, false);
    return rc;
}

/* What the passes of a step move among experts and windows. */
static void expect_step(lf_trainer *t, int64_t passes)
{
    for (int i = 0; i < t->m.cut.n_chunks; i++)
        lf_train_expect_passes(t, t->m.cut.chunk[i].train, passes, !t->m.cut.chunk[i].part.frozen);
}

int lf_train_pipe_step(lf_trainer *t, const struct lf_loader_step *ls, struct lf_train_sums *sums,
                       double *data_s, lf_err *err)
{
    struct lf_train_pipe *p = t->pipe;
    const int64_t passes = t->comms.experts ? lf_train_rounds(t, ls->n_samples) : ls->n_micro;
    const struct lf_pipe *lists = lf_train_list(&t->m.cut, (int)passes);
    int rc = read_all(t, ls, data_s, err);
    if (t->comms.experts) /* none waits for rows of a rank that has none */
        rc = lf_comm_agree_ok(t->comms.data, rc, err);
    if (rc == 0 && !lists)
        LF_BUG("no list for %d micro-batches", (int)passes);
    p->ls = ls;
    p->sums = sums;
    p->own = ls->n_micro;
    if (rc == 0)
        rc = lf_exec_begin_tied(t->m.ex, false, err);
    if (rc == 0 && (rc = walk(t, lists, err)) != 0)
        lf_train_pass_failed(t, err);
    if (rc == 0)
        expect_step(t, passes);
    return rc != 0 ? rc : lf_exec_begin_tied(t->m.ex, true, err);
}

/* ---- forwards alone ---- */

/* Ranks that divide experts walk lists of one length: that of the rank with the most micro-batches,
 * of which this one has *n. */
static int in_step(const lf_trainer *t, int rc, int *n, lf_err *err)
{
    int64_t most = *n;
    if (!t->comms.experts)
        return rc;
    rc = lf_train_together(t, rc, err);
    rc = lf_comm_agree_ok(t->comms.data, rc, err);
    if (rc == 0)
        rc = lf_comm_all_reduce(t->comms.data, &most, 1, LF_COMM_I64, LF_COMM_MAX, err);
    *n = (int)most;
    return rc;
}

/* Reads what fills a list, with steps up to number `last`, and finds the list; NULL at the end. */
static int read_some(lf_trainer *t, struct lf_train_forwards *f, int64_t last,
                     const struct lf_pipe **lists, lf_err *err)
{
    const int most = lf_train_forward_most(&t->m.cut);
    int rc = 0, n = 0;
    bool more = true;
    while (rc == 0 && more && n < most) {
        if (f->taken < f->ls.n_micro) {
            rc = read_one(t, f->data, n++, err);
            f->taken++;
            continue;
        }
        const int begun = f->steps < last ? lf_loader_begin_step(f->data, &f->ls, err) : 0;
        more = begun == 1;
        rc = begun < 0 ? begun : 0;
        f->steps += more;
        f->taken = more ? 0 : f->ls.n_micro;
    }
    t->pipe->own = n;
    rc = in_step(t, rc, &n, err);
    *lists = rc == 0 && n ? lf_train_forward_list(&t->m.cut, n, err) : NULL;
    if (rc == 0 && n && !*lists)
        rc = err && err->rc ? err->rc : LF_ENOMEM;
    return lf_train_together(t, rc, err);
}

int lf_train_pipe_forwards(lf_trainer *t, struct lf_train_forwards *f, int64_t n, lf_err *err)
{
    const int64_t last = n < INT64_MAX - f->steps ? f->steps + n : INT64_MAX;
    struct lf_train_pipe *p = t->pipe;
    const struct lf_pipe *lists;
    int rc = 0;
    p->forwards = f;
    while ((rc = read_some(t, f, last, &lists, err)) == 0 && lists) {
        p->asked = 0;
        rc = walk(t, lists, err);
        if (rc != 0)
            lf_train_pass_failed(t, err);
        f->ran = rc != 0 ? INT64_MAX : f->ran + lists->spec.micro_batches;
        for (int i = 0; rc == 0 && i + 1 < t->m.cut.n_chunks; i++) { /* the caller, of the last */
            const struct lf_train_chunk *h = &t->m.cut.chunk[i];
            lf_train_expect_passes(t, f->train ? h->train : h->valid, lists->spec.micro_batches,
                                   false);
        }
        if (rc == 0 && f->each) {
            rc = lf_train_together(t, p->asked, err);
            if (t->comms.experts) /* which goes through as many lists as this column */
                rc = lf_comm_agree_ok(t->comms.data, rc, err);
        }
        if (rc != 0)
            break;
    }
    p->forwards = NULL;
    return rc;
}
