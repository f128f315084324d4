/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows on their way to the experts of other ranks, and back: see experts.h. Memory is that of the
 * host.
 */
#include <string.h>

#include "engine/graph/experts.h"

int64_t lf_experts_room(const struct lf_layout *l, int64_t pairs, int64_t k)
{
    const double room = l->expert_room > 0 ? l->expert_room : LF_EXPERT_ROOM;
    const int64_t own = lf_experts_own(l, pairs, k), most = l->expert * own;
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
};
typedef void (*piece_fn)(const struct walk *w, const struct piece *p, void *user);

static struct walk walk_of(const struct lf_k_experts *a)
{
    const struct lf_experts *x = a->with->experts;
    return (struct walk){a, x->rank, x->round * a->room, (x->round + 1) * a->room};
}

static int64_t count(const struct walk *w, int rank, int64_t expert)
{
    return w->a->counts[rank * w->a->experts + expert];
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

/* The first pair of an expert whose row is not before `row`. */
static int32_t first_from(const struct lf_k_experts *a, int32_t e, int64_t row)
{
    int32_t lo = a->offsets[e], hi = a->offsets[e + 1];
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (a->row_of[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The pairs of an expert that this rank sends: how many, from *first on. */
static int32_t sent_pairs(const struct lf_k_experts *a, int32_t e, int32_t *first)
{
    *first = a->folded ? first_from(a, e, a->lo) : a->offsets[e];
    return (a->folded ? first_from(a, e, a->hi) : a->offsets[e + 1]) - *first;
}

static int count_pairs(const struct lf_k_experts *a)
{
    struct lf_exchange *with = a->with;
    const struct lf_experts *x = with->experts;
    int32_t *own = a->counts + (int64_t)x->rank * a->experts,
            *begin = a->counts + (int64_t)a->ranks * a->experts;
    for (int32_t e = 0; e < a->experts; e++) {
        int32_t first = 0;
        own[e] = x->idle ? 0 : sent_pairs(a, e, &first);
        if (a->folded)
            begin[e] = first;
    }
    return x->gather ? x->gather(x->user, a->counts, (size_t)a->experts * sizeof *own, &with->err)
                     : LF_K_EINVAL;
}

/* Where the rows of each own expert begin in the room. */
static void own_offsets(const struct walk *w)
{
    const struct lf_k_experts *a = w->a;
    const int64_t each = a->experts / a->ranks;
    int64_t pos = 0;
    for (int64_t i = 0; i <= each; i++) {
        const int64_t in_round = pos < w->lo ? w->lo : pos > w->hi ? w->hi : pos;
        a->offsets[i] = (int32_t)(in_round - w->lo);
        for (int s = 0; s < a->ranks && i < each; s++)
            pos += count(w, s, w->me * each + i);
    }
}

/* Moves rows through the workspace: first what goes, then what comes. */
static int move(const struct walk *w, bool back)
{
    const struct lf_k_experts *a = w->a;
    struct lf_exchange *with = a->with;
    struct lf_experts *x = with->experts;
    const int64_t gone = back ? a->room : a->pairs;
    char *out = a->work, *in = out + (size_t)gone * line(a);
    measure(w, back ? x->from : x->to, back ? x->to : x->from);
    begin(x, x->to);
    back ? each_taken(w, pack_room, out) : each_given(w, pack_pairs, out);
    if (back && a->folded && x->round == 0) /* other ranks send the other pairs */
        memset(a->out, 0, (size_t)a->pairs * line(a));
    const int rc =
        x->exchange ? x->exchange(x->user, in, x->from, out, x->to, &with->err) : LF_K_EINVAL;
    begin(x, x->from);
    if (rc == 0)
        back ? each_given(w, unpack_pairs, in) : each_taken(w, unpack_room, in);
    return rc;
}

int lf_experts_call(const struct lf_kernels *k, lf_queue *q, const void *args)
{
    const struct lf_k_experts *a = args;
    (void)k, (void)q;
    if (a->what == LF_EXPERTS_COUNT)
        return count_pairs(a);
    const struct walk w = walk_of(a);
    if (a->what == LF_EXPERTS_SEND) {
        a->with->experts->rounds = rounds(&w);
        if (a->offsets)
            own_offsets(&w);
    }
    return move(&w, a->what == LF_EXPERTS_RETURN);
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

size_t lf_experts_work(const struct lf_kernels *k, const void *args, int threads)
{
    const struct lf_k_experts *a = args;
    (void)k, (void)threads;
    return a->what == LF_EXPERTS_COUNT ? 0 : (size_t)(a->pairs + a->room) * line(a);
}
