/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts by hand.
 */
#include <string.h>

#include "engine/pipe/cut.h"

/* Reads one number of digits alone, which ends at a comma or at the end. Returns NULL where there
 * is none or where it is above `most`. */
static const char *read_number(int64_t *out, const char *s, int64_t most)
{
    int64_t v = 0;
    const char *p = s;
    for (; *p >= '0' && *p <= '9' && v <= most; p++)
        v = 10 * v + (*p - '0');
    if (p == s || v > most || (*p != ',' && *p != '\0'))
        return NULL;
    *out = v;
    return p;
}

/* Reads up to the end of the text. Numbers beyond `stages` are counted only. */
static int read_all(int *layers, int64_t *sum, const char *text, int stages, lf_err *err)
{
    int count = 0;
    *sum = 0;
    for (const char *p = text;; p++) {
        int64_t v;
        const int length = (int)strcspn(p, ",");
        const char *end = read_number(&v, p, INT32_MAX);
        if (!end)
            return lf_fail(err, LF_EINVAL,
                           "\"%s\": number %d, \"%.*s\", is not a number of layers (like 6,6,5,3)",
                           text, count + 1, length, p);
        if (count < stages && layers)
            layers[count] = (int)v;
        count++;
        *sum += v;
        if (*end == '\0')
            return count;
        p = end;
    }
}

int lf_pipe_cut_parse(int *layers, const char *text, int stages, int n, lf_err *err)
{
    int64_t sum;
    /* The first reading checks, so that layers is only set when all is good. */
    const int count = read_all(NULL, &sum, text, stages, err);
    if (count < 0)
        return count;
    if (count != stages)
        return lf_fail(err, LF_EINVAL, "\"%s\" has %d numbers, but there are %d pipeline stages",
                       text, count, stages);
    if (sum != n)
        return lf_fail(err, LF_EINVAL, "\"%s\" has %lld layers, but the model has %d", text,
                       (long long)sum, n);
    read_all(layers, &sum, text, stages, err);
    return 0;
}

void lf_pipe_cut_print(lf_buf *out, const int *layers, int stages)
{
    for (int s = 0; s < stages; s++)
        lf_buf_addf(out, "%s%d", s ? "," : "", layers[s]);
}
