/* SPDX-License-Identifier: Apache-2.0
 *
 * The best of a row of measurements against a naive search over all of it, in both directions, with
 * ties and numbers that are not finite; and that a fold that is cut anywhere, written down and read
 * again goes on to the same end. */
#include <math.h>

#include "engine/train/best.h"
#include "tests/tap/tap.h"

#define N 12

/* The step of the best of v[0 .. n), 0: none; the first of equal ones. Steps count from 1. */
static int64_t search(const double *v, int n, bool higher)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(v[i]) && (!at || (higher ? v[i] > v[at - 1] : v[i] < v[at - 1])))
            at = i + 1;
    return at;
}

static struct lf_best fold(struct lf_best b, const double *v, int from, int to, bool higher)
{
    for (int i = from; i < to; i++)
        if (lf_best_take(&b, v[i], higher, i + 1) != (b.step == i + 1 && b.stale == 0))
            return (struct lf_best){.step = -1};
    return b;
}

static void test_row(const double *v, const char *what)
{
    for (int higher = 0; higher < 2; higher++) {
        bool same = true;
        for (int n = 0; n <= N; n++) {
            const struct lf_best b = fold(lf_best_start(), v, 0, n, higher);
            const int64_t at = search(v, n, higher);
            same = same && b.step == at && b.stale == n - at;
            same = same && isnan(b.score) == (at == 0);
        }
        tap_ok(same, "%s, %s is better: the best and what came since", what,
               higher ? "higher" : "lower");
    }
}

static void test_resumed(const double *v)
{
    bool same = true;
    const struct lf_best whole = fold(lf_best_start(), v, 0, N, false);
    for (int cut = 0; cut <= N; cut++) {
        json_t *o = json_object();
        struct lf_best b = fold(lf_best_start(), v, 0, cut, false);
        same = same && lf_best_to_json(&b, o) == 0;
        b = fold(lf_best_of(o), v, cut, N, false);
        same = same && b.step == whole.step && b.stale == whole.stale;
        json_decref(o);
    }
    tap_ok(same, "a fold that goes on from any checkpoint ends the same");
    json_t *none = json_object();
    const struct lf_best b = lf_best_of(none);
    tap_ok(isnan(b.score) && b.step == 0 && b.stale == 0, "an old state has no best");
    json_decref(none);
}

static void test_patience(void)
{
    struct lf_best b = lf_best_start();
    lf_best_take(&b, 1, false, 1);
    lf_best_take(&b, 1, false, 2);
    tap_ok(!lf_best_over(&b, 2) && !lf_best_over(&b, 0), "one without a better one is no two");
    lf_best_take(&b, (double)NAN, false, 3);
    tap_ok(lf_best_over(&b, 2) && lf_best_over(&b, 1), "NaN counts as one more");
    tap_ok(!lf_best_over(&b, 0) && b.step == 1, "patience = 0 never ends");
}

int main(void)
{
    static const double falls[N] = {9, 8, 7, 6, 5, 4, 3, 2, 1, .5, .25, .125},
                        ties[N] = {3, 3, 2, 2, 4, 2, 5, 1, 1, 7, 1, 9};
    const double nan = (double)NAN, inf = (double)INFINITY;
    const double odd[N] = {nan, inf, 4, nan, 3, -inf, 3, nan, 2, 8, nan, inf},
                 none[N] = {nan, nan, inf, nan, -inf, nan, nan, nan, nan, inf, nan, nan};
    TAP(2, test_row(falls, "a loss that falls"));
    TAP(2, test_row(ties, "a loss with ties"));
    TAP(2, test_row(odd, "with NaN and infinities"));
    TAP(2, test_row(none, "nothing finite"));
    TAP(2, test_resumed(odd));
    TAP(3, test_patience());
    return tap_done();
}
