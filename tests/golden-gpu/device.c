/* SPDX-License-Identifier: Apache-2.0
 *
 * See device.h. */
#include "tests/golden-gpu/device.h"

#include <stdlib.h>

#include "kernels/cuda/emu/run.h"
#include "kernels/cuda/queue.h"
#include "tests/tap/tap.h"

bool golden_on_gpu(void)
{
    const char *need = getenv("LF_REQUIRE_GPU");
    return need && need[0] == '1';
}

void golden_need_kernels(void)
{
    static const struct lf_kernels *const k = &lf_cuda_kernels;
    const struct {
        const char *name;
        bool there;
    } needed[] = {{"embed_fwd", k->embed_fwd.run},     {"embed_bwd", k->embed_bwd.run}, {"gemm", k->gemm.run},
                  {"colsum", k->colsum.run},           {"norm_fwd", k->norm_fwd.run},   {"norm_bwd", k->norm_bwd.run},
                  {"rope", k->rope.run},               {"attn_fwd", k->attn_fwd.run},   {"attn_bwd", k->attn_bwd.run},
                  {"linear_xent", k->linear_xent.run}, {"glu_bwd", k->glu_bwd.run},     {"act_bwd", k->act_bwd.run},
                  {"grad_norm", k->grad_norm.run},     {"adamw", k->adamw.run}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (needed[i].there)
            continue;
        if (golden_on_gpu())
            tap_bail("the CUDA backend has no %s yet", needed[i].name);
        tap_diag("no %s", needed[i].name);
        tap_skip_all("the CUDA backend lacks a kernel of a training step");
    }
}

lf_back *golden_cuda_back(lf_err *err)
{
    static struct lf_cu emulator; /* a backend keeps using the table */
    struct lf_cuda_opts o = {.threads = 1};
    if (golden_on_gpu()) {
        struct lf_gpus g;
        lf_gpus_look(&g);
        if (!g.n)
            tap_bail("LF_REQUIRE_GPU=1: %s", g.why);
    } else {
        lf_emu_driver(&emulator);
        o.driver = &emulator;
    }
    lf_back *b = lf_back_cuda_create(&o, err);
    if (b)
        tap_diag("on %s", b->device);
    return b;
}

const struct lf_target *golden_cuda_target(void)
{
    return golden_on_gpu() ? lf_target_device(LF_DEVICE_CUDA) : lf_target_find("sm_90");
}
