/* SPDX-License-Identifier: Apache-2.0
 *
 * What the hub and its daemons tell each other in words: structs, and their text on the wire
 * (message_json.c). What was read owns what it points to and is given back with its _fini; what is
 * written borrows. Lists of texts end with NULL. A text that is written is owned: free() it.
 */
#ifndef LF_FLOW_LAUNCH_MESSAGE_H
#define LF_FLOW_LAUNCH_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* LF_FRAME_HELLO: {"host","tmp"} of a daemon. */
struct lf_hello {
    char *host, *tmp;
};
char *lf_hello_text(const struct lf_hello *h, lf_err *err);
/* What it does not say is "?" and "". */
int lf_hello_read(struct lf_hello *out, const char *text, size_t len, lf_err *err);
void lf_hello_fini(struct lf_hello *h);

/* LF_FRAME_JOB: {"ns","hosts":[],"first":[],"argv":[],"cpus","bind","node"}: the ranks that a
 * daemon starts, and where the others are. */
struct lf_task {
    char *ns; /* of PMIx */
    char **hosts, **argv;
    int *first; /* rank of each of the nodes, and behind them the number of all */
    int nodes, node, cpus;
    bool bind;
};
/* NULL also when a word of the command is not UTF-8 (LF_EINVAL). */
char *lf_task_text(const struct lf_task *t, lf_err *err);
/* LF_EFORMAT: it cannot be read, its node is not of the job, or its ranks do not ascend from 0. */
int lf_task_read(struct lf_task *out, const char *text, size_t len, lf_err *err);
void lf_task_fini(struct lf_task *t);

/* The boot document: {"key","port","addresses":[],"cwd","env":[]}: where the hub is. */
struct lf_boot {
    char *key; /* hex */
    uint16_t port;
    char **addresses;
    char *cwd, **env; /* NULL: those of the daemon */
};
/* Variables that are not UTF-8 are not for other machines: they are left out. */
char *lf_boot_text(const struct lf_boot *b, lf_err *err);
int lf_boot_read(struct lf_boot *out, const char *text, size_t len, lf_err *err);
void lf_boot_fini(struct lf_boot *b);

#endif
