/* SPDX-License-Identifier: Apache-2.0
 *
 * How the watchdogs of the ranks connect. Every rank publishes its struct lf_comm_peer; rank 0 also
 * publishes the address at which it listens and a random key. The others connect to it and send the
 * key.
 */
#ifndef LF_COMM_WATCH_NET_H
#define LF_COMM_WATCH_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/comm/comm_priv.h"

struct lf_watch_hello { /* first bytes on a connection */
    uint8_t key[16];
    int32_t rank;
};

/* Takes one fence. Fills job->peer. With connect it also sets *listen_fd and *hello (the key) on
 * rank 0, and *root_fd on the others. */
int lf_watch_net_meet(struct lf_comm_job *job, bool connect, int *listen_fd,
                      struct lf_watch_hello *hello, int *root_fd, lf_err *err);
/* Compares the keys in constant time. */
bool lf_watch_hello_is(const struct lf_watch_hello *a, const struct lf_watch_hello *b);

#endif
