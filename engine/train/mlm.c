/* SPDX-License-Identifier: Apache-2.0
 *
 * See mlm.h. */
#include "engine/train/mlm.h"

#include "engine/base/rng.h"
#include "engine/text/token/tokenizer.h"

int lf_mlm_check(const lf_mlm *m, int64_t vocab, lf_err *err)
{
    if (!(m->share > 0 && m->share < 1))
        return lf_fail(err, LF_EINVAL, "mask_share = %g: it is above 0 and below 1", m->share);
    if (!(m->random >= 0 && m->kept >= 0 && m->random + m->kept <= 1))
        return lf_fail(err, LF_EINVAL,
                       "mask_random = %g and mask_kept = %g: shares of the hidden tokens, which "
                       "add up to at most 1",
                       m->random, m->kept);
    if (m->mask_token < 0 || (vocab && m->mask_token >= vocab))
        return lf_fail(err, LF_EINVAL, "mask_token = %d: the vocabulary has %lld words",
                       m->mask_token, (long long)vocab);
    for (size_t i = 0; i < m->n_spared; i++)
        if (vocab && m->spared[i] >= vocab)
            return lf_fail(err, LF_EINVAL, "mask_spared has %d: the vocabulary has %lld words",
                           m->spared[i], (long long)vocab);
    return 0;
}

bool lf_mlm_spares(const lf_mlm *m, int32_t token)
{
    size_t lo = 0, hi = m->n_spared; /* all before lo are less, none from hi on is */
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (m->spared[mid] < token)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->n_spared && m->spared[lo] == token;
}

/* What is read in place of a hidden token. */
static int32_t stand_in(const lf_mlm *m, const struct lf_mlm_row *r, int64_t at)
{
    uint32_t w[4];
    lf_philox(w, r->seed, LF_SITE_MLM_WORD + r->valid, (uint64_t)r->sample, (uint32_t)at);
    const double u = (double)lf_u01(w[0]);
    return u < m->random             ? (int32_t)(((uint64_t)w[1] * (uint64_t)r->vocab) >> 32)
           : u < m->random + m->kept ? r->tokens[at]
                                     : m->mask_token;
}

void lf_mlm_words(const lf_mlm *m, const int32_t *tokens, int64_t n, uint8_t *begins)
{
    bool ended = true;
    for (int64_t i = 0; i < n; i++) {
        const bool known = tokens[i] >= 0 && (size_t)tokens[i] < m->n_marks;
        const uint8_t mark = known ? m->marks[tokens[i]] : LF_TOK_WORD_BEGINS | LF_TOK_WORD_ENDS;
        begins[i] = ended || (mark & LF_TOK_WORD_BEGINS);
        ended = mark & LF_TOK_WORD_ENDS;
    }
}

/* Where the word ends that begins at row i, which may be hidden. */
static int64_t word_end(const struct lf_mlm_row *r, int64_t i)
{
    int64_t end = i + 1;
    while (r->begins && end < r->n && !r->begins[end] && r->targets[end] >= 0)
        end++;
    return end;
}

static void hide_word(const lf_mlm *m, const struct lf_mlm_row *r, int64_t from, int64_t end)
{
    for (int64_t i = from; i < end; i++) {
        r->targets[i] = r->tokens[i];
        r->tokens[i] = stand_in(m, r, i);
    }
}

int64_t lf_mlm_hide(const lf_mlm *m, const struct lf_mlm_row *r)
{
    uint32_t four[4], lowest = UINT32_MAX;
    int64_t hidden = 0, first = -1, first_end = -1, drawn = -1;
    for (int64_t i = 0, end; i < r->n; i = end) {
        end = i + 1;
        if (r->targets[i] < 0)
            continue;
        end = word_end(r, i);
        if (i / 4 != drawn)
            lf_philox(four, r->seed, LF_SITE_MLM + r->valid, (uint64_t)r->sample,
                      (uint32_t)(drawn = i / 4));
        if (first < 0 || four[i % 4] < lowest) {
            lowest = four[i % 4];
            first = i;
            first_end = end;
        }
        if ((double)lf_u01(four[i % 4]) < m->share) {
            hide_word(m, r, i, end);
            hidden += end - i;
        } else {
            for (int64_t k = i; k < end; k++)
                r->targets[k] = -1;
        }
    }
    if (hidden == 0 && first >= 0) { /* a step of short samples has something to learn, too */
        hide_word(m, r, first, first_end);
        hidden = first_end - first;
    }
    return hidden;
}
