/* SPDX-License-Identifier: Apache-2.0
 *
 * Length of a run and checks of its settings, without data: steps, tokens and epochs over a batch
 * ramp, decay and warm-up in steps turned into samples, and what is refused. */
#include <math.h>
#include <string.h>

#include "engine/train/loop_priv.h"
#include "engine/train/neftune.h"
#include "tests/tap/tap.h"

static const lf_ramp_row ramp[] = {{0, 4}, {16, 8}};
static const lf_loader_source source = {"data", 1};

static struct lf_train_config base(void)
{
    struct lf_train_config c = {.model_given = true,
                                .sources = &source,
                                .n_sources = 1,
                                .seq_length = 32,
                                .micro_batch = 4,
                                .ramp = ramp,
                                .n_ramp = 2,
                                .steps = 10,
                                .schedule = LF_SCHED_WSD,
                                .decay_steps = 3,
                                .warmup_steps = 2,
                                .lr = 1e-3,
                                .min_lr = 1e-4};
    c.model.max_positions = 32;
    return c;
}

static void test_length(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_train_config c = base();
    int64_t steps, samples;
    lf_schedule s;
    tap_rc(lf_train_length(&steps, &samples, &s, &c, 0, &err), 0, &err, NULL, "ten steps");
    tap_i64(samples, 4 * 4 + 6 * 8, "samples over the ramp");
    tap_i64(s.warmup, 8, "two steps of warm-up are eight samples");
    tap_i64(s.decay, 24, "three steps of decay at the end");
    tap_f64(lf_schedule_lr(&s, 64), 1e-4, 1e-12, "the last step has min_lr");
    c.steps = 0;
    c.tokens = 32 * 64 - 1;
    tap_rc(lf_train_length(&steps, &samples, &s, &c, 0, &err), 0, &err, NULL, "the same in tokens");
    tap_i64(steps, 10, "rounded up to whole steps");
    c.tokens = 0;
    c.epochs = 2;
    tap_rc(lf_train_length(&steps, &samples, &s, &c, 0, &err), LF_EINVAL, &err, "epoch",
           "epochs of unknown length");
    tap_rc(lf_train_length(&steps, &samples, &s, &c, 32, &err), 0, &err, NULL,
           "two epochs of 32 sequences");
    tap_i64(steps, 10, "are the same again");
    c = base();
    c.decay_steps = 11;
    tap_rc(lf_train_length(&steps, &samples, &s, &c, 0, &err), LF_EINVAL, &err,
           "longer than the run", "decay too long");
    c = base();
    c.warmup_steps = 8;
    tap_rc(lf_train_length(&steps, &samples, &s, &c, 0, &err), LF_EINVAL, &err, "do not fit",
           "warm-up into the decay");
}

static void refused(struct lf_train_config c, const char *contains, const char *name)
{
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_train_check(&c, &err), LF_EINVAL, &err, contains, name);
}

static void test_check(void)
{
    static const lf_ramp_row odd[] = {{0, 6}}, late[] = {{4, 4}}, back[] = {{0, 4}, {0, 8}};
    static const lf_loader_source two[] = {{"a", 1}, {"b", 1}};
    lf_err err = LF_ERR_INIT;
    struct lf_train_config c = base();
    tap_rc(lf_train_check(&c, &err), 0, &err, NULL, "sound settings pass");
    c.tokens = 5;
    refused(c, "one of steps, tokens and epochs (2 given)", "two lengths");
    c.steps = c.tokens = 0;
    refused(c, "(0 given)", "no length");
    c.epochs = 1;
    c.sources = two;
    c.n_sources = 2;
    refused(c, "epochs are counted in one data", "epochs of a blend");
    c = base();
    c.model_given = false;
    refused(c, "no model", "neither model nor weights");
    c = base();
    c.seq_length = 33;
    refused(c, "max_positions = 32", "sequences beyond the positions");
    c = base();
    c.schedule = LF_SCHED_COSINE;
    refused(c, "decay belongs to", "decay without wsd");
    c = base();
    c.decay_steps = 0;
    refused(c, "wsd needs decay", "wsd without decay");
    c = base();
    c.ramp = odd;
    c.n_ramp = 1;
    refused(c, "not a multiple of micro_batch = 4", "a batch that cannot be cut");
    c.ramp = late;
    refused(c, "begin with N@0", "a ramp that begins late");
    c.ramp = back;
    c.n_ramp = 2;
    refused(c, "does not come after", "a ramp that goes back");
}

static void test_neftune(void)
{
    enum { ROWS = 64, WIDTH = 10 };
    static float x[2][ROWS * WIDTH];
    const int32_t cu[4] = {0, 16, 20, 60};
    const int64_t samples[2] = {7, 9};
    tap_f64(lf_neftune_half_width(5, 512, 4096), 0.00345267, 1e-8,
            "half width of 512 tokens of 4096");
    for (int k = 0; k < 2; k++)
        lf_neftune_fill(x[k], &(struct lf_neftune){5, ROWS, WIDTH, cu, 3, samples, 32, 3, k + 1});
    tap_mem(x[0], x[1], sizeof(x[0]), "the noise does not depend on threads");
    bool inside = true, wide = true;
    for (int d = 0; d < 3; d++) {
        const double half = lf_neftune_half_width(5, cu[d + 1] - cu[d], WIDTH);
        double most = 0, sum = 0;
        for (int i = cu[d] * WIDTH; i < cu[d + 1] * WIDTH; i++) {
            most = tap_worse(most, fabs((double)x[0][i]));
            sum += (double)x[0][i];
        }
        inside = inside && most <= half * (1 + 1e-6);
        wide = wide && most > 0.85 * half && fabs(sum) / ((cu[d + 1] - cu[d]) * WIDTH) < 0.3 * half;
    }
    tap_ok(inside && wide, "each document has the width of its own length");
    tap_ok(!(x[0][60 * WIDTH] > 0) && !(x[0][60 * WIDTH] < 0), "rows of no document have none");
    tap_ok(memcmp(&x[0][0], &x[0][32 * WIDTH], WIDTH * sizeof(float)) != 0, "samples differ");
}

int main(void)
{
    TAP(12, test_length());
    TAP(11, test_check());
    TAP(5, test_neftune());
    return tap_done();
}
