/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop against PyTorch: the same model, initial weights, data order and settings for
 * 60 optimizer steps. Every loss is held to the committed curve (tests/golden/train/curve.txt):
 * 1e-4 relative in f32, a wider band in bf16. And the comparison can fail: runs with one setting
 * changed leave the band.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/frame.h"
#include "engine/base/json.h"
#include "tests/golden/train/case.h"
#include "tests/tap/tap.h"

static const double F32_BAND = 1e-4, BF16_BAND = 5e-3, NORM_BAND = 1e-3;

struct curve {
    int n;
    double loss[CASE_STEPS], norm[CASE_STEPS], lr[CASE_STEPS];
    char digest[LF_HASH_HEX];
};

static void read_reference(struct curve *c)
{
    char path[4096], line[256];
    const char *src = getenv("LF_SRCDIR");
    int step;
    snprintf(path, sizeof path, "%s/tests/golden/train/curve.txt", src ? src : ".");
    FILE *f = fopen(path, "r");
    if (!f)
        tap_bail("cannot open %s", path);
    *c = (struct curve){0};
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') {
            (void)sscanf(line, "# digest %64s", c->digest);
            continue;
        }
        if (c->n >= CASE_STEPS ||
            sscanf(line, "%d %lf %lf %lf", &step, &c->loss[c->n], &c->norm[c->n], &c->lr[c->n]) !=
                4 ||
            step != c->n + 1)
            tap_bail("%s: bad line %d", path, c->n + 1);
        c->n++;
    }
    fclose(f);
    if (c->n != CASE_STEPS)
        tap_bail("%s has %d steps", path, c->n);
}

static int read_record(void *arg, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    struct curve *c = arg;
    (void)offset;
    json_t *o = lf_json_load_text(payload, n, "record", err);
    if (!o || c->n >= CASE_STEPS) {
        json_decref(o);
        return LF_EFORMAT;
    }
    c->loss[c->n] = json_number_value(json_object_get(o, "loss"));
    c->norm[c->n] = json_number_value(json_object_get(o, "grad_norm"));
    c->lr[c->n++] = json_number_value(json_object_get(o, "lr"));
    json_decref(o);
    return 1;
}

static bool never(void)
{
    return false;
}

/* Run the case as it stands, below a name of its own, and read its metrics. */
static void train(train_case *t, const char *dir, const char *name, struct curve *c)
{
    lf_err err = LF_ERR_INIT;
    int64_t offset = 0;
    struct lf_train_sink sink = {.stop = never};
    snprintf(t->out, sizeof t->out, "%.2000s/%s", dir, name);
    snprintf(t->metrics, sizeof t->metrics, "%.2000s/%s.metrics", dir, name);
    *c = (struct curve){0};
    if (lf_train_run(&t->c, &sink, NULL, &err) ||
        lf_frame_read(t->metrics, &offset, read_record, c, &err) || c->n != CASE_STEPS)
        tap_bail("%s: %s", name, err.text);
}

/* Largest relative difference of two columns. */
static double distance(const double *a, const double *b, int *at)
{
    double worst = 0;
    for (int i = 0; i < CASE_STEPS; i++) {
        double e = fabs(a[i] - b[i]) / fabs(b[i]);
        if (!(e <= worst)) {
            worst = e;
            *at = i + 1;
        }
    }
    return worst;
}

int main(void)
{
    static train_case t;
    static struct curve ref, got;
    lf_err err = LF_ERR_INIT;
    const char *dir = tap_tmpdir();
    char digest[LF_HASH_HEX];
    int at = 0;
    read_reference(&ref);
    if (case_write_data(dir, &err) || case_config(&t, dir, &err) || case_digest(digest, &t, &err))
        tap_bail("case: %s", err.text);
    tap_str(digest, ref.digest, "the batches are those that PyTorch trained on");

    train(&t, dir, "f32", &got);
    double e = distance(got.loss, ref.loss, &at);
    tap_ok(e <= F32_BAND, "f32: losses of %d steps within %g of PyTorch's: %.2g at step %d",
           CASE_STEPS, F32_BAND, e, at);
    e = distance(got.norm, ref.norm, &at);
    tap_ok(e <= NORM_BAND, "f32: gradient norms within %g: %.2g at step %d", NORM_BAND, e, at);
    e = distance(got.lr, ref.lr, &at);
    tap_ok(e <= 1e-7, "learning rates are the same: %.2g at step %d", e, at);
    tap_ok(got.loss[CASE_STEPS - 1] < 0.75 * got.loss[0], "and it learns: %.3f to %.3f",
           got.loss[0], got.loss[CASE_STEPS - 1]);

    t.c.compute = LF_BF16;
    train(&t, dir, "bf16", &got);
    e = distance(got.loss, ref.loss, &at);
    tap_ok(e <= BF16_BAND, "bf16: losses within %g of PyTorch's f32: %.2g at step %d", BF16_BAND, e,
           at);
    t.c.compute = LF_F32;

    t.c.adam.weight_decay = 0;
    train(&t, dir, "decay", &got);
    tap_ok(distance(got.loss, ref.loss, &at) > F32_BAND,
           "without weight decay the f32 band is left");
    t.c.adam.weight_decay = 0.1f;
    t.c.adam.beta2 = 0.96f;
    train(&t, dir, "beta", &got);
    tap_ok(distance(got.loss, ref.loss, &at) > F32_BAND, "with another beta2 too");
    t.c.adam.beta2 = 0.95f;
    t.c.clip = 0;
    train(&t, dir, "clip", &got);
    tap_ok(distance(got.loss, ref.loss, &at) > F32_BAND, "without clipping too");
    return tap_done();
}
