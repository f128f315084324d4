/* SPDX-License-Identifier: Apache-2.0
 *
 * rng.h: Philox against the known-answer vectors published with Random123 (kat_vectors, philox4x32
 * 10), stream moments, and the permutation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "tests/tap/tap.h"

static void test_philox(void)
{
    static const struct {
        uint32_t ctr[4], key[2], want[4];
    } v[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        uint32_t got[4];
        lf_philox(got, (uint64_t)v[i].key[1] << 32 | v[i].key[0], v[i].ctr[3],
                  (uint64_t)v[i].ctr[1] << 32 | v[i].ctr[0], v[i].ctr[2]);
        tap_mem(got, v[i].want, sizeof got, "Random123 known answer");
    }
}

static void test_streams(void)
{
    enum { N = 200000 };
    double sum = 0, sq = 0, usum = 0, cross = 0, last = 0;
    bool in_range = true;
    for (uint64_t i = 0; i < N; i++) {
        double z = lf_rng_normal(5, 1, i), u = lf_rng_f64(5, 1, i);
        sum += z;
        sq += z * z;
        usum += u;
        cross += z * last;
        last = z;
        in_range = in_range && u >= 0 && u < 1 && isfinite(z);
    }
    tap_ok(in_range, "ranges");
    tap_f64(sum / N, 0, 5 / sqrt(N), "mean of normals");
    tap_f64(sq / N, 1, 5 * sqrt(2.0 / N), "variance of normals");
    tap_f64(cross / N, 0, 5 / sqrt(N), "neighbours are uncorrelated");
    tap_f64(usum / N, 0.5, 5 / sqrt(12.0 * N), "mean of uniforms");
    tap_f64((double)lf_u01(0), 0, 0, "u01(0)");
    tap_f64((double)lf_u01(UINT32_MAX), 1 - 0x1p-24, 0, "u01(max) is below 1");
    uint32_t r[4];
    lf_philox(r, 9, 3, 2, 0);
    tap_i64(lf_rng_u32(9, 3, 11), r[3], "u32 stream is the raw generator");
}

static void test_normal_pairs(void)
{
    int differ = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double two[2];
        lf_rng_normal_pair(two, 5, 1, i);
        const double one[2] = {lf_rng_normal(5, 1, 2 * i), lf_rng_normal(5, 1, 2 * i + 1)};
        differ += memcmp(one, two, sizeof two) != 0;
    }
    tap_i64(differ, 0, "a pair of normals is the bits of its two elements");
}

static void test_permutation(void)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 65536, 65537};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        uint64_t n = sizes[k], bad = 0, moved = 0;
        unsigned char *seen = lf_calloc((size_t)n, 1, NULL);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = lf_rng_permute(7, 2, n, i);
            moved += p != i;
            if (p >= n || seen[p]++)
                bad++;
        }
        tap_i64((int64_t)bad, 0, "every value once");
        if (n >= 1000)
            tap_ok(moved > n - 20, "and hardly any in its place");
        free(seen);
    }
    /* Each of the 6 orders of 3 things comes up about equally often. */
    int counts[27] = {0}, kinds = 0;
    enum { SEEDS = 6000 };
    for (uint64_t s = 0; s < SEEDS; s++) {
        uint64_t a = lf_rng_permute(s, 0, 3, 0), b = lf_rng_permute(s, 0, 3, 1),
                 c = lf_rng_permute(s, 0, 3, 2);
        counts[a * 9 + b * 3 + c]++;
    }
    for (int i = 0; i < 27; i++) {
        if (counts[i]) {
            kinds++;
            tap_f64(counts[i], SEEDS / 6.0, 5 * sqrt(SEEDS / 6.0), "orders are equally likely");
        }
    }
    tap_i64(kinds, 6, "six orders");
    uint64_t top = lf_rng_permute(1, 1, UINT64_MAX, UINT64_MAX - 1);
    tap_ok(top < UINT64_MAX, "the largest domain");
    tap_ok(lf_rng_permute(1, 1, 1000, 5) != lf_rng_permute(2, 1, 1000, 5) ||
               lf_rng_permute(1, 1, 1000, 6) != lf_rng_permute(2, 1, 1000, 6),
           "seeds differ");
}

int main(void)
{
    TAP(3, test_philox());
    TAP(8, test_streams());
    TAP(1, test_normal_pairs());
    TAP(22, test_permutation());
    return tap_done();
}
