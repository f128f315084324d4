/* SPDX-License-Identifier: Apache-2.0
 *
 * A release of the golden llama whose matrices are 8-bit floats with a scale for each block, made
 * of any codes and scales. */
#ifndef LF_TESTS_FP8_RELEASE_H
#define LF_TESTS_FP8_RELEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/store/safetensors.h"

enum { ROWS = 6, COLS = 7 }; /* of a block: they divide no side of the model's matrices */

void *need(void *p);
char *join(const char *a, const char *b);
/* What the 8 bits of e4m3 are, by their definition. */
double e4m3(uint8_t b);
uint16_t bf16_of(float x);
int64_t blocks(int64_t n, int64_t of);

/* One tensor of the quantised release. */
struct weight {
    char name[200];
    bool scaled, is_scale;
    enum lf_st_dtype dtype;
    int ndim;
    int64_t shape[2], elems;
    void *data;
};

/* ODD: scales of which two codes have the same value, and codes of NaN. WHOLE, WHOLE_1: each weight
 * has one scale, of no or one dimension, and one of what it multiplies. WHOLE_2: one of two. */
enum fault { NONE, NO_SCALE, SHORT_SCALE, F16_SCALE, MIXED_SCALE, ODD, WHOLE, WHOLE_1, WHOLE_2 };

struct release {
    struct weight w[64];
    size_t n;
};

/* As directory `name`, with this quantization_config and scales of this type. */
char *write_release(struct release *r, const char *name, const char *quant, enum lf_st_dtype scales,
                    enum fault fault);
void drop(struct release *r);
/* Scale of element i of matrix w, which its scales follow. */
float scale_at(const struct weight *w, int64_t i);

#define QUANT_WHOLE                                                                                \
    "{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\", \"weight_block_size\": null}"
#define QUANT                                                                                      \
    "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\", "          \
    "\"weight_block_size\": [6, 7]}"

#endif
