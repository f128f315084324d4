/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdogs' meeting. On one node rank 0 listens on loopback only, over several everywhere.
 */
#include "engine/comm/watch_net.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/id.h"
#include "engine/base/net.h"

enum { CONNECT_MS = 5000 };

/* What a rank publishes; the same program on the same kind of machine reads it. */
struct card {
    struct lf_comm_peer peer;
    uint8_t key[16];
    uint16_t port; /* 0: does not listen */
    lf_net_names names;
};

bool lf_watch_hello_is(const struct lf_watch_hello *a, const struct lf_watch_hello *b)
{
    unsigned diff = 0;
    for (size_t i = 0; i < sizeof a->key; i++)
        diff |= (unsigned)(a->key[i] ^ b->key[i]);
    return diff == 0;
}

static int describe(struct card *c, lf_boot *boot, lf_err *err)
{
    lf_proc_id id;
    uint8_t h[LF_HASH_BYTES];
    int rc = lf_proc_self(&id, err);
    if (rc == 0)
        rc = lf_hash_buf(h, id.boot_id, strnlen(id.boot_id, sizeof id.boot_id), err);
    if (rc != 0)
        return rc;
    snprintf(c->peer.host, sizeof c->peer.host, "%.63s", lf_boot_info(boot)->host);
    c->peer.pid = getpid();
    memcpy(&c->peer.boot, h, sizeof c->peer.boot);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        c->peer.n_cpus = CPU_COUNT(&set);
    rc = lf_hash_buf(h, &set, sizeof set, err);
    memcpy(&c->peer.cpus, h, sizeof c->peer.cpus);
    return rc;
}

static int open_root(struct card *me, bool everywhere, int *listen_fd, lf_err *err)
{
    int rc = lf_random_bytes(me->key, sizeof me->key, err);
    if (rc == 0 && everywhere)
        rc = lf_net_names_get(&me->names, err);
    if (rc != 0)
        return rc;
    int fd = lf_net_listen(everywhere, &me->port, err);
    if (fd < 0)
        return fd;
    *listen_fd = fd;
    return 0;
}

static int connect_root(const struct card *root, const struct card *me, int rank, int *root_fd,
                        lf_err *err)
{
    struct lf_watch_hello h = {.rank = rank};
    memcpy(h.key, root->key, sizeof h.key);
    if (!root->port)
        return lf_fail(err, LF_ECOMM,
                       "rank 0 runs without the watchdog, rank %d with it (LF_COMM_PATIENCE)",
                       rank);
    int fd =
        lf_net_connect(&root->names, root->peer.boot == me->peer.boot, root->port, CONNECT_MS, err);
    if (fd < 0)
        return lf_err_prefix(err,
                             "rank %d cannot reach the watchdog of rank 0 on %s "
                             "(LF_COMM_PATIENCE=off runs without)",
                             rank, root->peer.host);
    if (send(fd, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h) {
        int rc = lf_fail_errno(err, "the watchdog's connection to rank 0 broke");
        close(fd);
        return rc;
    }
    *root_fd = fd;
    return 0;
}

static int read_cards(struct lf_comm_job *job, struct card *root, lf_err *err)
{
    struct card c;
    size_t len;
    for (int r = lf_boot_info(job->boot)->size - 1; r >= 0; r--) {
        int rc = lf_boot_get(job->boot, r, "lf.card", &c, sizeof c, &len, err);
        if (rc == 0 && len != sizeof c)
            rc = lf_fail(err, LF_ECOMM, "rank %d is another version of this program", r);
        if (rc != 0)
            return rc;
        c.peer.host[sizeof c.peer.host - 1] = '\0';
        for (int i = 0; i < LF_NET_MAX_ADDRESSES; i++)
            c.names.address[i][LF_NET_ADDRESS - 1] = '\0';
        job->peer[r] = c.peer;
    }
    *root = c;
    return 0;
}

int lf_watch_net_meet(struct lf_comm_job *job, bool connect, int *listen_fd,
                      struct lf_watch_hello *hello, int *root_fd, lf_err *err)
{
    const struct lf_boot_info *i = lf_boot_info(job->boot);
    struct card me, root;
    memset(&me, 0, sizeof me);
    int rc = describe(&me, job->boot, err);
    if (rc == 0 && connect && i->rank == 0)
        rc = open_root(&me, i->nodes > 1, listen_fd, err);
    memcpy(hello->key, me.key, sizeof hello->key);
    if (rc == 0)
        rc = lf_boot_put(job->boot, "lf.card", &me, sizeof me, err);
    if (rc == 0)
        rc = lf_boot_fence(job->boot, err);
    if (rc == 0)
        rc = read_cards(job, &root, err);
    if (rc == 0 && connect && i->rank != 0)
        rc = connect_root(&root, &me, i->rank, root_fd, err);
    return rc;
}
