/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from one layout to another. All ranks are stores of this process, and messages are moved
 * by hand, cut at odd places, through windows of a few rows. The reference is a store of the new
 * layout that is filled by the rule of its initial values, which no layout enters. So each bit of
 * every box is compared. A box that goes to a wrong offset, and a part that nobody has, are
 * noticed.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/back/back.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/post/reshard_priv.h"
#include "tests/tap/tap.h"

enum { ROWS = 16, DOCS = 2, MOST = 4, SEED = 7, OTHER = 8, CAP = 1001, WINDOW = 3000 };

static lf_err err = LF_ERR_INIT;

static void must(int rc)
{
    if (rc != 0)
        tap_bail("%s", err.text);
}

struct layout {
    int data, tensor, zero;
};

struct trial {
    struct layout from, to;
    bool bf16, experts;
};

struct rank {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
};

static lf_decoder *decoder(bool experts)
{
    static const char *const dense[][2] = {
        {"layers", "1"},   {"hidden", "64"}, {"heads", "4"},    {"kv_heads", "2"},
        {"qkv_bias", "1"}, {"ffn", "96"},    {"vocab", "1037"}, {"max_positions", "64"},
        {"qk_norm", "1"},  {"out_bias", "1"}};
    static const char *const mixed[][2] = {
        {"experts", "4"}, {"experts_per_token", "2"}, {"expert_ffn", "32"}, {"shared_ffn", "32"}};
    lf_model_config c;
    lf_model_config_defaults(&c);
    must(lf_model_config_family(&c, experts ? "qwen2-moe" : "llama", "test", &err));
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++)
        must(lf_model_config_set(&c, dense[i][0], dense[i][1], "test", &err));
    for (size_t i = 0; experts && i < sizeof mixed / sizeof *mixed; i++)
        must(lf_model_config_set(&c, mixed[i][0], mixed[i][1], "test", &err));
    must(lf_model_config_finish(&c, &err));
    lf_decoder *d = lf_decoder_create(&c, ROWS, &err);
    must(d ? 0 : -1);
    return d;
}

/* Rank number r, which trains or only runs the model forward. */
static void open_rank(struct rank *k, const struct trial *t, const struct layout *l, int r,
                      bool train)
{
    const struct lf_layout at = {.tensor = l->tensor, .tensor_rank = r % l->tensor};
    const struct lf_plan_ranks ranks = {
        .ranks = l->data, .rank = r / l->tensor, .bucket_bytes = 16384, .zero = l->zero};
    const struct lf_plan_opts o = {
        .threads = 1, .compute = t->bf16 ? LF_BF16 : LF_F32, .keep_master = train};
    const struct lf_decoder_rows rows = {.rows = ROWS, .n_docs = DOCS};
    *k = (struct rank){.d = decoder(t->experts), .ps = lf_pstore_create(&err)};
    must(k->ps ? lf_pstore_set_layout(k->ps, &at, &err) : -1);
    must(lf_decoder_declare(k->d, k->ps, &err));
    must(lf_pstore_freeze_matching(k->ps, "*.attn.o.weight", true) > 0 ? 0 : -1);
    k->p = lf_plan_create(k->ps, &o, &err);
    lf_graph *g = k->p ? lf_decoder_loss_graph(k->d, k->ps, "g", &rows, train, &err) : NULL;
    must(g ? 0 : -1);
    const int chain = lf_plan_add(k->p, g, &(struct lf_chain_opts){.train = train}, &err);
    must(chain < 0 ? chain : 0);
    lf_graph_destroy(g);
    if (train)
        must(lf_plan_optimizer(k->p, &(struct lf_adamw_opts){.eps = 1e-8f}, &err));
    must(lf_plan_data_parallel(k->p, &ranks, &err));
    must(lf_plan_finish(k->p, &err));
    k->b = lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    k->ex = k->b ? lf_exec_create(k->p, k->b, &(struct lf_exec_opts){0}, &err) : NULL;
    must(k->ex ? 0 : -1);
    must(lf_pstore_init(k->ps, train ? SEED : OTHER, &err));
}

static void close_rank(struct rank *k)
{
    lf_exec_destroy(k->ex);
    lf_back_destroy(k->b);
    lf_plan_destroy(k->p);
    lf_pstore_destroy(k->ps);
    lf_decoder_destroy(k->d);
}

/* ---- all ranks of both layouts ---- */

struct both {
    int ranks;
    struct rank from[MOST], to[MOST];
    struct lf_reshard_entry *entry;
    struct lf_reshard_pair send[MOST][MOST], recv[MOST][MOST]; /* [rank][other] */
};

static void open_both(struct both *x, const struct trial *t)
{
    *x = (struct both){.ranks = t->from.data * t->from.tensor};
    for (int r = 0; r < x->ranks; r++) {
        open_rank(&x->from[r], t, &t->from, r, true);
        open_rank(&x->to[r], t, &t->to, r, false);
    }
    const int n = lf_pstore_count(x->from[0].ps);
    x->entry = calloc((size_t)(n * x->ranks), sizeof *x->entry);
    must(x->entry ? 0 : -1);
    for (int r = 0; r < x->ranks; r++)
        for (int i = 0; i < n; i++)
            lf_reshard_entry_of(&x->entry[r * n + i], x->from[r].ps, x->to[r].ps, i, i);
}

static void close_both(struct both *x)
{
    for (int r = 0; r < x->ranks; r++) {
        close_rank(&x->from[r]);
        close_rank(&x->to[r]);
        for (int q = 0; q < x->ranks; q++) {
            free(x->send[r][q].v);
            free(x->recv[r][q].v);
        }
    }
    free(x->entry);
}

static int plan_both(struct both *x)
{
    const int node[MOST] = {0, 0, 2, 2};
    const struct lf_reshard_all all = {x->entry, node, x->ranks};
    int rc = 0;
    for (int r = 0; r < x->ranks && rc == 0; r++)
        rc = lf_reshard_pairs(&all, x->from[r].ps, x->to[r].ps, r, x->send[r], x->recv[r], &err);
    return rc;
}

/* A part whose box is written an element too early; NULL: none. */
static const struct lf_reshard_piece *misplaced;

static int write_run(void *io, const struct lf_reshard_run *run, size_t offset, lf_err *e)
{
    struct lf_reshard_run at = *run;
    at.to -= run->piece == misplaced && run->to > 0;
    return lf_reshard_write(io, &at, offset, e);
}

/* The bytes that came to rank `to` from others. */
static size_t move_to(struct both *x, int to, bool trained)
{
    static char buf[CAP], window[2][WINDOW];
    size_t others = 0;
    for (int from = 0; from < x->ranks; from++) {
        struct lf_reshard_cursor out = {.pair = &x->send[from][to], .trained = trained},
                                 in = {.pair = &x->recv[to][from], .trained = trained};
        struct lf_reshard_io read = {.ps = x->from[from].ps, .buf = buf},
                             write = {.ps = x->to[to].ps, .buf = buf};
        read.window = window[0];
        write.window = window[1];
        read.room = write.room = WINDOW;
        int rc = 0;
        for (size_t n = 1, m; n > 0; others += from == to ? 0 : n) {
            n = lf_reshard_take(&out, CAP, lf_reshard_read, &read, &rc, &err);
            m = lf_reshard_take(&in, CAP, write_run, &write, &rc, &err);
            must(rc);
            if (n != m)
                tap_bail("%zu bytes are sent and %zu expected", n, m);
        }
        must(lf_reshard_flush(&write, &err));
    }
    return others;
}

static bool same_bits(struct rank *a, struct rank *b, bool frozen)
{
    for (int i = 0; i < lf_pstore_count(a->ps); i++)
        for (int kind = 0; kind < LF_P_KINDS; kind++) {
            struct lf_pview v, w;
            if ((lf_pstore_desc(a->ps, i)->frozen && !frozen) ||
                lf_pstore_view(a->ps, i, (enum lf_pkind)kind, &v) != 1)
                continue;
            if (lf_pstore_view(b->ps, i, (enum lf_pkind)kind, &w) != 1 || v.bytes != w.bytes ||
                memcmp(v.data, w.data, v.bytes) != 0) {
                tap_diag("%s of %s differs", lf_pkind_name((enum lf_pkind)kind), v.name);
                return false;
            }
        }
    return true;
}

static const char *words(const struct trial *t)
{
    static char s[160];
    snprintf(s, sizeof s, "data %d x tensor %d, zero = %d, to tensor %d%s%s", t->from.data,
             t->from.tensor, t->from.zero, t->to.tensor, t->bf16 ? ", bf16" : "",
             t->experts ? ", experts" : "");
    return s;
}

static void test_trial(const struct trial *t)
{
    struct both x;
    bool bits = true, kept = true, bytes = true, bound = true;
    open_both(&x, t);
    must(plan_both(&x));
    for (int r = 0; r < x.ranks; r++) {
        struct rank want;
        open_rank(&want, t, &t->to, r, false);
        const struct lf_reshard_moved part = lf_reshard_needs(x.from[r].ps, x.to[r].ps, true),
                                      all = lf_reshard_needs(x.from[r].ps, x.to[r].ps, false);
        bytes = (double)move_to(&x, r, true) == part.received && bytes;
        const double most =
            lf_reshard_at_most(x.from[0].ps, x.to[0].ps, x.from[r].ps, x.to[r].ps, true);
        bound =
            (t->from.zero == 3 ? most >= part.received : (int64_t)(most - part.received) == 0) &&
            bound;
        for (int i = 0; i < lf_pstore_count(want.ps); i++) { /* frozen ones are as before */
            struct lf_pview v, w;
            const enum lf_pkind k = lf_pstore_weights(want.ps, i);
            kept = (!lf_pstore_desc(want.ps, i)->frozen ||
                    (lf_pstore_view(want.ps, i, k, &v) == 1 &&
                     lf_pstore_view(x.to[r].ps, i, k, &w) == 1 &&
                     memcmp(v.data, w.data, v.bytes) == 0)) &&
                   kept;
        }
        must(lf_pstore_init(want.ps, SEED, &err));
        bits = same_bits(&want, &x.to[r], false) && bits;
        bytes = (double)move_to(&x, r, false) == all.received && bytes;
        bits = same_bits(&want, &x.to[r], true) && bits;
        close_rank(&want);
    }
    tap_ok(bits, "%s: the bits of the weights", words(t));
    tap_ok(kept, "frozen ones stay where only the others move");
    tap_ok(bytes, "what comes from other ranks is what a rank's own boxes lack");
    tap_ok(bound, "and what its boxes say to a rank that knows no more of it");
    close_both(&x);
}

/* Training keeps all on each rank: nothing needs to move. */
static void test_nothing(void)
{
    const struct trial t = {{2, 1, 0}, {1, 2, 0}, false, false};
    struct both x;
    open_both(&x, &t);
    must(plan_both(&x));
    tap_i64((int64_t)(x.send[0][1].n + x.send[1][0].n + x.recv[0][1].n + x.recv[1][0].n), 0,
            "ranks that have everything send nothing");
    close_both(&x);
}

/* Of ranks that have the same the one on the receiver's node sends it. */
static void test_near(void)
{
    const struct trial t = {{2, 2, 0}, {4, 1, 0}, false, false};
    struct both x;
    open_both(&x, &t);
    must(plan_both(&x));
    tap_ok(x.recv[0][1].n && !x.recv[0][3].n && x.recv[3][2].n && !x.recv[3][0].n,
           "a rank gets what it lacks from its own node");
    close_both(&x);
}

static void test_faults(void)
{
    const struct trial t = {{1, 2, 0}, {2, 1, 0}, false, false};
    struct both x;
    struct rank want;
    open_both(&x, &t);
    must(plan_both(&x));
    open_rank(&want, &t, &t.to, 0, false);
    must(lf_pstore_init(want.ps, SEED, &err));
    (void)move_to(&x, 0, false);
    tap_ok(same_bits(&want, &x.to[0], true), "as planned, the bits are right");
    must(lf_pstore_init(x.to[0].ps, OTHER, &err));
    misplaced = &x.recv[0][1].v[x.recv[0][1].n - 1];
    (void)move_to(&x, 0, false);
    misplaced = NULL;
    tap_ok(!same_bits(&want, &x.to[0], true), "a box at a wrong offset is noticed");
    close_rank(&want);
    close_both(&x);
    open_both(&x, &t);
    const int n = lf_pstore_count(x.from[0].ps);
    for (int i = 0; i < n; i++)
        if (x.entry[n + i].from.hi[1] - x.entry[n + i].from.lo[1] > 64) {
            x.entry[n + i].from.hi[1]--;
            break;
        }
    tap_rc(plan_both(&x), LF_EINVAL, &err, "the ranks have ",
           "rows that no rank has are noticed before anything moves");
    close_both(&x);
}

int main(void)
{
    static const struct trial trials[] = {
        {{2, 1, 0}, {1, 2, 0}, false, false}, {{1, 2, 0}, {2, 1, 0}, false, false},
        {{1, 2, 0}, {2, 1, 0}, true, false},  {{2, 2, 1}, {4, 1, 0}, true, false},
        {{2, 2, 3}, {1, 4, 0}, false, false}, {{4, 1, 3}, {2, 2, 0}, true, false},
        {{2, 2, 3}, {4, 1, 0}, true, true},   {{1, 4, 0}, {2, 2, 0}, false, true},
        {{3, 1, 2}, {3, 1, 0}, true, false}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        TAP(4, test_trial(&trials[i]));
    TAP(1, test_nothing());
    TAP(1, test_near());
    TAP(3, test_faults());
    return tap_done();
}
