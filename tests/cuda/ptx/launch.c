/* SPDX-License-Identifier: Apache-2.0
 *
 * What the emulated driver asks: PTX in place of the C function of a kernel.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/ptx.h"

bool lf_ptx_launch(const char *file, const char *name, size_t bytes, const void *args,
                   struct lf_emu_uint3 grid, struct lf_emu_uint3 block, size_t smem)
{
    const char *dir = getenv("LF_EMU_PTX"), *order = getenv("LF_EMU_ORDER");
    char path[4096];
    if (!dir || !dir[0])
        return false;
    snprintf(path, sizeof path, "%s/%s.ptx", dir, file);
    lf_ptx_run(lf_ptx_kernel(path, name, bytes), args, grid, block, smem,
               order ? (int)strtol(order, NULL, 10) : 0);
    return true;
}

/* LF_EMU_PTX_COUNT=FILE: lane instructions, when the process ends. */
__attribute__((destructor)) static void leave(void)
{
    const char *path = getenv("LF_EMU_PTX_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%llu\n", (unsigned long long)lf_ptx_count());
        fclose(f);
    }
    lf_ptx_close();
}
