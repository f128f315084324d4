/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the emulated driver: what driver.c (devices, memory, modules), stream.c (queues, events)
 * and graph.c share.
 */
#ifndef LF_KERNELS_CUDA_EMU_STATE_H
#define LF_KERNELS_CUDA_EMU_STATE_H

#include "tests/cuda/emu/run.h"

struct CUfunc_st {
    const char *file;
    const char *name;
    void (*entry)(const void *args);
    const size_t *args;
    const unsigned *threads;
    unsigned smem; /* dynamic shared memory that was asked for; less than 48 KiB need not be */
};

/* A queued call: everything by value except the memory it names. */
enum lf_emu_kind { EMU_COPY, EMU_FILL, EMU_LAUNCH, EMU_RECORD, EMU_WAIT, EMU_GRAPH, EMU_CALL };
struct lf_emu_cmd {
    enum lf_emu_kind kind;
    void *dst; /* copy, fill */
    const void *src;
    size_t bytes;
    int value;
    struct CUfunc_st *f; /* launch */
    struct lf_emu_uint3 grid, block;
    unsigned smem;
    void *args;                /* owned */
    void (*call)(void *args);  /* of the host */
    bool (*ready)(void *args); /* would the call wait? NULL: never */
    bool soon;                 /* it runs when another stream is told to wait for it */
    lf_cu_event event;         /* record, wait */
    uint64_t generation;       /* of the event */
    lf_cu_graph_exec graph;
    int dep[2]; /* in a graph: nodes that come before, -1: none */
};

struct lf_emu_list {
    struct lf_emu_cmd *cmd;
    size_t first, n, cap;
};

struct CUstream_st {
    struct lf_emu_list queue;
    lf_cu_graph capture; /* NULL: calls are queued */
    int last;            /* its newest node there, -1: none yet */
    bool origin;
    bool busy; /* its first call is under way */
};

struct CUevent_st {
    uint64_t recorded, done; /* how often it was recorded, and how far that came */
    double at_s;
    bool timed, dead;
    int asked, refs;
    lf_cu_graph graph; /* recorded in a stream that was captured */
    int node;
};

struct CUgraph_st {
    struct lf_emu_list node;
    bool bad, open;
};

struct CUgraphExec_st {
    struct lf_emu_list node;
    int refs;
    bool dead;
};

enum { LF_EMU_STREAMS = 64, LF_EMU_EVENTS = 1024 };
struct lf_emu_host {
    int order; /* LF_EMU_ORDER */
    uint32_t random;
    int broken; /* the device failed: every later call says so */
    int contexts, modules, graphs, execs;
    size_t used, limit; /* device bytes */
    struct lf_emu_stats stats;
    char fail_what[16], fail_name[64]; /* LF_EMU_FAIL */
    long fail_at, fail_seen;
    lf_cu_stream stream[LF_EMU_STREAMS];
    lf_cu_event event[LF_EMU_EVENTS];
};
extern struct lf_emu_host lf_emu_host;

/* First line of every emulated call: reads the environment once; not 0: the result that a broken
 * device gives. */
int lf_emu_enter(void);
/* Whether the failure that LF_EMU_FAIL plants comes now. */
bool lf_emu_fails(const char *what, const char *name);
/* Whether [p, p + bytes) lies in one live allocation; host: in pinned host memory. */
bool lf_emu_inside(const void *p, size_t bytes, bool host);
/* A call that is not allowed while any stream is captured: makes these captures bad, returns the
 * driver's result. */
int lf_emu_not_captured(void);
_Noreturn void lf_emu_misuse(const char *what);

bool lf_emu_push(struct lf_emu_list *l, const struct lf_emu_cmd *c);
void lf_emu_list_free(struct lf_emu_list *l);
void lf_emu_execute(const struct lf_emu_cmd *c);
/* A call goes to the stream's queue, or into the graph that captures it. */
int lf_emu_call(lf_cu_stream s, const struct lf_emu_cmd *c);
/* Memory for a kernel's arguments, aligned as those of tensor maps must be; for free. */
void *lf_emu_args(size_t bytes);
uint32_t lf_emu_random(uint32_t n);
void lf_emu_graph_run(lf_cu_graph_exec x);
void lf_emu_event_release(lf_cu_event e);

/* Exported under the driver's names: the same objects make a library that stages load in place of
 * the driver. */
#define LF_EMU_DECLARE(member, name, args) int lf_emu_##member args __asm__(#name);
LF_CU_LIST(LF_EMU_DECLARE)
#undef LF_EMU_DECLARE

#endif
