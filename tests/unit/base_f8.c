/* SPDX-License-Identifier: Apache-2.0
 *
 * f8.h against torch's tables (tests/golden/f8): every value, narrowing of 2^24 patterns, both
 * sides of every midpoint, saturation, NaN.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/f8.h"
#include "tests/tap/tap.h"

static const struct type {
    const char *name;
    float (*wide)(uint8_t);
    uint8_t (*narrow)(float);
    float most;
    uint8_t most_code;
} types[2] = {{"e4m3", lf_f32_of_e4m3, lf_e4m3_of, 448, 0x7e},
              {"e5m2", lf_f32_of_e5m2, lf_e5m2_of, 57344, 0x7b}};

static uint32_t table[2][256];
static uint64_t sum[2];
static long count[2];

static void read_golden(void)
{
    char path[1024];
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/f8/f8.txt", src ? src : ".");
    FILE *f = fopen(path, "r");
    bool ok = f;
    for (int i = 0; i < 256 && ok; i++)
        ok = fscanf(f, "%x %x", &table[0][i], &table[1][i]) == 2;
    for (int t = 0; t < 2 && ok; t++) {
        unsigned long long s;
        ok = fscanf(f, " sum %llx of %ld", &s, &count[t]) == 2;
        sum[t] = s;
    }
    if (!ok)
        tap_bail("%s cannot be read", path);
    fclose(f);
}

static void test_values(int t)
{
    int bad = 0, back = 0;
    for (int i = 0; i < 256; i++) {
        const float want = lf_f32_of_bits(table[t][i]), got = types[t].wide((uint8_t)i);
        bad += isnan(want) ? !isnan(got) : lf_bits_of_f32(got) != table[t][i];
        if (isnan(want))
            back += !isnan(types[t].wide(types[t].narrow(got)));
        else if (!isinf(want))
            back += types[t].narrow(got) != i;
    }
    tap_ok(bad == 0, "%s: the 256 values", types[t].name);
    tap_ok(back == 0, "%s: and back to the same code", types[t].name);
}

static void test_narrowing(int t)
{
    uint64_t s = 0;
    long n = 0;
    for (uint64_t i = 0; i < 1 << 24; i++) {
        const float x = lf_f32_of_bits((uint32_t)(i * 257));
        if (!(fabsf(x) <= types[t].most))
            continue;
        s += ((uint64_t)types[t].narrow(x) + 1) * (2 * i + 1);
        n++;
    }
    tap_ok(s == sum[t] && n == count[t], "%s: %ld patterns narrowed as torch does it",
           types[t].name, n);
}

/* Between neighbours a < b the code changes at the midpoint, which goes to the even one. */
static void test_midpoints(int t)
{
    int bad = 0, pairs = 0;
    for (int i = 0; i < types[t].most_code; i++, pairs++) {
        const float a = types[t].wide((uint8_t)i), b = types[t].wide((uint8_t)(i + 1)),
                    mid = a + (b - a) / 2;
        const int even = i & 1 ? i + 1 : i;
        bad += types[t].narrow(mid) != even || types[t].narrow(-mid) != (0x80 | even);
        bad += types[t].narrow(nextafterf(mid, 0)) != i ||
               types[t].narrow(nextafterf(mid, INFINITY)) != i + 1;
    }
    tap_ok(bad == 0 && pairs == types[t].most_code, "%s: %d midpoints", types[t].name, pairs);
}

static void test_ends(int t)
{
    const float beyond[] = {nextafterf(types[t].most, INFINITY), 2 * types[t].most, 3e38f,
                            INFINITY};
    int bad = 0;
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        bad += types[t].narrow(beyond[i]) != types[t].most_code ||
               types[t].narrow(-beyond[i]) != (0x80 | types[t].most_code);
    tap_ok(bad == 0, "%s: what is too large becomes the largest value", types[t].name);
    tap_ok(isnan(types[t].wide(types[t].narrow(NAN))) && types[t].narrow(0.0f) == 0 &&
               types[t].narrow(-0.0f) == 0x80 && types[t].narrow(lf_f32_of_bits(1)) == 0,
           "%s: NaN, zeros, the smallest f32", types[t].name);
}

int main(void)
{
    read_golden();
    for (int t = 0; t < 2; t++) {
        TAP(2, test_values(t));
        TAP(1, test_narrowing(t));
        TAP(1, test_midpoints(t));
        TAP(2, test_ends(t));
    }
    return tap_done();
}
