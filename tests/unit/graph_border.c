/* SPDX-License-Identifier: Apache-2.0
 *
 * Borders of tasks in a step: what lf_back_set_border names is called before every kernel that an
 * executor runs and within kernels, in every way of running them, and no bit of a step depends on
 * it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/profile.h"
#include "tests/unit/graph_util.h"

struct seen {
    pthread_t caller;
    long calls, strangers;
};

static void border(void *arg)
{
    struct seen *s = arg;
    if (pthread_equal(pthread_self(), s->caller))
        s->calls++;
    else
        __atomic_fetch_add(&s->strangers, 1, __ATOMIC_RELAXED);
}

/* Weights after one step. With `s` the step has borders. *kernels gets the calls of its graph. */
static float *step(const struct gu_model *m, struct gu_opts o, struct seen *s, size_t *n,
                   long *kernels)
{
    lf_err err = LF_ERR_INIT;
    struct gu u;
    struct gu_batch b;
    void *data;
    size_t bytes;
    o.optimizer = true;
    gu_open(&u, m, &o);
    gu_batch_make(&b, m, m->rows, 1);
    gu_feed(&u, u.train, 0, &b);
    gu_record(&u, b.trained, 1e-3f);
    if (s) {
        *s = (struct seen){.caller = pthread_self()};
        lf_back_set_border(u.b, border, s);
    }
    gu_fwd_bwd(&u, 0, LF_FIRST);
    *kernels = (long)(u.p->c[u.train].g->n_n + u.ex->n_opt);
    tap_rc(lf_exec_run(u.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err), 0, &err, NULL, "a step");
    const long calls = s ? s->calls : 0;
    lf_back_set_border(u.b, NULL, NULL);
    gu_fwd_bwd(&u, 0, LF_FIRST);
    tap_ok(!s || s->calls == calls, "a border that was taken away is not called");
    lf_pstore_block(u.ps, LF_P_MASTER, false, &data, &bytes);
    float *w = malloc(bytes);
    memcpy(w, data, bytes);
    *n = bytes / sizeof *w;
    gu_close(&u);
    return w;
}

static void compare(const struct gu_model *m, const struct gu_opts *o, const char *name)
{
    struct seen s;
    size_t n, n2;
    long kernels;
    float *want = step(m, *o, NULL, &n, &kernels), *got = step(m, *o, &s, &n2, &kernels);
    tap_ok(s.strangers == 0, "%s: on the thread that runs the step", name);
    /* a product alone has several; a model this small has few tasks in its other kernels */
    tap_ok(s.calls > 2 * kernels, "%s: %ld borders, more than the %ld kernels", name, s.calls,
           kernels);
    tap_ok(n == n2 && memcmp(got, want, n * sizeof *got) == 0, "%s: the same bits", name);
    free(want);
    free(got);
}

static void test_modes(void)
{
    struct gu_opts o = gu_f32;
    compare(&gu_llama, &o, "f32");
    compare(&gu_gpt2, &o, "biases, dropout");
    o.poison = true;
    compare(&gu_llama, &o, "checking mode");
    o.poison = false;
    lf_err err = LF_ERR_INIT;
    o.profile = lf_profile_create(&err);
    compare(&gu_llama, &o, "profile");
    lf_profile_destroy(o.profile);
    o = gu_bf16;
    compare(&gu_qwen, &o, "bf16");
}

int main(void)
{
    TAP(35, test_modes());
    return tap_done();
}
