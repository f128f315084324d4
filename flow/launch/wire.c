/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames and the proof of the key.
 */
#include "config.h"

#include "flow/launch/wire.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/id.h"

enum { HEAD = 24, CHUNK = 256 << 10 };

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void lf_wire_init(lf_wire *w, int fd)
{
    *w = (lf_wire){.fd = fd, .wake = -1};
    lf_buf_init(&w->in);
    lf_buf_init(&w->out);
    pthread_mutex_init(&w->lock, NULL);
}

void lf_wire_fini(lf_wire *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    lf_buf_fini(&w->in);
    lf_buf_fini(&w->out);
    pthread_mutex_destroy(&w->lock);
}

void lf_wire_put(lf_wire *w, struct lf_frame_head h, const void *data)
{
    uint8_t b[HEAD];
    put_u32(b, h.type);
    put_u32(b + 4, h.rank);
    put_u32(b + 8, (uint32_t)h.status);
    put_u32(b + 12, h.id);
    put_u32(b + 16, (uint32_t)h.len);
    put_u32(b + 20, (uint32_t)(h.len >> 32));
    pthread_mutex_lock(&w->lock);
    lf_buf_add(&w->out, b, sizeof b);
    if (h.len > 0)
        lf_buf_add(&w->out, data, (size_t)h.len);
    pthread_mutex_unlock(&w->lock);
    const uint64_t one = 1;
    if (w->wake >= 0 && write(w->wake, &one, sizeof one) < 0)
        errno = 0; /* it is awake already */
}

size_t lf_wire_backlog(lf_wire *w)
{
    pthread_mutex_lock(&w->lock);
    size_t n = w->out.len - w->out_at;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* Under the lock. */
static int send_some(lf_wire *w, lf_err *err)
{
    if (w->out.failed)
        return lf_fail(err, LF_ENOMEM, "no memory for frames");
    while (w->out_at < w->out.len) {
        ssize_t n = send(w->fd, w->out.data + w->out_at, w->out.len - w->out_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK
                       ? 0
                       : lf_fail(err, LF_ECOMM, "the other side is gone: %s", strerror(errno));
        w->out_at += (size_t)n;
    }
    lf_buf_clear(&w->out);
    w->out_at = 0;
    return 0;
}

int lf_wire_send(lf_wire *w, lf_err *err)
{
    if (w->fd < 0)
        return lf_fail(err, LF_ECOMM, "the connection is closed");
    pthread_mutex_lock(&w->lock);
    int rc = send_some(w, err);
    if (rc == 0 && w->out_at > CHUNK &&
        w->out_at > w->out.len / 2) { /* keep the queue from growing for ever */
        memmove(w->out.data, w->out.data + w->out_at, w->out.len - w->out_at);
        w->out.len -= w->out_at;
        w->out_at = 0;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int lf_wire_recv(lf_wire *w, lf_err *err)
{
    char buf[16384];
    if (w->in_at > 0) {
        memmove(w->in.data, w->in.data + w->in_at, w->in.len - w->in_at);
        w->in.len -= w->in_at;
        w->in_at = 0;
    }
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(w->fd, buf, sizeof buf, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n <= 0)
            return lf_fail(err, LF_ECOMM, "the other side is gone%s%s", n < 0 ? ": " : "",
                           n < 0 ? strerror(errno) : "");
        lf_buf_add(&w->in, buf, (size_t)n);
        if (w->in.failed)
            return lf_fail(err, LF_ENOMEM, "no memory for frames");
        if ((size_t)n < sizeof buf)
            return 0;
    }
    return 0;
}

int lf_wire_next(lf_wire *w, struct lf_frame_head *h, const char **data, lf_err *err)
{
    if (w->in.len - w->in_at < HEAD)
        return 0;
    const uint8_t *b = (const uint8_t *)w->in.data + w->in_at;
    *h = (struct lf_frame_head){.type = get_u32(b),
                                .rank = get_u32(b + 4),
                                .status = (int32_t)get_u32(b + 8),
                                .id = get_u32(b + 12),
                                .len = get_u32(b + 16) | (uint64_t)get_u32(b + 20) << 32};
    if (h->len > LF_FRAME_MAX || h->type < LF_FRAME_HELLO || h->type > LF_FRAME_DONE)
        return lf_fail(err, LF_EFORMAT, "not a frame: type %u, %llu bytes", h->type,
                       (unsigned long long)h->len);
    if (w->in.len - w->in_at - HEAD < h->len)
        return 0;
    *data = (const char *)b + HEAD;
    w->in_at += HEAD + (size_t)h->len;
    return 1;
}

/* ---- proof ---- */

static int mac(uint8_t out[LF_MAC_BYTES], const struct lf_auth *a, const char *who,
               const uint8_t *first, const uint8_t *second, lf_err *err)
{
    uint8_t text[8 + 2 * LF_NONCE_BYTES];
    size_t n = strlen(who);
    unsigned len = 0;
    memcpy(text, who, n);
    memcpy(text + n, first, LF_NONCE_BYTES);
    memcpy(text + n + LF_NONCE_BYTES, second, LF_NONCE_BYTES);
    if (HMAC(EVP_sha256(), a->key, LF_KEY_BYTES, text, n + 2 * LF_NONCE_BYTES, out, &len) == NULL ||
        len != LF_MAC_BYTES)
        return lf_fail(err, LF_ENOMEM, "libcrypto made no HMAC");
    return 0;
}

int lf_auth_ask(struct lf_auth *a, lf_wire *w, lf_err *err)
{
    int rc = lf_random_bytes(a->hub, sizeof a->hub, err);
    lf_buf_add(&w->out, a->hub, sizeof a->hub);
    return rc;
}

int lf_auth_check(struct lf_auth *a, lf_wire *w, lf_err *err)
{
    uint8_t want[LF_MAC_BYTES], mine[LF_MAC_BYTES];
    if (w->in.len - w->in_at < LF_NONCE_BYTES + LF_MAC_BYTES)
        return 0;
    const uint8_t *p = (const uint8_t *)w->in.data + w->in_at;
    memcpy(a->daemon, p, LF_NONCE_BYTES);
    int rc = mac(want, a, "daemon", a->hub, a->daemon, err);
    if (rc == 0)
        rc = mac(mine, a, "hub", a->daemon, a->hub, err);
    if (rc < 0)
        return rc;
    if (CRYPTO_memcmp(want, p + LF_NONCE_BYTES, LF_MAC_BYTES) != 0)
        return lf_fail(err, LF_ECOMM, "a connection that does not know the key");
    w->in_at += LF_NONCE_BYTES + LF_MAC_BYTES;
    lf_buf_add(&w->out, mine, sizeof mine);
    return 1;
}

static int move_all(int fd, void *data, size_t n, bool out, int ms, lf_err *err)
{
    char *p = data;
    while (n > 0) {
        struct pollfd f = {.fd = fd, .events = out ? POLLOUT : POLLIN};
        int got = poll(&f, 1, ms);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return lf_fail(err, LF_ECOMM, "the launcher does not answer");
        ssize_t k =
            out ? send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, p, n, MSG_DONTWAIT);
        if (k < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (k <= 0)
            return lf_fail(err, LF_ECOMM, "the launcher closed the connection");
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

int lf_auth_answer(struct lf_auth *a, int fd, int ms, lf_err *err)
{
    uint8_t reply[LF_NONCE_BYTES + LF_MAC_BYTES], want[LF_MAC_BYTES], got[LF_MAC_BYTES];
    int rc = move_all(fd, a->hub, sizeof a->hub, false, ms, err);
    if (rc == 0)
        rc = lf_random_bytes(a->daemon, sizeof a->daemon, err);
    if (rc == 0)
        rc = mac(reply + LF_NONCE_BYTES, a, "daemon", a->hub, a->daemon, err);
    memcpy(reply, a->daemon, sizeof a->daemon);
    if (rc == 0)
        rc = move_all(fd, reply, sizeof reply, true, ms, err);
    if (rc == 0)
        rc = mac(want, a, "hub", a->daemon, a->hub, err);
    if (rc == 0)
        rc = move_all(fd, got, sizeof got, false, ms, err);
    if (rc == 0 && CRYPTO_memcmp(want, got, sizeof got) != 0)
        rc = lf_fail(err, LF_ECOMM, "the other side is not the launcher of this job");
    return rc;
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int lf_key_parse(uint8_t key[LF_KEY_BYTES], const char *hex, lf_err *err)
{
    if (hex == NULL || strlen(hex) != 2 * LF_KEY_BYTES)
        return lf_fail(err, LF_EFORMAT, "the launcher's key is not %d hex digits",
                       2 * LF_KEY_BYTES);
    for (int i = 0; i < LF_KEY_BYTES; i++) {
        int hi = nibble(hex[2 * i]), lo = nibble(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return lf_fail(err, LF_EFORMAT, "the launcher's key is not hex");
        key[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}
