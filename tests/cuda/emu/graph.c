/* SPDX-License-Identifier: Apache-2.0
 *
 * Captured graphs of the emulated driver: only recorded dependencies order their nodes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/emu/state.h"

int lf_emu_not_captured(void)
{
    int rc = 0;
    for (int i = 0; i < LF_EMU_STREAMS; i++) {
        const lf_cu_stream s = lf_emu_host.stream[i];
        if (s && s->capture) {
            s->capture->bad = true;
            rc = LF_CU_CAPTURE_UNSUPPORTED;
        }
    }
    return rc;
}

int lf_emu_StreamBeginCapture(lf_cu_stream s, int mode)
{
    int rc = lf_emu_enter();
    if (rc || !s || mode != LF_CU_CAPTURE_THREAD_LOCAL || s->capture)
        return rc ? rc : LF_CU_INVALID_VALUE;
    lf_cu_graph g = calloc(1, sizeof *g);
    if (!g)
        return LF_CU_OUT_OF_MEMORY;
    s->capture = g;
    s->origin = true;
    s->last = -1;
    lf_emu_host.stats.captures++;
    return 0;
}

/* Marks what comes before node `at`. Nodes only depend on earlier ones. */
static void mark_before(const struct CUgraph_st *g, int at, char *seen)
{
    if (at >= 0)
        seen[at] = 1;
    for (int i = at; i >= 0; i--)
        for (int k = 0; k < 2 && seen[i]; k++)
            if (g->node.cmd[i].dep[k] >= 0)
                seen[g->node.cmd[i].dep[k]] = 1;
}

/* Whether every stream that was drawn in leads back to the origin. */
static bool joined(const struct CUgraph_st *g, int last)
{
    char *seen = calloc(g->node.n + 1, 1);
    bool all = seen != NULL;
    if (seen)
        mark_before(g, last, seen);
    for (int i = 0; i < LF_EMU_STREAMS && all; i++) {
        const struct CUstream_st *s = lf_emu_host.stream[i];
        if (s && s->capture == g && s->last >= 0)
            all = seen[s->last] != 0;
    }
    free(seen);
    return all;
}

int lf_emu_StreamEndCapture(lf_cu_stream s, lf_cu_graph *out)
{
    int rc = lf_emu_enter();
    if (rc || !s || !s->capture || !s->origin)
        return rc ? rc : LF_CU_CAPTURE_UNMATCHED;
    lf_cu_graph g = s->capture;
    rc = g->bad ? LF_CU_CAPTURE_INVALIDATED : joined(g, s->last) ? 0 : LF_CU_CAPTURE_UNJOINED;
    for (int i = 0; i < LF_EMU_STREAMS; i++)
        if (lf_emu_host.stream[i] && lf_emu_host.stream[i]->capture == g)
            lf_emu_host.stream[i]->capture = NULL;
    for (int i = 0; i < LF_EMU_EVENTS; i++)
        if (lf_emu_host.event[i] && lf_emu_host.event[i]->graph == g)
            lf_emu_host.event[i]->graph = NULL;
    *out = NULL;
    if (rc) {
        lf_emu_list_free(&g->node);
        free(g);
        return rc;
    }
    lf_emu_host.graphs++;
    *out = g;
    return 0;
}

int lf_emu_GraphInstantiate(lf_cu_graph_exec *x, lf_cu_graph g, unsigned long long flags)
{
    int rc = lf_emu_enter();
    if (rc || !g || flags || (rc = lf_emu_not_captured()))
        return rc ? rc : LF_CU_INVALID_VALUE;
    lf_cu_graph_exec e = calloc(1, sizeof *e);
    for (size_t i = 0; e && i < g->node.n; i++) {
        struct lf_emu_cmd c = g->node.cmd[i];
        if (c.args) {
            const size_t bytes = c.kind == EMU_LAUNCH ? *c.f->args : c.bytes;
            if (!bytes)
                lf_emu_misuse("a call of the host that cannot be captured");
            c.args = lf_emu_args(bytes);
            if (c.args)
                memcpy(c.args, g->node.cmd[i].args, bytes);
        }
        if (((c.kind == EMU_LAUNCH || c.kind == EMU_CALL) && !c.args) ||
            !lf_emu_push(&e->node, &c)) {
            lf_emu_list_free(&e->node);
            free(e);
            e = NULL;
        }
    }
    if (!e)
        return LF_CU_OUT_OF_MEMORY;
    e->refs = 1;
    lf_emu_host.execs++;
    *x = e;
    return 0;
}

int lf_emu_GraphLaunch(lf_cu_graph_exec x, lf_cu_stream s)
{
    int rc = lf_emu_enter();
    if (rc || !x || x->dead || !s || s->capture)
        return rc ? rc : LF_CU_INVALID_VALUE;
    const struct lf_emu_cmd c = {.kind = EMU_GRAPH, .graph = x};
    rc = lf_emu_call(s, &c);
    if (!rc) {
        x->refs++;
        lf_emu_host.stats.graph_launches++;
        lf_emu_host.stats.graph_nodes += (long)x->node.n;
    }
    return rc;
}

static bool ready(const struct CUgraphExec_st *x, const char *done, size_t i)
{
    const int *d = x->node.cmd[i].dep;
    return !done[i] && (d[0] < 0 || done[d[0]]) && (d[1] < 0 || done[d[1]]);
}

/* The node to run next: the first, the last or any of those that may. */
static size_t choose(const struct CUgraphExec_st *x, const char *done)
{
    const size_t n = x->node.n, from = lf_emu_host.order > 1 ? lf_emu_random((uint32_t)n) : 0;
    for (size_t k = 0; k < n; k++) {
        const size_t i = lf_emu_host.order == 1 ? n - 1 - k : (from + k) % n;
        if (ready(x, done, i))
            return i;
    }
    lf_emu_misuse("a graph that cannot end");
}

void lf_emu_graph_run(lf_cu_graph_exec x)
{
    char *done = calloc(x->node.n + 1, 1);
    if (!done)
        lf_emu_misuse("no memory for a graph");
    for (size_t k = 0; k < x->node.n; k++) {
        const size_t i = choose(x, done);
        lf_emu_execute(&x->node.cmd[i]);
        done[i] = 1;
    }
    free(done);
}

int lf_emu_GraphExecDestroy(lf_cu_graph_exec x)
{
    if (!x || x->dead)
        return LF_CU_INVALID_VALUE;
    lf_emu_host.execs--;
    x->dead = true;
    if (--x->refs == 0) {
        lf_emu_list_free(&x->node);
        free(x);
    }
    return 0;
}
int lf_emu_GraphDestroy(lf_cu_graph g)
{
    if (!g)
        return LF_CU_INVALID_VALUE;
    lf_emu_host.graphs--;
    lf_emu_list_free(&g->node);
    free(g);
    return 0;
}
