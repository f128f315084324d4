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

const char *golden_lacks(bool training)
{
    static const struct lf_kernels *const k = &lf_cuda_kernels;
    const struct {
        const char *name;
        bool there, training;
    } needed[] = {{"embed_fwd", k->embed_fwd.run, false}, {"gemm", k->gemm.run, false},
                  {"norm_fwd", k->norm_fwd.run, false},   {"rope", k->rope.run, false},
                  {"attn_fwd", k->attn_fwd.run, false},   {"glu_fwd", k->glu_fwd.run, false},
                  {"act_fwd", k->act_fwd.run, false},     {"embed_bwd", k->embed_bwd.run, true},
                  {"colsum", k->colsum.run, true},        {"norm_bwd", k->norm_bwd.run, true},
                  {"attn_bwd", k->attn_bwd.run, true},    {"linear_xent", k->linear_xent.run, true},
                  {"glu_bwd", k->glu_bwd.run, true},      {"act_bwd", k->act_bwd.run, true},
                  {"grad_norm", k->grad_norm.run, true},  {"adamw", k->adamw.run, true}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].there && (training || !needed[i].training))
            return needed[i].name;
    return NULL;
}

void golden_need_kernels(bool training)
{
    const char *name = golden_lacks(training);
    if (!name)
        return;
    if (golden_on_gpu())
        tap_bail("the CUDA backend has no %s yet", name);
    tap_diag("no %s", name);
    tap_skip_all("the CUDA backend lacks a kernel");
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
