/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage asks for, in one line.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>

#include "flow/plan/pipeline.h"

static void item(lf_buf *out, const char *text)
{
    lf_buf_addf(out, "%s%s", out->len > 0 ? ", " : "", text);
}

void lf_resources_line(lf_buf *out, const lf_doc_stage *stage)
{
    const lf_resources *r = &stage->resources;
    const struct {
        const char *word, *value;
    } words[] = {
        {"partition", r->partition},   {"account", r->account},         {"qos", r->qos},
        {"constraint", r->constraint}, {"reservation", r->reservation}, {"chain", r->chain},
        {"launcher", r->launcher}};
    char text[256], b[64];
    if (r->nodes.v > 0)
        snprintf(text, sizeof text, "%lld node%s", (long long)r->nodes.v,
                 r->nodes.v == 1 ? "" : "s"),
            item(out, text);
    if (r->ranks.v > 0)
        snprintf(text, sizeof text, "%lld ranks per node", (long long)r->ranks.v), item(out, text);
    if (r->cpus.v > 0)
        snprintf(text, sizeof text, "%lld cpus per rank", (long long)r->cpus.v), item(out, text);
    if (r->gpus.n.v > 0) {
        const char *type = r->gpus.type;
        snprintf(text, sizeof text, "%lld gpus%s%s per node", (long long)r->gpus.n.v,
                 type != NULL ? " " : "", type != NULL ? type : "");
        item(out, text);
    }
    if (r->gpu_memory.v > 0)
        snprintf(text, sizeof text, "%s per gpu",
                 lf_fmt_bytes(b, sizeof b, (double)r->gpu_memory.v)),
            item(out, text);
    if (stage->memory_bytes.given) {
        snprintf(text, sizeof text, "%s per node",
                 lf_fmt_bytes(b, sizeof b, (double)stage->memory_bytes.v));
        item(out, text);
    }
    if (stage->time_limit_s.given) {
        snprintf(text, sizeof text, "%s per job",
                 lf_fmt_duration(b, sizeof b, (double)stage->time_limit_s.v));
        item(out, text);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].value != NULL) {
            snprintf(text, sizeof text, "%s %.200s", words[i].word, words[i].value);
            item(out, text);
        }
    if (r->exclusive.v)
        item(out, "exclusive");
}
