/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading the CUDA driver.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/driver.h"
#include "kernels/kernels.h"

static int missing(struct lf_cu *cu, const char *name, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "the CUDA driver has no %s (CUDA 12 or later is needed)", name);
    lf_cu_unload(cu);
    return LF_K_EDEVICE;
}

int lf_cu_load(struct lf_cu *out, char *why, size_t why_bytes)
{
    const char *file = getenv("LF_CUDA_DRIVER");
    const bool named = file && file[0];
    /* The installed one is not unloaded: it may have started threads, and other libraries hold it
     * too. */
    struct lf_cu cu = {.library = dlopen(named ? file : "libcuda.so.1",
                                         RTLD_NOW | RTLD_LOCAL | (named ? 0 : RTLD_NODELETE))};
    if (!cu.library) {
        snprintf(why, why_bytes, "no CUDA driver: %s", dlerror());
        return LF_K_EDEVICE;
    }
    void *f;
#define FIND(member, name, args)                                                                   \
    f = dlsym(cu.library, #name);                                                                  \
    if (!f)                                                                                        \
        return missing(&cu, #name, why, why_bytes);                                                \
    memcpy(&cu.member, &f, sizeof f); /* the way POSIX means it */
    LF_CU_LIST(FIND)
#undef FIND
    int rc = cu.Init(0);
    if (rc != 0) {
        const char *name = NULL;
        cu.GetErrorName(rc, &name);
        snprintf(why, why_bytes, "the CUDA driver does not start: %s",
                 name ? name : "unknown error");
        lf_cu_unload(&cu);
        return LF_K_EDEVICE;
    }
    /* A driver may bring the GPU code itself: the emulator does. */
    const struct lf_cu_image *(*images)(size_t * n) = lf_cu_images;
    if ((f = dlsym(cu.library, "lf_emu_images")))
        memcpy(&images, &f, sizeof f);
    cu.images = images(&cu.n_images);
    *out = cu;
    return LF_K_OK;
}

void lf_cu_unload(struct lf_cu *cu)
{
    if (cu->library)
        dlclose(cu->library);
    *cu = (struct lf_cu){0};
}
