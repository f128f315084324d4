/* SPDX-License-Identifier: Apache-2.0
 *
 * How the watchdogs of the ranks meet: everybody publishes who he is, rank 0 where it listens and a
 * random key; the others connect and greet with the key.
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

/* One fence. Fills job->peer; with connect, also *listen_fd and *hello (the key) on rank 0,
 * *root_fd on the others. */
int lf_watch_net_meet(struct lf_comm_job *job, bool connect, int *listen_fd,
                      struct lf_watch_hello *hello, int *root_fd, lf_err *err);
/* Compares the keys in constant time. */
bool lf_watch_hello_is(const struct lf_watch_hello *a, const struct lf_watch_hello *b);

#endif
