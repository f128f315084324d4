/* SPDX-License-Identifier: Apache-2.0
 *
 * See device.h. */
#include "tests/golden-gpu/device.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/blaslt.h"
#include "tests/cuda/emu/run.h"
#include "tests/tap/tap.h"

bool golden_on_gpu(void)
{
    const char *need = getenv("LF_REQUIRE_GPU");
    return need && need[0] == '1';
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

int golden_cpu_threads(void)
{
    return golden_on_gpu() ? lf_ncpu() : 1;
}

const struct lf_target *golden_cuda_target(void)
{
    return golden_on_gpu() ? lf_target_device(LF_DEVICE_CUDA) : lf_target_find("sm_90");
}

bool golden_has_blaslt(void)
{
    lf_err err = LF_ERR_INIT;
    lf_back *b = golden_on_gpu() ? golden_cuda_back(&err) : NULL;
    const bool there =
        !golden_on_gpu() || (b && strncmp(b->ops->products(b, LF_FAST), "cublas", 6) == 0);
    lf_back_destroy(b);
    return there;
}

void golden_emulate_blaslt(lf_back *b)
{
    struct lf_lt lt;
    lf_emu_blaslt(&lt);
    if (lf_blaslt_use(b->queue->dev, &lt))
        tap_bail("no memory");
}
