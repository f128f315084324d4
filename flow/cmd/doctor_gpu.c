/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: the GPUs of this machine. The command links nothing that computes, so it asks the driver
 * itself, for the few things it tells (CUDA Driver API).
 */
#include "config.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "flow/cmd/doctor.h"

enum { CC_MAJOR = 75, CC_MINOR = 76 }; /* CUdevice_attribute */

#ifdef HAVE_NVCC
static const char code[] = "this build carries GPU code";
#else
static const char code[] = "this build carries no GPU code (configure --with-cuda)";
#endif

struct driver {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*count)(int *);
    int (*get)(int *, int);
    int (*name)(char *, int, int);
    int (*attribute)(int *, int, int);
    int (*memory)(size_t *, int);
};

static bool find(struct driver *d, void *lib)
{
    const struct {
        const char *name;
        void *slot;
    } need[] = {{"cuInit", &d->init},
                {"cuDriverGetVersion", &d->version},
                {"cuDeviceGetCount", &d->count},
                {"cuDeviceGet", &d->get},
                {"cuDeviceGetName", &d->name},
                {"cuDeviceGetAttribute", &d->attribute},
                {"cuDeviceTotalMem_v2", &d->memory}};
    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++) {
        void *f = dlsym(lib, need[i].name);
        if (!f)
            return false;
        memcpy(need[i].slot, &f, sizeof f); /* the way POSIX means it */
    }
    return true;
}

static void tell_gpu(lf_doctor *d, const struct driver *c, int i)
{
    char name[64] = "";
    int dev = 0, major = 0, minor = 0;
    size_t bytes = 0;
    if (c->get(&dev, i) || c->name(name, sizeof name, dev) || c->attribute(&major, CC_MAJOR, dev) ||
        c->attribute(&minor, CC_MINOR, dev) || c->memory(&bytes, dev))
        return lf_doctor_add(d, "warn", "gpu", "see nvidia-smi", "GPU %d does not say what it is",
                             i);
    lf_doctor_add(d, major < 8 ? "warn" : "ok", "gpu",
                  major < 8 ? "it will not be used: 8.0 or later is needed" : NULL,
                  "GPU %d: %s, compute capability %d.%d, %.0f GiB", i, name, major, minor,
                  (double)bytes / (1 << 30));
}

static void *open_driver(void)
{
    const char *file = getenv("LF_CUDA_DRIVER");
    return dlopen(file && file[0] ? file : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

int lf_doctor_gpu_count(void)
{
    struct driver c;
    int n = -1;
    void *lib = open_driver();
    if (!lib || !find(&c, lib) || c.init(0) || c.count(&n))
        n = -1;
    if (lib)
        dlclose(lib);
    return n;
}

void lf_doctor_gpus(lf_doctor *d)
{
    struct driver c;
    int version = 0, n = 0, rc;
    void *lib = open_driver();
    if (!lib)
        return lf_doctor_add(d, "ok", "gpu", NULL,
                             "no CUDA driver here: stages compute on the CPU; %s", code);
    if (!find(&c, lib)) {
        lf_doctor_add(d, "warn", "gpu", "CUDA 12 or later is needed",
                      "the CUDA driver lacks functions");
    } else if ((rc = c.init(0)) || (rc = c.version(&version)) || (rc = c.count(&n))) {
        lf_doctor_add(d, "warn", "gpu", "see nvidia-smi",
                      "the CUDA driver does not start (error %d)", rc);
    } else {
        lf_doctor_add(d, "ok", "gpu", NULL, "CUDA driver %d.%d shows %d GPU%s; %s", version / 1000,
                      version % 1000 / 10, n, n == 1 ? "" : "s", code);
        for (int i = 0; i < n; i++)
            tell_gpu(d, &c, i);
    }
    dlclose(lib);
}
