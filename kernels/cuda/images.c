/* SPDX-License-Identifier: Apache-2.0
 *
 * The fat binaries that nvcc made, as bytes of this library. Without nvcc there are none.
 */
#include "config.h"

#include "kernels/cuda/driver.h"
#include "kernels/cuda/fns.h"

#ifdef HAVE_NVCC
#define EMBED(name)                                                                                \
    __asm__(".section .rodata\n.balign 64\n.globl lf_cu_image_" #name "\nlf_cu_image_" #name       \
            ":\n.incbin \"kernels/cuda/" #name ".fatbin\"\n.previous\n");                          \
    extern const unsigned char lf_cu_image_##name[];
LF_CU_FILES(EMBED)

const struct lf_cu_image *lf_cu_images(size_t *n)
{
#define ROW(name) {#name, lf_cu_image_##name},
    static const struct lf_cu_image images[] = {LF_CU_FILES(ROW)};
    *n = sizeof images / sizeof *images;
    return images;
}
#else
const struct lf_cu_image *lf_cu_images(size_t *n)
{
    *n = 0;
    return NULL;
}
#endif
