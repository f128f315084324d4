/* SPDX-License-Identifier: Apache-2.0
 *
 * What benchmarks make of the times they measured: medians, and no rate where a difference of two
 * times is not positive.
 */
#include <math.h>

#include "kernels/bench/bench.h"
#include "tests/tap/tap.h"

static void test_numbers(void)
{
    char text[BENCH_NUMBER];
    double v[] = {3, -0.018, 1};
    tap_f64(bench_median(v, 3), 1, 0, "the median of three");
    tap_f64(bench_median(v, 0), 0, 0, "of none");
    tap_f64(bench_per(6, 2), 3, 0, "a rate");
    tap_ok(isnan(bench_per(6, -0.018)), "no rate of a time below nothing");
    tap_ok(isnan(bench_per(6, 0)), "nor of none");
    tap_str(bench_number(text, 6, bench_per(1, 3)), "0.333333", "a number of JSON");
    tap_str(bench_number(text, 6, bench_per(1, 0)), "null", "a rate that is too short to tell");
    tap_str(bench_number(text, 6, INFINITY), "null", "what is no number in JSON");
}

int main(void)
{
    TAP(8, test_numbers());
    return tap_done();
}
