/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention through cuDNN against the f64 reference: the emulated library, which runs the graphs
 * that ours builds operation by operation, or with LF_REQUIRE_GPU=1 the real one (skipped where
 * there is none). Then what must not go there, planted errors, and libraries that are absent, too
 * old or fail in the middle.
 */
#include "config.h"

#include "kernels/cuda/attn_source.h"
#include "tests/cuda/emu/cudnn.h"
#include "tests/op/attn_rig.h"

static const struct attn_case more_cases[] = {
    {"whole rows", 128, 4, 4, 64, 2, {0, 64, 128}, true, false, 0, 0, 0, false, {0}, {0}, 0, false},
    {"window, documents",
     160,
     4,
     2,
     64,
     3,
     {0, 70, 71, 160},
     true,
     false,
     24,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"grouped heads, empty documents, padding",
     144,
     6,
     2,
     128,
     5,
     {0, 0, 50, 50, 131, 140},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"a window as long as documents",
     96,
     2,
     2,
     32,
     2,
     {0, 50, 90},
     true,
     false,
     50,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
};
enum { MORE_CASES = sizeof more_cases / sizeof *more_cases };

static bool real; /* on a GPU */
static struct lf_cu_device *device;
static struct lf_dnn library;

static void use(const struct lf_dnn *lib)
{
    char why[300] = "";
    if (lf_cudnn_use(device, lib, why, sizeof why))
        tap_bail("%s", why);
}

/* What our own attention is called. */
static const char *own(void)
{
    return device->attn_wgmma ? "own wgmma" : "own";
}

/* Runs so far; a real library does not say. */
static int runs(void)
{
    return lf_emu_dnn_mood(NULL).runs;
}

/* Whether the library is to be asked: written once more from kernels/README.md. */
static bool expected(const struct attn_case *c, int type)
{
    return type != LF_F32 && c->causal && !c->alibi && c->softcap == 0 && c->drop == 0 &&
           !c->open && !attn_ref_runs(c) && c->d % 8 == 0 && attn_ref_e(c) == c->d &&
           c->rows % 2 == 0 && longest_of(c) > 1;
}

static double forward_error(const struct attn_case *c, int type, const struct data *t,
                            const struct op_buf out[2])
{
    const double o = worst(&out[0], c->rows, c->heads * attn_ref_e(c), t->ldo, type, t->o, NULL,
                           op_tolerance(type, 1.0 / 256, 4e-6));
    const double lse = worst(&out[1], c->heads, c->rows, c->rows, LF_F32, t->lse, NULL, 2e-5);
    return o < 0 || lse < 0 ? 9 : fmax(o, lse);
}

static double backward_error(const struct attn_case *c, int type, const struct data *t,
                             const struct op_buf out[3])
{
    const double tol = op_tolerance(type, 1.0 / 128, 2e-5);
    const double dq = worst(&out[0], c->rows, c->heads * c->d, t->ldq, type, t->g.dq, t->g.aq, tol);
    const double dk =
        worst(&out[1], c->rows, c->groups * c->d, t->ldk, type, t->g.dk, t->g.ak, tol);
    const double dv =
        worst(&out[2], c->rows, c->groups * attn_ref_e(c), t->ldv, type, t->g.dv, t->g.av, tol);
    return dq < 0 || dk < 0 || dv < 0 ? 9 : tap_worse(dq, tap_worse(dk, dv));
}

static void give_back(struct op_buf *b, int n)
{
    while (n > 0)
        op_free(&b[--n]);
}

/* Largest error over limit of forward and backward; 9 where one does not run. */
static double errors(const struct attn_case *c, int type)
{
    struct data t = data_make(c, type);
    struct op_buf f[2], b[3];
    double w = forward(op_kernels(0), c, type, &t, 1, f) ? forward_error(c, type, &t, f) : 9;
    w = backward(op_kernels(0), c, type, &t, 1, b) ? fmax(w, backward_error(c, type, &t, b)) : 9;
    give_back(f, 2);
    give_back(b, 3);
    data_free(&t);
    return w;
}

static bool same_bits(const struct op_buf *x, const struct op_buf *y, int n)
{
    bool same = true;
    for (int i = 0; i < n; i++)
        same = same && memcmp(x[i].p, y[i].p, x[i].bytes) == 0;
    return same;
}

static void test_case(const struct attn_case *c, int type)
{
    const struct lf_kernels *k = op_kernels(0);
    struct data t = data_make(c, type);
    struct op_buf f[2], b[3], f2[2], b2[3];
    /* sinks are in o and lse when the backward comes */
    const int before = runs(), one = !real && expected(c, type), fwd = c->sinks ? 0 : one;
    tap_ok(forward(k, c, type, &t, 1, f), "forward runs: %s, type %d", c->name, type);
    tap_i64(runs() - before, fwd, "by the library where it is to be");
    tap_ok(backward(k, c, type, &t, 1, b), "backward runs");
    tap_i64(runs() - before, fwd + one, "likewise");
    const double wf = forward_error(c, type, &t, f), wb = backward_error(c, type, &t, b);
    tap_ok(wf <= 1 && wb <= 1, "worst error / limit %.3f forward, %.3f backward", wf, wb);
    const bool again = forward(k, c, type, &t, 1, f2) && backward(k, c, type, &t, 1, b2);
    tap_ok(again && same_bits(f, f2, 2) && same_bits(b, b2, 3), "again, the same bits");
    give_back(f, 2);
    give_back(b, 3);
    give_back(f2, 2);
    give_back(b2, 3);
    data_free(&t);
}

static void test_numbers(void)
{
    for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
        for (int n = 0; n < MORE_CASES; n++)
            TAP(6, test_case(&more_cases[n], type));
        for (int n = type == LF_BF16 ? 0 : ATTN_CASES; n < ATTN_CASES; n++)
            if (!attn_ref_runs(&attn_cases[n]) || n % 4 == 3) /* they all go one way */
                TAP(6, test_case(&attn_cases[n], type));
    }
}

/* ---- what goes there, by shape ---- */

static void test_shapes(void)
{
    enum { CHANGES = 17 };
    float some;
    const int32_t prefix = 0, runs[2] = {0, 1};
    struct lf_dnn_shape s, t;
    const struct lf_k_attn_fwd good = {.rows = 4096,
                                       .heads = 8,
                                       .groups = 2,
                                       .d = 64,
                                       .d_value = 64,
                                       .n_docs = 8,
                                       .max_doc = 512,
                                       .lse = &some,
                                       .ldq = 768,
                                       .ldk = 768,
                                       .ldv = 768,
                                       .ldo = 512,
                                       .scale = 1,
                                       .causal = true,
                                       .x_type = LF_BF16};
    struct lf_k_attn_fwd bad[CHANGES];
    for (int i = 0; i < CHANGES; i++)
        bad[i] = good;
    bad[0].mode = LF_INVARIANT;
    bad[1].x_type = LF_F32;
    bad[2].causal = false;
    bad[3].prefix = &prefix;
    bad[4].alibi = &some;
    bad[5].softcap = 30;
    bad[6].drop.p = 0.1f;
    bad[7].d = 60;
    bad[8].ldk = 772;
    bad[9].n_docs = 8 * 16 + 1;
    bad[10].max_doc = 1;
    bad[11].n_docs = 0;
    bad[12].rows = 0;
    bad[13].lse = NULL;
    bad[14].runs = runs;
    bad[15].d_value = 32;
    bad[16].sinks = &some;
    tap_ok(lf_cudnn_fits_fwd(&good, &s), "a plain shape goes to the library");
    for (int i = 0; i < CHANGES; i++)
        tap_ok(!lf_cudnn_fits_fwd(&bad[i], &t), "change %d keeps it with our kernels", i);
    bad[0] = good;
    bad[0].window = 512;
    tap_ok(lf_cudnn_fits_fwd(&bad[0], &t) && !memcmp(&s, &t, sizeof s),
           "a window as long as every document is none");
    struct lf_k_attn_bwd b = {.rows = 4096,
                              .heads = 8,
                              .groups = 2,
                              .d = 64,
                              .d_value = 64,
                              .n_docs = 8,
                              .max_doc = 512,
                              .ldq = 768,
                              .ldk = 768,
                              .ldv = 768,
                              .ldo = 512,
                              .lddo = 512,
                              .lddq = 768,
                              .lddk = 768,
                              .lddv = 768,
                              .causal = true,
                              .x_type = LF_BF16};
    tap_ok(lf_cudnn_fits_bwd(&b, &t), "and its backward");
    b.rows = b.max_doc = 16384;
    b.n_docs = 1;
    tap_ok(!lf_cudnn_fits_bwd(&b, &t), "but not one that would keep 4 GiB of dS");
    b.heads = 65000;
    b.rows = b.max_doc = INT32_MAX - 300;
    tap_ok(!lf_cudnn_fits_bwd(&b, &t), "nor the largest that there is");
}

/* ---- planted errors: a table that changes what passes through ---- */

enum plant { NOTHING, KEY_STRIDE, SCALE, LATER, EARLIER, WINDOW, DELTA, LENGTHS, PLANTS };
static const char *const plant_name[] = {"nothing",         "a stride of the keys",  "the scale",
                                         "the causal mask", "the window's mask",     "the window",
                                         "delta's factor",  "no lengths in products"};
static enum plant planted;
static int64_t last_id, pack_id[LF_DNN_IDS];

static void change_pointers(void **at, int64_t n)
{
    static float wrong;
    const int id = planted == SCALE     ? LF_DNN_ID_SCALE
                   : planted == LATER   ? LF_DNN_ID_NONE_LATER
                   : planted == EARLIER ? LF_DNN_ID_NONE_EARLIER
                   : planted == WINDOW  ? LF_DNN_ID_WINDOW
                   : planted == DELTA   ? LF_DNN_ID_ONE
                                        : 0;
    for (int64_t i = 0; i < n; i++)
        if (pack_id[i] == id) {
            wrong = planted == LATER || planted == EARLIER ? 0 : *(float *)at[i] * 1.1f;
            at[i] = &wrong;
        }
}

static int set_changed(void *d, int name, int type, int64_t n, const void *value)
{
    int64_t stride[4];
    void *at[LF_DNN_IDS];
    if (name == LF_DNN_TENSOR_ID)
        last_id = *(const int64_t *)value;
    if (name == LF_DNN_PACK_IDS)
        memcpy(pack_id, value, (size_t)n * sizeof *pack_id);
    if (planted == LENGTHS &&
        (name == LF_DNN_OPM_M || name == LF_DNN_OPM_N || name == LF_DNN_OPM_K))
        return 0;
    if (name == LF_DNN_TENSOR_STRIDES && planted == KEY_STRIDE && last_id == LF_DNN_ID_K) {
        memcpy(stride, value, sizeof stride);
        stride[3] -= 8;
        return library.BackendSetAttribute(d, name, type, n, stride);
    }
    if (name == LF_DNN_PACK_POINTERS) {
        memcpy(at, value, (size_t)n * sizeof *at);
        change_pointers(at, n);
        return library.BackendSetAttribute(d, name, type, n, at);
    }
    return library.BackendSetAttribute(d, name, type, n, value);
}

static void test_planted(void)
{
    struct lf_dnn changed = library;
    changed.BackendSetAttribute = set_changed;
    for (planted = NOTHING; planted < PLANTS; planted++) {
        use(&changed);
        const double w = errors(&more_cases[1], LF_BF16);
        tap_ok(planted == NOTHING ? w <= 1 : !(w <= 1), "wrong: %s: worst error / limit %.3f",
               plant_name[planted], w);
    }
    planted = NOTHING;
}

/* ---- libraries that are not as they should be ---- */

static void refuses(const char *wish, const char *file, const char *says)
{
    char why[300] = "";
    setenv("LF_ATTN", wish, 1);
    setenv("LF_CUDNN", file, 1);
    lf_cudnn_close(device);
    const int rc = lf_cu_attn_open(device, why, sizeof why);
    tap_ok(rc == LF_K_EDEVICE && strstr(why, says) && !device->cudnn, "LF_ATTN=%s, library %s: %s",
           wish, file, why);
    tap_str(lf_cuda_attn_algorithm(device, LF_FAST), own(), "attention is our own");
    setenv("LF_ATTN", "cudnn", 1);
    unsetenv("LF_CUDNN");
}

static void refuses_to_start(struct lf_emu_dnn_mood m, const char *says)
{
    char why[300] = "";
    lf_emu_dnn_mood(&m);
    const int rc = lf_cudnn_use(device, &library, why, sizeof why);
    tap_ok(rc == LF_K_EDEVICE && strstr(why, says) && !device->cudnn, "it says why: %s", why);
    lf_emu_dnn_mood(&(struct lf_emu_dnn_mood){0});
}

static void falls_back(struct lf_emu_dnn_mood m, const char *what)
{
    use(&library);
    lf_emu_dnn_mood(&m);
    const int before = runs();
    const double w = errors(&more_cases[0], LF_BF16);
    tap_ok(w <= 1 && runs() == before, "%s: our kernels run", what);
    lf_emu_dnn_mood(&(struct lf_emu_dnn_mood){0});
}

/* Call `fail` from now on fails. -1: an error; else how often the library ran; 9: a wrong
 * number. */
static int failing(const struct data *t, int fail)
{
    struct op_buf f[2];
    use(&library);
    lf_emu_dnn_mood(&(struct lf_emu_dnn_mood){.fail_call = fail});
    const int before = runs();
    const bool ran = forward(op_kernels(0), &more_cases[0], LF_BF16, t, 1, f);
    lf_emu_dnn_mood(&(struct lf_emu_dnn_mood){0});
    const int result = !ran                                               ? -1
                       : forward_error(&more_cases[0], LF_BF16, t, f) > 1 ? 9
                                                                          : runs() - before;
    give_back(f, 2);
    return result;
}

/* A call fails, wherever that is: our kernels or another plan, once there is a plan an error, and
 * never a wrong number. */
static void test_middle(void)
{
    enum { PACK = 5 }; /* calls of an execution */
    struct data t = data_make(&more_cases[0], LF_BF16);
    int ours = 0, theirs = 0, bad = 0, refused = 0;
    const int before = lf_emu_dnn_mood(NULL).calls,
              all = (failing(&t, 0), lf_emu_dnn_mood(NULL).calls - before);
    for (int n = 1; n <= all - PACK; n += 7) {
        const int r = failing(&t, n);
        ours += r == 0;
        theirs += r == 1;
        bad += r != 0 && r != 1;
    }
    for (int n = all - PACK + 1; n <= all; n++)
        refused += failing(&t, n) == -1;
    tap_ok(
        !bad && ours > 40 && refused == PACK,
        "of %d calls one fails: %d times our kernels, %d times another plan, %d refused, %d wrong",
        all, ours, theirs, refused, bad);
    data_free(&t);
}

static void test_failures(void)
{
    refuses("cudnn", "/nowhere/libcudnn.so", "/nowhere/libcudnn.so");
    refuses("cudnn", "libm.so.6", "has no cudnnCreate");
    refuses("fastest", "/nowhere/libcudnn.so", "one of own, mma, wgmma, cudnn, cudnn-forward");
    refuses_to_start((struct lf_emu_dnn_mood){.version = 91000}, "version 91000");
    refuses_to_start((struct lf_emu_dnn_mood){.version = 100000}, "version 100000");
    refuses_to_start((struct lf_emu_dnn_mood){.no_start = true}, "does not start");
    falls_back((struct lf_emu_dnn_mood){.no_engine = true}, "no engine for the shape");
    falls_back((struct lf_emu_dnn_mood){.no_plan = true}, "no plan for the shape");
    use(&library);
    lf_emu_dnn_mood(&(struct lf_emu_dnn_mood){.no_run = true});
    struct data t = data_make(&more_cases[0], LF_BF16);
    struct op_buf f[2];
    tap_ok(!forward(op_kernels(0), &more_cases[0], LF_BF16, &t, 1, f),
           "a plan that does not run is an error");
    lf_emu_dnn_mood(&(struct lf_emu_dnn_mood){0});
    give_back(f, 2);
    data_free(&t);
    test_middle();
}

static void test_choice(void)
{
    use(&library);
    const int asked = lf_emu_dnn_mood(NULL).asked, before = runs();
    tap_str(lf_cuda_attn_algorithm(device, LF_FAST), "cudnn 91900",
            "attention is named with its version");
    tap_str(lf_cuda_attn_algorithm(device, LF_INVARIANT), own(), "invariant attention is our own");
    tap_ok(errors(&more_cases[0], LF_BF16) <= 1 && errors(&more_cases[0], LF_BF16) <= 1,
           "two calls of one shape");
    tap_i64(lf_emu_dnn_mood(NULL).asked - asked, 2, "ask for two plans");
    setenv("LF_ATTN", "cudnn-forward", 1);
    use(&library);
    tap_str(lf_cuda_attn_algorithm(device, LF_FAST), "cudnn-forward 91900", "of the forward alone");
    tap_ok(errors(&more_cases[0], LF_BF16) <= 1, "with our backward after it");
    tap_i64(runs() - before, 5, "the library ran the forward alone");
    setenv("LF_ATTN", "own", 1);
    use(NULL);
    tap_ok(errors(&more_cases[0], LF_BF16) <= 1, "without it, our kernels");
    tap_i64(runs() - before, 5, "and nothing of the library");
    setenv("LF_ATTN", "cudnn", 1);
}

int main(void)
{
    const char *need = getenv("LF_REQUIRE_GPU");
    char why[300] = "";
    real = need && need[0] == '1';
    setenv("LF_ATTN", "cudnn", 1);
    lf_queue *q = op_queue_create(1);
    device = q->dev;
    op_queue_destroy(q);
    if (!real)
        lf_emu_cudnn(&library);
    else if (!lf_cudnn_load(&library, why, sizeof why))
        tap_skip_all(why);
    use(&library);
    test_numbers();
    TAP(22, test_shapes());
    if (!real) {
        TAP(8, test_planted());
        TAP(13, test_failures());
        TAP(9, test_choice());
    }
    use(NULL);
    return tap_done();
}
