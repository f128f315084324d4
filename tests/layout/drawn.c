/* SPDX-License-Identifier: Apache-2.0
 *
 * The runs of a test begin with the same weights, and to draw them would be a fifth of what a run
 * costs. The linker puts this in place of the engine's function (--wrap in local.mk): the numbers
 * of a pair are its own, drawn once. Ranks have one thread and draw in turn, so nothing is locked.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/base/rng.h"
#include "tests/tap/tap.h"

/* The pairs of a stream. */
struct drawn {
    uint64_t seed, n;
    uint32_t site;
    double (*v)[2]; /* [n], owned; NAN: not drawn yet */
};

enum { STREAMS = 4096 };
static struct drawn streams[STREAMS]; /* at a hash of seed and site, or behind */

void __real_lf_rng_normal_pair(double out[2], uint64_t seed, uint32_t site, uint64_t pair);
void __wrap_lf_rng_normal_pair(double out[2], uint64_t seed, uint32_t site, uint64_t pair);

static struct drawn *find(uint64_t seed, uint32_t site)
{
    size_t k = (size_t)(seed * 31 + site) % STREAMS;
    for (int tries = 0; tries < STREAMS; tries++, k = (k + 1) % STREAMS) {
        struct drawn *d = &streams[k];
        if (!d->n)
            *d = (struct drawn){.seed = seed, .site = site};
        if (!d->n || (d->seed == seed && d->site == site))
            return d;
    }
    tap_bail("weights of more than %d tensors are drawn", STREAMS);
}

static void grow(struct drawn *d, uint64_t pair)
{
    const uint64_t n = 2 * pair + 64;
    double(*v)[2] = realloc(d->v, n * sizeof *v);
    if (!v)
        tap_bail("out of memory");
    for (uint64_t i = d->n; i < n; i++)
        v[i][0] = NAN;
    d->v = v;
    d->n = n;
}

void __wrap_lf_rng_normal_pair(double out[2], uint64_t seed, uint32_t site, uint64_t pair)
{
    struct drawn *d = find(seed, site);
    if (pair >= d->n)
        grow(d, pair);
    if (isnan(d->v[pair][0]))
        __real_lf_rng_normal_pair(d->v[pair], seed, site, pair);
    out[0] = d->v[pair][0];
    out[1] = d->v[pair][1];
}
