/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of the CUDA backend: events in the stream, and what the device could do at most.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/back/cuda_priv.h"
#include "engine/base/mem.h"

#define B(b) ((struct lf_back_cuda *)(b))

int lf_cuda_stamp(lf_back *base, size_t i, lf_err *err)
{
    struct lf_back_cuda *b = B(base);
    const struct lf_cu *cu = &b->dev->cu;
    while (b->n_stamps <= i) {
        int rc = lf_grow(&b->stamp, &b->cap_stamps, b->n_stamps, sizeof *b->stamp, err);
        if (rc == 0)
            rc = lf_cuda_check(b, cu->EventCreate(&b->stamp[b->n_stamps], 0), "an event", err);
        if (rc != 0)
            return rc;
        b->n_stamps++;
    }
    return lf_cuda_check(b, cu->EventRecord(b->stamp[i], base->queue->stream), "recording an event",
                         err);
}

int lf_cuda_stamps(lf_back *base, double *seconds, size_t n, lf_err *err)
{
    struct lf_back_cuda *b = B(base);
    const struct lf_cu *cu = &b->dev->cu;
    float ms = 0;
    int rc = lf_cuda_check(b, cu->EventSynchronize(b->stamp[n - 1]), "waiting for the GPU", err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = lf_cuda_check(b, cu->EventElapsedTime(&ms, b->stamp[0], b->stamp[i]),
                           "the time between events", err);
        seconds[i] = (double)ms * 1e-3;
    }
    return rc;
}

void lf_cuda_stamps_destroy(struct lf_back_cuda *b)
{
    for (size_t i = 0; i < b->n_stamps; i++)
        b->dev->cu.EventDestroy(b->stamp[i]);
    free(b->stamp);
}

/* Dense bf16 products as the data sheets give them: at the clock that the power limit allows, which
 * no attribute tells. */
static const struct sheet {
    const char *name;
    double bf16;
} sheets[] = {{"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989e12},  {"H200 NVL", 835e12},
              {"H200", 989e12},      {"GH200", 989e12},    {"H800", 989e12},  {"H20", 148e12},
              {"A100", 312e12},      {"A800", 312e12},     {"B200", 2250e12}, {"B100", 1750e12}};

/* bytes/s of copies within the device, each byte read and written: the best of a few of 256 MiB. */
static int copy_rate(struct lf_back_cuda *b, double *out, lf_err *err)
{
    const size_t bytes = (size_t)128 << 20;
    const struct lf_cu *cu = &b->dev->cu;
    const lf_cu_stream s = b->base.queue->stream;
    lf_cu_ptr p = 0;
    double best = 0, at[2] = {0};
    int rc = lf_cuda_check(b, cu->MemAlloc(&p, 2 * bytes), "memory to measure its speed", err);
    for (int i = 0; i < 4 && rc == 0; i++) {
        rc = lf_cuda_stamp(&b->base, 0, err);
        if (rc == 0)
            rc = lf_cuda_check(b, cu->MemcpyDtoDAsync(p + bytes, p, bytes, s), "a copy", err);
        if (rc == 0)
            rc = lf_cuda_stamp(&b->base, 1, err);
        if (rc == 0)
            rc = lf_cuda_stamps(&b->base, at, 2, err);
        if (rc == 0 && at[1] > 0 && 2.0 * (double)bytes / at[1] > best)
            best = 2.0 * (double)bytes / at[1];
    }
    if (p)
        cu->MemFree(p);
    *out = best;
    return rc;
}

int lf_cuda_probe(lf_back *base, unsigned what, struct lf_back_peak *out, lf_err *err)
{
    struct lf_back_cuda *b = B(base);
    struct lf_back_peak p = {0};
    int khz = 0;
    int rc =
        lf_cuda_check(b, b->dev->cu.DeviceGetAttribute(&khz, LF_CU_ATTR_CLOCK_KHZ, b->dev->dev),
                      "its clock", err);
    if (rc == 0 && (what & LF_PEAK_MEMORY))
        rc = copy_rate(b, &p.bytes_per_s, err);
    if (rc != 0)
        return rc;
    /* FLOP of a multiprocessor in a cycle: 64 or 128 lanes of f32; dense bf16 of the tensor
     * cores. */
    const int sm = b->dev->sm;
    const double cycles = (double)khz * 1e3 * (double)b->dev->n_sm;
    p.f32_flops = cycles * (sm == 80 ? 128 : 256);
    p.bf16_flops = cycles * (sm >= 100 && sm < 120 ? 8192
                             : sm == 90            ? 4096
                             : sm == 80            ? 2048
                                                   : 1024);
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++)
        if (strstr(b->dev->name, sheets[i].name)) {
            p.bf16_flops = sheets[i].bf16;
            break;
        }
    *out = p;
    return 0;
}
