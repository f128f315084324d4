/* SPDX-License-Identifier: Apache-2.0
 *
 * Routers in bf16. Ranks that divide matrices round otherwise than one rank, so a row whose logits
 * nearly tie may go to another expert there. What that changes is no rounding, and no number of
 * such rows bounds it: each makes other gradients of two experts and of the router, and other rows
 * in the layers behind. So here they are counted and undone. Where a row chooses other experts than
 * the same row of one rank did, its logits are moved until it chooses the same ones, which must
 * take no more than roundings do; and what is left is held to the bounds of a model that has no
 * experts.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/ops.h"
#include "tests/layout/switches.h"
#include "tests/tap/tap.h"

enum { PASSES = 64, LAYERS = 8, CHOICES = 1024 };
/* The most that logits are moved, in steps that double: of 150 random rows 0.026. Logits are about
 * 1, and a rounding to bf16 is 0.004 of it at most. */
static const double FIRST = 1e-4, MOST = 0.03;

enum what { RECORDS, UNDOES, PLANTED };
static struct {
    enum what what;
    int pass[LOCAL_RANKS], layer[LOCAL_RANKS]; /* that a rank is in */
    int32_t ids[PASSES][LAYERS][CHOICES];      /* of one rank */
    int others, all;                           /* choices of the first rank, how many differ */
    double moved;                              /* the most that logits were */
} routes;

int __real_lf_exec_node(lf_exec *ex, const struct lf_chain *c, const struct lf_call *calls,
                        size_t i);
int __wrap_lf_exec_node(lf_exec *ex, const struct lf_chain *c, const struct lf_call *calls,
                        size_t i);

/* A node that routes: its rows, and where they are. */
struct router {
    int rows, k, experts;
    int32_t *ids;  /* [rows, k] */
    float *logits; /* [rows, experts] */
};

static struct router router_of(const lf_exec *ex, const struct lf_chain *c, const struct lf_node *n)
{
    const struct lf_tensor *ids = &c->g->t[n->out[ROUTE_IDS]],
                           *logits = &c->g->t[n->in[ROUTE_LOGITS]];
    const struct router r = {(int)ids->rows, (int)ids->cols, (int)logits->cols,
                             lf_exec_addr(ex, c, 0, n->out[ROUTE_IDS]),
                             lf_exec_addr(ex, c, 0, n->in[ROUTE_LOGITS])};
    if (c->o.slots > 1 || logits->dtype != LF_F32 || r.rows * r.k > CHOICES)
        tap_bail("%s: a router that this test does not know", c->g->name);
    return r;
}

/* Enters the next router of this rank's pass. */
static int32_t *enter(const struct lf_chain *c, size_t node)
{
    int *pass = &routes.pass[rig_rank], *layer = &routes.layer[rig_rank];
    bool first = true;
    for (size_t i = 0; i < node; i++)
        first = first && c->g->n[i].op != LF_OP_MOE_ROUTE;
    *pass += first;
    *layer = first ? 0 : *layer + 1;
    if (*pass > PASSES || *layer >= LAYERS)
        tap_bail("pass %d, router %d: too many", *pass, *layer);
    return routes.ids[*pass - 1][*layer];
}

static bool chooses(const int32_t *ids, int k, int expert)
{
    for (int i = 0; i < k; i++)
        if (ids[i] == expert)
            return true;
    return false;
}

/* Moves logits of rows that choose otherwise by `by`. Returns how many choices differ. */
static int move_logits(const struct router *r, const int32_t *want, double by)
{
    int differ = 0;
    for (int row = 0; row < r->rows; row++)
        for (int e = 0; e < r->experts; e++) {
            const bool wanted = chooses(want + row * r->k, r->k, e),
                       chosen = chooses(r->ids + row * r->k, r->k, e);
            differ += wanted && !chosen;
            if (wanted != chosen)
                r->logits[row * r->experts + e] += (float)(wanted ? by : -by);
        }
    return differ;
}

/* One row has logits with which it chooses another expert for a reason. */
static void plant(const struct router *r)
{
    for (int e = 0; e < r->experts; e++)
        if (!chooses(r->ids, r->k, e)) {
            r->logits[e] += 5;
            return;
        }
}

int __wrap_lf_exec_node(lf_exec *ex, const struct lf_chain *c, const struct lf_call *calls,
                        size_t i)
{
    int rc = __real_lf_exec_node(ex, c, calls, i);
    if (rc != 0 || c->g->n[i].op != LF_OP_MOE_ROUTE || !c->o.train)
        return rc;
    const struct router r = router_of(ex, c, &c->g->n[i]);
    int32_t *want = enter(c, i);
    if (routes.what == RECORDS) {
        memcpy(want, r.ids, (size_t)(r.rows * r.k) * sizeof *want);
        return 0;
    }
    if (routes.what == PLANTED && routes.pass[rig_rank] == 1) {
        plant(&r);
        rc = __real_lf_exec_node(ex, c, calls, i);
    }
    double moved = 0;
    for (double by = FIRST; rc == 0; by *= 2) {
        const int differ = move_logits(&r, want, by);
        if (by == FIRST && rig_rank == 0) {
            routes.others += differ;
            routes.all += r.rows * r.k;
        }
        if (!differ)
            break;
        moved += by;
        rc = __real_lf_exec_node(ex, c, calls, i);
    }
    routes.moved = moved > routes.moved ? moved : routes.moved;
    return rc;
}

static int run(const struct rig_case *k, enum what what,
               int (*fn)(const struct rig_case *k, struct rig_seen *s, lf_err *err),
               struct rig_seen *s, lf_err *err)
{
    memset(routes.pass, 0, sizeof routes.pass);
    routes.what = what;
    routes.others = routes.all = 0;
    routes.moved = 0;
    return fn(k, s, err);
}

static void case_of(struct rig_case *k, const char *words)
{
    uint8_t row[COVER_SWITCHES] = {0};
    char text[400], *rest = text;
    lf_err err = LF_ERR_INIT;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        sw_put(row, word);
    if (sw_case(row, k, &err) != 0)
        tap_bail("%s: %s", words, err.text);
}

static void test_row(const char *words)
{
    struct rig_case k;
    struct rig_seen one = {0}, exact = {0}, s = {0};
    lf_err err = LF_ERR_INIT;
    char text[1100] = "";
    case_of(&k, words);
    int rc = run(&k, RECORDS, rig_alone, &one, &err);
    if (rc == 0) /* what rounding makes of one rank, with the same choices */
        rc = run(&k, UNDOES, rig_exact, &exact, &err);
    if (rc == 0)
        rc = run(&k, UNDOES, rig_run, &s, &err);
    if (rc != 0)
        tap_bail("%s: %s", words, err.text);
    tap_ok(routes.others > 0 && routes.moved <= MOST,
           "%s: %d of %d choices are others; logits that are moved by %.4f undo them", words,
           routes.others, routes.all, routes.moved);
    struct rig_case plain = k;
    plain.c.model.experts = 0;
    struct rig_bounds b = rig_bounds(&plain);
    b.routes = b.loss;
    b.exact = &exact;
    if (!tap_ok(rig_compare(&one, &s, &b, text, sizeof text) == 0,
                "then the bounds of models without experts hold"))
        tap_diag("%s", text);
    rig_fini(&one);
    rig_fini(&exact);
    rig_fini(&s);
}

/* A row that chooses otherwise by more than roundings is seen. */
static void test_planted(const char *words)
{
    struct rig_case k;
    struct rig_seen s = {0};
    lf_err err = LF_ERR_INIT;
    case_of(&k, words);
    int rc = run(&k, RECORDS, rig_alone, &s, &err);
    rig_fini(&s);
    if (rc == 0)
        rc = run(&k, PLANTED, rig_run, &s, &err);
    tap_ok(rc == 0 && routes.moved > 10 * MOST, "a fault takes %.2g to undo", routes.moved);
    rig_fini(&s);
}

int main(void)
{
    /* Random rows that were out of the bounds of models with experts, and some that were not. */
    static const char *const rows[] = {
        "tensor=2 qk_norm=yes norm=offset block=alpha window=pattern mask=prefix mlp=aux "
        "types=bf16_state",
        "tensor=2 biases=qkv norm=layer block=sandwich window=pattern mlp=aux types=bf16_state",
        "tensor=2 biases=qkv qk_norm=yes block=alpha mlp=balanced types=bf16_state freeze=layer "
        "loss_scale=1024",
        "tensor=2 head=biased position=half mlp=aux mtp=2 types=bf16_state",
        "tensor=2 qk_norm=yes softcap=yes position=alibi mlp=balanced mtp=2 batch=11 "
        "types=bf16_state freeze=layer",
        "tensor=2 block=post mask=prefix embed=narrow mlp=aux packing=bfd batch=11 micro_batch=2 "
        "types=bf16_state z_loss=yes loss_scale=1024",
        "tensor=4 qk_norm=yes position=alibi embed=scaled mlp=aux types=bf16_state",
        "tensor=2 biases=qkv kv_heads=1 block=sandwich window=all mask=prefix embed=scaled "
        "mlp=aux types=bf16",
        /* adapters of experts, too */
        "tensor=8 head=unit biases=qkv kv_heads=4 qk_norm=yes norm=layer block=sandwich keys=sinks "
        "window=all position=none mask=both embed=narrow mlp=aux types=bf16 adapter=lora",
        "tensor=2 qk_norm=yes block=sandwich window=all mlp=aux types=bf16 adapter=lora",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        TAP(2, test_row(rows[i]));
    TAP(1, test_planted(rows[0]));
    return tap_done();
}
