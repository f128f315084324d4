/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage asks for, in one line.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>

#include "flow/plan/pipeline.h"

static int64_t number(const json_t *o, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(o, key));
}

static void item(lf_buf *out, const char *text)
{
    lf_buf_addf(out, "%s%s", out->len > 0 ? ", " : "", text);
}

void lf_resources_line(lf_buf *out, const json_t *stage)
{
    static const char *const words[] = {"partition",   "account", "qos",     "constraint",
                                        "reservation", "chain",   "launcher"};
    const json_t *r = json_object_get(stage, "resources"), *gpus = json_object_get(r, "gpus");
    char text[256], b[64];
    if (number(r, "nodes") > 0)
        snprintf(text, sizeof text, "%lld node%s", (long long)number(r, "nodes"),
                 number(r, "nodes") == 1 ? "" : "s"),
            item(out, text);
    if (number(r, "ranks") > 0)
        snprintf(text, sizeof text, "%lld ranks per node", (long long)number(r, "ranks")),
            item(out, text);
    if (number(r, "cpus") > 0)
        snprintf(text, sizeof text, "%lld cpus per rank", (long long)number(r, "cpus")),
            item(out, text);
    if (number(gpus, "n") > 0) {
        const char *type = json_string_value(json_object_get(gpus, "type"));
        snprintf(text, sizeof text, "%lld gpus%s%s per node", (long long)number(gpus, "n"),
                 type != NULL ? " " : "", type != NULL ? type : "");
        item(out, text);
    }
    if (number(r, "gpu_memory") > 0)
        snprintf(text, sizeof text, "%s per gpu",
                 lf_fmt_bytes(b, sizeof b, (double)number(r, "gpu_memory"))),
            item(out, text);
    if (json_object_get(stage, "memory_bytes") != NULL) {
        snprintf(text, sizeof text, "%s per node",
                 lf_fmt_bytes(b, sizeof b, (double)number(stage, "memory_bytes")));
        item(out, text);
    }
    if (json_object_get(stage, "time_limit_s") != NULL) {
        snprintf(text, sizeof text, "%s per job",
                 lf_fmt_duration(b, sizeof b, (double)number(stage, "time_limit_s")));
        item(out, text);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (json_object_get(r, words[i]) != NULL) {
            snprintf(text, sizeof text, "%s %.200s", words[i],
                     json_string_value(json_object_get(r, words[i])));
            item(out, text);
        }
    if (json_is_true(json_object_get(r, "exclusive")))
        item(out, "exclusive");
}
