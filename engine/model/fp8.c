/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers of a decoder multiply in 8 bits. Embedding, head, router and experts never do.
 */
#include <stdio.h>

#include "engine/model/decoder_priv.h"

/* Have these layers of the model matrices that can be fp8? */
static bool any_layer(const lf_model_config *c, const struct lf_fp8_layers *f)
{
    bool yes = false;
    for (int64_t l = f->edges; l < c->layers - f->edges; l++) {
        yes = yes || (f->attention && lf_model_layer_attends(c, l));
        yes = yes || (f->mlp && (lf_model_layer_dense(c, l) ||
                                 (lf_model_layer_moe(c, l) && c->shared_ffn > 0)));
    }
    return yes;
}

int lf_decoder_mark_fp8(const lf_decoder *d, lf_pstore *ps, const struct lf_fp8_layers *f,
                        lf_err *err)
{
    const long long layers = (long long)d->c.layers, edges = f->edges;
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
            if (parts[i])
                lf_pstore_fp8_matching(ps, pattern, true);
        }
    }
    return any_layer(&d->c, f) ? 0
                               : lf_fail(err, LF_EINVAL,
                                         "fp8_layers: these layers have no matrices that could be "
                                         "fp8 (experts are not)");
}
