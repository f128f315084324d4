/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing: every token exactly once, the segment bound with its padding, whole documents under best
 * fit, limits.
 */
#include "engine/text/corpus/pack.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "tests/tap/tap.h"

struct lens {
    uint64_t n, max, seed;
};

static uint64_t len_of(const void *user, uint64_t doc)
{
    const struct lens *l = user;
    return lf_rng_u32(l->seed, 1, doc) % (l->max + 1);
}

/* Walk every sequence; returns the number of broken rules. */
static int64_t audit(const lf_pack *p, const struct lens *l, uint32_t T, bool whole,
                     uint64_t *tokens)
{
    uint32_t max_segs = lf_pack_max_segs(p);
    lf_pack_seg *segs = calloc(max_segs, sizeof *segs);
    unsigned char **seen = calloc(l->n, sizeof *seen);
    int64_t bad = 0;
    *tokens = 0;
    for (uint64_t d = 0; d < l->n; d++)
        seen[d] = calloc(len_of(l, d) + 1, 1);
    for (uint64_t i = 0; i < lf_pack_count(p); i++) {
        uint32_t n = lf_pack_get(p, i, segs), used = 0, ends = 0, trained = 0;
        for (uint32_t k = 0; k < n; k++) {
            uint64_t len = len_of(l, segs[k].doc);
            bad += segs[k].len == 0 || segs[k].first + segs[k].len > len;
            bad += segs[k].last != (segs[k].first + segs[k].len == len);
            bad += whole && len <= T && segs[k].len != len;
            for (uint64_t t = segs[k].first; t < segs[k].first + segs[k].len && t < len; t++)
                bad += seen[segs[k].doc][t]++ != 0;
            used += segs[k].len;
            ends += segs[k].last;
        }
        bad += n == 0 || used > T || n + (used < T) > max_segs;
        bad += lf_pack_tokens(p, i, &trained) != used || trained != used - ends;
        *tokens += used;
    }
    for (uint64_t d = 0; d < l->n; d++) {
        for (uint64_t t = 0; t < len_of(l, d); t++)
            bad += seen[d][t] != 1;
        free(seen[d]);
    }
    free(seen);
    free(segs);
    return bad;
}

static void test_policy(enum lf_pack_policy policy, uint32_t T, uint32_t max_segs, uint64_t max_len,
                        double min_fill)
{
    struct lens l = {.n = 1000, .max = max_len, .seed = T + max_segs};
    lf_err err = LF_ERR_INIT;
    lf_pack *p = NULL;
    uint64_t tokens = 0;
    tap_rc(lf_pack_build(&p, policy, T, max_segs,
                         &(struct lf_pack_docs){.n = l.n, .len = len_of, .user = &l}, &err),
           0, &err, NULL, "build");
    if (!p)
        return;
    tap_i64(audit(p, &l, T, policy == LF_PACK_BFD, &tokens), 0,
            "every token once, every bound held");
    double fill = (double)tokens / ((double)lf_pack_count(p) * T);
    tap_ok(fill >= min_fill, "policy %d T %u segs %u len %llu: filled %.3f, at least %.3f",
           (int)policy, T, max_segs, (unsigned long long)max_len, fill, min_fill);
    lf_pack_destroy(p);
}

static void test_bound_shows(void)
{
    /* Documents of one token: the bound, not T, ends a sequence. */
    struct lens l = {.n = 40, .max = 1, .seed = 3};
    lf_err err = LF_ERR_INIT;
    lf_pack *p = NULL;
    uint64_t tokens;
    for (int policy = 0; policy < 2; policy++) {
        lf_pack_build(&p, (enum lf_pack_policy)policy, 16, 4,
                      &(struct lf_pack_docs){.n = l.n, .len = len_of, .user = &l}, &err);
        audit(p, &l, 16, false, &tokens);
        tap_i64((int64_t)lf_pack_count(p), (int64_t)(tokens + 2) / 3,
                "three documents and the padding each");
        lf_pack_destroy(p);
    }
    lf_pack_build(&p, LF_PACK_CONCAT, 2, 2,
                  &(struct lf_pack_docs){.n = l.n, .len = len_of, .user = &l}, &err);
    tap_i64((int64_t)lf_pack_count(p), (int64_t)(tokens + 1) / 2,
            "an exact fill needs no padding segment");
    lf_pack_destroy(p);
}

static uint64_t len_in(const void *user, uint64_t doc)
{
    return ((const uint64_t *)user)[doc];
}

/* Long to short, each where the least room is left: lengths 5 3 7 2 8 1 4 6 in sequences of 10. */
static void test_best_fit(void)
{
    static const uint64_t lens[] = {5, 3, 7, 2, 8, 1, 4, 6},
                          want[4][2] = {{4, 3}, {2, 1}, {7, 6}, {0, 5}};
    lf_err err = LF_ERR_INIT;
    lf_pack *p = NULL;
    lf_pack_seg segs[10];
    int64_t bad = 0;
    tap_rc(lf_pack_build(&p, LF_PACK_BFD, 10, 10,
                         &(struct lf_pack_docs){.n = 8, .len = len_in, .user = lens}, &err),
           0, &err, NULL, "best fit decreasing");
    tap_i64((int64_t)lf_pack_count(p), 4, "sequences");
    for (uint64_t i = 0; i < 4; i++)
        bad +=
            lf_pack_get(p, i, segs) != 2 || segs[0].doc != want[i][0] || segs[1].doc != want[i][1];
    tap_i64(bad, 0, "of 8 + 2, 7 + 3, 6 + 4 and 5 + 1");
    lf_pack_destroy(p);
}

/* Equal rooms and equal lengths: the sequences that trl 1.16 makes of these lengths (_pack_bfd of
 * trl/data_utils.py). */
static void test_ties(void)
{
    static const uint64_t lens[40] = {3, 8, 7, 3, 5, 8, 6, 8, 2, 8, 1, 6, 4, 7, 3, 3, 6, 7, 7, 6,
                                      5, 3, 3, 3, 7, 5, 1, 2, 3, 8, 1, 4, 1, 4, 6, 8, 5, 5, 5, 8};
    static const int want[21][4] = {
        {1, 8, -1},       {5, 27, -1},      {7, 30, 32, -1}, {9, -1},      {29, -1},
        {35, -1},         {39, -1},         {2, 0, -1},      {13, 3, -1},  {17, 14, -1},
        {18, 15, -1},     {24, 21, -1},     {6, 12, -1},     {11, 31, -1}, {16, 33, -1},
        {19, 22, 10, -1}, {34, 23, 26, -1}, {4, 20, -1},     {25, 36, -1}, {37, 38, -1},
        {28, -1}};
    lf_err err = LF_ERR_INIT;
    lf_pack *p = NULL;
    lf_pack_seg segs[10];
    int64_t bad = 0;
    tap_rc(lf_pack_build(&p, LF_PACK_BFD, 10, 10,
                         &(struct lf_pack_docs){.n = 40, .len = len_in, .user = lens}, &err),
           0, &err, NULL, "many ties");
    tap_i64((int64_t)lf_pack_count(p), 21, "sequences");
    for (uint64_t i = 0; i < 21; i++) {
        int n = lf_pack_get(p, i, segs), k = 0;
        while (want[i][k] >= 0 && k < n && segs[k].doc == (uint64_t)want[i][k])
            k++;
        bad += want[i][k] >= 0;
    }
    tap_i64(bad, 0, "first in, first out");
    lf_pack_destroy(p);
}

/* ---- several axes ---- */

enum { AXES_T = 40, AXES_SEGS = 6 };
static const uint32_t axes_most[LF_PACK_AXES] = {100, 9};

static void weigh(const void *user, uint64_t doc, uint64_t w[LF_PACK_AXES])
{
    const struct lens *l = user;
    w[0] = doc % 3 ? lf_rng_u32(l->seed, 2, doc) % 105 : 0;
    w[1] = doc % 3 ? 1 + lf_rng_u32(l->seed, 3, doc) % 3 : 0;
}

static double share_of(const struct lens *l, uint64_t d)
{
    uint64_t w[LF_PACK_AXES];
    weigh(l, d, w);
    double s = (double)len_of(l, d) / AXES_T;
    for (int a = 0; a < LF_PACK_AXES; a++)
        s = (double)w[a] / axes_most[a] > s ? (double)w[a] / axes_most[a] : s;
    return s;
}

/* The documents that a sequence can hold, the largest first, the first of equals. */
static uint64_t in_order(const struct lens *l, uint64_t *order)
{
    uint64_t n = 0;
    for (uint64_t d = 0; d < l->n; d++)
        if (len_of(l, d) && share_of(l, d) <= 1)
            order[n++] = d;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = n - 1; k > i; k--)
            if (share_of(l, order[k]) > share_of(l, order[k - 1])) {
                uint64_t x = order[k];
                order[k] = order[k - 1];
                order[k - 1] = x;
            }
    return n;
}

/* What the header says, in so many words: each document tried in every sequence. */
static void straightforward(const struct lens *l, int64_t *bin_of)
{
    uint64_t order[300], room[300][4], bins = 0, n = in_order(l, order);
    for (uint64_t d = 0; d < l->n; d++)
        bin_of[d] = -1;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t w[4] = {len_of(l, order[i]), 0, 0, 1}, b = 0;
        weigh(l, order[i], w + 1);
        for (; b < bins; b++)
            if (room[b][0] >= w[0] && room[b][1] >= w[1] && room[b][2] >= w[2] && room[b][3] >= 1)
                break;
        if (b == bins) {
            const uint64_t full[4] = {AXES_T, axes_most[0], axes_most[1], AXES_SEGS - 1};
            memcpy(room[bins++], full, sizeof full);
        }
        for (int a = 0; a < 4; a++)
            room[b][a] -= w[a];
        bin_of[order[i]] = (int64_t)b;
    }
}

static void test_axes(void)
{
    struct lens l = {.n = 300, .max = AXES_T + 2, .seed = 11};
    const struct lf_pack_docs docs = {l.n, len_of, &l, weigh, {axes_most[0], axes_most[1]}};
    lf_err err = LF_ERR_INIT;
    lf_pack *p = NULL;
    int64_t want[300], got[300], left_out = 0;
    lf_pack_seg segs[AXES_SEGS];
    tap_rc(lf_pack_build(&p, LF_PACK_FFD, AXES_T, AXES_SEGS, &docs, &err), 0, &err, NULL, "build");
    for (size_t d = 0; d < 300; d++)
        got[d] = -1;
    for (uint64_t i = 0; i < lf_pack_count(p); i++) {
        uint32_t n = lf_pack_get(p, i, segs);
        for (uint32_t k = 0; k < n; k++) {
            bool whole =
                segs[k].first == 0 && segs[k].last && segs[k].len == len_of(&l, segs[k].doc);
            got[segs[k].doc] = whole ? (int64_t)i : -2;
        }
    }
    straightforward(&l, want);
    for (size_t d = 0; d < 300; d++)
        left_out += want[d] < 0;
    tap_mem(got, want, sizeof want, "every document where the straightforward search puts it");
    tap_ok(left_out > 5 && left_out < 60, "%lld are left out, among them too heavy ones",
           (long long)left_out);
    lf_pack_destroy(p);
}

static void test_refused(void)
{
    struct lens l = {.n = 4, .max = 5, .seed = 3};
    lf_err err = LF_ERR_INIT;
    lf_pack *p = NULL;
    tap_rc(lf_pack_build(&p, LF_PACK_CONCAT, 1, 2,
                         &(struct lf_pack_docs){.n = 4, .len = len_of, .user = &l}, &err),
           LF_EINVAL, &err, "sequence length 1", "T 1");
    tap_rc(lf_pack_build(&p, LF_PACK_CONCAT, 1u << 25, 2,
                         &(struct lf_pack_docs){.n = 4, .len = len_of, .user = &l}, &err),
           LF_EINVAL, &err, "length", "T huge");
    tap_rc(lf_pack_build(&p, LF_PACK_BFD, 8, 1,
                         &(struct lf_pack_docs){.n = 4, .len = len_of, .user = &l}, &err),
           LF_EINVAL, &err, "documents", "one segment");
    tap_rc(lf_pack_build(&p, LF_PACK_BFD, 8, 9,
                         &(struct lf_pack_docs){.n = 4, .len = len_of, .user = &l}, &err),
           LF_EINVAL, &err, "documents", "more than T");
    tap_rc(lf_pack_build(&p, LF_PACK_CONCAT, 8, 8,
                         &(struct lf_pack_docs){.n = 0, .len = len_of, .user = &l}, &err),
           0, &err, NULL, "no documents");
    tap_i64((int64_t)lf_pack_count(p), 0, "no sequences");
    lf_pack_destroy(p);
}

int main(void)
{
    static const uint32_t Ts[] = {2, 7, 64, 65, 1000, 5000};
    for (size_t i = 0; i < sizeof Ts / sizeof Ts[0]; i++) {
        uint32_t T = Ts[i];
        TAP(3, test_policy(LF_PACK_CONCAT, T, T, 100, 0.9));
        TAP(3, test_policy(LF_PACK_BFD, T, T, 100, 0.8));
        TAP(3, test_policy(LF_PACK_CONCAT, T, 2, 300, 0.02));
        TAP(3, test_policy(LF_PACK_BFD, T, 2, 300, 0.02));
    }
    TAP(3, test_policy(LF_PACK_BFD, 300, 300, 100, 0.99));
    TAP(3, test_policy(LF_PACK_BFD, 5000, 64, 12000, 0.9));
    TAP(3, test_bound_shows());
    TAP(3, test_best_fit());
    TAP(3, test_ties());
    TAP(3, test_axes());
    TAP(6, test_refused());
    return tap_done();
}
