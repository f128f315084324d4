/* SPDX-License-Identifier: Apache-2.0
 *
 * lf_k_sample against the sampler of the host, token by token, and against a reference of its own
 * in f64 that sorts and adds up with the library's exp. Vocabularies of one token to 151,936; ties,
 * logits that are not finite, every parameter alone and all together, rows of every kind beside
 * each other; what the kernel leaves to the host; the law of many draws.
 */
#include "config.h"

#include "engine/infer/sample.h"
#include "tests/op/op_test.h"

enum { MOST_LIST = 512, SEEN = 40 };

static const lf_sample_params params[] = {
    {1, 1, 0, 1, 0, 0, 0},        {0, 1, 0, 1, 0, 0, 0},
    {0.7, 1, 0, 1, 0, 0, 0},      {1, 1, 0, 1, 0, 0, 5},
    {1, 0.8, 0, 1, 0, 0, 0},      {1, 1, 0.1, 1, 0, 0, 0},
    {1, 1, 0, 1.3, 0, 0, 0},      {1, 1, 0, 1, 0.5, 0, 0},
    {1, 1, 0, 1, 0, 0.25, 0},     {0.8, 0.9, 0.05, 1.2, 0.1, 0.2, 20},
    {1.5, 0.6, 0, 1, 0, 0, 3},    {1, 1, 0.3, 1, 0, 0, 4},
    {0.01, 0.99, 0, 1, 0, 0, 50}, {0, 0.5, 0.5, 2, 1, 1, 2},
    {1e-310, 1, 0, 1, 0, 0, 0},   {2, 1e-9, 0, 1, 0, 0, 0},
    {1, 1, 1, 1, 0, 0, 0},        {1, 0.95, 0, 1.1, 0, 0, 0},
    {3, 1, 0, 1, 0, 0, 1},        {1, 0.999999, 1e-30, 1, 0, 0, 0},
};
enum { N_PARAMS = sizeof params / sizeof *params };

/* What a row is made of. */
enum { PLAIN = 0, TIED, BROKEN, HOPELESS, SINGLE, WIDE, KINDS };

struct batch {
    int64_t rows, v, ld;
    struct op_buf z, lse, row, list, out, work;
    int32_t *want;  /* of the host's sampler */
    lf_sampler **s; /* as they were asked */
    lf_sample_params *p;
    uint64_t *seed;
    int64_t n_list;
};

static float logit_of(int kind, uint64_t seed, int64_t v, int64_t i)
{
    const double x = op_rand(seed, i), bell = x + op_rand(seed + 1, i) + op_rand(seed + 2, i);
    switch (kind) {
    case TIED:
        return (float)(floor(4 * bell) / 2);
    case BROKEN:
        return x < -0.6 ? NAN : x < -0.3 ? -INFINITY : x > 0.95 ? INFINITY : (float)(5 * bell);
    case HOPELESS:
        return i % 3 ? NAN : i % 2 ? INFINITY : -INFINITY;
    case SINGLE:
        return i == v / 2 ? -3.5f : -INFINITY;
    case WIDE:
        return (float)(x * exp(60 * op_rand(seed + 3, i)));
    default:
        return (float)(5 * bell);
    }
}

static const float *row_of(const struct batch *b, int64_t r)
{
    return (const float *)b->z.p + r * b->ld;
}
static struct lf_sample_out *out_of(const struct batch *b)
{
    return b->out.p;
}

/* Tokens before, biases, forbidden ones: of some rows. */
static void dress(struct batch *b, int64_t r, bool limits)
{
    static int32_t ids[3];
    static const double bias[3] = {1.5, -2, 0.25};
    const uint64_t seed = b->seed[r];
    int32_t prompt[SEEN],
        used[2] = {(int32_t)(seed % (uint64_t)b->v), (int32_t)((seed / 7) % (uint64_t)b->v)};
    for (int i = 0; i < SEEN; i++)
        prompt[i] = (int32_t)((uint64_t)(i * i * 31 + 1) * seed % (uint64_t)b->v);
    lf_sampler_begin(b->s[r], prompt, r % 5 ? SEEN : 0);
    if (limits) {
        const lf_sample_limits l = {.bias_ids = ids, .bias = bias, .n_bias = b->v > 2 ? 3 : 1};
        for (int i = 0; i < 3; i++) /* the same for all rows, as the sampler borrows them */
            ids[i] = (int32_t)((int64_t)i * (b->v - 1) / 2);
        lf_sampler_limit(b->s[r], &l);
    }
    for (int i = 0; i < 2 * SEEN && r % 5; i++)
        lf_sampler_accept(b->s[r], i % 3 ? used[i % 2] : prompt[i / 2]);
    if (r % 4 == 3)
        lf_sampler_forbid(b->s[r], used, 2);
}

static void open_batch(struct batch *b, int64_t rows, int64_t v)
{
    *b = (struct batch){.rows = rows, .v = v, .ld = v + rows % 3};
    b->z = op_alloc((size_t)(rows * b->ld) * sizeof(float));
    b->lse = op_random(rows, LF_F32, 5, 3);
    b->row = op_alloc((size_t)rows * sizeof(struct lf_sample_row));
    b->list = op_alloc((size_t)rows * MOST_LIST * sizeof(struct lf_sample_token));
    b->out = op_alloc((size_t)rows * sizeof(struct lf_sample_out));
    b->want = calloc((size_t)rows, sizeof *b->want);
    b->s = calloc((size_t)rows, sizeof(lf_sampler *));
    b->p = calloc((size_t)rows, sizeof *b->p);
    b->seed = calloc((size_t)rows, sizeof *b->seed);
    if (!b->want || !b->s || !b->p || !b->seed)
        tap_bail("no memory");
    for (int64_t r = 0; r < rows; r++)
        if (!(b->s[r] = lf_sampler_create(v, NULL)))
            tap_bail("no memory");
}

static bool close_batch(struct batch *b)
{
    const bool whole = op_guards_intact(&b->z) && op_guards_intact(&b->lse) &&
                       op_guards_intact(&b->row) && op_guards_intact(&b->list) &&
                       op_guards_intact(&b->out) && (!b->work.base || op_guards_intact(&b->work));
    for (int64_t r = 0; r < b->rows; r++)
        lf_sampler_destroy(b->s[r]);
    struct op_buf *const bufs[] = {&b->z, &b->lse, &b->row, &b->list, &b->out, &b->work};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        if (bufs[i]->base)
            op_free(bufs[i]);
    free(b->want);
    free(b->s);
    free(b->p);
    free(b->seed);
    return whole;
}

/* Row r: its logits, what is asked, and the host's token. */
static void fill_row(struct batch *b, int64_t r, int kind, const lf_sample_params *p, uint64_t seed,
                     uint64_t index, bool limits)
{
    float *z = (float *)b->z.p + r * b->ld;
    struct lf_sample_row *row = (struct lf_sample_row *)b->row.p + r;
    struct lf_sample_token *list = (struct lf_sample_token *)b->list.p + b->n_list;
    for (int64_t i = 0; i < b->v; i++)
        z[i] = logit_of(kind, seed, b->v, i);
    b->p[r] = *p;
    b->seed[r] = seed;
    dress(b, r, limits);
    const int64_t n = lf_sampler_row(b->s[r], p, seed, index, row, list, MOST_LIST);
    if (n < 0)
        tap_bail("row %lld is not for the kernel", (long long)r);
    row->list_at = (int32_t)b->n_list;
    b->n_list += n;
    b->want[r] = lf_sampler_draw(b->s[r], p, z, seed, index);
}

static void draw(const struct lf_kernels *k, lf_queue *q, struct batch *b)
{
    struct lf_k_sample a = {.rows = b->rows,
                            .v = b->v,
                            .ldz = b->ld,
                            .z = b->z.p,
                            .lse = b->lse.p,
                            .row = b->row.p,
                            .list = b->list.p,
                            .out = b->out.p};
    a.work_bytes = k->sample.work(&a, 1);
    if (!b->work.base)
        b->work = op_alloc(a.work_bytes);
    a.work = b->work.p;
    if (k->sample.check(&a) != LF_K_OK || k->sample.run(q, &a) != LF_K_OK)
        tap_bail("sample refuses %lld rows of %lld", (long long)b->rows, (long long)b->v);
}

/* Rows whose token or log-probability is not the host's, -1: none; *left: rows that the kernel
 * leaves to the host. */
static int64_t differs(const struct batch *b, int64_t *left)
{
    *left = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        const struct lf_sample_out o = out_of(b)[r];
        if (o.token == LF_SAMPLE_HOST) {
            ++*left;
            continue;
        }
        const float lp =
            b->want[r] < 0 ? 0 : row_of(b, r)[b->want[r]] - ((const float *)b->lse.p)[r];
        if (o.token != b->want[r] || memcmp(&o.logp, &lp, sizeof lp) != 0) {
            tap_diag("row %lld: token %d, the host's %d", (long long)r, o.token, b->want[r]);
            return r;
        }
    }
    return -1;
}

/* ---- the host's token, every kind of row beside every other ---- */

static void test_equal(const struct lf_kernels *k, lf_queue *q, int64_t v, int64_t rows, int rounds)
{
    int64_t left = 0, all_left = 0, bad = -1;
    bool whole = true;
    for (int i = 0; i < rounds && bad < 0; i++) {
        struct batch b;
        open_batch(&b, rows, v);
        for (int64_t r = 0; r < rows; r++) {
            const uint64_t n = (uint64_t)(i * rows + r);
            fill_row(&b, r, (int)(n / N_PARAMS % KINDS), &params[n % N_PARAMS], 1000 + n, n % 17,
                     n % 3 == 1);
        }
        draw(k, q, &b);
        bad = differs(&b, &left);
        all_left += left;
        if (i == 0 && bad < 0) {
            out_of(&b)[rows / 2].token++;
            tap_i64(differs(&b, &left), rows / 2, "a planted error is found");
        }
        whole = close_batch(&b) && whole;
    }
    tap_ok(bad < 0, "%d rows of %lld tokens: the host's token and log-probability",
           rounds * (int)rows, (long long)v);
    tap_ok(whole, "... nothing written beside the results");
    tap_ok(v > LF_SAMPLE_SORTED ? all_left < rounds * rows / 4 : all_left == 0,
           "... %lld rows left to the host", (long long)all_left);
}

/* ---- an independent reference ---- */

static const double *order_by;
static int descending(const void *x, const void *y)
{
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return order_by[a] > order_by[b] ? -1 : order_by[a] < order_by[b] ? 1 : a < b ? -1 : a > b;
}

/* Is it the token at which the cumulative distribution passes u, to 1e-8 of the mass? Cuts alone:
 * nothing in the row is dressed. */
static bool right_token(const float *z, int64_t v, const lf_sample_params *p, double u,
                        int32_t token)
{
    double *l = calloc((size_t)v, sizeof *l), *e = calloc((size_t)v, sizeof *e), total = 0,
           mass = 0, run = 0;
    int32_t *id = calloc((size_t)v, sizeof *id);
    int64_t n = 0, keep = 0;
    bool right = false;
    if (!l || !e || !id)
        tap_bail("no memory");
    for (int64_t i = 0; i < v; i++) {
        l[i] = (double)z[i] / p->temperature;
        if (isfinite(z[i]))
            id[n++] = (int32_t)i;
    }
    order_by = l;
    qsort(id, (size_t)n, sizeof *id, descending);
    for (int64_t i = 0; i < n; i++)
        e[i] = exp(l[id[i]] - l[id[0]]);
    int64_t top = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    while (top < n && l[id[top]] == l[id[top - 1]])
        top++;
    for (int64_t i = 0; i < top; i++)
        total += e[i];
    while (keep < top && mass < p->top_p * total * (1 - 1e-12) && e[keep] >= p->min_p)
        mass += e[keep++];
    if (p->top_k == 0 && p->top_p >= 1 && p->min_p <= 0) { /* in order of the ids */
        for (int32_t i = 0; i < v; i++)
            if (isfinite(z[i])) {
                const double w = exp(l[i] - l[id[0]]);
                right = right || (i == token && u * mass >= run - 1e-8 * mass &&
                                  u * mass <= run + w + 1e-8 * mass);
                run += w;
            }
    } else {
        for (int64_t i = 0; i < keep; run += e[i++])
            right = right || (id[i] == token && u * mass >= run - 1e-8 * mass &&
                              u * mass <= run + e[i] + 1e-8 * mass);
    }
    free(l);
    free(e);
    free(id);
    return right;
}

static void test_reference(const struct lf_kernels *k, lf_queue *q, int64_t v, int64_t rows)
{
    struct batch b;
    int wrong = 0, seen = 0, fooled = 0;
    open_batch(&b, rows, v);
    for (int64_t r = 0; r < rows; r++) {
        lf_sample_params p = params[r % N_PARAMS];
        p.repetition_penalty = 1;
        p.presence_penalty = p.frequency_penalty = 0;
        p.temperature = p.temperature < 0.1 ? 0.5 : p.temperature;
        p.top_p = p.top_p < 0.5 ? 0.5 : p.top_p;
        fill_row(&b, r, r % 2 ? TIED : PLAIN, &p, 7000 + (uint64_t)r, (uint64_t)r, false);
        ((struct lf_sample_row *)b.row.p)[r].list_n = 0; /* nothing was asked of single tokens */
    }
    draw(k, q, &b);
    for (int64_t r = 0; r < rows; r++) {
        const double u = lf_rng_f64(b.seed[r], LF_SITE_SAMPLE, (uint64_t)r);
        const int32_t token = out_of(&b)[r].token;
        if (token == LF_SAMPLE_HOST)
            continue;
        seen++;
        wrong += !right_token(row_of(&b, r), v, &b.p[r], u, token);
        fooled += v > 1 && right_token(row_of(&b, r), v, &b.p[r], u, token ? token - 1 : 1);
    }
    tap_ok(wrong == 0 && seen > rows / 2, "%d of %d rows of %lld tokens differ from the reference",
           wrong, seen, (long long)v);
    tap_ok(fooled < seen / 4 || v == 1, "... which takes %d of as many neighbours for right",
           fooled);
    tap_ok(close_batch(&b), "... nothing written beside the results");
}

/* ---- what stays with the host; rows alone; refusals ---- */

static void test_left(const struct lf_kernels *k, lf_queue *q)
{
    enum { V = 9000 };
    static const lf_sample_params most = {1, 0.99, 0, 1, 0, 0, 0}, few = {1, 0.2, 0, 1, 0, 0, 0},
                                  ties = {1, 1, 0, 1, 0, 0, 3}, plain = {1, 1, 0, 1, 0, 0, 0};
    struct batch b;
    int64_t left;
    open_batch(&b, 5, V);
    fill_row(&b, 0, PLAIN, &most, 1, 0, false);
    fill_row(&b, 1, PLAIN, &few, 2, 0, false);
    fill_row(&b, 2, PLAIN, &ties, 3, 0, false);
    fill_row(&b, 3, PLAIN, &plain, 4, 0, false);
    fill_row(&b, 4, PLAIN, &plain, 5, 0, false);
    for (int64_t r = 0; r < 3; r++) { /* all of one logit, but for the third of row 1 */
        float *z = (float *)b.z.p + r * b.ld;
        for (int i = 0; i < V; i++)
            z[i] = r == 1 && i == 3 ? 12 : 0.5f;
        lf_sampler_begin(b.s[r], NULL, 0);
        b.want[r] = lf_sampler_draw(b.s[r], &b.p[r], z, b.seed[r], 0);
        ((struct lf_sample_row *)b.row.p)[r].list_n = 0;
    }
    ((struct lf_sample_row *)b.row.p)[4].on = 0;
    draw(k, q, &b);
    tap_i64(out_of(&b)[0].token, LF_SAMPLE_HOST,
            "a top-p that keeps thousands is left to the host");
    tap_i64(out_of(&b)[1].token, b.want[1], "one that keeps a few is not");
    tap_i64(out_of(&b)[2].token, LF_SAMPLE_HOST,
            "thousands of ties with the k-th are left to the host");
    tap_i64(out_of(&b)[4].token, LF_SAMPLE_NONE, "of a row that is not asked nothing is drawn");
    out_of(&b)[4].token = LF_SAMPLE_HOST;
    tap_ok(differs(&b, &left) < 0 && left == 3, "the row beside them is drawn");
    close_batch(&b);
}

static void test_alone(const struct lf_kernels *k, lf_queue *q)
{
    struct batch b, one;
    int same = 0;
    open_batch(&b, N_PARAMS, 700);
    for (int64_t r = 0; r < N_PARAMS; r++)
        fill_row(&b, r, PLAIN, &params[r], 300 + (uint64_t)r, 4, false);
    draw(k, q, &b);
    for (int64_t r = 0; r < N_PARAMS; r++) {
        open_batch(&one, 1, 700);
        memcpy(one.z.p, row_of(&b, r), 700 * sizeof(float));
        memcpy(one.lse.p, (float *)b.lse.p + r, sizeof(float));
        memcpy(one.row.p, (struct lf_sample_row *)b.row.p + r, sizeof(struct lf_sample_row));
        struct lf_sample_row *row = one.row.p;
        memcpy(one.list.p, (struct lf_sample_token *)b.list.p + row->list_at,
               (size_t)row->list_n * sizeof(struct lf_sample_token));
        row->list_at = 0;
        draw(k, q, &one);
        same += memcmp(one.out.p, out_of(&b) + r, sizeof(struct lf_sample_out)) == 0;
        close_batch(&one);
    }
    tap_i64(same, N_PARAMS, "a row alone has the token that it has beside others");
    close_batch(&b);
    struct lf_k_sample a = {.rows = 0, .v = 5, .ldz = 5};
    tap_i64(k->sample.run(q, &a), LF_K_OK, "no rows");
    a.rows = 1;
    tap_i64(k->sample.run(q, &a), LF_K_EINVAL, "no workspace is refused");
    a.v = 0;
    tap_i64(k->sample.check(&a), LF_K_EINVAL, "so is a vocabulary of none");
    a.v = a.ldz = LF_SAMPLE_MOST_TOKENS + 1;
    tap_i64(k->sample.check(&a), LF_K_EINVAL, "and one of too many");
}

/* ---- lists that the kernel keeps ---- */

/* The list of a sequence with penalties is written once; from then on the kernel makes it what the
 * host would. */
static void test_notes(const struct lf_kernels *k, lf_queue *q)
{
    enum { V = 40, ROWS = 6, STEPS = 40 };
    static const lf_sample_params kinds[ROWS] = {
        {1, 1, 0, 1.3, 0, 0, 0},   {0, 1, 0, 1.1, 0.4, 0.2, 0},  {0.8, 0.9, 0, 1.2, 0, 0.1, 0},
        {1.2, 1, 0, 1, 0.5, 0, 7}, {0.9, 1, 0.02, 1, 0, 0.3, 0}, {1, 1, 0, 1.3, 0, 0, 0}};
    static const int32_t prompt[] = {3, 8, 3}, biased[] = {8, 11};
    static const double bias[] = {0.5, 1.5};
    const lf_sample_limits limits = {.bias_ids = biased, .bias = bias, .n_bias = 2};
    struct lf_sample_token want[V];
    struct batch b;
    int64_t wrong = 0, lists = 0, grew = 0, counted = 0;
    open_batch(&b, ROWS, V);
    for (int64_t r = 0; r < ROWS; r++) {
        lf_sampler_begin(b.s[r], prompt, 3);
        if (r % 2)
            lf_sampler_limit(b.s[r], &limits);
    }
    for (uint64_t t = 0; t < STEPS; t++) {
        for (int64_t r = 0; r < ROWS; r++) {
            struct lf_sample_row *row = (struct lf_sample_row *)b.row.p + r;
            struct lf_sample_token *list = (struct lf_sample_token *)b.list.p + r * MOST_LIST;
            const int32_t before = row->list_n;
            float *z = (float *)b.z.p + r * b.ld;
            for (int64_t i = 0; i < V; i++)
                z[i] = logit_of(PLAIN, 900 + t * ROWS + (uint64_t)r, V, i) / 3;
            const int64_t n = lf_sampler_row(b.s[r], &kinds[r], 77, t, row, want, V);
            row->list_at = (int32_t)(r * MOST_LIST);
            row->on = r == ROWS - 1 ? 1 : LF_SAMPLE_NOTE;
            grew += t > 0 && n == before + 1;
            counted += t > 0 && n == before;
            if (t == 0 || r == ROWS - 1)
                memcpy(list, want, (size_t)n * sizeof *want);
            lists += memcmp(list, want, (size_t)n * sizeof *want) != 0;
            b.want[r] = lf_sampler_draw(b.s[r], &kinds[r], z, 77, t);
        }
        draw(k, q, &b);
        for (int64_t r = 0; r < ROWS; r++) {
            wrong += out_of(&b)[r].token != b.want[r];
            lf_sampler_accept(b.s[r], b.want[r]);
        }
    }
    tap_ok(wrong == 0 && lists == 0 && grew > 20 && counted > 20,
           "%d draws with lists that the kernel keeps: %lld tokens, %lld lists are not the host's "
           "(%lld grew)",
           ROWS * STEPS, (long long)wrong, (long long)lists, (long long)grew);
    tap_ok(close_batch(&b), "and nothing else is written");
}

/* ---- the law ---- */

static void test_law(const struct lf_kernels *k, lf_queue *q, const lf_sample_params *p, int tokens,
                     const char *name)
{
    enum { V = 12, ROWS = 128, CALLS = 10 };
    int hits[V] = {0}, outside = 0;
    double want[V] = {0}, total = 0, chi2 = 0;
    struct batch b;
    open_batch(&b, ROWS, V);
    for (int c = 0; c < CALLS; c++) {
        for (int64_t r = 0; r < ROWS; r++) {
            struct lf_sample_row *row = (struct lf_sample_row *)b.row.p + r;
            for (int i = 0; i < V; i++)
                ((float *)b.z.p)[r * b.ld + i] =
                    (float)((i * 5) % V) * 0.25f; /* descending: 7, 2, 9 ... */
            lf_sampler_begin(b.s[r], NULL, 0);
            if (lf_sampler_row(b.s[r], p, 42, (uint64_t)(c * ROWS + r), row, b.list.p, 0) != 0)
                tap_bail("a list of nothing");
        }
        draw(k, q, &b);
        for (int64_t r = 0; r < ROWS; r++)
            hits[out_of(&b)[r].token]++;
    }
    for (int i = 0; i < V; i++) {
        const int rank = V - 1 - (i * 5) % V;
        want[i] = rank < tokens ? exp(-0.25 * rank / p->temperature) : 0;
        total += want[i];
    }
    for (int i = 0; i < V; i++) {
        const double n = ROWS * CALLS * want[i] / total;
        outside += n == 0 && hits[i] > 0;
        chi2 += n > 0 ? (hits[i] - n) * (hits[i] - n) / n : 0;
    }
    tap_ok(chi2 < 45 && chi2 > 0.5, "%s: chi-square %.1f of %d draws", name, chi2,
           ROWS * CALLS); /* 11 degrees: 5e-6 */
    tap_i64(outside, 0, "... and what is cut off is not drawn");
    close_batch(&b);
}

int main(void)
{
    static const lf_sample_params whole = {1, 1, 0, 1, 0, 0, 0}, cold = {0.6, 1, 0, 1, 0, 0, 0},
                                  five = {1, 1, 0, 1, 0, 0, 5}, likely = {1, 1, 0.3, 1, 0, 0, 0};
    const struct lf_kernels *k = op_kernels(0);
    lf_queue *q = op_queue_create(1);
    TAP(4, test_equal(k, q, 1, 40, 1));
    TAP(4, test_equal(k, q, 7, 120, 6));
    TAP(4, test_equal(k, q, 31, 120, 6));
    TAP(4, test_equal(k, q, 4097, 120, 1));
    TAP(4, test_equal(k, q, 50257, 40, 1));
    TAP(4, test_equal(k, q, 151936, 10, 1));
    TAP(3, test_reference(k, q, 7, 200));
    TAP(3, test_reference(k, q, 4096, 40));
    TAP(3, test_reference(k, q, 50257, 12));
    TAP(5, test_left(k, q));
    TAP(2, test_notes(k, q));
    TAP(5, test_alone(k, q));
    TAP(2, test_law(k, q, &whole, 12, "softmax"));
    TAP(2, test_law(k, q, &cold, 12, "temperature 0.6"));
    TAP(2, test_law(k, q, &five, 5, "top-k 5"));
    TAP(2, test_law(k, q, &likely, 5, "min-p 0.3")); /* e^-1.2 > 0.3 > e^-1.25 */
    op_queue_destroy(q);
    return tap_done();
}
