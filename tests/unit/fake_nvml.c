/* SPDX-License-Identifier: Apache-2.0
 *
 * A library in the place of libnvidia-ml.so.1. It knows two devices by the UUIDs that the emulated
 * driver gives its GPUs 0 and 1, with numbers of their own. FAKE_NVML = old: it does not start; =
 * silent: it tells the memory alone.
 */
#include <stdlib.h>
#include <string.h>

#define PREFIX "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae"

struct utilization {
    unsigned gpu, memory;
};
struct memory {
    unsigned long long total, free, used;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, const int **d);
int nvmlDeviceGetUtilizationRates(const int *d, struct utilization *out);
int nvmlDeviceGetMemoryInfo(const int *d, struct memory *out);
int nvmlDeviceGetPowerUsage(const int *d, unsigned *milliwatts);

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

static int is(const char *mode)
{
    const char *v = getenv("FAKE_NVML");
    return v && strcmp(v, mode) == 0;
}

int nvmlInit_v2(void)
{
    return is("old") ? DRIVER_NOT_LOADED : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, const int **d)
{
    static const int devices[2] = {0, 1};
    for (int i = 0; i < 2; i++)
        if (strcmp(uuid, i ? PREFIX "01" : PREFIX "00") == 0)
            return *d = &devices[i], 0;
    return NOT_FOUND;
}

int nvmlDeviceGetUtilizationRates(const int *d, struct utilization *out)
{
    *out = (struct utilization){*d ? 11 : 37, 99};
    return is("silent") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetMemoryInfo(const int *d, struct memory *out)
{
    *out = (struct memory){1ULL << 40, 7, *d ? 22 : 123456789};
    return 0;
}

int nvmlDeviceGetPowerUsage(const int *d, unsigned *milliwatts)
{
    *milliwatts = *d ? 33 : 250500;
    return is("silent") ? NOT_SUPPORTED : 0;
}
