/* SPDX-License-Identifier: Apache-2.0
 *
 * Rolling windows, choice and perplexity arithmetic against values of lm-evaluation-harness and
 * hand computation, and the packing of items into batches over a model made of arithmetic.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/infer/score.h"
#include "tests/tap/tap.h"

static void windows_are(size_t ctx, const lf_window *want, size_t n)
{
    lf_window got[8];
    tap_i64((int64_t)lf_rolling_windows(10, 4, ctx, got, 8), (int64_t)n, "number of windows");
    for (size_t i = 0; i < n; i++)
        tap_ok(got[i].from == want[i].from && got[i].to == want[i].to &&
                   got[i].score == want[i].score,
               "context %zu window %zu: [%zu, %zu) scores %zu", ctx, i, got[i].from, got[i].to,
               got[i].score);
}

static void test_windows(void)
{
    /* tokens 10..19 behind a prefix, max 4. Harness, as (disjoint context, targets):
     * ctx 1: ([0],10-13) ([13],14-17) ([15,16,17],18-19);  ctx 2: ([0],10-13) ([12,13],14-16)
     *   ([15,16],17-19).
     * In the sequence with the prefix at 0, token 10 + k has index k + 1. */
    windows_are(1, (lf_window[]){{0, 5, 4}, {4, 9, 4}, {6, 11, 2}}, 3);
    windows_are(2, (lf_window[]){{0, 5, 4}, {3, 8, 3}, {6, 11, 3}}, 3);
    lf_window w;
    tap_i64((int64_t)lf_rolling_windows(3, 4, 1, &w, 1), 1, "a short text is one window");
    tap_ok(w.from == 0 && w.to == 4 && w.score == 3, "and all of it is scored");
    tap_i64((int64_t)lf_rolling_windows(0, 4, 1, &w, 1), 0, "no tokens, no windows");
}

static void test_arithmetic(void)
{
    const double sums[] = {-6, -7}, chars[] = {3, 9}, ties[] = {-1, -1};
    tap_i64((int64_t)lf_best_choice(sums, NULL, 2), 0, "acc takes the largest sum");
    tap_i64((int64_t)lf_best_choice(sums, chars, 2), 1, "acc_norm divides by characters");
    tap_i64((int64_t)lf_best_choice(ties, NULL, 2), 0, "the first wins ties");
    double v, se;
    const double ll[] = {-1234.5}, words[] = {250}, bytes[] = {1300};
    lf_ratio_perplexity(ll, words, 1, &v, &se);
    tap_f64(v, 139.490988, 1e-6, "word perplexity");
    lf_ratio_perplexity(ll, bytes, 1, &v, &se);
    tap_f64(v, 2.584715, 1e-6, "byte perplexity");
    lf_ratio_bits(ll, bytes, 1, &v, &se);
    tap_f64(v, 1.370005, 1e-6, "bits per byte");
    const double x[] = {1, 0, 0, 1, 1};
    lf_mean_stderr(x, 5, &v, &se);
    tap_f64(v, 0.6, 1e-12, "mean");
    tap_f64(se, sqrt(0.3 / 5), 1e-12, "standard error from the sample variance");
    tap_i64((int64_t)lf_count_words("a b  c", 6), 3, "words are split at runs of white space");
    tap_i64((int64_t)lf_count_words(" a ", 3), 3, "empty pieces count, as in re.split");
    tap_i64((int64_t)lf_count_words("a\xc2\xa0"
                                    "b\xe3\x80\x80"
                                    "c",
                                    8),
            3, "Unicode white space");
    tap_i64((int64_t)lf_count_chars("h\xc3\xa9llo", 6), 5, "characters, not bytes");
}

/* loss of a row depends on its document so far; argmax is right for even positions. */
static int forward(void *ctx, const struct lf_score_rows *in, float *loss, int32_t *argmax,
                   lf_err *err)
{
    const int32_t *token = in->token, *target = in->target, *position = in->position,
                  *cu = in->cu_seqlens;
    (void)err;
    ++*(int *)ctx;
    for (int64_t d = 0; d < in->n_docs; d++) {
        unsigned h = 1;
        for (int32_t r = cu[d]; r < cu[d + 1]; r++) {
            h = h * 31 + (unsigned)token[r];
            loss[r] = target[r] < 0 ? 0 : (float)((h + (unsigned)target[r]) % 97) / 8.0f;
            argmax[r] = position[r] % 2 == 0 ? target[r] : target[r] + 1;
        }
    }
    return 0;
}

static void test_run(void)
{
    static const int32_t tokens[40] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4,
                                       6, 2, 6, 4, 3, 3, 8, 3, 2, 7, 9, 5, 0, 2, 8, 8, 4, 1, 9, 7};
    lf_score_item items[12];
    lf_score ref[12], got[12];
    int calls = 0, one = 0;
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < 12; i++)
        items[i] = (lf_score_item){tokens + i, 2 + i % 7, 1 + i % 2 * (i % 7 > 0)};
    lf_score_model m = {.ctx = &calls,
                        .rows = 64,
                        .max_context = 8,
                        .max_docs = 64,
                        .vocab = 10,
                        .forward = forward};
    memset(ref, 0, sizeof ref);
    memset(got, 0, sizeof got);
    tap_rc(lf_score_run(&m, items, 12, ref, NULL, &err), 0, &err, NULL, "all items in one batch");
    m.ctx = &one;
    m.rows = 8;
    m.max_docs = 2;
    tap_rc(lf_score_run(&m, items, 12, got, NULL, &err), 0, &err, NULL, "items in small batches");
    tap_ok(calls == 1 && one > 4, "1 batch, and %d", one);
    for (size_t i = 0; i < 12; i++)
        tap_ok(ref[i].ll == got[i].ll && ref[i].greedy == got[i].greedy &&
                   ref[i].n == items[i].n - items[i].first,
               "item %zu: the same score in any batch", i);
    tap_ok(got[0].greedy && !got[5].greedy, "greedy is a property of every scored token");
    items[3].n = 10;
    tap_rc(lf_score_run(&m, items, 12, got, NULL, &err), LF_EINVAL, &err, "item 3",
           "an item beyond the context");
    items[3].n = 5;
    items[3].first = 5;
    tap_rc(lf_score_run(&m, items, 12, got, NULL, &err), LF_EINVAL, &err, "item 3",
           "an item with nothing to score");
}

int main(void)
{
    TAP(11, test_windows());
    TAP(12, test_arithmetic());
    TAP(18, test_run());
    return tap_done();
}
