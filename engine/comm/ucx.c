/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between CPU ranks over UCX tag matching: shared memory on a node, TCP or the fabric
 * between nodes, whatever UCX finds (UCX_TLS and UCX_NET_DEVICES choose). Worker addresses travel
 * through the start-up exchange; an endpoint is made with the first message to its rank.
 *
 * Waiting. A rank that waits makes progress and yields the processor; when nothing has moved for
 * SPIN_S it sleeps on the worker's event descriptor. On a machine with more ranks than processors a
 * spinning rank would keep the awaited one from running, so there it sleeps at once.
 *
 * UCX is not asked to notice dead peers: not all its transports can. The watchdog does that
 * (watch.h).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/comm/msg.h"
#include "engine/comm/watch.h"

#ifdef HAVE_UCX
#include <poll.h>
#include <sched.h>
#include <ucp/api/ucp.h>

#define SPIN_S      0.0005
#define SLEEP_MS    20 /* an event that got lost costs this much */
#define FLUSH_S     2.0
#define MAX_ADDRESS 65536

struct lf_msg {
    ucp_context_h context;
    ucp_worker_h worker;
    int efd;
    int size, rank, users;
    bool crowded; /* more ranks here than processors */
    ucp_ep_h *ep; /* [size] made when needed */
    ucp_address_t **address;
    struct lf_watch *watch;
};

static int failed(lf_err *err, const char *what, ucs_status_t st)
{
    return lf_fail(err, LF_ECOMM, "UCX: %s: %s", what, ucs_status_string(st));
}

/* ---- set-up ---- */

/* UCX takes settings of transports from the environment alone, and warns of those of a transport
 * that UCX_TLS leaves out. Whoever has set one keeps it.
 *
 * Shared memory without cross-memory attach moves one queue's length at each look of both sides: 64
 * places of 8 KiB by default. Over TCP a message of more than one segment, 8 KiB by default, asks
 * the receiver first, which takes two more messages; a segment may be as long as the receiver's, 64
 * KiB by default, so it stays as it is where that was set. */
static void set_defaults(void)
{
    const char *tls = getenv("UCX_TLS");
    if (!tls || strstr(tls, "posix") || strstr(tls, "shm") || strstr(tls, "sm"))
        setenv("UCX_POSIX_FIFO_SIZE", "256", 0);
    if ((!tls || strstr(tls, "tcp")) && !getenv("UCX_TCP_RX_SEG_SIZE"))
        setenv("UCX_TCP_TX_SEG_SIZE", "64k", 0);
}

static int open_worker(lf_msg *m, lf_err *err)
{
    ucp_config_t *config = NULL;
    set_defaults();
    ucs_status_t st = ucp_config_read(NULL, NULL, &config);
    if (st != UCS_OK)
        return failed(err, "configuration", st);
    const ucp_params_t params = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                                 .estimated_num_eps = (size_t)m->size};
    st = ucp_init(&params, config, &m->context);
    ucp_config_release(config);
    if (st != UCS_OK)
        return failed(err, "start", st);
    const ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                    .thread_mode = UCS_THREAD_MODE_SINGLE};
    st = ucp_worker_create(m->context, &wp, &m->worker);
    if (st == UCS_OK)
        st = ucp_worker_get_efd(m->worker, &m->efd);
    return st == UCS_OK ? 0 : failed(err, "worker", st);
}

static int publish_address(lf_msg *m, lf_boot *boot, lf_err *err)
{
    ucp_address_t *a = NULL;
    size_t len = 0;
    ucs_status_t st = ucp_worker_get_address(m->worker, &a, &len);
    if (st != UCS_OK)
        return failed(err, "address", st);
    int rc = len <= MAX_ADDRESS ? lf_boot_put(boot, "lf.ucx", a, len, err)
                                : lf_fail(err, LF_ECOMM, "UCX: an address of %zu bytes", len);
    ucp_worker_release_address(m->worker, a);
    return rc;
}

static int read_addresses(lf_msg *m, lf_boot *boot, lf_err *err)
{
    char *buf = lf_malloc(1, MAX_ADDRESS, err);
    int rc = buf ? 0 : LF_ENOMEM;
    for (int r = 0; rc == 0 && r < m->size; r++) {
        size_t len = 0;
        rc = lf_boot_get(boot, r, "lf.ucx", buf, MAX_ADDRESS, &len, err);
        if (rc == 0 && !(m->address[r] = lf_malloc(1, len, err)))
            rc = LF_ENOMEM;
        if (rc == 0)
            memcpy(m->address[r], buf, len);
    }
    free(buf);
    return rc;
}

static void drain(lf_msg *m, void *request)
{
    double end = lf_now_s() + FLUSH_S;
    if (!UCS_PTR_IS_PTR(request))
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && lf_now_s() < end)
        if (!ucp_worker_progress(m->worker))
            sched_yield();
    ucp_request_free(request);
}

/* What was sent must have left before the worker goes: a message that is complete here may still
 * wait in a queue. */
static void close_worker(lf_msg *m)
{
    const ucp_request_param_t none = {0};
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    drain(m, ucp_worker_flush_nbx(m->worker, &none));
    for (int r = 0; m->ep && r < m->size; r++)
        if (m->ep[r])
            drain(m, ucp_ep_close_nbx(m->ep[r], &force));
    ucp_worker_destroy(m->worker);
}

static void msg_release(lf_msg *m)
{
    if (!m || --m->users > 0)
        return;
    if (m->worker)
        close_worker(m);
    if (m->context)
        ucp_cleanup(m->context);
    for (int r = 0; m->address && r < m->size; r++)
        free(m->address[r]);
    free(m->address);
    free(m->ep);
    free(m);
}

static lf_msg *msg_create(struct lf_comm_job *job, lf_err *err)
{
    const struct lf_boot_info *i = lf_boot_info(job->boot);
    lf_msg *m = lf_calloc(1, sizeof *m, err);
    if (!m)
        return NULL;
    m->users = 1;
    m->size = i->size;
    m->rank = i->rank;
    m->watch = job->watch;
    int crowded = lf_comm_crowded(job->peer, i->size, i->rank, err);
    if (crowded < 0) {
        free(m);
        return NULL;
    }
    m->crowded = crowded;
    m->ep = lf_calloc((size_t)m->size, sizeof(ucp_ep_h), err);
    m->address = lf_calloc((size_t)m->size, sizeof *m->address, err);
    if (!m->ep || !m->address || open_worker(m, err) || publish_address(m, job->boot, err) ||
        lf_boot_fence(job->boot, err) || read_addresses(m, job->boot, err)) {
        msg_release(m);
        return NULL;
    }
    return m;
}

/* ---- messages ---- */

static int connect_to(lf_msg *m, int peer, lf_err *err)
{
    const ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                               .address = m->address[peer]};
    ucs_status_t st = ucp_ep_create(m->worker, &p, &m->ep[peer]);
    return st == UCS_OK ? 0
                        : lf_fail(err, LF_ECOMM, "UCX: no way from rank %d to rank %d: %s", m->rank,
                                  peer, ucs_status_string(st));
}

int lf_msg_isend(lf_msg *m, lf_msg_req *q, int peer, uint64_t tag, const void *data, size_t bytes,
                 lf_err *err)
{
    q->handle = NULL;
    q->want = SIZE_MAX;
    if (!m->ep[peer] && connect_to(m, peer, err))
        return LF_ECOMM;
    const ucp_request_param_t none = {0};
    ucs_status_ptr_t p = ucp_tag_send_nbx(m->ep[peer], data, bytes, tag, &none);
    if (UCS_PTR_IS_ERR(p))
        return lf_fail(err, LF_ECOMM, "UCX: sending %zu bytes to rank %d: %s", bytes, peer,
                       ucs_status_string(UCS_PTR_STATUS(p)));
    q->handle = p;
    return 0;
}

int lf_msg_irecv(lf_msg *m, lf_msg_req *q, uint64_t tag, void *data, size_t bytes, lf_err *err)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    q->want = bytes;
    q->handle = NULL;
    ucs_status_ptr_t p = ucp_tag_recv_nbx(m->worker, data, bytes, tag, UINT64_MAX, &param);
    if (UCS_PTR_IS_ERR(p))
        return failed(err, "receiving", UCS_PTR_STATUS(p));
    q->handle = p;
    return 0;
}

int lf_msg_look(lf_msg_req *q, lf_err *err)
{
    ucp_tag_recv_info_t info = {.length = 0};
    const bool receive = q->want != SIZE_MAX;
    if (!q->handle)
        return 1;
    ucs_status_t st =
        receive ? ucp_tag_recv_request_test(q->handle, &info) : ucp_request_check_status(q->handle);
    if (st == UCS_INPROGRESS)
        return 0;
    ucp_request_free(q->handle);
    q->handle = NULL;
    if (st != UCS_OK && st != UCS_ERR_MESSAGE_TRUNCATED)
        return failed(err, receive ? "receiving" : "sending", st);
    if (receive && (st != UCS_OK || info.length != q->want))
        return lf_fail(
            err, LF_ECOMM,
            "a message of %s length, %zu bytes were expected: ranks call with different sizes",
            st != UCS_OK ? "greater" : "smaller", q->want);
    return 1;
}

/* A receive that has found no message ends at once; what has begun ends with the worker. */
void lf_msg_give_up(lf_msg *m, lf_msg_req *q)
{
    if (!q->handle)
        return;
    ucp_request_cancel(m->worker, q->handle);
    ucp_request_free(q->handle);
    q->handle = NULL;
}

bool lf_msg_progress(lf_msg *m)
{
    if (!ucp_worker_progress(m->worker))
        return false;
    lf_watch_progress(m->watch);
    return true;
}

/* Sleep until something may have happened. */
static void sleep_on(lf_msg *m)
{
    struct pollfd fd = {.fd = m->efd, .events = POLLIN};
    if (ucp_worker_arm(m->worker) == UCS_OK) /* otherwise something has happened already */
        poll(&fd, 1, SLEEP_MS);
}

void lf_msg_pause(lf_msg *m, struct lf_msg_idle *idle)
{
    if (idle->times++ == 0)
        idle->since = lf_now_s();
    if ((m->crowded && idle->times > 8) ||
        (idle->times % 64 == 0 && lf_now_s() - idle->since > SPIN_S))
        sleep_on(m);
    else
        sched_yield();
}

/* ---- communicators ---- */

static void leave_busy(const struct lf_msg_comm *m)
{
    struct lf_msg_comm **at = m->base.job ? &m->base.job->busy : NULL;
    while (at && *at && *at != m)
        at = &(*at)->next_busy;
    if (at && *at)
        *at = m->next_busy;
}

static void ucx_destroy(lf_comm *c)
{
    struct lf_msg_comm *m = (struct lf_msg_comm *)c;
    for (int i = 0; m->req && i < 8 * c->size; i++)
        lf_msg_give_up(m->m, &m->req[i]);
    leave_busy(m);
    msg_release(m->m);
    free(m->peer);
    free(m->req);
    free(m->x);
    free(m->part);
    free(m->count);
    free(m->work);
    free(m);
}

static lf_comm *ucx_split(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err);

static const struct lf_comm_ops ucx_ops = {.name = "ucx",
                                           .start = lf_coll_start,
                                           .test = lf_coll_test,
                                           .progress = lf_coll_progress,
                                           .give_up = lf_coll_give_up,
                                           .split = ucx_split,
                                           .destroy = ucx_destroy};

/* Takes a use of m, also when it fails. */
static struct lf_msg_comm *make(lf_msg *m, int size, int rank, lf_err *err)
{
    struct lf_msg_comm *c = lf_calloc(1, sizeof *c, err);
    const size_t p = (size_t)size;
    if (!c) {
        msg_release(m);
        return NULL;
    }
    c->m = m;
    c->base.ops = &ucx_ops;
    c->base.size = size;
    c->base.rank = rank;
    c->base.host = &c->base;
    c->peer = lf_calloc(p, sizeof *c->peer, err);
    c->req = lf_calloc(8 * p, sizeof *c->req, err);
    c->x = lf_calloc(p + 1, sizeof *c->x, err);
    c->part = lf_calloc(2 * p, sizeof *c->part, err);
    c->count = lf_calloc(2 * p, sizeof *c->count, err);
    if (c->peer && c->req && c->x && c->part && c->count)
        return c;
    ucx_destroy(&c->base);
    return NULL;
}

static lf_comm *ucx_split(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err)
{
    struct lf_msg_comm *from = (struct lf_msg_comm *)c;
    if (id > 0xffff) {
        lf_fail(err, LF_EINVAL, "more than 65,535 communicators were made");
        return NULL;
    }
    if (n == 1)
        return lf_comm_self_create(err);
    from->m->users++;
    struct lf_msg_comm *s = make(from->m, n, me, err);
    for (int i = 0; s && i < n; i++)
        s->peer[i] = from->peer[members[i]];
    return s ? &s->base : NULL;
}

lf_comm *lf_comm_ucx_create(struct lf_comm_job *job, lf_err *err)
{
    const struct lf_boot_info *i = lf_boot_info(job->boot);
    lf_msg *m = msg_create(job, err);
    struct lf_msg_comm *c = m ? make(m, i->size, i->rank, err) : NULL;
    if (!c)
        return NULL;
    for (int r = 0; r < i->size; r++)
        c->peer[r] = r;
    c->base.job = job;
    job->pump = &c->base;
    return &c->base;
}

#else

lf_comm *lf_comm_ucx_create(struct lf_comm_job *job, lf_err *err)
{
    lf_fail(err, LF_ENOTSUP,
            "%d ranks were started, but this build is --without-ucx: it runs on one",
            lf_boot_info(job->boot)->size);
    return NULL;
}

#endif
