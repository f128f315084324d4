/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a stage's ranks: see laid.h.
 */
#include "config.h"

#include "flow/plan/laid.h"

#include <stdio.h>

bool lf_laid_out(const lf_cost *c)
{
    return c->axes.given && (c->axes.pipeline.v > 1 || c->axes.context.v > 1 ||
                             c->axes.tensor.v > 1 || c->axes.expert.v > 1);
}

const char *lf_laid_words(char *buf, size_t cap, const lf_cost *c, const char *sep)
{
    const struct {
        const char *name;
        int64_t ranks;
    } axes[] = {{"pipeline", c->axes.pipeline.v},
                {"data", c->axes.data.v},
                {"context", c->axes.context.v},
                {"tensor", c->axes.tensor.v},
                {"expert", c->axes.expert.v}};
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; lf_laid_out(c) && i < sizeof axes / sizeof *axes; i++)
        if (axes[i].ranks > 1 && at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s%s %lld", at > 0 ? sep : "", axes[i].name,
                                   (long long)axes[i].ranks);
    return buf;
}
