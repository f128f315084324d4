/* SPDX-License-Identifier: Apache-2.0
 *
 * A main for fuzz targets without libFuzzer: every seed, then deterministic mutations of it (flips,
 * cuts, copies, splices, numbers at their limits). LF_FUZZ_RUNS sets how many.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/rng.h"
#include "tests/fuzz/fuzz.h"
#include "tests/tap/tap.h"

enum { CAP = 1 << 16, MAX_SEEDS = 96 };

static struct {
    uint8_t *data;
    size_t len;
} seeds[MAX_SEEDS];
static size_t n_seeds;

static void add_seed(const uint8_t *data, size_t len)
{
    if (n_seeds == MAX_SEEDS)
        return;
    seeds[n_seeds].data = malloc(len + 1);
    if (!seeds[n_seeds].data)
        tap_bail("no memory");
    memcpy(seeds[n_seeds].data, data, len);
    seeds[n_seeds++].len = len;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_folder(void)
{
    char path[4096], file[8192];
    const char *src = getenv("LF_SRCDIR");
    struct dirent **list;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", src ? src : ".", fuzz_corpus);
    int n = scandir(path, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        lf_buf b;
        lf_buf_init(&b);
        snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && lf_io_read_file(file, CAP, &b, NULL) == 0)
            add_seed((const uint8_t *)b.data, b.len);
        lf_buf_fini(&b);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

/* One mutation of a seed into buf; a pure function of i. */
static size_t mutate(uint64_t i, uint8_t *buf)
{
    uint64_t k = 0;
#define DRAW(n) ((size_t)lf_rng_u32(20260101, 7, i * 64 + k++) % ((n) ? (n) : 1))
    static const uint8_t odd[] = {0,   1,   0x7f, 0x80, 0xff, '"', '\\', '{',
                                  '[', ']', '}',  '\n', '$',  '=', ' ',  '9'};
    size_t s = DRAW(n_seeds), len = seeds[s].len;
    memcpy(buf, seeds[s].data, len);
    for (size_t m = 1 + DRAW(4); m > 0; m--) {
        size_t at = DRAW(len), span = 1 + DRAW(16), to = DRAW(len);
        switch (DRAW(6)) {
        case 0:
            if (len)
                buf[at] ^= (uint8_t)(1u << DRAW(8));
            break;
        case 1:
            if (len)
                buf[at] = odd[DRAW(sizeof odd)];
            break;
        case 2:
            len = at;
            break;
        case 3: /* repeat a piece */
            if (at + span <= len && len + span <= CAP) {
                memmove(buf + at + span, buf + at, len - at);
                len += span;
            }
            break;
        case 4: /* drop a piece */
            if (at + span <= len) {
                memmove(buf + at, buf + at + span, len - at - span);
                len -= span;
            }
            break;
        default:
            if (at + span <= len && to + span <= len)
                memmove(buf + to, buf + at, span);
        }
    }
#undef DRAW
    return len;
}

int main(void)
{
    const char *env = getenv("LF_FUZZ_RUNS");
    uint64_t runs = env ? strtoull(env, NULL, 10) : 3000;
    uint8_t *buf = malloc(2 * CAP);
    if (!buf)
        tap_bail("no memory");
    if (fuzz_corpus)
        load_folder();
    else
        for (size_t len, i = 0; (len = fuzz_seed(i, buf, CAP)) > 0; i++)
            add_seed(buf, len);
    tap_ok(n_seeds > 0, "%zu seeds", n_seeds);
    for (size_t i = 0; i < n_seeds; i++)
        LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].len);
    for (uint64_t i = 0; n_seeds && i < runs; i++)
        LLVMFuzzerTestOneInput(buf, mutate(i, buf));
    tap_ok(true, "%llu mutations without a finding", (unsigned long long)runs);
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    free(buf);
    return tap_done();
}
