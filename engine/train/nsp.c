/* SPDX-License-Identifier: Apache-2.0
 *
 * See nsp.h. */
#include "engine/train/nsp.h"

static int check_token(const char *key, int32_t token, int64_t vocab, lf_err *err)
{
    return token >= 0 && (!vocab || token < vocab)
               ? 0
               : lf_fail(err, LF_EINVAL, "%s = %d: the vocabulary has %lld words", key, token,
                         (long long)vocab);
}

int lf_nsp_check(const lf_nsp *p, int64_t vocab, lf_err *err)
{
    int rc = check_token("begin_token", p->begin, vocab, err);
    if (rc == 0)
        rc = check_token("separator", p->separator, vocab, err);
    for (size_t i = 0; i < p->n_ends && rc == 0; i++)
        rc = check_token("sentence_ends", p->ends[i], vocab, err);
    if (rc == 0 && p->begin == p->separator)
        rc = lf_fail(err, LF_EINVAL,
                     "begin_token = separator = %d: where the second text of a pair begins would "
                     "not be known",
                     p->begin);
    return rc;
}

int32_t lf_nsp_strip(const lf_nsp *p, int32_t *tokens, int32_t n)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] != p->begin && tokens[i] != p->separator)
            tokens[kept++] = tokens[i];
    return kept;
}

static bool ends_sentence(const lf_nsp *p, int32_t token)
{
    size_t lo = 0, hi = p->n_ends; /* all before lo are less, none from hi on is */
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (p->ends[mid] < token)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < p->n_ends && p->ends[lo] == token;
}

int32_t lf_nsp_sentence(const lf_nsp *p, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (ends_sentence(p, tokens[i]))
            return i + 1;
    return 0;
}

int32_t lf_nsp_split(const lf_nsp *p, const int32_t *tokens, int32_t n, uint32_t random)
{
    uint32_t places = 0, place;
    for (int32_t i = 1; i < n; i++)
        places += ends_sentence(p, tokens[i - 1]);
    if (!places)
        return 1 + (int32_t)(((uint64_t)random * (uint64_t)(n - 1)) >> 32);
    place = (uint32_t)(((uint64_t)random * places) >> 32);
    for (int32_t i = 1; i < n; i++)
        if (ends_sentence(p, tokens[i - 1]) && place-- == 0)
            return i;
    return 1; /* not reached: place < places */
}
