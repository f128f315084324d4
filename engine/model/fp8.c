/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers of a decoder multiply in 8 bits. Embedding, head, router and experts never do.
 */
#include <stdio.h>

#include "engine/model/decoder_priv.h"

int lf_decoder_mark_fp8(const lf_decoder *d, lf_pstore *ps, const struct lf_fp8_layers *f,
                        lf_err *err)
{
    const long long layers = (long long)d->c.layers, edges = f->edges;
    int n = 0;
    if (2 * edges >= layers)
        return lf_fail(err, LF_EINVAL,
                       "fp8_edges = %lld: the model has %lld layers, so none would be left for fp8",
                       edges, layers);
    for (long long l = edges; l < layers - edges; l++) {
        const char *const parts[] = {f->attention ? "attn" : NULL, f->mlp ? "mlp" : NULL,
                                     f->mlp ? "moe.shared" : NULL};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char pattern[64];
            snprintf(pattern, sizeof pattern, "layers.%lld.%s.*", l, parts[i] ? parts[i] : "");
            n += parts[i] ? lf_pstore_fp8_matching(ps, pattern, true) : 0;
        }
    }
    return n ? 0
             : lf_fail(
                   err, LF_EINVAL,
                   "fp8_layers: these layers have no matrices that could be fp8 (experts are not)");
}
