/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that profile.c (collecting) and profile_write.c (writing) share, and the hooks of
 * the executor.
 */
#ifndef LF_GRAPH_PROFILE_PRIV_H
#define LF_GRAPH_PROFILE_PRIV_H

#include "engine/graph/exec_priv.h"
#include "engine/graph/profile.h"

enum { LF_PROF_PHASES = 32, LF_PROF_RING = 1 << 16, LF_PROF_OUTSIDE = -1 };

/* One node of a chain, or a kernel that runs outside of graphs (optimizer, refresh). */
struct lf_prof_node {
    const char *op;
    bool again, bf16;
    int32_t layer;       /* LF_PROF_OUTSIDE: none */
    int32_t graph;       /* index */
    int32_t index;       /* in its graph */
    double flops, bytes; /* of one call */
    double seconds;
    int64_t calls;
};
struct lf_prof_segment {
    double seconds, kernels, flops, bytes;
    int64_t runs;
};
struct lf_prof_graph {
    /* "train", "train forward", "train backward"; for other kernels only the first two */
    char *name, *segment[2];
    struct lf_prof_node *node;
    size_t n, n_fwd;
    struct lf_prof_segment seg[2];
};
struct lf_prof_phase {
    const char *name;
    enum lf_profile_lane lane;
    double seconds, kernels, longest;
    int64_t count;
};
struct lf_prof_event {
    double t0, seconds;
    const struct lf_prof_node *node; /* NULL: a phase */
    const char *name;
    uint8_t lane;
};
struct lf_prof_ring {
    struct lf_prof_event *e;
    uint64_t n; /* number of events ever added */
};
struct lf_profile {
    double created;
    char device[64];
    int threads;
    struct lf_back_peak peak;
    bool probed, has_peak;
    struct lf_prof_graph **graph; /* never moved, because events point to nodes */
    size_t n_graphs, cap_graphs;
    struct lf_prof_phase phase[LF_PROF_PHASES];
    size_t n_phases;
    struct lf_prof_ring nodes, phases;
    double kernels; /* seconds in nodes so far */
};

/* The profile of one executor: its chains, the optimizer and the refresh. */
struct lf_prof_exec {
    lf_profile *p;
    struct lf_prof_graph **chain, *opt, *refresh;
    double *at; /* time before the first call of a segment and after each */
};
struct lf_prof_exec *lf_prof_attach(lf_exec *ex, lf_err *err);
void lf_prof_detach(struct lf_prof_exec *x);
/* Runs and times a segment; calls are those of the whole chain. */
int lf_prof_segment(lf_exec *ex, int chain, enum lf_segment seg, const struct lf_call *calls,
                    size_t from, size_t to, lf_err *err);
/* Runs and times all of ex->opt, ex->copies or ex->packs. */
int lf_prof_calls(lf_exec *ex, const struct lf_call *calls, size_t n, const char *what,
                  lf_err *err);

#endif
