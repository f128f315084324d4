/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP between the processes of one job. A process listens and publishes the addresses of its
 * machine; others connect to the first address that works, as nobody knows beforehand which one
 * does. The caller proves that the other side belongs to the job.
 */
#ifndef LF_BASE_NET_H
#define LF_BASE_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum { LF_NET_ADDRESS = 48, LF_NET_MAX_ADDRESSES = 16 };

/* The numeric IPv4 and IPv6 addresses of those interfaces of this machine that are up, without
 * loopback and link-local addresses. */
typedef struct lf_net_names {
    int32_t n;
    char address[LF_NET_MAX_ADDRESSES][LF_NET_ADDRESS];
} lf_net_names;
int lf_net_names_get(lf_net_names *out, lf_err *err);

/* Opens a listening socket (non-blocking, close-on-exec) on a free port: on 127.0.0.1, or on all
 * addresses when `everywhere`, of both families where the machine has IPv6. Returns the descriptor,
 * or a negative code. */
int lf_net_listen(bool everywhere, uint16_t *port, lf_err *err);

/* Connects to 127.0.0.1 first when `loopback`, then to each of the names. One try takes at most
 * each_ms milliseconds. Returns a descriptor (non-blocking, close-on-exec, TCP_NODELAY), or
 * LF_ECOMM with every try in the message. */
int lf_net_connect(const lf_net_names *names, bool loopback, uint16_t port, int each_ms,
                   lf_err *err);

/* Makes the connection fail within about half a minute when the other machine is gone. */
void lf_net_keepalive(int fd);

#endif
