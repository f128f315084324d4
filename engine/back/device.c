/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device a stage runs on.
 */
#include <stdio.h>

#include "engine/back/back.h"
#include "engine/base/machine.h"
#include "kernels/cuda/driver.h"

static void look_at(struct lf_gpus *g, const struct lf_cu *cu)
{
    lf_cu_dev d = 0;
    int n = 0, major = 0, minor = 0;
    if (cu->DriverGetVersion(&g->driver) || cu->DeviceGetCount(&n) || n < 1) {
        snprintf(g->why, sizeof g->why,
                 "the CUDA driver shows no GPU (CUDA_VISIBLE_DEVICES limits them)");
        return;
    }
    if (cu->DeviceGet(&d, 0) || cu->DeviceGetAttribute(&major, LF_CU_ATTR_CC_MAJOR, d) ||
        cu->DeviceGetAttribute(&minor, LF_CU_ATTR_CC_MINOR, d) ||
        cu->DeviceTotalMem(&g->memory, d) || cu->DeviceGetName(g->name, sizeof g->name, d)) {
        snprintf(g->why, sizeof g->why, "the CUDA driver does not describe its first GPU");
        return;
    }
    g->n = n;
    g->sm = 10 * major + minor;
}

void lf_gpus_look(struct lf_gpus *out)
{
    struct lf_cu cu;
    struct lf_gpus g = {0};
    size_t images = 0;
    lf_cu_images(&images);
    g.code = images > 0;
    if (!lf_cu_load(&cu, g.why, sizeof g.why)) {
        g.code = cu.n_images > 0;
        look_at(&g, &cu);
        lf_cu_unload(&cu);
    }
    *out = g;
}

enum lf_device lf_device_choose(enum lf_device wish)
{
    struct lf_gpus g;
    if (wish != LF_DEVICE_AUTO)
        return wish;
    lf_gpus_look(&g);
    return g.n && g.code && g.sm >= 80 ? LF_DEVICE_CUDA : LF_DEVICE_CPU;
}

lf_back *lf_back_create(const struct lf_device_opts *o, lf_err *err)
{
    struct lf_gpus g;
    if (lf_device_choose(o->device) == LF_DEVICE_CPU)
        return lf_back_cpu_create(lf_cpu_isa_detect(), o->threads, err);
    lf_gpus_look(&g);
    if (!g.n) {
        lf_fail(err, LF_EDEVICE, "device = cuda: %s", g.why);
        return NULL;
    }
    const struct lf_cuda_opts c = {
        .ordinal = o->local_rank % g.n, .rank = o->rank, .threads = o->threads};
    lf_back *b = lf_back_cuda_create(&c, err);
    if (b)
        lf_machine_note_gpu(b->device);
    return b;
}

void lf_back_set_border(lf_back *b, void (*border)(void *arg), void *arg)
{
    b->border = border;
    b->border_arg = arg;
    if (b->ops->set_border)
        b->ops->set_border(b);
}

void lf_back_destroy(lf_back *b)
{
    if (b)
        b->ops->destroy(b);
}
