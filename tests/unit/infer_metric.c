/* SPDX-License-Identifier: Apache-2.0
 *
 * Aggregation and standard errors. The expected numbers are Python's: statistics as the harness
 * writes them, bootstrap by random.Random(i).choices over chunks of 1000. */
#include <math.h>
#include <stdlib.h>

#include "engine/infer/metric.h"
#include "tests/tap/tap.h"

#define COUNT(x) (sizeof(x) / sizeof *(x))

static const lf_pair logs[] = {{-0.25, 0},  {-1.5, 0}, {-0.5, 0}, {-2, 0},
                               {-0.125, 0}, {-3, 0},   {-0.75, 0}};
static const lf_pair weighed[] = {{-12.5, 5}, {-30.25, 11}, {-7, 2}, {-1.5, 1}};
static const lf_pair classes[] = {{1, 1}, {0, 1}, {1, 0}, {1, 1}, {0, 0}, {2, 2}, {2, 1}, {0, 0}};

static void one(const char *name, const lf_pair *v, size_t n, double value, int64_t iters,
                double se)
{
    lf_pair scratch[16];
    double got = NAN;
    const int g = lf_agg_find(name);
    if (!tap_ok(g >= 0, "%s is known", name))
        return;
    tap_f64(lf_agg_value((enum lf_agg)g, v, n), value, 1e-12 * fabs(value), name);
    const bool there = lf_agg_stderr((enum lf_agg)g, v, n, iters, scratch, &got);
    if (isnan(se))
        tap_ok(!there, "%s has no standard error", name);
    else
        tap_f64(there ? got : (double)NAN, se, 1e-9 * se, "and its standard error");
}

static void edges(void)
{
    lf_pair scratch[16];
    static const lf_pair same[] = {{1, 1}, {1, 1}, {1, 1}}, none[] = {{0, 0}, {2, 0}},
                         far[] = {{300, 300}, {1, 1}, {300, 1}};
    double se = 0;
    tap_ok(lf_agg_find("nonsense") < 0, "an aggregation that nobody knows");
    tap_ok(isnan(lf_agg_value(LF_AGG_MEAN, logs, 0)), "of nothing there is no value");
    tap_ok(!lf_agg_stderr(LF_AGG_MEAN, logs, 1, 1000, scratch, &se), "of one no standard error");
    tap_ok(!lf_agg_stderr(LF_AGG_MEDIAN, logs, 7, 0, scratch, &se), "nor without resamples");
    tap_f64(lf_agg_value(LF_AGG_F1, none, 2), 0, 0, "f1 where nothing is of class 1");
    tap_f64(lf_agg_value(LF_AGG_MCC, same, 3), 0, 0, "correlation of what never varies");
    tap_f64(lf_agg_value(LF_AGG_MCC, far, 3), 0.5, 1e-12, "a class of a large number is one");
    tap_f64(lf_agg_value(LF_AGG_MEDIAN, logs, 6), -0.5, 0, "of an even number the upper median");
}

static void groups(void)
{
    const double v[] = {.25, .5, .75}, se[] = {.05, .02, .1}, size[] = {100, 400, 25};
    tap_f64(lf_group_mean(v, size, 3, true), 0.4642857142857143, 1e-15, "mean of a group by size");
    tap_f64(lf_group_mean(v, size, 3, false), 0.5, 1e-15, "and plain");
    tap_f64(lf_group_stderr(se, size, 3, true), 0.018578374348469127, 1e-15,
            "its standard error by size, pooled");
    tap_f64(lf_group_stderr(se, size, 3, false), 0.03785938897200183, 1e-15,
            "and of independent means");
}

int main(void)
{
    TAP(3, one("mean", logs, COUNT(logs), -1.1607142857142858, 2000, 0.39969695152856055));
    TAP(3, one("median", logs, COUNT(logs), -0.75, 2000, 0.5754505889161015));
    TAP(3, one("perplexity", logs, COUNT(logs), 3.192212613837115, 2000, 1.3513540948841987));
    TAP(3,
        one("weighted_perplexity", weighed, COUNT(weighed), 14.840626013574383, 2000, (double)NAN));
    TAP(3, one("bits_per_byte", weighed, COUNT(weighed), 3.891480044503125, 2000, (double)NAN));
    TAP(3, one("brier_score", logs, COUNT(logs), -1.1607142857142858, 2000, (double)NAN));
    TAP(3, one("f1", classes, COUNT(classes), 0.5714285714285714, 2000, 0.2570210390239788));
    TAP(3, one("matthews_corrcoef", classes, COUNT(classes), 0.42553224817349505, 2000,
               0.29393736527665904));
    TAP(3, one("matthews_corrcoef", classes, COUNT(classes), 0.42553224817349505, 100,
               0.30638075845453877));
    TAP(8, edges());
    TAP(4, groups());
    return tap_done();
}
