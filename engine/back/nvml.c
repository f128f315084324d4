/* SPDX-License-Identifier: Apache-2.0
 *
 * See nvml.h.
 */
#include "engine/back/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"

typedef struct nvmlDevice_st *device; /* nvmlDevice_t; every call returns 0 on success */
struct utilization {                  /* nvmlUtilization_t, in per cent */
    unsigned gpu, memory;
};
struct memory { /* nvmlMemory_t, in bytes */
    unsigned long long total, free, used;
};

struct lf_nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *uuid, device *out);
    int (*utilization)(device d, struct utilization *out);
    int (*memory)(device d, struct memory *out);
    int (*power)(device d, unsigned *milliwatts);
    bool up;
    device device;
    double interval_s, last;
};

static bool find_symbols(struct lf_nvml *n)
{
    const struct {
        const char *name;
        void *slot;
    } need[] = {{"nvmlInit_v2", &n->init},
                {"nvmlShutdown", &n->shutdown},
                {"nvmlDeviceGetHandleByUUID", &n->by_uuid},
                {"nvmlDeviceGetUtilizationRates", &n->utilization},
                {"nvmlDeviceGetMemoryInfo", &n->memory},
                {"nvmlDeviceGetPowerUsage", &n->power}};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        void *f = dlsym(n->library, need[i].name);
        if (!f)
            return false;
        memcpy(need[i].slot, &f, sizeof f); /* the way POSIX means it */
    }
    return true;
}

/* A part of a GPU has a name of another kind. */
static bool find_device(struct lf_nvml *n, const char *uuid)
{
    static const char *const kinds[] = {"GPU-", "MIG-"};
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", kinds[i], uuid);
        if (n->by_uuid(name, &n->device) == 0)
            return true;
    }
    return false;
}

lf_nvml *lf_nvml_open(const lf_back *b, double interval_s)
{
    if (!b->uuid || interval_s <= 0)
        return NULL;
    lf_nvml *n = lf_calloc(1, sizeof *n, NULL);
    if (!n)
        return NULL;
    n->interval_s = interval_s;
    n->last = -INFINITY;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->library && find_symbols(n))
        n->up = n->init() == 0;
    if (n->up && find_device(n, b->uuid))
        return n;
    lf_nvml_close(n);
    return NULL;
}

bool lf_nvml_sample(lf_nvml *n, struct lf_gpu_use *out)
{
    struct utilization u;
    struct memory m;
    unsigned mw = 0;
    const double now = lf_now_s();
    if (!n || now - n->last < n->interval_s)
        return false;
    n->last = now;
    out->util = n->utilization(n->device, &u) == 0 ? u.gpu / 100.0 : (double)NAN;
    out->memory = n->memory(n->device, &m) == 0 ? (double)m.used : (double)NAN;
    out->power_w = n->power(n->device, &mw) == 0 ? mw / 1000.0 : (double)NAN;
    return true;
}

void lf_nvml_close(lf_nvml *n)
{
    if (!n)
        return;
    if (n->up)
        n->shutdown();
    if (n->library)
        dlclose(n->library);
    free(n);
}
