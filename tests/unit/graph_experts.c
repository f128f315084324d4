/* SPDX-License-Identifier: Apache-2.0
 *
 * What the check of a layout refuses where ranks divide experts (layout.h, experts.h), and a rank
 * that has failed beside another one. That they compute what one rank computes is tested in
 * tests/layout/expert_test.c.
 */
#include "engine/graph/exec.h"
#include "engine/graph/priv.h"
#include "engine/model/decoder.h"
#include "engine/model/sight.h"
#include "tests/tap/tap.h"

enum { V = 64, R = 8 };

struct small {
    lf_pstore *ps;
    lf_graph *g;
    lf_val x, up, down;
};

/* x [R, 32] of ranks that divide four experts, and where its rows go. */
static struct small small_experts(struct lf_routes *r)
{
    lf_err err = LF_ERR_INIT;
    struct small s = {.ps = lf_pstore_create(&err)};
    static const struct lf_param_desc d[] = {
        {.name = "embed", .ndim = 2, .dims = {V, 32}},
        {.name = "router", .ndim = 2, .dims = {4, 32}},
        {.name = "whole", .ndim = 2, .dims = {32, 32}},
        {.name = "up", .ndim = 3, .dims = {4, 64, 32}, .experts = true},
        {.name = "down", .ndim = 3, .dims = {4, 32, 64}, .experts = true},
    };
    /* with room for as many rows as a rank has, so that shapes alone refuse nothing */
    const struct lf_layout l = {.expert = 2, .expert_rank = 1, .expert_room = 1};
    if (lf_pstore_set_layout(s.ps, &l, &err))
        tap_bail("%s", err.text);
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        if (lf_pstore_add(s.ps, &d[i], &err) < 0)
            tap_bail("%s", err.text);
    s.g = lf_graph_create(s.ps, "small", &err);
    s.x = lf_embed(s.g, lf_input(s.g, "tokens", LF_I32, R, 1), LF_NONE, lf_param(s.g, "embed"),
                   LF_NONE, 1, 0);
    s.up = lf_param(s.g, "up");
    s.down = lf_param(s.g, "down");
    *r = lf_moe_route(s.g, lf_linear(s.g, s.x, lf_param(s.g, "router"), LF_NONE), LF_NONE,
                      &(struct lf_route_opts){.k = 2, .scale = 1});
    return s;
}

static void add_loss(struct small *s, lf_val y)
{
    lf_xent(s->g, y, lf_param(s->g, "embed"), LF_NONE, lf_input(s->g, "targets", LF_I32, R, 1),
            &(struct lf_xent_opts){0});
}

static int finish_experts(struct small *s, lf_val y, lf_err *err)
{
    add_loss(s, y);
    int rc = lf_autodiff(s->g, err);
    if (rc == 0)
        rc = lf_layout_check(s->g, err);
    lf_graph_destroy(s->g);
    lf_pstore_destroy(s->ps);
    return rc;
}

static void test_experts(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_routes r, here;
    struct small s = small_experts(&r);
    here = r;
    lf_val y = lf_moe_linear(s.g, lf_moe_send(s.g, s.x, &here), s.up, LF_NONE, &here);
    y = lf_moe_linear(s.g, y, s.down, LF_NONE, &here);
    y = lf_moe_combine(s.g, lf_moe_return(s.g, y, &here), &r);
    tap_rc(finish_experts(&s, y, &err), 0, &err, NULL, "rows go to experts and come back");

    s = small_experts(&r); /* 2 x 64 rows of a weight as if they were of four experts */
    y = lf_moe_linear(s.g, lf_moe_permute(s.g, s.x, &r), s.up, LF_NONE, &r);
    tap_rc(finish_experts(&s, lf_moe_combine(s.g, y, &r), &err), LF_EINVAL, &err,
           "moe_linear does not add up on the expert axis", "rows that are not sent");

    s = small_experts(&r);
    here = r;
    y = lf_moe_linear(s.g, lf_moe_send(s.g, s.x, &here), s.up, LF_NONE, &here);
    y = lf_moe_linear(s.g, y, s.down, LF_NONE, &here);
    tap_rc(finish_experts(&s, lf_moe_combine(s.g, y, &r), &err), LF_EINVAL, &err,
           "moe_combine does not add up on the expert axis", "rows that do not come back");

    s = small_experts(&r);
    here = r;
    y = lf_linear(s.g, lf_moe_send(s.g, s.x, &here), lf_param(s.g, "whole"), LF_NONE);
    y = lf_moe_combine(s.g, lf_moe_return(s.g, y, &here), &r);
    tap_rc(finish_experts(&s, y, &err), LF_EINVAL, &err,
           "linear_dw does not add up on the expert axis",
           "a weight that all have, of rows that came from others");
}

/* Experts that the ranks do not divide, or ranks that are not there. */
static void test_sizes(void)
{
    lf_err err = LF_ERR_INIT;
    lf_pstore *ps = lf_pstore_create(&err);
    const struct lf_layout none = {.expert = 2, .expert_rank = 2}, l = {.expert = 4};
    const struct lf_param_desc d = {.name = "up", .ndim = 3, .dims = {6, 8, 8}, .experts = true};
    tap_rc(lf_pstore_set_layout(ps, &none, &err), LF_EINVAL, &err,
           "no rank 2 of 2 on the expert axis", "a rank that is not there");
    err = (lf_err)LF_ERR_INIT;
    tap_rc(lf_pstore_set_layout(ps, &l, &err), 0, &err, NULL, "four ranks");
    tap_rc(lf_pstore_add(ps, &d, &err), LF_EINVAL, &err, "the 6 experts of up do not divide",
           "six experts among them");
    lf_pstore_destroy(ps);
}

/* Boxes of experts and of columns: each element of the tensor is in one. */
static void test_boxes(void)
{
    enum { E = 4, N = 6, K = 4 };
    int times[E * N * K] = {0};
    bool numbers = true;
    lf_err err = LF_ERR_INIT;
    for (int r = 0; r < 4; r++) {
        const struct lf_layout l = {
            .expert = 2, .expert_rank = r / 2, .tensor = 2, .tensor_rank = r % 2};
        const struct lf_param_desc d = {
            .name = "down", .ndim = 3, .dims = {E, N, K}, .shard = LF_SHARD_COLS, .experts = true};
        lf_pstore *ps = lf_pstore_create(&err);
        if (lf_pstore_set_layout(ps, &l, &err) || lf_pstore_add(ps, &d, &err) < 0)
            tap_bail("%s", err.text);
        for (int64_t e = 0; e < ps->p[0].n; e++)
            times[lf_box_element(&ps->p[0], e)]++;
        numbers = numbers && lf_box_count(ps, &ps->p[0]) == 4 && lf_box_number(ps, &ps->p[0]) == r;
        lf_pstore_destroy(ps);
    }
    int once = 0;
    for (int i = 0; i < E * N * K; i++)
        once += times[i] == 1;
    tap_ok(once == E * N * K && numbers, "boxes of experts and of columns have each element once");
}

/* Ranks of the expert axis have pictures of their own, whose rows are mixed and folded, and become
 * rows of the text. */
static void test_pictures(void)
{
    static const char *const keys[][2] = {{"layers", "2"},
                                          {"hidden", "32"},
                                          {"heads", "4"},
                                          {"ffn", "48"},
                                          {"vocab", "64"},
                                          {"max_positions", "64"},
                                          {"experts", "4"},
                                          {"experts_per_token", "2"},
                                          {"vision.family", "siglip"},
                                          {"vision.layers", "1"},
                                          {"vision.hidden", "16"},
                                          {"vision.heads", "4"},
                                          {"vision.ffn", "24"},
                                          {"vision.patch_dim", "12"},
                                          {"vision.positions", "4"},
                                          {"image_token", "63"},
                                          {"projector.merge", "2"}};
    const struct lf_layout l = {.expert = 2, .expert_rank = 1};
    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    lf_model_config_defaults(&c);
    int rc = lf_model_config_family(&c, "llama", "test", &err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == 0; i++)
        rc = lf_model_config_set(&c, keys[i][0], keys[i][1], "test", &err);
    if (rc != 0 || lf_model_config_finish(&c, &err) != 0)
        tap_bail("%s", err.text);
    const struct lf_decoder_media media = lf_sight_bounds(&c, 8, 2, R);
    const struct lf_decoder_rows rows = {.rows = R, .n_docs = 1, .media = &media};
    lf_decoder *d = lf_decoder_create(&c, R, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    if (!d || lf_pstore_set_layout(ps, &l, &err) || lf_decoder_declare(d, ps, &err))
        tap_bail("%s", err.text);
    lf_graph *g = lf_decoder_loss_graph(d, ps, "train", &rows, true, &err);
    lf_plan *p = lf_plan_create(ps, &(struct lf_plan_opts){.threads = 1}, &err);
    if (!g || !p)
        tap_bail("%s", err.text);
    rc = lf_plan_add(p, g, &(struct lf_chain_opts){.train = true}, &err);
    tap_rc(rc < 0 ? rc : 0, 0, &err, NULL, "pictures beside experts that ranks divide");
    lf_plan_destroy(p);
    lf_graph_destroy(g);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

static int fails(void *user, void *all, size_t bytes, lf_err *err)
{
    (void)user, (void)all, (void)bytes;
    return lf_fail(err, LF_ECOMM, "rank 1 is gone");
}

/* A rank that takes part without a micro-batch, because it has failed, wants no second error. */
static void test_gone(void)
{
    const struct lf_plan_opts po = {.target = lf_target_host(), .threads = 1};
    const struct lf_adamw_opts adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-6f};
    const struct lf_chain_opts o = {.train = true, .slots = 1, .eras = 1};
    lf_err err = LF_ERR_INIT;
    struct lf_routes r, here;
    struct small s = small_experts(&r);
    here = r;
    lf_val y = lf_moe_linear(s.g, lf_moe_send(s.g, s.x, &here), s.up, LF_NONE, &here);
    y = lf_moe_linear(s.g, y, s.down, LF_NONE, &here);
    add_loss(&s, lf_moe_combine(s.g, lf_moe_return(s.g, y, &here), &r));
    lf_plan *p = lf_plan_create(s.ps, &po, &err);
    if (!p || lf_plan_add(p, s.g, &o, &err) < 0 ||
        lf_plan_data_parallel(
            p, &(struct lf_plan_ranks){.ranks = 2, .rank = 1, .bucket_bytes = 64 << 10}, &err) ||
        lf_plan_optimizer(p, &adamw, &err) || lf_plan_finish(p, &err))
        tap_bail("%s", err.text);
    lf_back *b = lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    lf_exec *ex = b ? lf_exec_create(p, b, &(struct lf_exec_opts){.poison = true}, &err) : NULL;
    if (!ex || lf_pstore_init(s.ps, 11, &err))
        tap_bail("%s", err.text);
    lf_exec_set_comm(ex, &(struct lf_exec_comm){.experts_gather = fails}, NULL);
    tap_ok(lf_exec_idle(ex, 0, LF_FWD, LF_FIRST, NULL) == LF_ECOMM, "another rank is gone, too");
    tap_rc(lf_exec_idle(ex, 0, LF_FWD, LF_FIRST, &err), LF_ECOMM, &err, "rank 1 is gone",
           "and who asks is told which");
    lf_exec_destroy(ex);
    lf_back_destroy(b);
    lf_plan_destroy(p);
    lf_graph_destroy(s.g);
    lf_pstore_destroy(s.ps);
}

int main(void)
{
    TAP(1, test_pictures());
    TAP(2, test_gone());
    TAP(4, test_experts());
    TAP(3, test_sizes());
    TAP(1, test_boxes());
    return tap_done();
}
