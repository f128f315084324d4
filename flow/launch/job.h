/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's parts (all but launch.h are private to it).
 *
 * `loong-flow launch` is the hub: one process that starts a daemon per node, joins the nodes'
 * fences, forwards signals, prints what ranks print, and ends with the exit code of the first rank
 * that failed. On one node the daemon is a forked child on a socketpair; on several, `loong-flow
 * launch --daemon` by srun, pbsdsh or ssh (or as a local process, to simulate nodes) connects back
 * over TCP and proves that it knows the key. A daemon is a PMIx server for the ranks of its node.
 *
 * Who ends whom: ranks die with their daemon (PR_SET_PDEATHSIG); daemons end their ranks, their
 * temporary directory and themselves when the hub's connection ends; the hub ends everything when a
 * rank fails, aborts, or a daemon is gone. Exit code 75 (stopped at a good checkpoint) is no
 * failure: the others may still be saving.
 */
#ifndef LF_FLOW_LAUNCH_JOB_H
#define LF_FLOW_LAUNCH_JOB_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/launch/wire.h"

enum lf_launch_start {
    LF_START_AUTO,
    LF_START_LOCAL,
    LF_START_SRUN,
    LF_START_PBSDSH,
    LF_START_SSH
};
#define LF_LAUNCH_STARTS "auto|local|srun|pbsdsh|ssh"

struct lf_launch_node {
    char *host;   /* name for ssh; for messages and PMIx what the daemon says */
    int first, n; /* ranks */
};

struct lf_launch_job {
    int ranks, cpus; /* cpus per rank, 0: not given */
    bool bind, tag;
    enum lf_launch_start start;
    struct lf_launch_node *node;
    int nodes;
    char *const *argv; /* NULL-terminated */
    const char *self;  /* this executable */
    char ns[64];       /* PMIx namespace */
    char key_hex[2 * LF_KEY_BYTES + 1];
    uint8_t key[LF_KEY_BYTES];
};

/* launch_fence.c: node that has a rank, -1: none. */
int lf_launch_node_of(const struct lf_launch_job *j, int rank);
/* Fences over nodes. add: an LF_FRAME_FENCE of a node; when it was the last, done is called for
 * each node that takes part. */
struct lf_fences;
typedef void (*lf_fence_done)(void *arg, int node, uint32_t id, const char *data, size_t len);
struct lf_fences *lf_fences_create(const struct lf_launch_job *j, lf_err *err);
void lf_fences_destroy(struct lf_fences *all);
int lf_fences_add(struct lf_fences *all, int node, const struct lf_frame_head *h, const char *data,
                  lf_fence_done done, void *arg, lf_err *err);

/* launch_hub.c: everything; an exit code, or a negative lf_rc. */
int lf_launch_hub(struct lf_launch_job *j, lf_err *err);

/* launch_daemon.c: one node. fd: a connection to the hub. The socketpair's daemon gets the job's
 * description as a frame like any other. An exit code. */
int lf_launch_daemon(int fd, int node_index, lf_err *err);
/* launch_remote.c: `loong-flow launch --daemon HOW`: HOW is env, stdin or a file: where the boot
 * document is. */
int lf_launch_daemon_main(const char *how, int node_index, lf_err *err);

/* launch_start.c: processes that become the daemons. pids[n_pids] are children of the hub to be
 * waited for. */
int lf_launch_start_daemons(const struct lf_launch_job *j, uint16_t port, pid_t *pids, int *n_pids,
                            char **key_file, lf_err *err);
/* Names of the nodes of this SLURM or PBS job, or an error: fills j->node for `nodes` (0: all),
 * dealing the ranks. */
int lf_launch_find_nodes(struct lf_launch_job *j, int nodes, lf_err *err);
void lf_launch_deal(struct lf_launch_job *j); /* ranks to nodes, even blocks */

/* ---- launch_pmix.c: the PMIx server of a node ---- */

struct lf_pserver;

/* What the ranks ask for, told from PMIx's thread. */
struct lf_pserver_calls {
    void *arg;
    /* A fence over ranks[0..n-1] (n 0: all) with this node's data; answer with
     * lf_pserver_fence_done. */
    void (*fence)(void *arg, uint32_t id, const uint32_t *ranks, uint32_t n, const char *data,
                  size_t len);
    void (*modex)(void *arg, uint32_t id, uint32_t rank); /* answer with lf_pserver_modex_done */
    void (*modex_data)(void *arg, uint32_t node, uint32_t id, int status, const char *data,
                       size_t len);
    void (*abort)(void *arg, uint32_t rank, int status, const char *text);
    void (*joined)(void *arg, uint32_t rank); /* called PMIx_Init */
};

struct lf_pserver_job {
    const char *ns, *tmp, *host;
    int node, nodes, ranks;
    char *const *hosts; /* [nodes], all different */
    const int *first;   /* [nodes + 1] first rank of each node */
};

struct lf_pserver *lf_pserver_create(const struct lf_pserver_job *j,
                                     const struct lf_pserver_calls *calls, lf_err *err);
void lf_pserver_destroy(struct lf_pserver *s);
/* Expect a rank and add what it needs to *env (malloc'ed strings in a malloc'ed, NULL-terminated
 * array). */
int lf_pserver_add(struct lf_pserver *s, int rank, char ***env, lf_err *err);
void lf_pserver_fence_done(struct lf_pserver *s, uint32_t id, int status, const char *data,
                           size_t len);
void lf_pserver_modex_done(struct lf_pserver *s, uint32_t id, int status, const char *data,
                           size_t len);
/* Data of a rank of this node, for another node: answered through calls.modex_data. */
void lf_pserver_modex_ask(struct lf_pserver *s, uint32_t node, uint32_t id, uint32_t rank);

#endif
