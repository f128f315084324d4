/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows on their way to the experts of other ranks, and back: see experts.h. Memory that the host
 * sees it copies itself; in that of a GPU kernels and copies of the backend do so.
 */
#include <string.h>

#include "engine/graph/experts.h"

/* The ranks' rows are of as many micro-batches at most, so each expert takes its capacity as often
 * at most. */
int64_t lf_experts_most(const struct lf_layout *l, const struct lf_expert_pairs *p)
{
    const int64_t all = l->expert * lf_experts_own(l, p->n, p->k),
                  taken = p->experts / l->expert * p->capacity * l->expert;
    return p->capacity && taken < all ? taken : all;
}

int64_t lf_experts_room(const struct lf_layout *l, const struct lf_expert_pairs *p)
{
    const double room = l->expert_room > 0 ? l->expert_room : LF_EXPERT_ROOM;
    const int64_t own = lf_experts_own(l, p->n, p->k), most = lf_experts_most(l, p);
    const double rows = room * (double)own;
    return rows < 1 ? 1 : rows < (double)most ? (int64_t)rows : most;
}

/* Rows of one expert from one rank. `at`: of who gives them the first pair, of who takes them the
 * first place in the room. */
struct piece {
    int rank; /* the other one */
    int64_t at, n;
};
struct walk {
    const struct lf_k_experts *a;
    int me;
    int64_t lo, hi; /* of the order of a rank of experts, those of this round */
    const int32_t *counts;
};
typedef void (*piece_fn)(const struct walk *w, const struct piece *p, void *user);

static struct walk walk_of(const struct lf_k_experts *a)
{
    const struct lf_experts *x = a->with->experts;
    return (struct walk){a, x->rank, x->round * a->room, (x->round + 1) * a->room,
                         a->seen ? a->seen : a->counts};
}

static int64_t count(const struct walk *w, int rank, int64_t expert)
{
    return w->counts[rank * w->a->experts + expert];
}

/* Those of rows [pos, pos + n) that are of this round. */
static int64_t clip(const struct walk *w, int64_t *pos, int64_t n)
{
    int64_t end = *pos + n;
    end = end < w->hi ? end : w->hi;
    *pos = *pos > w->lo ? *pos : w->lo;
    return end > *pos ? end - *pos : 0;
}

/* What this rank gives, in the order of its pairs, which is that of the ranks that take it. */
static void each_given(const struct walk *w, piece_fn fn, void *user)
{
    const int64_t each = w->a->experts / w->a->ranks;
    int64_t pair = 0;
    for (int q = 0; q < w->a->ranks; q++) {
        int64_t pos = 0;
        for (int64_t e = q * each; e < (q + 1) * each; e++)
            for (int s = 0; s < w->a->ranks; s++) {
                const int64_t n = count(w, s, e);
                if (s == w->me) {
                    int64_t from = pos;
                    const int64_t k = clip(w, &from, n);
                    if (w->a->folded)
                        pair = count(w, w->a->ranks, e);
                    if (k)
                        fn(w, &(struct piece){q, pair + from - pos, k}, user);
                    pair += n;
                }
                pos += n;
            }
    }
}

/* What this rank takes, in the order of its room. */
static void each_taken(const struct walk *w, piece_fn fn, void *user)
{
    const int64_t each = w->a->experts / w->a->ranks;
    int64_t pos = 0;
    for (int64_t e = w->me * each; e < (w->me + 1) * each; e++)
        for (int s = 0; s < w->a->ranks; s++) {
            const int64_t n = count(w, s, e);
            int64_t from = pos;
            const int64_t k = clip(w, &from, n);
            if (k)
                fn(w, &(struct piece){s, from - w->lo, k}, user);
            pos += n;
        }
}

static size_t line(const struct lf_k_experts *a)
{
    return (size_t)a->width * lf_dtype_size((enum lf_dtype)a->type);
}

static void add_bytes(const struct walk *w, const struct piece *p, void *bytes)
{
    ((size_t *)bytes)[p->rank] += (size_t)p->n * line(w->a);
}

/* The rounds that the rank with the most rows needs. */
static int64_t rounds(const struct walk *w)
{
    const int64_t each = w->a->experts / w->a->ranks;
    int64_t most = 1;
    for (int q = 0; q < w->a->ranks; q++) {
        int64_t n = 0;
        for (int64_t e = q * each; e < (q + 1) * each; e++)
            for (int s = 0; s < w->a->ranks; s++)
                n += count(w, s, e);
        most = n > most ? n : most;
    }
    return (most + w->a->room - 1) / w->a->room;
}

/* Where the rows of each rank begin in a buffer of what goes to, or comes from, all. */
static void begin(struct lf_experts *x, const size_t *bytes)
{
    size_t sum = 0;
    for (int r = 0; r < x->ranks; r++) {
        x->at[r] = sum;
        sum += bytes[r];
    }
}

/* The two sides of a round: bytes of the pairs, and of the room. */
static void measure(const struct walk *w, size_t *pairs, size_t *room)
{
    memset(pairs, 0, (size_t)w->a->ranks * sizeof *pairs);
    memset(room, 0, (size_t)w->a->ranks * sizeof *room);
    each_given(w, add_bytes, pairs);
    each_taken(w, add_bytes, room);
}

/* ---- copying ---- */

static char *next_of(const struct walk *w, const struct piece *p, char *buffer)
{
    size_t *at = w->a->with->experts->at;
    char *here = buffer + at[p->rank];
    at[p->rank] += (size_t)p->n * line(w->a);
    return here;
}

static void pack_pairs(const struct walk *w, const struct piece *p, void *buffer)
{
    const struct lf_k_experts *a = w->a;
    const size_t bytes = line(a);
    char *to = next_of(w, p, buffer);
    if (!a->row_of) {
        memcpy(to, (const char *)a->in + (size_t)p->at * bytes, (size_t)p->n * bytes);
        return;
    }
    for (int64_t i = 0; i < p->n; i++)
        memcpy(to + (size_t)i * bytes, (const char *)a->in + (size_t)a->row_of[p->at + i] * bytes,
               bytes);
}

static void unpack_pairs(const struct walk *w, const struct piece *p, void *buffer)
{
    const size_t bytes = line(w->a);
    memcpy((char *)w->a->out + (size_t)p->at * bytes, next_of(w, p, buffer), (size_t)p->n * bytes);
}

static void pack_room(const struct walk *w, const struct piece *p, void *buffer)
{
    const size_t bytes = line(w->a);
    memcpy(next_of(w, p, buffer), (const char *)w->a->in + (size_t)p->at * bytes,
           (size_t)p->n * bytes);
}

static void unpack_room(const struct walk *w, const struct piece *p, void *buffer)
{
    const size_t bytes = line(w->a);
    memcpy((char *)w->a->out + (size_t)p->at * bytes, next_of(w, p, buffer), (size_t)p->n * bytes);
}

/* ---- the nodes ---- */

/* Of the pairs of an expert, [at[0], at[1]), the first whose row is not before `row`. */
static int32_t first_from(const int32_t *row_of, const int32_t at[2], int64_t row)
{
    int32_t lo = at[0], hi = at[1];
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (row_of[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* What a count reads, where the host sees it. Folded it reads the rows of all pairs. */
static int see_pairs(const struct lf_k_experts *a)
{
    struct lf_exchange *with = a->with;
    const struct lf_experts *x = with->experts;
    if (!a->seen || x->idle)
        return 0;
    const int rc = x->read(x->user, x->index, a->offsets,
                           (size_t)(a->experts + 1) * sizeof *x->index, &with->err);
    return rc != 0 || !a->folded ? rc
                                 : x->read(x->user, x->row_of, a->row_of,
                                           (size_t)a->pairs * sizeof *x->row_of, &with->err);
}

static int count_pairs(const struct lf_k_experts *a)
{
    struct lf_exchange *with = a->with;
    const struct lf_experts *x = with->experts;
    const int32_t *offsets = a->seen ? x->index : a->offsets,
                  *row_of = a->seen ? x->row_of : a->row_of;
    int32_t *counts = a->seen ? a->seen : a->counts, *own = counts + (int64_t)x->rank * a->experts,
            *begin = counts + (int64_t)a->ranks * a->experts;
    const int rc = see_pairs(a);
    for (int32_t e = 0; e < a->experts && rc == 0; e++) {
        int32_t sent[2] = {0, 0}; /* the pairs that this rank sends */
        for (int i = 0; i < 2 && !x->idle; i++)
            sent[i] =
                a->folded ? first_from(row_of, offsets + e, i ? a->hi : a->lo) : offsets[e + i];
        own[e] = sent[1] - sent[0];
        if (a->folded)
            begin[e] = sent[0];
    }
    return rc != 0     ? rc
           : x->gather ? x->gather(x->user, counts, (size_t)a->experts * sizeof *own, &with->err)
                       : LF_K_EINVAL;
}

/* Where the rows of each own expert begin in the room. */
static int own_offsets(const struct walk *w)
{
    struct lf_exchange *with = w->a->with;
    struct lf_experts *x = with->experts;
    int32_t *to = w->a->seen ? x->index : w->a->offsets;
    const int64_t each = w->a->experts / w->a->ranks;
    int64_t pos = 0;
    for (int64_t i = 0; i <= each; i++) {
        const int64_t in_round = pos < w->lo ? w->lo : pos > w->hi ? w->hi : pos;
        to[i] = (int32_t)(in_round - w->lo);
        for (int s = 0; s < w->a->ranks && i < each; s++)
            pos += count(w, s, w->me * each + i);
    }
    return w->a->seen
               ? x->write(x->user, w->a->offsets, to, (size_t)(each + 1) * sizeof *to, &with->err)
               : 0;
}

/* Where what comes begins in the workspace, behind what goes. */
static char *coming(const struct lf_k_experts *a, char *work)
{
    return work + (size_t)(a->what == LF_EXPERTS_RETURN ? a->room : a->pairs) * line(a);
}

/* A return that is late begins only. */
static int swap(const struct lf_k_experts *a, void *in, const void *out)
{
    struct lf_exchange *with = a->with;
    struct lf_experts *x = with->experts;
    if (!x->late)
        return x->exchange ? x->exchange(x->user, in, x->from, out, x->to, &with->err)
                           : LF_K_EINVAL;
    x->pending = a;
    return x->begin(x->user, in, x->from, out, x->to, &with->err);
}

/* Moves rows through the workspace: first what goes, then what comes. */
static int move(const struct walk *w, bool back)
{
    const struct lf_k_experts *a = w->a;
    struct lf_experts *x = a->with->experts;
    char *out = a->work, *in = coming(a, out);
    measure(w, back ? x->from : x->to, back ? x->to : x->from);
    begin(x, x->to);
    back ? each_taken(w, pack_room, out) : each_given(w, pack_pairs, out);
    if (back && a->folded && x->round == 0) /* other ranks send the other pairs */
        memset(a->out, 0, (size_t)a->pairs * line(a));
    const int rc = swap(a, in, out);
    if (rc != 0 || x->late)
        return rc;
    begin(x, x->from);
    back ? each_given(w, unpack_pairs, in) : each_taken(w, unpack_room, in);
    return 0;
}

/* ---- memory of a GPU ---- */

/* A buffer of what goes to, or comes from, other ranks, `bytes` of each. */
struct buffer {
    char *at;
    const size_t *bytes;
};
struct on_gpu {
    const struct lf_kernels *k;
    lf_queue *q;
    struct walk w;
    bool back;      /* from the room to the pairs */
    int32_t *index; /* in the workspace */
};

static size_t index_bytes(const struct lf_k_experts *a)
{
    return ((size_t)a->room * sizeof *a->seen + 255) / 256 * 256;
}

static int rows_by(const struct on_gpu *g, const int32_t *index, const void *from, void *to,
                   int64_t n)
{
    const struct lf_k_gather_rows rows = {.rows = n,
                                          .c = g->w.a->width,
                                          .ldx = g->w.a->width,
                                          .ldy = g->w.a->width,
                                          .x = from,
                                          .index = index,
                                          .y = to,
                                          .x_type = g->w.a->type};
    return n ? g->k->gather_rows.run(g->q, &rows) : 0;
}

static void first_of(const struct walk *w, const struct piece *p, void *user)
{
    int64_t *first = w->a->with->experts->first;
    (void)user;
    if (first[p->rank] < 0)
        first[p->rank] = p->at;
}

/* Finds what goes to each rank in this round. Do the pairs stand in the order of the buffer? */
static bool find_pairs(const struct walk *w, const size_t *bytes)
{
    struct lf_experts *x = w->a->with->experts;
    bool same = !w->a->folded;
    for (int r = 0; r < x->ranks; r++)
        x->first[r] = -1;
    each_given(w, first_of, NULL);
    begin(x, bytes);
    for (int r = 0; r < x->ranks; r++)
        same = same && (!bytes[r] || (size_t)x->first[r] * line(w->a) == x->at[r]);
    return same;
}

/* n pairs from number `first` on to their place in the buffer, or back from it. */
static int move_some(const struct on_gpu *g, int64_t first, int64_t n, char *here)
{
    const struct lf_k_experts *a = g->w.a;
    struct lf_exchange *with = a->with;
    const size_t off = (size_t)first * line(a), bytes = (size_t)n * line(a);
    return g->back     ? with->move(with->user, (char *)a->out + off, here, bytes, &with->err)
           : a->row_of ? rows_by(g, a->row_of + first, a->in, here, n)
                       : with->move(with->user, here, (const char *)a->in + off, bytes, &with->err);
}

/* Folded, between the pairs of two experts that this rank sends are those of other ranks. */
struct moving {
    const struct on_gpu *g;
    char *at;
    int rc;
};

static void move_piece(const struct walk *w, const struct piece *p, void *user)
{
    struct moving *m = user;
    char *here = next_of(w, p, m->at);
    if (m->rc == 0)
        m->rc = move_some(m->g, p->at, p->n, here);
}

/* The pairs of a round into the buffer, or back from it; found before. */
static int move_pairs(const struct on_gpu *g, const struct buffer *b)
{
    const struct lf_k_experts *a = g->w.a;
    const struct lf_experts *x = a->with->experts;
    struct moving m = {g, b->at, 0};
    if (a->folded)
        each_given(&g->w, move_piece, &m);
    for (int r = 0; r < x->ranks && m.rc == 0 && !a->folded; r++)
        if (b->bytes[r])
            m.rc = move_some(g, x->first[r], (int64_t)(b->bytes[r] / line(a)), b->at + x->at[r]);
    return m.rc;
}

/* Numbers of rows: of the buffer in the order of the room, or the other way round. */
struct order {
    int32_t *index;
    int64_t n;
    bool back;
};

static void number_rows(const struct walk *w, const struct piece *p, void *user)
{
    struct order *o = user;
    size_t *at = w->a->with->experts->at;
    const int64_t row = (int64_t)(at[p->rank] / line(w->a));
    for (int64_t i = 0; i < p->n; i++)
        o->index[o->back ? row + i : p->at + i] = (int32_t)(o->back ? p->at + i : row + i);
    at[p->rank] += (size_t)p->n * line(w->a);
    o->n += p->n;
}

/* The rows of the buffer into the room, or back. */
static int move_room(const struct on_gpu *g, const struct buffer *b)
{
    struct lf_exchange *with = g->w.a->with;
    struct lf_experts *x = with->experts;
    struct order o = {x->index, 0, g->back};
    begin(x, b->bytes);
    each_taken(&g->w, number_rows, &o);
    const int rc =
        o.n ? x->write(x->user, g->index, o.index, (size_t)o.n * sizeof *o.index, &with->err) : 0;
    return rc != 0   ? rc
           : g->back ? rows_by(g, g->index, g->w.a->in, b->at, o.n)
                     : rows_by(g, g->index, b->at, g->w.a->out, o.n);
}

/* Where the pairs stand as a buffer has them, and rows need no order, they are it. */
static int give_pairs(const struct on_gpu *g, struct buffer *b)
{
    const struct lf_k_experts *a = g->w.a;
    const bool direct = find_pairs(&g->w, b->bytes) && !a->row_of;
    if (direct)
        b->at = (char *)(uintptr_t)a->in;
    return direct ? 0 : move_pairs(g, b);
}

static int take_pairs(const struct on_gpu *g, const struct buffer *b)
{
    return find_pairs(&g->w, b->bytes) ? 0 : move_pairs(g, b);
}

static struct buffer coming_on_gpu(const struct on_gpu *g)
{
    const struct lf_k_experts *a = g->w.a;
    const size_t *from = a->with->experts->from;
    return g->back && find_pairs(&g->w, from)
               ? (struct buffer){a->out, from}
               : (struct buffer){coming(a, (char *)a->work + index_bytes(a)), from};
}

/* As move. */
static int move_on_gpu(const struct on_gpu *g)
{
    const struct lf_k_experts *a = g->w.a;
    const struct lf_experts *x = a->with->experts;
    struct lf_exchange *with = a->with;
    struct buffer out = {(char *)a->work + index_bytes(a), x->to};
    measure(&g->w, g->back ? x->from : x->to, g->back ? x->to : x->from);
    const struct buffer in = coming_on_gpu(g);
    int rc = 0;
    if (g->back && a->folded && x->round == 0) /* other ranks send the other pairs */
        rc = with->clear(with->user, a->out, (size_t)a->pairs * line(a), &with->err);
    if (rc == 0)
        rc = g->back ? move_room(g, &out) : give_pairs(g, &out);
    if (rc == 0)
        rc = swap(a, in.at, out.at);
    return rc != 0 || x->late ? rc : g->back ? take_pairs(g, &in) : move_room(g, &in);
}

int lf_experts_end(const struct lf_kernels *k, lf_queue *q, struct lf_experts *x)
{
    const struct lf_k_experts *a = x->pending;
    const struct walk w = walk_of(a);
    const struct on_gpu g = {k, q, w, true, a->work};
    const int rc = x->finish(x->user, &a->with->err);
    x->pending = NULL;
    if (rc != 0)
        return rc;
    if (a->seen) {
        const struct buffer in = coming_on_gpu(&g);
        return take_pairs(&g, &in);
    }
    begin(x, x->from);
    each_given(&w, unpack_pairs, coming(a, a->work));
    return 0;
}

int lf_experts_call(const struct lf_kernels *k, lf_queue *q, const void *args)
{
    const struct lf_k_experts *a = args;
    int rc = 0;
    if (a->what == LF_EXPERTS_COUNT)
        return count_pairs(a);
    const struct walk w = walk_of(a);
    const bool back = a->what == LF_EXPERTS_RETURN;
    if (!back) {
        a->with->experts->rounds = rounds(&w);
        rc = a->offsets ? own_offsets(&w) : 0;
    }
    const struct on_gpu g = {k, q, w, back, a->work};
    return rc != 0 ? rc : a->seen ? move_on_gpu(&g) : move(&w, back);
}

int lf_experts_check(const struct lf_kernels *k, const void *args)
{
    const struct lf_k_experts *a = args;
    (void)k;
    return a->counts && a->ranks > 1 && a->experts % a->ranks == 0 &&
                   (a->what == LF_EXPERTS_COUNT ? a->offsets != NULL
                                                : a->in && a->out && a->room > 0)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* GPUs alone have this kernel. */
static bool is_gpu(const struct lf_kernels *k)
{
    return k->sum_ranks.run != NULL;
}

size_t lf_experts_work(const struct lf_kernels *k, const void *args, int threads)
{
    const struct lf_k_experts *a = args;
    (void)threads;
    return a->what == LF_EXPERTS_COUNT
               ? 0
               : (is_gpu(k) ? index_bytes(a) : 0) + (size_t)(a->pairs + a->room) * line(a);
}
