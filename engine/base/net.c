/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP connections of a job.
 */
#include "engine/base/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
    struct sockaddr sa;
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    struct sockaddr_storage room;
};

static bool usable(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    if (i->ifa_addr->sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(
            &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
    return i->ifa_addr->sa_family == AF_INET;
}

int lf_net_names_get(lf_net_names *out, lf_err *err)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return lf_fail_errno(err, "cannot list network interfaces");
    memset(out, 0, sizeof *out);
    for (const struct ifaddrs *i = all; i && out->n < LF_NET_MAX_ADDRESSES; i = i->ifa_next) {
        if (!usable(i))
            continue;
        const void *bytes =
            i->ifa_addr->sa_family == AF_INET
                ? (const void *)&((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr
                : (const void *)&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)
                      ->sin6_addr;
        if (inet_ntop(i->ifa_addr->sa_family, bytes, out->address[out->n], LF_NET_ADDRESS))
            out->n++;
    }
    freeifaddrs(all);
    return 0;
}

static int bound_socket(int family, const union address *a, socklen_t len)
{
    const int off = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if ((family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0) ||
        bind(fd, &a->sa, len) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int lf_net_listen(bool everywhere, uint16_t *port, lf_err *err)
{
    const union address any6 = {.in6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}};
    const union address any4 = {
        .in4 = {.sin_family = AF_INET,
                .sin_addr.s_addr = htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK)}};
    union address got;
    socklen_t len = sizeof got;
    int fd = everywhere ? bound_socket(AF_INET6, &any6, sizeof any6.in6) : -1;
    if (fd < 0)
        fd = bound_socket(AF_INET, &any4, sizeof any4.in4);
    if (fd < 0 || listen(fd, SOMAXCONN) < 0 || getsockname(fd, &got.sa, &len) < 0) {
        int rc = lf_fail_errno(err, "cannot listen for the other processes of the job");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *port = ntohs(got.sa.sa_family == AF_INET6 ? got.in6.sin6_port : got.in4.sin_port);
    return fd;
}

/* A descriptor, or -1 with errno. */
static int try_connect(const char *name, uint16_t port, int ms)
{
    union address to = {.sa = {.sa_family = AF_INET}};
    socklen_t len = sizeof to.in4, elen = sizeof(int);
    int e = 0;
    if (inet_pton(AF_INET, name, &to.in4.sin_addr) == 1) {
        to.in4.sin_port = htons(port);
    } else {
        len = sizeof to.in6;
        to.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        if (inet_pton(AF_INET6, name, &to.in6.sin6_addr) != 1) {
            errno = EINVAL;
            return -1;
        }
    }
    int fd = socket(to.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, &to.sa, len) < 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        e = errno;
        if (e == EINPROGRESS) {
            e = ETIMEDOUT;
            if (poll(&p, 1, ms) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &elen) < 0)
                e = errno;
        }
    }
    if (!e)
        return fd;
    close(fd);
    errno = e;
    return -1;
}

int lf_net_connect(const lf_net_names *names, bool loopback, uint16_t port, int each_ms,
                   lf_err *err)
{
    const int on = 1;
    char tried[700] = "";
    for (int i = loopback ? -1 : 0; i < names->n && i < LF_NET_MAX_ADDRESSES; i++) {
        const char *name = i < 0 ? "127.0.0.1" : names->address[i];
        int fd = try_connect(name, port, each_ms);
        if (fd >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return fd;
        }
        size_t at = strlen(tried);
        snprintf(tried + at, sizeof tried - at, "%s %s (%s)", at ? "," : "", name, strerror(errno));
    }
    return lf_fail(err, LF_ECOMM, "port %u cannot be reached:%s", (unsigned)port,
                   tried[0] ? tried : " it has no address");
}

void lf_net_keepalive(int fd)
{
    const int on = 1, idle = 10, every = 5, tries = 4;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
