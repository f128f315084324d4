/* SPDX-License-Identifier: Apache-2.0
 *
 * quantization_config: how the weights of a release are quantised. */
#include <stdio.h>
#include <string.h>

#include "engine/convert/hf.h"

static int bad(const char *path, const char *why, lf_err *err)
{
    return lf_fail(err, LF_ENOTSUP,
                   "%s: " LF_HF_QUANT ": %s; read are weights of method mxfp4, and of method fp8, "
                   "fmt e4m3, with a weight_block_size, which may be null. Take the release of "
                   "this model in bf16",
                   path, why);
}

int lf_hf_quant_read(struct lf_hf_quant *out, json_t *config, const char *path, lf_err *err)
{
    json_t *q = json_object_get(config, LF_HF_QUANT),
           *size = json_object_get(q, "weight_block_size");
    const char *method = json_string_value(json_object_get(q, "quant_method")),
               *fmt = json_string_value(json_object_get(q, "fmt"));
    char text[96];
    *out = (struct lf_hf_quant){0};
    if (!q || json_is_null(q))
        return 0;
    if (method && strcmp(method, "mxfp4") == 0) {
        out->mxfp4 = true;
        return 0;
    }
    if (!method || strcmp(method, "fp8") != 0) {
        snprintf(text, sizeof text, "quant_method = %.40s", method ? method : "(none)");
        return bad(path, text, err);
    }
    if (fmt && strcmp(fmt, "e4m3") != 0) {
        snprintf(text, sizeof text, "fmt = %.40s", fmt);
        return bad(path, text, err);
    }
    if (json_is_null(size) && size) { /* one scale for each weight */
        *out = (struct lf_hf_quant){.rows = LF_ST_WHOLE, .cols = LF_ST_WHOLE};
        return 0;
    }
    const json_int_t rows = json_integer_value(json_array_get(size, 0)),
                     cols = json_integer_value(json_array_get(size, 1));
    if (json_array_size(size) != 2 || rows < 1 || cols < 1 || rows > 1 << 20 || cols > 1 << 20)
        return bad(path, "weight_block_size is no pair of numbers", err);
    *out = (struct lf_hf_quant){.rows = rows, .cols = cols};
    return 0;
}
