/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank that a plan is of, where ranks divide the state: the one that needs the most memory of
 * all, found without a look at the plan of each, however many there are.
 */
#include <string.h>

#include "engine/train/laid.h"
#include "engine/train/loop_priv.h"
#include "tests/tap/tap.h"

/* How often a plan becomes that of another rank, and the list of tensors that are saved is made. */
static int taken, listed;

int __real_lf_plan_take_rank(lf_plan *p, int rank, lf_err *err);
int __wrap_lf_plan_take_rank(lf_plan *p, int rank, lf_err *err);
int __wrap_lf_plan_take_rank(lf_plan *p, int rank, lf_err *err)
{
    taken++;
    return __real_lf_plan_take_rank(p, rank, err);
}

int __real_lf_train_tensors(struct lf_run_tensors *out, const struct lf_train_config *c,
                            const struct lf_train_model *m, const struct lf_train_who *who,
                            lf_arena *a, lf_err *err);
int __wrap_lf_train_tensors(struct lf_run_tensors *out, const struct lf_train_config *c,
                            const struct lf_train_model *m, const struct lf_train_who *who,
                            lf_arena *a, lf_err *err);
int __wrap_lf_train_tensors(struct lf_run_tensors *out, const struct lf_train_config *c,
                            const struct lf_train_model *m, const struct lf_train_who *who,
                            lf_arena *a, lf_err *err)
{
    listed++;
    return __real_lf_train_tensors(out, c, m, who, a, err);
}

static void set(struct lf_train_config *c, const char *const (*keys)[2], size_t n)
{
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < n; i++)
        if (lf_model_config_set(&c->model, keys[i][0], keys[i][1], "test:1", &err) != 0)
            tap_bail("%s", err.text);
}

static struct lf_train_config config(int ranks, int zero, enum lf_dtype compute)
{
    static const lf_loader_source source = {"not-there", 1};
    static lf_ramp_row ramp;
    struct lf_train_config c = {
        .model_given = true,
        .sources = &source,
        .n_sources = 1,
        .seq_length = 16,
        .micro_batch = 1,
        .ramp = &ramp,
        .n_ramp = 1,
        .steps = 10,
        .schedule = LF_SCHED_CONSTANT,
        .lr = 1e-3,
        .adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .moments = LF_F32, .masters = LF_F32},
        .scaler = {.start = 1, .window = 1},
        .compute = compute,
        .threads = 1,
        .device = LF_DEVICE_CPU,
        .bucket_bytes = 256 << 10,
        .save_async = true,
        .keep = 1,
        .zero = {.stage = zero},
        .plan_ranks = ranks};
    static const char *const keys[][2] = {
        {"layers", "3"}, {"hidden", "144"}, {"heads", "8"},         {"kv_heads", "2"},
        {"ffn", "400"},  {"vocab", "1000"}, {"max_positions", "64"}};
    lf_err err = LF_ERR_INIT;
    ramp = (lf_ramp_row){0, ranks};
    lf_model_config_defaults(&c.model);
    if (lf_model_config_family(&c.model, "llama", "test", &err) != 0)
        tap_bail("%s", err.text);
    set(&c, keys, sizeof keys / sizeof *keys);
    if (lf_model_config_finish(&c.model, &err) != 0)
        tap_bail("%s", err.text);
    return c;
}

/* Experts, which so many ranks divide. */
static void give_experts(struct lf_train_config *c, int expert)
{
    static const char *const keys[][2] = {
        {"experts", "8"}, {"experts_per_token", "2"}, {"expert_ffn", "400"}};
    lf_err err = LF_ERR_INIT;
    set(c, keys, sizeof keys / sizeof *keys);
    c->axes.expert = expert;
    if (lf_model_config_finish(&c->model, &err) != 0)
        tap_bail("%s", err.text);
}

struct planned {
    int rank;
    double total;
};

static struct planned plan(const struct lf_train_config *c)
{
    json_t *o = json_object();
    lf_err err = LF_ERR_INIT;
    taken = listed = 0;
    if (lf_train_plan(c, o, &err) != 0)
        tap_bail("%s", err.text);
    const json_t *bytes = json_object_get(o, "bytes");
    const struct planned out = {(int)json_integer_value(json_object_get(bytes, "rank")),
                                json_real_value(json_object_get(bytes, "total"))};
    json_decref(o);
    return out;
}

/* The plans of all ranks, one by one. */
static struct planned largest(const struct lf_train_config *c, double *least)
{
    struct planned most = {.total = 0};
    *least = 1e30;
    for (int r = 0; r < c->plan_ranks; r++) {
        struct lf_train_model m = {0};
        lf_err err = LF_ERR_INIT;
        const struct lf_train_who who = lf_axes_who(&c->axes, r, c->plan_ranks);
        if (lf_train_model_plan(&m, c, &c->model, false, &who, &err) != 0)
            tap_bail("%s", err.text);
        const double total = lf_train_planned(c, &m, &who).total;
        if (total > most.total)
            most = (struct planned){r, total};
        *least = total < *least ? total : *least;
        lf_train_model_fini(&m);
    }
    return most;
}

static void test_largest(int ranks, int zero, enum lf_dtype compute, int expert)
{
    struct lf_train_config c = config(ranks, zero, compute);
    double least;
    if (expert > 1)
        give_experts(&c, expert);
    const struct planned got = plan(&c), want = largest(&c, &least);
    tap_ok(got.total == want.total && want.total > least,
           "%d ranks, zero = %d, expert = %d, %s: rank %d, as of all plans (%.0f, the least %.0f)",
           ranks, zero, expert, compute == LF_F32 ? "f32" : "bf16", got.rank, want.total, least);
    if (got.total != want.total)
        tap_diag("rank %d has %.0f, rank %d %.0f", got.rank, got.total, want.rank, want.total);
}

/* What rank r has of tensors that ranks divide, by its own plan. */
static double own_of(const struct lf_train_model *m)
{
    double sum = 0;
    for (int i = 0; i < lf_pstore_count(m->ps); i++)
        for (int k = 0; k < LF_P_KINDS; k++) {
            int64_t own[2];
            lf_pstore_own(m->ps, i, (enum lf_pkind)k, own);
            if (lf_pstore_sharded(m->ps, i, (enum lf_pkind)k))
                sum += (double)(own[1] - own[0]) *
                       (double)lf_dtype_size(lf_pstore_type(m->ps, (enum lf_pkind)k));
        }
    return sum;
}

/* By the plan of rank 0, and by that of each. */
static void test_own(int ranks, int expert)
{
    struct lf_train_config c = config(ranks, 1, LF_BF16);
    struct lf_train_model first = {0};
    lf_err err = LF_ERR_INIT;
    int same = 0;
    if (expert > 1)
        give_experts(&c, expert);
    for (int r = 0; r < ranks; r++) {
        struct lf_train_model m = {0};
        const struct lf_train_who who = lf_axes_who(&c.axes, r, ranks);
        if (lf_train_model_plan(&m, &c, &c.model, false, &who, &err) != 0)
            tap_bail("%s", err.text);
        if (r == 0)
            first = m;
        const double want = own_of(&m), got = lf_plan_own_bytes(first.plan, r, false);
        same += want > 0 && got == want;
        if (got != want)
            tap_diag("rank %d: %.0f, not %.0f", r, got, want);
        if (r > 0)
            lf_train_model_fini(&m);
    }
    lf_train_model_fini(&first);
    tap_ok(same == ranks, "%d ranks, expert = %d: what each keeps alone", ranks, expert);
}

static void test_work(int zero)
{
    struct lf_train_config c = config(64, zero, LF_BF16);
    (void)plan(&c);
    const int few_taken = taken, few_listed = listed;
    c = config(16384, zero, LF_BF16);
    (void)plan(&c);
    tap_ok(taken == few_taken && listed == few_listed && taken > 1 && taken < 64,
           "zero = %d: %d plans and %d lists of tensors are looked at of 64 ranks and of 16,384",
           zero, taken, listed);
}

/* Ranks that exchange rows are connected with each other, and not in a ring alone. */
static void test_connections(void)
{
    const struct lf_zero none = {0};
    const struct lf_axes data = {0}, context = {.context = 8};
    const struct lf_train_who one = lf_axes_who(&data, 0, 8), rows = lf_axes_who(&context, 0, 8);
    const double ring = lf_devcomm_gpu_bytes(&one, &none, 1);
    tap_ok(ring > 0 && lf_devcomm_gpu_bytes(&rows, &none, 1) > 8 * ring,
           "eight GPUs that exchange rows have more connections than in two rings");
}

int main(void)
{
    static const int ranks[] = {2, 7, 40};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int zero = 1; zero <= 3; zero++) {
            TAP(1, test_largest(ranks[i], zero, LF_F32, 1));
            TAP(1, test_largest(ranks[i], zero, LF_BF16, 1));
        }
    TAP(1, test_largest(8, 1, LF_F32, 4));
    TAP(1, test_largest(40, 1, LF_F32, 2));
    TAP(1, test_largest(40, 1, LF_BF16, 8));
    TAP(1, test_own(6, 1));
    TAP(1, test_own(8, 4));
    for (int zero = 1; zero <= 3; zero++)
        TAP(1, test_work(zero));
    TAP(1, test_connections());
    return tap_done();
}
