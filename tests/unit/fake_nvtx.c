/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool that NVTX_INJECTION64_PATH names: writes ranges to the file that FAKE_NVTX_LOG names. With
 * HAVE_NVTX3_HEADERS the binary interface is that of NVTX's own header.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef HAVE_NVTX3_HEADERS
#include <nvtx3/nvToolsExt.h>
#else
typedef void (*NvtxFunctionPointer)(void);
typedef NvtxFunctionPointer **NvtxFunctionTable;
typedef struct {
    size_t struct_size;
    int (*GetModuleFunctionTable)(int module, NvtxFunctionTable *out, unsigned *n);
} NvtxExportTableCallbacks;
typedef const void *(*NvtxGetExportTableFunc_t)(uint32_t id);
enum {
    NVTX_ETID_CALLBACKS = 1,
    NVTX_CB_MODULE_CORE = 1,
    NVTX_CBID_CORE_RangePushA = 9,
    NVTX_CBID_CORE_RangePop = 11,
    NVTX_CBID_CORE_SIZE = 16
};
#endif

static void say(const char *what, const char *name)
{
    const char *path = getenv("FAKE_NVTX_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%s %s\n", what, name);
    fclose(f);
}

static int push(const char *name)
{
    say("push", name);
    return 0;
}

static int pop(void)
{
    say("pop", "");
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table)
{
    const NvtxExportTableCallbacks *c = table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable t = NULL;
    unsigned n = 0;
    if (getenv("FAKE_NVTX_REFUSE") || !c || c->struct_size < sizeof *c ||
        !c->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &t, &n) || n < NVTX_CBID_CORE_SIZE)
        return 0;
    *t[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *t[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
