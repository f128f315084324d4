/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of divided gradients (zero = 2) and weights (zero = 3), and weights gathered as a
 * whole. The other rank of a pair is played here: its weights come from an executor that has all of
 * them, and it has no micro-batch. What it gives arrives as late as it may, when this rank waits
 * for it; until then the bytes are NaN. So a wait that is missing, or comes too early or too late,
 * shows in loss or gradients.
 *
 * On the emulated GPU the other rank's work is queued on the second stream, which the emulator runs
 * as late (order 0) or as early (order 1) as the waits between the streams allow.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;

/* ---- the emulated GPU ---- */

static bool on_gpu;
static struct lf_cu cu;

static lf_back *open_cuda(int threads, lf_err *e)
{
    return lf_back_cuda_create(&(struct lf_cuda_opts){.threads = threads, .driver = &cu}, e);
}

/* NULL: from here on tests use the CPU. */
static void use_gpu(const char *order)
{
    on_gpu = order != NULL;
    setenv("LF_EMU_ORDER", on_gpu ? order : "0", 1);
    lf_emu_reset();
}

/* The emulator is slow. */
static struct gu_model sized(const struct gu_model *m)
{
    struct gu_model x = *m;
    if (on_gpu) {
        x.layers = 2;
        x.rows = 16;
    }
    return x;
}

/* ---- the other rank ---- */

enum { CALLS = 512 };
struct other {
    const struct gu *whole;
    struct gu *u;
    const char *held; /* a block that is gathered for no window */
    struct {          /* by number of request */
        float *out;
        const float *data;
        const size_t *counts;
        bool more;
    } sum[CALLS];
    int called[CALLS], calls; /* what, and of which window */
    int wrong;                /* elements of this rank's own part that are not those of the whole */
};

static int number_of(struct other *o, const struct lf_exec_req *q, int *chain)
{
    for (*chain = 0; *chain < (int)o->u->p->n_c; (*chain)++) {
        const struct lf_bound *b = &o->u->ex->chain[*chain];
        const size_t n = o->u->p->c[*chain].n_windows;
        if (b->req && q >= b->req && q < b->req + n)
            return (int)(q - b->req);
    }
    return -1;
}

static int note(struct other *o, const struct lf_exec_req *q, int what, int *chain)
{
    const int i = number_of(o, q, chain);
    if (i < 0 && (what == 1 || on_gpu))
        tap_bail("a request of no window");
    if (o->calls < CALLS)
        o->called[o->calls++] = 4 * i + what;
    return i;
}

/* What a rank of the pair has of a group in a window, and where. */
struct part {
    struct other *o;
    char *to;
    const char *from;
    size_t first, bytes, all;
};

/* Is this rank's part what it should be? */
static void check_own(void *user)
{
    const struct part *p = user;
    p->o->wrong += memcmp(p->to + p->first, p->from + p->first, p->bytes) != 0;
}

static void copy_later(const struct part *p, size_t from, size_t to)
{
    if (to > from && cu.MemcpyDtoDAsync((lf_cu_ptr)(uintptr_t)(p->to + from),
                                        (lf_cu_ptr)(uintptr_t)(p->from + from), to - from,
                                        p->o->u->b->comm_stream))
        tap_bail("a copy on the second stream");
}

/* The other rank's part of a group arrives: now, or when the second stream comes to it. */
static void arrive_part(const struct part *p)
{
    if (!on_gpu) {
        struct part mine = *p;
        check_own(&mine);
        memcpy(p->to, p->from, p->all);
        return;
    }
    struct part *mine = malloc(sizeof *mine); /* freed by the emulator */
    *mine = *p;
    if (lf_emu_host_call(p->o->u->b->comm_stream, check_own, mine, sizeof *mine))
        tap_bail("a call on the second stream");
    copy_later(p, 0, p->first);
    copy_later(p, p->first + p->bytes, p->all);
}

static void arrive(struct other *o, size_t unit, int kind, char *block)
{
    const lf_plan *p = o->u->p;
    const struct lf_unit *u = &p->unit[unit];
    const size_t size = lf_dtype_size(lf_pstore_type(p->ps, (enum lf_pkind)kind));
    for (size_t i = u->first; i < u->end; i++) {
        const struct lf_pgroup *g = &p->ps->g[i], *all = &o->whole->ps->g[i];
        if (g->unit == (int32_t)unit && g->window[kind])
            arrive_part(&(struct part){.o = o,
                                       .to = block + g->at[kind],
                                       .from = lf_pgroup_data(o->whole->ps, all, kind),
                                       .first = (size_t)g->own0 * size,
                                       .bytes = (size_t)(g->own1 - g->own0) * size,
                                       .all = (size_t)(g->rows * g->cols) * size});
    }
}

static void arrive_window(struct other *o, int chain, int i)
{
    const struct lf_chain *c = &o->u->p->c[chain];
    const struct lf_window *w = &c->window[i];
    arrive(o, w->unit, w->kind, o->u->ex->arena + c->arena_off + w->off);
}

static void arrive_held(struct other *o)
{
    const lf_plan *p = o->u->p;
    for (size_t i = 0; i < p->n_units; i++)
        for (int k = 0; k < LF_P_KINDS; k++) {
            char *at = o->u->ex->arena + p->unit[i].whole[k];
            if (p->unit[i].held[k] && at == o->held) {
                arrive(o, i, k, at);
                return;
            }
        }
    tap_bail("what was gathered has no place");
}

static int begin_gather(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                        lf_err *e)
{
    struct other *o = user;
    int chain;
    (void)bytes;
    (void)e;
    const int i = note(o, q, 0, &chain);
    q->p = user;
    if (i < 0)
        o->held = data;
    else if (on_gpu)
        arrive_window(o, chain, i);
    return 0;
}

/* The gradients of the other rank are 0. */
static void add_later(struct other *o, float *out, const float *mine, size_t n, bool more)
{
    const lf_back *b = o->u->b;
    const struct lf_k_axpby a = {.n = (int64_t)n,
                                 .a = mine,
                                 .b = more ? out : NULL,
                                 .y = out,
                                 .alpha = 1,
                                 .beta = 1,
                                 .a_type = LF_F32,
                                 .b_type = LF_F32,
                                 .y_type = LF_F32};
    if (b->kernels->axpby.run(b->comm_queue, &a))
        tap_bail("a kernel on the second stream");
}

static const float *own_part(const struct other *o, const float *data, const size_t *counts)
{
    for (int r = 0; r < o->u->p->ranks.rank; r++)
        data += counts[r];
    return data;
}

static int begin_sum(void *user, struct lf_exec_req *q, float *out, const float *data,
                     const size_t *counts, bool more, lf_err *e)
{
    struct other *o = user;
    int chain;
    const int i = note(o, q, 1, &chain);
    (void)e;
    q->p = user;
    o->sum[i].out = out;
    o->sum[i].data = data;
    o->sum[i].counts = counts;
    o->sum[i].more = more;
    if (on_gpu)
        add_later(o, out, own_part(o, data, counts), counts[o->u->p->ranks.rank], more);
    return 0;
}

static int finish(void *user, struct lf_exec_req *q, lf_err *e)
{
    struct other *o = user;
    int chain;
    const int i = note(o, q, 2, &chain), rank = o->u->p->ranks.rank;
    if (!q->p)
        return lf_fail(e, LF_EINVAL, "waiting for nothing");
    q->p = NULL;
    if (on_gpu)
        return 0;
    if (i < 0) {
        arrive_held(o);
        return 0;
    }
    if (o->u->p->c[chain].window[i].kind != LF_P_GRAD) {
        arrive_window(o, chain, i);
        return 0;
    }
    const float *mine = own_part(o, o->sum[i].data, o->sum[i].counts);
    for (size_t k = 0; k < o->sum[i].counts[rank]; k++)
        o->sum[i].out[k] = (o->sum[i].more ? o->sum[i].out[k] : 0) + mine[k];
    return 0;
}

static void connect(struct other *o, const struct gu *whole, struct gu *u)
{
    *o = (struct other){.whole = whole, .u = u};
    lf_exec_set_comm(u->ex,
                     &(struct lf_exec_comm){
                         .begin_gather = begin_gather, .begin_sum = begin_sum, .finish = finish},
                     o);
}

/* The largest difference of this rank's gradients from those of the whole, relative to the norm of
 * a tensor; INFINITY where one is not a number. *n: how many elements there are. */
static double differ(const struct gu *whole, const struct gu *u, int64_t *n)
{
    double most = 0;
    *n = 0;
    for (int i = 0; i < lf_pstore_count(u->ps); i++) {
        struct lf_pview a, b;
        double norm = 0, d = 0;
        if (lf_pstore_view(u->ps, i, LF_P_GRAD, &a) != 1 ||
            lf_pstore_view(whole->ps, i, LF_P_GRAD, &b) != 1)
            continue;
        const float *x = a.data, *y = b.data;
        for (int64_t e = 0; e < b.count; e++)
            norm += (double)y[e] * (double)y[e];
        for (int64_t e = 0; e < a.count; e++) {
            const double z = (double)x[e] - (double)y[a.first + e];
            d = isfinite(z) ? fmax(d, fabs(z)) : (double)INFINITY;
        }
        *n += a.count;
        most = tap_worse(most, d / (sqrt(norm) + 1e-30));
    }
    return most;
}

static struct lf_step_record run(struct gu *u, const struct gu_batch *b, enum lf_variant v)
{
    gu_feed(u, u->train, 0, b);
    if (v == LF_FIRST)
        gu_record(u, b->trained, 0.01f);
    if (lf_exec_run(u->ex, u->train, LF_FWD, 0, v, &err) ||
        lf_exec_run(u->ex, u->train, LF_BWD_LAST, 0, v, &err))
        tap_bail("%s", err.text);
    return gu_result(u);
}

static struct gu_opts opts(const struct gu_opts *o, int zero, int rank)
{
    struct gu_opts x = *o;
    x.optimizer = true;
    x.dp_ranks = zero ? 2 : 0;
    x.dp_rank = rank;
    x.zero = zero;
    x.poison = zero > 0;
    if (on_gpu) {
        x.plan.target = lf_target_find("sm_90");
        x.plan.threads = 1;
        x.open_back = open_cuda;
    }
    return x;
}

/* A rank of two computes what one does that has everything. */
static void test_same(const struct gu_model *model, const struct gu_opts *base, const char *name)
{
    const struct gu_model size = sized(model), *m = &size;
    struct gu whole;
    struct gu_batch b[2];
    struct other *o = malloc(sizeof *o);
    const struct gu_opts none = opts(base, 0, 0);
    gu_open(&whole, m, &none);
    for (int k = 0; k < 2; k++)
        gu_batch_make(&b[k], m, m->rows, (uint32_t)k);
    for (int zero = 2; zero <= 3; zero++)
        for (int rank = 0; rank < 2; rank++) {
            struct gu u;
            int64_t n = 0;
            const struct gu_opts part = opts(base, zero, rank);
            gu_open(&u, m, &part);
            connect(o, &whole, &u);
            const double want = run(&whole, &b[0], LF_FIRST).loss_sum,
                         got = run(&u, &b[0], LF_FIRST).loss_sum, one = differ(&whole, &u, &n);
            tap_ok(got == want && one == 0 && n > 0 && !o->wrong,
                   "%s, zero = %d, rank %d: loss and %lld gradients have the bits of the whole",
                   name, zero, rank, (long long)n);
            if (got != want || one != 0 || o->wrong)
                tap_diag("loss %.9g, not %.9g; gradients differ by %g; %d wrong", got, want, one,
                         o->wrong);
            run(&whole, &b[1], LF_ACCUM);
            run(&u, &b[1], LF_ACCUM);
            const double two = differ(&whole, &u, &n);
            tap_ok(two < 1e-6, "and their sums over two micro-batches are as near as can be: %.1e",
                   two);
            gu_close(&u);
        }
    gu_close(&whole);
    free(o);
}

/* ---- a rank without a micro-batch ---- */

static void test_idle(void)
{
    struct gu whole, u;
    struct gu_batch b;
    struct other *o = malloc(sizeof *o), *p = malloc(sizeof *p);
    const struct gu_opts none = opts(&gu_f32, 0, 0), part = opts(&gu_f32, 3, 1);
    const struct gu_model m = sized(&gu_llama);
    int64_t n = 0;
    gu_open(&whole, &m, &none);
    gu_open(&u, &m, &part);
    gu_batch_make(&b, &m, m.rows, 0);
    connect(o, &whole, &u);
    run(&u, &b, LF_FIRST);
    *p = *o;
    o->calls = 0;
    int rc = lf_exec_idle(u.ex, u.train, LF_FWD, LF_FIRST, &err);
    if (rc == 0)
        rc = lf_exec_idle(u.ex, u.train, LF_BWD, LF_FIRST, &err);
    gu_result(&u); /* waits for a GPU */
    tap_ok(rc == 0 && o->calls == p->calls && o->calls > 8 &&
               memcmp(o->called, p->called, (size_t)o->calls * sizeof *o->called) == 0,
           "a rank without a micro-batch does the same in the same order: %d calls", o->calls);
    double sum = 0;
    for (int i = 0; i < lf_pstore_count(u.ps); i++) {
        struct lf_pview v;
        for (int64_t e = 0; lf_pstore_view(u.ps, i, LF_P_GRAD, &v) == 1 && e < v.count; e++, n++)
            sum += fabs((double)((const float *)v.data)[e]);
    }
    tap_ok(n > 0 && sum == 0, "and its gradients are 0");
    gu_close(&u);
    gu_close(&whole);
    free(o);
    free(p);
}

/* ---- weights as a whole, for a chain that a rank runs alone ---- */

static double loss_alone(struct gu *u, const struct gu_batch *b)
{
    gu_feed(u, u->valid, 0, b);
    gu_record(u, b->trained, 0.01f);
    return lf_exec_run(u->ex, u->valid, LF_FWD, 0, LF_FIRST, &err) ? (double)NAN
                                                                   : gu_result(u).loss_sum;
}

static void test_whole(const struct gu_model *m, const struct gu_opts *base, const char *name)
{
    struct gu whole, u;
    struct gu_batch b;
    struct other *o = malloc(sizeof *o);
    struct gu_opts none = opts(base, 0, 0), part = opts(base, 3, 1);
    struct lf_plan_bytes with, without;
    struct lf_plan_comm comm;
    none.valid = part.valid = part.whole = none.packed = part.packed = true;
    gu_open(&whole, m, &none);
    gu_open(&u, m, &part);
    gu_batch_make(&b, m, m->rows, 0);
    connect(o, &whole, &u);
    tap_ok(isnan(loss_alone(&u, &b)) && strstr(err.text, "valid") && strstr(err.text, "whole"),
           "%s: a chain whose weights nobody gathered fails: %s", name, err.text);
    const double want = loss_alone(&whole, &b);
    int rc = lf_exec_hold(u.ex, &err);
    const int calls = o->calls;
    lf_plan_comm(u.p, &comm);
    const double one = loss_alone(&u, &b), two = loss_alone(&u, &b);
    tap_ok(rc == 0 && one == want && two == want && !o->wrong && o->calls == calls && calls > 0,
           "gathered once it runs twice, without the other rank, and has the bits of the whole");
    tap_ok(comm.hold.messages * 2 == calls && comm.hold.bytes > 0 &&
               comm.hold.bytes < (double)u.p->whole_bytes,
           "and the plan counts %g bytes in %d gatherings", comm.hold.bytes, calls / 2);
    run(&u, &b, LF_FIRST);
    tap_ok(isnan(loss_alone(&u, &b)), "a training step overwrites them, which is seen");
    lf_exec_hold(u.ex, &err);
    lf_pstore_touch(u.ps);
    tap_ok(isnan(loss_alone(&u, &b)), "so are weights that were written after they were gathered");
    lf_plan_bytes(u.p, &with);
    tap_ok(lf_exec_bytes(u.ex) == with.total && with.arena >= u.p->whole_bytes,
           "they are in the planned memory: %zu bytes", u.p->whole_bytes);
    gu_close(&u);
    part.packed = false;
    gu_open(&u, m, &part);
    lf_plan_bytes(u.p, &without);
    tap_ok(without.total == with.total, "a rank that has a part of the weights has no panels");
    gu_close(&u);
    gu_close(&whole);
    lf_err_clear(&err);
    free(o);
}

/* ---- planted faults ---- */

static enum lf_event_what removed;

static void remove_events(lf_plan *p)
{
    for (size_t k = 0; k < p->n_c; k++) {
        struct lf_chain *c = &p->c[k];
        size_t n = 0;
        for (size_t i = 0; i < c->n_events; i++)
            if (c->event[i].what != removed ||
                (removed == LF_EV_GATHERED && c->window[c->event[i].window].unit != 1))
                c->event[n++] = c->event[i];
        c->n_events = n;
    }
}

/* Sums begin a node too early. */
static void sum_early(lf_plan *p)
{
    for (size_t k = 0; k < p->n_c; k++)
        for (size_t i = 0; i < p->c[k].n_events; i++)
            p->c[k].event[i].node -= p->c[k].event[i].what == LF_EV_SUM;
}

/* All windows in one place. */
static void share_place(lf_plan *p)
{
    for (size_t k = 0; k < p->n_c; k++)
        for (size_t i = 0; i < p->c[k].n_windows; i++)
            p->c[k].window[i].off = p->c[k].window[0].off;
}

/* A rank of two with a fault in its plan, or with another backend's functions. */
static bool differs(void (*fault)(lf_plan *p), const struct lf_back_ops *ops)
{
    const struct gu_model m = sized(&gu_llama);
    struct gu whole, u;
    struct gu_batch b;
    struct other *o = malloc(sizeof *o);
    const struct gu_opts none = opts(&gu_f32, 0, 0);
    struct gu_opts part = opts(&gu_f32, 3, 0);
    int64_t n = 0;
    part.tamper = fault;
    gu_open(&whole, &m, &none);
    gu_open(&u, &m, &part);
    gu_batch_make(&b, &m, m.rows, 0);
    connect(o, &whole, &u);
    const struct lf_back_ops *good = u.b->ops;
    u.b->ops = ops ? ops : good;
    const double want = run(&whole, &b, LF_FIRST).loss_sum, got = run(&u, &b, LF_FIRST).loss_sum;
    const bool seen = got != want || differ(&whole, &u, &n) != 0 || o->wrong;
    u.b->ops = good;
    gu_close(&u);
    gu_close(&whole);
    free(o);
    return seen;
}

static void test_fault(void (*fault)(lf_plan *p), const char *name)
{
    tap_ok(differs(fault, NULL), "%s is seen%s", name, on_gpu ? " on a GPU" : "");
}

/* ---- streams that do not wait for each other ---- */

static int no_begin(lf_back *b, lf_err *e)
{
    (void)b, (void)e;
    return 0;
}

static int no_mark(lf_back *b, size_t i, lf_err *e)
{
    (void)b, (void)i, (void)e;
    return 0;
}

static void test_streams(void)
{
    lf_back *b = open_cuda(1, &err);
    if (!b)
        tap_bail("%s", err.text);
    const struct lf_back_ops good = *b->ops;
    struct lf_back_ops bad[3] = {good, good, good};
    bad[0].comm_begin = no_begin;
    bad[1].comm_mark = no_mark;
    bad[2].comm_wait = no_mark;
    lf_back_destroy(b);
    use_gpu("1");
    tap_ok(!differs(NULL, NULL), "early: nothing differs");
    tap_ok(differs(NULL, &bad[0]), "a second stream that waits for no computation is seen");
    use_gpu("0");
    tap_ok(!differs(NULL, NULL), "late: nothing differs");
    tap_ok(differs(NULL, &bad[1]), "marks that are not set are seen");
    tap_ok(differs(NULL, &bad[2]), "waits that are left out are seen");
}

/* Passes that are recorded and replayed: the host waits for nothing and allocates nothing. */
static void test_no_wait(int zero)
{
    const struct gu_model m = sized(&gu_llama);
    struct gu whole, u;
    struct gu_batch b;
    struct other *o = malloc(sizeof *o);
    const struct gu_opts none = opts(&gu_f32, 0, 0);
    struct gu_opts part = opts(&gu_f32, zero, 1);
    struct lf_emu_stats from = {0};
    int64_t n = 0;
    double apart = 0;
    part.poison = false;
    gu_open(&whole, &m, &none);
    gu_open(&u, &m, &part);
    connect(o, &whole, &u);
    for (uint32_t k = 0; k < 4; k++) {
        gu_batch_make(&b, &m, m.rows, k);
        const double want = run(&whole, &b, LF_FIRST).loss_sum;
        gu_feed(&u, u.train, 0, &b);
        gu_record(&u, b.trained, 0.01f);
        const struct lf_emu_stats *now = lf_emu_stats();
        from = k < 3 ? *now : from;
        const long waits = now->waits, allocations = now->allocations;
        gu_fwd_bwd(&u, 0, LF_FIRST);
        n += now->waits - waits + now->allocations - allocations;
        from.graph_launches = now->graph_launches - from.graph_launches;
        apart += fabs(gu_result(&u).loss_sum - want);
        int64_t all;
        apart += differ(&whole, &u, &all);
    }
    tap_ok(n == 0 && from.graph_launches > 8,
           "zero = %d: the host waits nowhere in a pass; %ld recorded pieces", zero,
           from.graph_launches);
    tap_ok(apart <= 0, "with the bits of the whole in four passes");
    gu_close(&u);
    gu_close(&whole);
    free(o);
}

/* ---- sizes ---- */

static void test_sizes(const struct gu_opts *base, const char *name)
{
    struct lf_plan_bytes all, b[4][4];
    struct gu u;
    struct gu_opts o = opts(base, 0, 0);
    struct gu_model m = gu_llama;
    m.layers = 4;
    gu_open(&u, &m, &o);
    lf_plan_bytes(u.p, &all);
    gu_close(&u);
    for (int zero = 1; zero <= 3; zero++) {
        size_t state = 0, grads = 0, params = 0;
        bool part = true;
        for (int r = 0; r < 4; r++) {
            o = opts(base, zero, r);
            o.dp_ranks = 4;
            gu_open(&u, &m, &o);
            lf_plan_bytes(u.p, &b[zero][r]);
            part = part && lf_exec_bytes(u.ex) == b[zero][r].total;
            gu_close(&u);
            state += b[zero][r].optimizer;
            grads += b[zero][r].grads;
            params += b[zero][r].params;
        }
        const size_t slack = 64 * 4 * 4 * 64; /* gaps: 64 bytes for a group, kind and rank */
        tap_ok(part && state >= all.optimizer && state <= all.optimizer + slack &&
                   (zero < 2 ? grads == 4 * all.grads
                             : grads >= all.grads && grads <= all.grads + slack) &&
                   (zero < 3 || (params >= all.params && params <= all.params + slack)),
               "%s, zero = %d: four ranks keep what one keeps, and each takes what is planned",
               name, zero);
        if (!part)
            tap_diag("state %zu of %zu, gradients %zu of %zu, weights %zu of %zu", state,
                     all.optimizer, grads, all.grads, params, all.params);
    }
    tap_ok(b[3][0].grads < all.grads / 2 && b[3][0].params < all.params / 2,
           "a rank of four has less than half of gradients and weights");
}

/* ---- refused ---- */

/* A plan for ranks, and how it ends. */
static int plan_for(const char *target, int ranks, enum lf_fp8 fp8, bool packed, int zero)
{
    struct gu_opts o = gu_bf16;
    lf_pstore *ps = gu_store(&gu_llama, &err);
    o.plan.target = lf_target_find(target);
    o.plan.fp8 = fp8;
    o.plan.mode = LF_FAST;
    lf_pstore_fp8_matching(ps, "*", fp8 != LF_FP8_OFF);
    lf_plan *p = lf_plan_create(ps, &o.plan, &err);
    lf_graph *g = p ? gu_graph(&gu_llama, ps, "train", true, &err) : NULL;
    int rc =
        g ? lf_plan_add(p, g, &(struct lf_chain_opts){.train = true, .eras = 1}, &err) : LF_EINVAL;
    lf_graph_destroy(g);
    g = rc >= 0 && packed ? gu_graph(&gu_llama, ps, "valid", true, &err) : NULL;
    if (g)
        rc = lf_plan_add(p, g, &(struct lf_chain_opts){.eras = 2, .packed = true}, &err);
    lf_graph_destroy(g);
    if (rc < 0 || lf_plan_optimizer(
                      p, &(struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.9f, .eps = 1e-8f}, &err))
        tap_bail("%s", err.text);
    rc = lf_plan_data_parallel(
        p, &(struct lf_plan_ranks){.ranks = ranks, .bucket_bytes = 8192, .zero = zero}, &err);
    if (rc == 0)
        rc = lf_plan_finish(p, &err);
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
    return rc;
}

static void test_refused(void)
{
    tap_rc(plan_for("sm_90", 2, LF_FP8_OFF, false, 4), LF_EINVAL, &err, "zero = 4",
           "a stage that does not exist");
    tap_rc(plan_for("sm_90", 2, LF_FP8_TENSORS, false, 3), LF_ENOTSUP, &err,
           "zero = 3 with precision fp8", "8-bit products with zero = 3");
    lf_err_clear(&err);
    tap_rc(plan_for("sm_90", 2, LF_FP8_TENSORS, false, 2), 0, &err, NULL, "but not with 2");
    tap_rc(plan_for("cpu-avx2", 2, LF_FP8_OFF, true, 3), LF_ENOTSUP, &err, "reads panels",
           "a graph that reads panels with zero = 3");
    lf_err_clear(&err);
    tap_rc(plan_for("cpu-avx2", 2, LF_FP8_OFF, true, 2), 0, &err, NULL, "but not with 2");
    tap_rc(plan_for("sm_90", 2, LF_FP8_OFF, true, 3), 0, &err, NULL,
           "nor on a GPU, which has none");
    tap_rc(plan_for("sm_90", 513, LF_FP8_OFF, false, 2), LF_ENOTSUP, &err, "set zero_inner",
           "more GPUs than can send to each other at once");
    lf_err_clear(&err);
    tap_rc(plan_for("sm_90", 513, LF_FP8_OFF, false, 1), 0, &err, NULL, "but not with 1");
}

static void test_gpu(void)
{
    struct gu_model tied = gu_gpt2;
    tied.tied = true;
    for (int order = 0; order < 3; order++) {
        static const char *const orders[] = {"0", "1", "7"};
        use_gpu(orders[order]);
        TAP(8, test_same(&gu_llama, &gu_f32, "llama on a GPU"));
    }
    TAP(8, test_same(&tied, &gu_bf16, "gpt2 on a GPU, tied, bf16"));
    use_gpu("0");
    TAP(2, test_idle());
    TAP(2, test_no_wait(2));
    TAP(2, test_no_wait(3));
    removed = LF_EV_GATHERED;
    TAP(1, test_fault(remove_events, "a wait for weights that is missing"));
    removed = LF_EV_SUMMED;
    TAP(1, test_fault(remove_events, "a wait for a sum that is missing"));
    TAP(1, test_fault(share_place, "a place that two windows share"));
    use_gpu("1");
    TAP(1, test_fault(sum_early, "a sum that begins before the gradients are complete"));
    TAP(5, test_streams());
    use_gpu(NULL);
}

int main(void)
{
    struct gu_opts full = gu_bf16;
    struct gu_model tied = gu_gpt2;
    full.recompute = LF_RECOMPUTE_FULL;
    tied.tied = true;
    TAP(8, test_same(&gu_llama, &gu_f32, "llama"));
    TAP(8, test_same(&tied, &gu_bf16, "gpt2, tied, bf16"));
    TAP(8, test_same(&gu_qwen, &full, "qwen, bf16, recomputation"));
    TAP(2, test_idle());
    TAP(7, test_whole(&gu_llama, &gu_f32, "llama"));
    TAP(7, test_whole(&tied, &gu_bf16, "gpt2, tied, bf16"));
    removed = LF_EV_GATHERED;
    TAP(1, test_fault(remove_events, "a wait for weights that is missing"));
    removed = LF_EV_SUMMED;
    TAP(1, test_fault(remove_events, "a wait for a sum that is missing"));
    TAP(1, test_fault(sum_early, "a sum that begins before the gradients are complete"));
    TAP(1, test_fault(share_place, "a place that two windows share"));
    TAP(4, test_sizes(&gu_f32, "f32"));
    TAP(4, test_sizes(&gu_bf16, "bf16"));
    TAP(8, test_refused());
    lf_emu_driver(&cu);
    test_gpu();
    char text[300];
    tap_ok(lf_emu_leaks(text, sizeof text) == 0, "nothing is left behind: %s", text);
    return tap_done();
}
