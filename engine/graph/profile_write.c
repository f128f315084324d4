/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling: a profile as JSON, as a table and as a trace.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "engine/graph/profile_priv.h"

static const char *const lanes[LF_LANE_COUNT] = {"steps", "segments",    "nodes",
                                                 "data",  "checkpoints", "communication"};

/* What nodes of one op, or of one layer of one graph, sum up to. */
struct row {
    const struct lf_prof_node *of; /* the first of them */
    int64_t calls;
    double seconds, flops, bytes, least; /* least: seconds at the roofline */
};

static double least_seconds(const lf_profile *p, const struct lf_prof_node *n)
{
    const double peak = n->bf16 ? p->peak.bf16_flops : p->peak.f32_flops;
    const double compute = peak > 0 ? n->flops / peak : 0,
                 memory = p->peak.bytes_per_s > 0 ? n->bytes / p->peak.bytes_per_s : 0;
    return compute > memory ? compute : memory;
}

static bool same_op(const struct lf_prof_node *a, const struct lf_prof_node *b)
{
    return strcmp(a->op, b->op) == 0 && a->again == b->again;
}

static bool same_layer(const struct lf_prof_node *a, const struct lf_prof_node *b)
{
    return a->graph == b->graph && a->layer == b->layer;
}

static int slowest_first(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* Rows of everything that ran, grouped by `same`; owned. */
static int gather(const lf_profile *p,
                  bool (*same)(const struct lf_prof_node *, const struct lf_prof_node *),
                  struct row **out, size_t *n_out, lf_err *err)
{
    struct row *row = NULL;
    size_t n = 0, cap = 0;
    for (size_t g = 0; g < p->n_graphs; g++)
        for (size_t i = 0; i < p->graph[g]->n; i++) {
            const struct lf_prof_node *v = &p->graph[g]->node[i];
            size_t k = 0;
            if (!v->calls)
                continue;
            while (k < n && !same(row[k].of, v))
                k++;
            if (k == n) {
                if (lf_grow(&row, &cap, n, sizeof *row, err)) {
                    free(row);
                    return LF_ENOMEM;
                }
                row[n++] = (struct row){.of = v};
            }
            row[k].calls += v->calls;
            row[k].seconds += v->seconds;
            row[k].flops += v->flops * (double)v->calls;
            row[k].bytes += v->bytes * (double)v->calls;
            row[k].least += least_seconds(p, v) * (double)v->calls;
        }
    if (n)
        qsort(row, n, sizeof *row, slowest_first);
    *out = row;
    *n_out = n;
    return 0;
}

/* ---- JSON ---- */

static double share_of(const struct row *r)
{
    return r->seconds > 0 ? r->least / r->seconds : 0;
}

static json_t *rows_json(const lf_profile *p, bool layers, lf_err *err)
{
    struct row *row = NULL;
    size_t n = 0;
    json_t *a = json_array();
    if (!a || gather(p, layers ? same_layer : same_op, &row, &n, err)) {
        json_decref(a);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const struct row *r = &row[i];
        json_t *o = layers ? json_pack("{s:s,s:i}", "graph", p->graph[r->of->graph]->name, "layer",
                                       (int)r->of->layer)
                           : json_pack("{s:s,s:b}", "op", r->of->op, "again", r->of->again);
        json_t *sums = json_pack("{s:I,s:f,s:f,s:f}", "calls", (json_int_t)r->calls, "seconds",
                                 r->seconds, "flops", r->flops, "bytes", r->bytes);
        if (p->has_peak && sums)
            json_object_set_new(sums, "share", json_real(share_of(r)));
        json_object_update(o, sums);
        json_decref(sums);
        json_array_append_new(a, o);
    }
    free(row);
    return a;
}

static json_t *segments_json(const lf_profile *p)
{
    static const char *const kind[2] = {"forward", "backward"};
    json_t *a = json_array();
    for (size_t g = 0; g < p->n_graphs; g++)
        for (int s = 0; s < 2; s++) {
            const struct lf_prof_segment *v = &p->graph[g]->seg[s];
            if (v->runs)
                json_array_append_new(a, json_pack("{s:s,s:s,s:I,s:f,s:f,s:f,s:f}", "graph",
                                                   p->graph[g]->name, "segment", kind[s], "runs",
                                                   (json_int_t)v->runs, "seconds", v->seconds,
                                                   "kernel_seconds", v->kernels, "flops", v->flops,
                                                   "bytes", v->bytes));
        }
    return a;
}

static json_t *phases_json(const lf_profile *p)
{
    json_t *a = json_array();
    for (size_t i = 0; i < p->n_phases; i++) {
        const struct lf_prof_phase *f = &p->phase[i];
        json_array_append_new(a, json_pack("{s:s,s:s,s:I,s:f,s:f,s:f}", "lane", lanes[f->lane],
                                           "name", f->name, "count", (json_int_t)f->count,
                                           "seconds", f->seconds, "longest", f->longest,
                                           "kernel_seconds", f->kernels));
    }
    return a;
}

static struct lf_prof_segment all_segments(const lf_profile *p)
{
    struct lf_prof_segment t = {0};
    for (size_t g = 0; g < p->n_graphs; g++)
        for (int s = 0; s < 2; s++) {
            const struct lf_prof_segment *v = &p->graph[g]->seg[s];
            t.seconds += v->seconds;
            t.kernels += v->kernels;
            t.flops += v->flops;
            t.bytes += v->bytes;
            t.runs += v->runs;
        }
    return t;
}

static json_int_t dropped(const struct lf_prof_ring *r)
{
    return r->n > LF_PROF_RING ? (json_int_t)(r->n - LF_PROF_RING) : 0;
}

json_t *lf_profile_json(const lf_profile *p, lf_err *err)
{
    const struct lf_prof_segment t = all_segments(p);
    json_t *ops = rows_json(p, false, err), *layers = ops ? rows_json(p, true, err) : NULL;
    json_t *roof = p->has_peak
                       ? json_pack("{s:f,s:f,s:f}", "f32_flops", p->peak.f32_flops, "bf16_flops",
                                   p->peak.bf16_flops, "bytes_per_s", p->peak.bytes_per_s)
                       : json_null();
    if (!layers) {
        json_decref(ops);
        json_decref(roof);
        return NULL;
    }
    json_t *j = json_pack(
        "{s:i,s:{s:s,s:i},s:o,s:{s:f,s:f,s:f},s:f,s:f,s:o,s:o,s:o,s:o,s:{s:I,s:I,s:I}}",
        "lf_profile", 1, "device", "kernels", p->device, "threads", p->threads, "roofline", roof,
        "seconds", "wall", lf_now_s() - p->created, "segments", t.seconds, "kernels", t.kernels,
        "flops", t.flops, "bytes", t.bytes, "phases", phases_json(p), "segments", segments_json(p),
        "ops", ops, "layers", layers, "trace", "nodes",
        (json_int_t)(p->nodes.n < LF_PROF_RING ? p->nodes.n : LF_PROF_RING), "nodes_dropped",
        dropped(&p->nodes), "phases_dropped", dropped(&p->phases));
    if (!j)
        lf_fail(err, LF_ENOMEM, "profile: out of memory");
    return j;
}

/* ---- table ---- */

static void line(const lf_profile *p, lf_buf *out, const struct row *r, double total)
{
    const double s = r->seconds > 0 ? r->seconds : 1e-12;
    lf_buf_addf(out, " %9lld %11.3f %5.1f %%", (long long)r->calls, r->seconds * 1e3,
                total > 0 ? 100 * r->seconds / total : 0);
    lf_buf_addf(out, r->flops > 0 ? " %10.1f" : "          -", r->flops / s * 1e-9);
    lf_buf_addf(out, r->bytes > 0 ? " %9.2f" : "         -", r->bytes / s * 1e-9);
    if (p->has_peak && r->least > 0)
        lf_buf_addf(out, " %6.1f %%", 100 * share_of(r));
    lf_buf_addc(out, '\n');
}

static int table(const lf_profile *p, lf_buf *out, bool layers, double total, lf_err *err)
{
    struct row *row = NULL;
    size_t n = 0;
    char name[80];
    int rc = gather(p, layers ? same_layer : same_op, &row, &n, err);
    if (rc != 0)
        return rc;
    lf_buf_addf(out, "%-24s %9s %11s %7s %10s %9s%s\n", layers ? "layer" : "op", "calls", "ms",
                "time", "GFLOP/s", "GB/s", p->has_peak ? " roofline" : "");
    for (size_t i = 0; i < n; i++) {
        const struct lf_prof_node *v = row[i].of;
        if (!layers)
            snprintf(name, sizeof name, "%s%s", v->op, v->again ? " (again)" : "");
        else if (v->layer == LF_PROF_OUTSIDE)
            snprintf(name, sizeof name, "%s, outside", p->graph[v->graph]->name);
        else
            snprintf(name, sizeof name, "%s, layer %d", p->graph[v->graph]->name, v->layer);
        lf_buf_addf(out, "%-24s", name);
        line(p, out, &row[i], total);
    }
    free(row);
    return 0;
}

int lf_profile_text(const lf_profile *p, lf_buf *out, lf_err *err)
{
    const struct lf_prof_segment t = all_segments(p);
    const double wall = lf_now_s() - p->created;
    lf_buf_addf(out, "profile on %s, %d threads", p->device[0] ? p->device : "nothing that ran",
                p->threads);
    if (p->has_peak)
        lf_buf_addf(out, ": peak %.1f GFLOP/s f32, %.1f bf16, %.1f GB/s", p->peak.f32_flops * 1e-9,
                    p->peak.bf16_flops * 1e-9, p->peak.bytes_per_s * 1e-9);
    lf_buf_addf(out, "\nkernels %.3f s of %.3f s in segments of %.3f s in all\n", t.kernels,
                t.seconds, wall);
    for (size_t i = 0; i < p->n_phases; i++) {
        const struct lf_prof_phase *f = &p->phase[i];
        lf_buf_addf(
            out, "%-24s %9lld %11.3f, in the mean %.3f ms, at most %.3f ms, kernels %.1f %%\n",
            f->name, (long long)f->count, f->seconds * 1e3, f->seconds / (double)f->count * 1e3,
            f->longest * 1e3, f->seconds > 0 ? 100 * f->kernels / f->seconds : 0);
    }
    int rc = table(p, out, false, t.kernels, err);
    if (rc == 0)
        rc = table(p, out, true, t.kernels, err);
    return rc != 0 ? rc : lf_buf_check(out, err);
}

/* ---- trace ---- */

static void event(const lf_profile *p, lf_buf *out, const struct lf_prof_event *e, int process)
{
    lf_buf_adds(out, ",\n{\"name\":");
    lf_buf_add_json(out, e->name, strlen(e->name));
    lf_buf_addf(out, ",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d",
                lanes[e->lane], (e->t0 - p->created) * 1e6, e->seconds * 1e6, process, e->lane + 1);
    if (e->node) {
        lf_buf_adds(out, ",\"args\":{\"graph\":");
        lf_buf_add_json(out, p->graph[e->node->graph]->name,
                        strlen(p->graph[e->node->graph]->name));
        lf_buf_addf(out, ",\"node\":%d,\"layer\":%d,\"flops\":%.0f,\"bytes\":%.0f}", e->node->index,
                    e->node->layer, e->node->flops, e->node->bytes);
    }
    lf_buf_addc(out, '}');
}

static void events(const lf_profile *p, lf_buf *out, const struct lf_prof_ring *r, int process)
{
    for (uint64_t i = (uint64_t)dropped(r); i < r->n; i++)
        event(p, out, &r->e[i % LF_PROF_RING], process);
}

int lf_profile_trace(const lf_profile *p, int process, lf_buf *out, lf_err *err)
{
    lf_buf_addf(
        out,
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
        process, process);
    for (int i = 0; i < LF_LANE_COUNT; i++)
        lf_buf_addf(out,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
                    "\"name\":\"%s\"}}",
                    process, i + 1, lanes[i]);
    events(p, out, &p->phases, process);
    events(p, out, &p->nodes, process);
    lf_buf_adds(out, "\n]}\n");
    return lf_buf_check(out, err);
}
