/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA side of op_cuda.h: one device, kernels that wait.
 */
#include "tests/op/op_cuda.h"

#include <stdlib.h>

#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/tap/tap.h"

static struct lf_cu_device *device;
static struct lf_kernels waiting;

static int wait_for(lf_queue *q, int rc)
{
    if (!rc)
        rc = lf_cu_result(q, q->dev->cu.StreamSynchronize(q->stream), "synchronize");
    if (rc == LF_K_EDEVICE) {
        const char *name = "?";
        q->dev->cu.GetErrorName(q->status, &name);
        tap_diag("%s: %s", q->what, name);
    }
    return rc;
}

#define WAIT(name)                                                                                 \
    static int wait_##name(lf_queue *q, const struct lf_k_##name *a)                               \
    {                                                                                              \
        return wait_for(q, lf_cuda_kernels.name.run(q, a));                                        \
    }
LF_KERNEL_LIST(WAIT)

bool op_on_gpu(void)
{
    const char *need = getenv("LF_REQUIRE_GPU");
    return need && need[0] == '1';
}

static void open_device(void)
{
    struct lf_cu cu;
    char why[200];
    if (op_on_gpu()) {
        if (lf_cu_load(&cu, why, sizeof why))
            tap_bail("LF_REQUIRE_GPU=1: %s", why);
    } else {
        lf_emu_driver(&cu);
    }
    if (lf_cu_device_open(&device, &cu, 0, why, sizeof why))
        tap_bail("%s", why);
    tap_diag("on %s", device->name);
    waiting = lf_cuda_kernels;
#define USE(name)                                                                                  \
    if (waiting.name.run)                                                                          \
        waiting.name.run = wait_##name;
    LF_KERNEL_LIST(USE)
}

bool op_wgmma(bool on)
{
    if (!device)
        open_device();
    device->wgmma = device->attn_wgmma =
        on && device->sm == 90 && lf_cu_has(device, LF_CU_FN_gemm_wg_bf16_nt);
    return device->wgmma;
}

int op_shared(int bytes)
{
    if (!device)
        open_device();
    const int before = device->smem_optin;
    device->smem_optin = bytes;
    return before;
}

const struct lf_kernels *op_kernels(int i)
{
    if (!device)
        open_device();
    return i == 0 ? &waiting : NULL;
}

lf_queue *op_queue_create(int threads)
{
    (void)threads;
    if (!device)
        open_device();
    lf_queue *q = lf_cu_queue_create(device);
    if (!q)
        tap_bail("no stream");
    return q;
}

void op_queue_destroy(lf_queue *q)
{
    lf_cu_queue_destroy(q);
}

void op_queue_wait(lf_queue *q)
{
    if (wait_for(q, LF_K_OK))
        tap_bail("a queue that cannot be waited for");
}

void *op_memory(size_t bytes)
{
    lf_cu_ptr p;
    if (!device)
        open_device();
    return device->cu.MemAllocManaged(&p, bytes ? bytes : 1, LF_CU_MEM_ATTACH_GLOBAL)
               ? NULL
               : (void *)(uintptr_t)p;
}

void op_memory_free(void *p)
{
    if (p)
        device->cu.MemFree((lf_cu_ptr)(uintptr_t)p);
}
