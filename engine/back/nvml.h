/* SPDX-License-Identifier: Apache-2.0
 *
 * How busy a GPU is, by NVIDIA's management library. libnvidia-ml.so.1 comes with the driver and is
 * loaded at run time; our own declarations restate the part of its binary interface that is used
 * (NVML, nvml.h, stable since CUDA 8). Where the library or the device is missing there are no
 * numbers, and nothing else changes.
 */
#ifndef LF_BACK_NVML_H
#define LF_BACK_NVML_H

#include <stdbool.h>

#include "engine/back/back.h"

/* NaN: the device does not tell. */
struct lf_gpu_use {
    double util;    /* share of the last second, or less, in which some kernel ran; 0 to 1 */
    double memory;  /* bytes in use, also of other processes */
    double power_w; /* watts of the whole board */
};

typedef struct lf_nvml lf_nvml;
/* Opens the device of b, which is found by its UUID. interval_s: time between two samples; <= 0:
 * none. NULL: none are wanted, or there is no GPU, no library or no such device. The caller owns
 * the object. */
lf_nvml *lf_nvml_open(const lf_back *b, double interval_s);
/* Takes a sample into *out when the last one is old enough; then true. It takes about a
 * millisecond, so call it outside of what is timed. n may be NULL, here and below. */
bool lf_nvml_sample(lf_nvml *n, struct lf_gpu_use *out);
void lf_nvml_close(lf_nvml *n);

#endif
