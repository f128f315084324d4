/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: numbers, counts, sizes and durations. A number that was accepted reads the same from
 * its plain form.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = NULL;

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    static const char *const seeds[] = {"2h30m",
                                        "1-12:30:00",
                                        "80GiB",
                                        "17E",
                                        "1.5M",
                                        "4ki",
                                        "3e-4",
                                        "-9223372036854775808",
                                        "9223372036854775807",
                                        "0.0001k",
                                        "7Ei",
                                        "106751991167300d"};
    size_t n = i < sizeof seeds / sizeof seeds[0] ? strlen(seeds[i]) : 0;
    if (n > cap)
        return 0;
    if (n)
        memcpy(buf, seeds[i], n);
    return n;
}

static void check_number(const char *s, int (*parse)(int64_t *, const char *, lf_err *))
{
    int64_t v = 0, again = 0;
    char plain[32];
    if (parse(&v, s, NULL) < 0)
        return;
    snprintf(plain, sizeof plain, "%" PRId64, v);
    if (lf_parse_i64(&again, plain, NULL) < 0 || again != v)
        LF_BUG("\"%s\" gave %s", s, plain);
    if (v >= 0 && (parse(&again, plain, NULL) < 0 || again != v))
        LF_BUG("\"%s\" gave %s, which is not read back", s, plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char word[80];
    double f;
    size_t len = size < sizeof word - 1 ? size : sizeof word - 1;
    if (len)
        memcpy(word, data, len);
    word[len] = '\0';
    check_number(word, lf_parse_i64);
    check_number(word, lf_parse_count);
    check_number(word, lf_parse_bytes);
    check_number(word, lf_parse_duration);
    if (lf_parse_f64(&f, word, NULL) == 0 && !(f - f == 0))
        LF_BUG("\"%s\" gave no finite number", word);
    return 0;
}
