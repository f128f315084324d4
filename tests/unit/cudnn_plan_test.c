/* SPDX-License-Identifier: Apache-2.0
 *
 * What the real cuDNN says to the graphs that attn_cudnn_graph.c builds, without a GPU: the
 * properties of an H200, a B200 and an A100 stand in for a handle. It checks the graphs, offers
 * engines, and compiles their kernels; only loading them needs a driver, and that failure is taken
 * for success here. Skipped where the library, or any libcuda (a toolkit has a stub), is not found.
 * LF_CUDNN and LF_CUDA_STUB name files.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attn_cudnn.h"
#include "tests/tap/tap.h"

enum { NO_DRIVER = 5001, CONFIG_WORKSPACE = 303 };

static struct lf_dnn library, without_driver;
static void *last_config;
static bool unloaded; /* the last plan was compiled, and not loaded */

static int set(void *d, int name, int type, int64_t n, const void *value)
{
    if (name == LF_DNN_PLAN_CONFIG)
        memcpy(&last_config, value, sizeof last_config);
    return library.BackendSetAttribute(d, name, type, n, value);
}
static int finalize(void *d)
{
    const int rc = library.BackendFinalize(d);
    unloaded = rc == NO_DRIVER;
    return unloaded ? 0 : rc;
}
static int get(void *d, int name, int type, int64_t most, int64_t *n, void *value)
{
    return name == LF_DNN_PLAN_WORKSPACE && unloaded
               ? library.BackendGetAttribute(last_config, CONFIG_WORKSPACE, type, most, n, value)
               : library.BackendGetAttribute(d, name, type, most, n, value);
}

static void *open_first(const char *const *file, int n)
{
    for (int i = 0; i < n; i++) {
        void *l = file[i] && file[i][0] ? dlopen(file[i], RTLD_NOW | RTLD_GLOBAL) : NULL;
        if (l)
            return l;
    }
    return NULL;
}

/* The library itself looks for libcuda.so.1 by that name, which a stub has too. */
static void open_all(void)
{
    const char *const driver[] = {"libcuda.so.1", getenv("LF_CUDA_STUB"),
                                  "/usr/local/cuda/lib64/stubs/libcuda.so"};
    const char *const place[] = {getenv("LF_CUDNN"), "libcudnn.so.9",
                                 "/usr/local/cuda/lib64/libcudnn.so.9"};
    char why[300];
    bool found = false;
#ifdef LF_SANITIZERS
    tap_skip_all("sanitizers do not know what that library keeps");
#endif
    if (!open_first(driver, 3))
        tap_skip_all("no libcuda.so.1, nor a stub of it");
    for (int i = 0; i < 3 && !found; i++)
        if (place[i] && place[i][0]) {
            setenv("LF_CUDNN", place[i], 1);
            found = lf_cudnn_load(&library, why, sizeof why);
        }
    if (!found)
        tap_skip_all("no cuDNN");
    if (library.GetVersion() < LF_DNN_OLDEST)
        tap_skip_all("a cuDNN that is too old");
    without_driver = library;
    without_driver.BackendSetAttribute = set;
    without_driver.BackendFinalize = finalize;
    without_driver.BackendGetAttribute = get;
}

static void *device(int cc, const char *name, int sms, int smem)
{
    char json[1200];
    void *d = NULL;
    const int n =
        snprintf(json, sizeof json,
                 "{\"deviceName\": \"%s\", \"deviceVer\": %d, \"driverVer\": 13000, "
                 "\"multiProcessorCount\": %d, "
                 "\"maxSharedMemoryPerBlockOptin\": %d, \"totalGlobalMem\": 80000000000, "
                 "\"cudaDeviceId\": 0, "
                 "\"regsPerBlock\": 65536, \"smClockRateKHz\": 1700000, \"memClockRateKHz\": "
                 "3000000, \"l2CacheSize\": 52428800, "
                 "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
                 "\"reservedSharedMemoryPerBlock\": 1024, "
                 "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32, "
                 "\"maxThreadsPerBlock\": 1024, "
                 "\"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, "
                 "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64]}",
                 name, cc, sms, smem);
    const bool ok = !library.BackendCreateDescriptor(LF_DNN_DEVICE, &d) &&
                    !library.BackendSetAttribute(d, LF_DNN_DEVICE_JSON, LF_DNN_T_CHAR, n, json) &&
                    !library.BackendFinalize(d);
    tap_ok(ok, "properties of %s are taken", name);
    return ok ? d : NULL;
}

struct row {
    int64_t docs, longest, rows, heads, groups, d, window;
    uint8_t type;
    bool backward;
};
static const struct row table[] = {
    {8, 2048, 16384, 12, 2, 128, 0, LF_BF16, false},   {16, 1000, 8000, 8, 8, 64, 0, LF_F16, false},
    {8, 2048, 16384, 12, 2, 128, 256, LF_BF16, false}, {37, 80, 1500, 6, 2, 72, 0, LF_BF16, false},
    {8, 2048, 16384, 12, 2, 128, 0, LF_BF16, true},    {16, 1000, 8000, 8, 8, 64, 0, LF_F16, true},
    {8, 2048, 16384, 12, 2, 128, 256, LF_BF16, true},  {37, 80, 1500, 6, 2, 72, 0, LF_BF16, true},
};

static bool shape_of(const struct row *r, struct lf_dnn_shape *s)
{
    float lse;
    const int64_t hd = r->heads * r->d, ld = hd + 2 * r->groups * r->d;
    const struct lf_k_attn_fwd f = {.rows = r->rows,
                                    .heads = r->heads,
                                    .groups = r->groups,
                                    .d = r->d,
                                    .d_value = r->d,
                                    .n_docs = r->docs,
                                    .max_doc = r->longest,
                                    .lse = &lse,
                                    .ldq = ld,
                                    .ldk = ld,
                                    .ldv = ld,
                                    .ldo = hd,
                                    .window = (int32_t)r->window,
                                    .causal = true,
                                    .x_type = r->type};
    const struct lf_k_attn_bwd b = {.rows = r->rows,
                                    .heads = r->heads,
                                    .groups = r->groups,
                                    .d = r->d,
                                    .d_value = r->d,
                                    .n_docs = r->docs,
                                    .max_doc = r->longest,
                                    .ldq = ld,
                                    .ldk = ld,
                                    .ldv = ld,
                                    .ldo = hd,
                                    .lddo = hd,
                                    .lddq = ld,
                                    .lddk = ld,
                                    .lddv = ld,
                                    .window = (int32_t)r->window,
                                    .causal = true,
                                    .x_type = r->type};
    return r->backward ? lf_cudnn_fits_bwd(&b, s) : lf_cudnn_fits_fwd(&f, s);
}

/* needed: that there is a plan. Others are told. */
static void ask(void *on, const char *name, const struct row *r, bool needed)
{
    struct lf_dnn_shape s;
    struct lf_dnn_plan p;
    char what[200];
    const bool fits = shape_of(r, &s);
    lf_dnn_plan_make(&without_driver, NULL, on, &s, lf_dnn_plan_bytes(&s), &p);
    snprintf(what, sizeof what, "%s, %s, %lld documents of %lld, H %lld G %lld D %lld, window %lld",
             name, r->backward ? "backward" : "forward", (long long)r->docs, (long long)r->longest,
             (long long)r->heads, (long long)r->groups, (long long)r->d, (long long)r->window);
    if (needed)
        tap_ok(fits && p.plan, "%s: a plan with %lld of %zu bytes of workspace", what,
               (long long)p.work, lf_dnn_plan_bytes(&s));
    else
        tap_diag("%s: %s", what, p.plan ? "a plan" : "none");
    lf_dnn_plan_free(&without_driver, &p);
}

/* A graph that is no attention gets no plan: what is asked above can fail. */
static void ask_nonsense(void *on)
{
    struct lf_dnn_shape s;
    struct lf_dnn_plan p;
    shape_of(&table[0], &s);
    s.groups = 5; /* does not divide the heads */
    lf_dnn_plan_make(&without_driver, NULL, on, &s, lf_dnn_plan_bytes(&s), &p);
    tap_ok(!p.plan, "a graph that does not fit together has no plan");
    lf_dnn_plan_free(&without_driver, &p);
    shape_of(&table[4], &s);
    lf_dnn_plan_make(&without_driver, NULL, on, &s, 1 << 20, &p);
    tap_ok(!p.plan, "nor has one that needs more workspace than it is given");
    lf_dnn_plan_free(&without_driver, &p);
}

int main(void)
{
    open_all();
    tap_diag("cuDNN %zu", library.GetVersion());
    void *h200 = device(900, "NVIDIA H200", 132, 232448),
         *b200 = device(1000, "NVIDIA B200", 148, 232448),
         *a100 = device(800, "NVIDIA A100", 108, 166912);
    for (size_t i = 0; h200 && i < sizeof table / sizeof *table; i++)
        TAP(1, ask(h200, "H200", &table[i], true));
    for (size_t i = 0; b200 && a100 && i < sizeof table / sizeof *table;
         i += 4) { /* one forward, one backward */
        TAP(!table[i].backward, ask(b200, "B200", &table[i], !table[i].backward));
        TAP(!table[i].backward, ask(a100, "A100", &table[i], !table[i].backward));
    }
    if (h200)
        TAP(2, ask_nonsense(h200));
    return tap_done();
}
