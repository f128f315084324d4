/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP between processes of one job: listen, learn under which addresses others may reach this
 * machine, connect to the first that leads there. Which of its addresses that is, nobody can know
 * beforehand. Proof that the other side belongs to the job is the caller's.
 */
#ifndef LF_BASE_NET_H
#define LF_BASE_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum { LF_NET_ADDRESS = 48, LF_NET_MAX_ADDRESSES = 16 };

/* Numeric IPv4 and IPv6 addresses of this machine's interfaces that are up, without loopback and
 * link-local ones. */
typedef struct lf_net_names {
    int32_t n;
    char address[LF_NET_MAX_ADDRESSES][LF_NET_ADDRESS];
} lf_net_names;
int lf_net_names_get(lf_net_names *out, lf_err *err);

/* A listening socket (non-blocking, close-on-exec) on a free port: on 127.0.0.1, or everywhere
 * (both families where the machine has IPv6). Returns the descriptor, negative on failure. */
int lf_net_listen(bool everywhere, uint16_t *port, lf_err *err);

/* Connect to 127.0.0.1 first where `loopback`, then to each of the names; at most each_ms per try.
 * Returns a descriptor (non-blocking, close-on-exec, without delay), or LF_ECOMM with every try in
 * the text. */
int lf_net_connect(const lf_net_names *names, bool loopback, uint16_t port, int each_ms,
                   lf_err *err);

/* Notice within about half a minute that the other machine is gone. */
void lf_net_keepalive(int fd);

#endif
