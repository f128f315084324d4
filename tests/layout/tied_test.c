/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of a tied tensor's gradients between two ranks (engine/train/devcomm_tied.c): what both
 * have then, in every order of its beginnings and in every mode; and that the last rank's part is
 * with the first before that one asks for the sum.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/train/devcomm_priv.h"
#include "tests/layout/local.h"
#include "tests/tap/tap.h"

#define WANT(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            rc = err->rc ? err->rc : lf_fail(err, LF_EINVAL, "line %d: %s", __LINE__, #x);         \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

static float value(int rank, int step, size_t i)
{
    return (float)(lf_rng_f64(7, (uint32_t)(2 * step + rank), i) - 0.5);
}

/* Which ranks begin early. */
struct how {
    size_t n;
    bool first, last;
};

/* Some steps of one rank. */
static int sums(void *user, lf_comm *c, lf_err *err)
{
    const struct how *h = user;
    const bool early = c->rank ? h->last : h->first;
    float *data = lf_calloc(h->n, sizeof *data, err), *room = lf_calloc(h->n, sizeof *room, err);
    struct lf_devcomm d = {.ends = c, .tied.room = c->rank ? NULL : room};
    int rc = data && room ? 0 : LF_ENOMEM;
    for (int step = 0; step < 3 && rc == 0; step++) {
        WANT(c->rank || !early || lf_devcomm_tied_begin(&d, data, h->n, err) == 0);
        for (size_t i = 0; i < h->n; i++)
            data[i] = value(c->rank, step, i);
        WANT(!c->rank || !early || lf_devcomm_tied_begin(&d, data, h->n, err) == 0);
        WANT(lf_devcomm_tied_sum(&d, data, h->n, err) == 0);
        for (size_t i = 0; i < h->n && !c->rank; i++)
            WANT(data[i] == value(0, step, i) + value(1, step, i));
        WANT(lf_devcomm_tied_end(&d, err) == 0);
        for (size_t i = 0; i < h->n; i++)
            WANT(data[i] == value(0, step, i) + value(1, step, i));
    }
out:
    free(data);
    free(room);
    return rc;
}

/* Both begin; then the last rank's part has gone, while the first does something else. */
static int leaves_early(void *user, lf_comm *c, lf_err *err)
{
    const struct how *h = user;
    float *data = lf_calloc(h->n, sizeof *data, err), *room = lf_calloc(h->n, sizeof *room, err);
    struct lf_devcomm d = {.ends = c, .tied.room = room};
    bool gone = true;
    int rc = data && room ? 0 : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < h->n; i++)
        data[i] = value(c->rank, 0, i);
    WANT(lf_devcomm_tied_begin(&d, data, h->n, err) == 0);
    WANT(lf_comm_barrier(c, err) == 0);
    for (int i = 0; i < LF_DEVCOMM_PIECES && gone; i++)
        WANT(!d.tied.req[i].flight || lf_comm_test(&d.tied.req[i], &gone, err) == 0);
    WANT(gone);
    for (size_t i = 0; i < h->n && !c->rank; i++)
        WANT(room[i] == value(1, 0, i));
    WANT(lf_devcomm_tied_sum(&d, data, h->n, err) == 0);
    WANT(lf_devcomm_tied_end(&d, err) == 0);
out:
    free(data);
    free(room);
    return rc;
}

static const struct local_opts modes[] = {{.ranks = 2},
                                          {.ranks = 2, .late = true},
                                          {.ranks = 2, .turns = 9},
                                          {.ranks = 2, .late = true, .turns = 4}};
enum { MODES = sizeof modes / sizeof modes[0] };

static void runs(local_fn fn, struct how h, const char *what)
{
    for (int m = 0; m < MODES; m++) {
        lf_err err = LF_ERR_INIT;
        if (!tap_ok(local_run(&modes[m], fn, &h, &err) == 0, "%s: %zu elements, mode %d", what, h.n,
                    m))
            tap_diag("%s", err.text);
    }
}

int main(void)
{
    enum { PIECE = 1 << 20 };
    runs(sums, (struct how){1, true, true}, "both begin early");
    runs(sums, (struct how){PIECE + 1, true, true}, "both begin early");
    runs(sums, (struct how){2 * PIECE, true, false}, "the first begins early");
    runs(sums, (struct how){5, false, true}, "the last begins early");
    runs(sums, (struct how){PIECE - 1, false, false}, "none begins early");
    runs(leaves_early, (struct how){PIECE + 3, true, true}, "what the last rank gives is there");
    return tap_done();
}
