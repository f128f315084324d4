/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement of intervals: never two live tensors in the same bytes, and a height within 1.05 of the
 * largest live set, on random sets of several shapes and on graphs of real models, which are
 * planned here without any memory for them.
 */
#include <stdlib.h>

#include "engine/base/rng.h"
#include "engine/base/sys.h"
#include "engine/graph/priv.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;

static uint32_t draw(uint32_t set, uint32_t what, size_t i, uint32_t n)
{
    return lf_rng_u32(set, what, i) % n;
}

/* shape 0: any; 1: nested, like saved activations; 2: chains of short lives with a few long ones */
static void make(struct lf_interval *iv, size_t n, uint32_t set, int shape)
{
    for (size_t i = 0; i < n; i++) {
        int32_t span = (int32_t)(2 * n), a, b;
        if (shape == 1) {
            a = (int32_t)i;
            b = span - (int32_t)i - 1 - (int32_t)draw(set, 1, i, 3);
            b = b < a ? a : b;
        } else {
            a = (int32_t)draw(set, 1, i, (uint32_t)span);
            b = a +
                (int32_t)draw(set, 2, i, shape == 2 && draw(set, 4, i, 8) ? 6 : (uint32_t)span / 2);
        }
        size_t unit = draw(set, 5, i, 4) ? 64 : 64 * 97;
        iv[i] =
            (struct lf_interval){.first = a, .last = b, .bytes = unit * (1 + draw(set, 3, i, 40))};
    }
}

static size_t overlaps(const struct lf_interval *iv, size_t n, size_t height)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad += iv[i].off % 64 != 0 || iv[i].off + iv[i].bytes > height;
        for (size_t k = 0; k < i; k++)
            bad += iv[i].first <= iv[k].last && iv[k].first <= iv[i].last &&
                   iv[i].off < iv[k].off + iv[k].bytes && iv[k].off < iv[i].off + iv[i].bytes;
    }
    return bad;
}

static void test_random(void)
{
    static const size_t sizes[] = {1, 2, 7, 20, 60, 150, 400};
    double worst = 1, sum = 0;
    size_t wrong = 0, sets = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int shape = 0; shape < 3; shape++)
            for (uint32_t set = 0; set < 6; set++) {
                size_t n = sizes[s], height = 0, lower = 0;
                struct lf_interval *iv = calloc(n, sizeof *iv);
                make(iv, n, set * 31 + (uint32_t)s, shape);
                if (lf_place_intervals(iv, n, &height, &lower, &err))
                    tap_bail("%s", err.text);
                wrong += overlaps(iv, n, height) + (height < lower);
                double ratio = (double)height / (double)lower;
                if (ratio > 1.05)
                    tap_diag("%zu intervals, shape %d, set %u: %.4f", n, shape, set, ratio);
                worst = ratio > worst ? ratio : worst;
                sum += ratio;
                sets++;
                free(iv);
            }
    tap_i64((int64_t)wrong, 0, "no two live intervals share bytes");
    tap_ok(worst <= 1.05,
           "within 1.05 of the largest live set on %zu random sets (worst %.4f, mean %.4f)", sets,
           worst, sum / (double)sets);
}

static void test_edges(void)
{
    size_t height = 9, lower = 9;
    tap_rc(lf_place_intervals(NULL, 0, &height, &lower, &err), 0, &err, NULL, "nothing to place");
    tap_ok(height == 0 && lower == 0, "takes no bytes");
    struct lf_interval same[3] = {{0, 5, 64, 0}, {0, 5, 128, 0}, {6, 6, 192, 0}};
    lf_place_intervals(same, 3, &height, &lower, &err);
    tap_i64((int64_t)height, 192, "one after the other share");
    /* The checker itself sees a fault. */
    same[1].off = same[0].off;
    tap_ok(overlaps(same, 3, height) > 0, "overlap is noticed");
}

static void test_model(const struct gu_model *m, enum lf_dtype compute, enum lf_recompute how,
                       const char *name)
{
    struct lf_plan_bytes b = {0};
    lf_pstore *ps = gu_store(m, &err);
    lf_plan *p = lf_plan_create(ps, &(struct lf_plan_opts){.threads = 2, .compute = compute}, &err);
    lf_graph *g = gu_graph(m, ps, name, false, &err);
    double t0 = lf_now_s();
    if (lf_plan_add(p, g, &(struct lf_chain_opts){.train = true, .recompute = how}, &err) ||
        lf_plan_optimizer(p, &(struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
                          &err) ||
        lf_plan_finish(p, &err))
        tap_bail("%s: %s", name, err.text);
    lf_plan_bytes(p, &b);
    tap_ok((double)b.arena <= 1.05 * (double)b.largest_live,
           "%s, %s, recompute %d: %.1f GB of parameters and state, arena %.1f MB, %.4f of the "
           "largest live set, "
           "planned in %.2f s",
           name, compute == LF_BF16 ? "bf16" : "f32", how,
           (double)(b.params + b.grads + b.optimizer) / 1e9, (double)b.arena / 1e6,
           (double)b.arena / (double)b.largest_live, lf_now_s() - t0);
    lf_graph_destroy(g);
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
}

static void test_models(void)
{
    const struct gu_model gpt2 = {.layers = 12,
                                  .c = 768,
                                  .heads = 12,
                                  .groups = 12,
                                  .d = 64,
                                  .ffn = 3072,
                                  .vocab = 50257,
                                  .max_pos = 1024,
                                  .layer_norm = true,
                                  .bias = true,
                                  .tied = true,
                                  .rows = 1024};
    const struct gu_model llama3_70b = {.layers = 80,
                                        .c = 8192,
                                        .heads = 64,
                                        .groups = 8,
                                        .d = 128,
                                        .ffn = 28672,
                                        .vocab = 128256,
                                        .max_pos = 8192,
                                        .rope = true,
                                        .glu = true,
                                        .rows = 2048};
    for (int how = 0; how < 3; how++) {
        test_model(&gpt2, LF_F32, (enum lf_recompute)how, "gpt2");
        test_model(&llama3_70b, LF_BF16, (enum lf_recompute)how, "llama3-70b");
    }
}

int main(void)
{
    TAP(6, test_models());
    TAP(2, test_random());
    TAP(4, test_edges());
    return tap_done();
}
