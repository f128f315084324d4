/* SPDX-License-Identifier: Apache-2.0
 *
 * The peak of the ranks: see peak.h. */
#include "engine/train/peak.h"

#include "engine/base/sys.h"

double lf_train_peak(const lf_run *r, lf_back *back, enum lf_dtype compute)
{
    const bool short_type = compute != LF_F32, gpu = !back->ops->host_visible;
    struct lf_back_peak p = {0};
    char text[32];
    if (!lf_run_first(r) || !back->ops->probe ||
        back->ops->probe(back, short_type ? LF_PEAK_BF16 : LF_PEAK_F32, &p, NULL) != 0)
        return 0;
    const double peak = (double)r->ranks * (short_type ? p.bf16_flops : p.f32_flops);
    if (!(peak > 0))
        return 0;
    lf_run_log(r, 2, "peak flop/s %s in %s (%s); mfu is the share of it",
               lf_fmt_count(text, sizeof(text), peak), short_type ? "bf16" : "f32",
               gpu ? "by the GPU's data" : "measured");
    return peak;
}
