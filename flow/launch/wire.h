/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames between the hub (`loong-flow launch`) and its daemons (one per node), over a socketpair or
 * TCP.
 *
 * A TCP connection begins with a proof from both sides that they know the job's key, before
 * anything else is read:
 *     hub -> daemon   hub nonce (32)
 *     daemon -> hub   daemon nonce (32), HMAC-SHA256(key, "daemon" || hub nonce || daemon nonce)
 *     hub -> daemon   HMAC-SHA256(key, "hub" || daemon nonce || hub nonce)
 * The key travels by ssh's standard input, in the environment through srun, or in a file of mode
 * 0600 for pbsdsh.
 *
 * A frame is 24 bytes, little-endian (type u32, rank u32, status i32, id u32, length u64), and
 * `length` bytes.
 */
#ifndef LF_FLOW_LAUNCH_WIRE_H
#define LF_FLOW_LAUNCH_WIRE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

enum lf_frame {
    LF_FRAME_HELLO = 1, /* d>h  rank: node index or LF_ANY_NODE; status: pid; lf_hello */
    LF_FRAME_JOB,       /* h>d  lf_task */
    LF_FRAME_STARTED,   /* d>h  rank; status: pid */
    LF_FRAME_JOINED,    /* d>h  rank: it has found its PMIx server */
    LF_FRAME_OUT,       /* d>h  rank; status: 1 or 2; bytes */
    LF_FRAME_EXIT,      /* d>h  rank; status: exit code, or 128 + signal; id: signal */
    LF_FRAME_ABORT,     /* d>h  rank; status: code; text */
    LF_FRAME_FAIL,      /* d>h  text: the daemon cannot go on */
    /* both id: the daemon's; status (h>d); d>h: u32 n, n ranks, data; h>d: data of all */
    LF_FRAME_FENCE,
    LF_FRAME_MODEX,      /* both rank whose data is wanted; id: the asker's */
    LF_FRAME_MODEX_DATA, /* both rank: asking node; id; status; data */
    LF_FRAME_SIGNAL,     /* h>d  status: signal for the ranks */
    LF_FRAME_KILL,       /* h>d  end the ranks */
    LF_FRAME_DONE        /* h>d  all ranks have ended: go */
};
#define LF_ANY_NODE UINT32_MAX

struct lf_frame_head {
    uint32_t type, rank;
    int32_t status;
    uint32_t id;
    uint64_t len;
};

enum { LF_KEY_BYTES = 32, LF_NONCE_BYTES = 32, LF_MAC_BYTES = 32 };
#define LF_FRAME_MAX ((uint64_t)1 << 30)

/* One end of a connection. Out of the poll loop only lf_wire_put is called, from any thread. */
typedef struct lf_wire {
    int fd; /* -1: closed */
    lf_buf in, out;
    size_t in_at, out_at; /* consumed */
    pthread_mutex_t lock; /* of out */
    int wake;             /* eventfd to poke after lf_wire_put from another thread; -1: none */
} lf_wire;

void lf_wire_init(lf_wire *w, int fd);
void lf_wire_fini(lf_wire *w);                                          /* closes */
void lf_wire_put(lf_wire *w, struct lf_frame_head h, const void *data); /* h.len bytes are copied */
size_t lf_wire_backlog(lf_wire *w);                                     /* bytes not sent yet */
/* Send and receive what goes without waiting. LF_ECOMM: the other side is gone. */
int lf_wire_send(lf_wire *w, lf_err *err);
int lf_wire_recv(lf_wire *w, lf_err *err);
/* The next complete frame: 1 and *data (valid until the next lf_wire_recv), 0 when there is none
 * yet, LF_EFORMAT. */
int lf_wire_next(lf_wire *w, struct lf_frame_head *h, const char **data, lf_err *err);

/* ---- proof ---- */

struct lf_auth {
    uint8_t key[LF_KEY_BYTES], hub[LF_NONCE_BYTES], daemon[LF_NONCE_BYTES];
};
/* Hub: queue the nonce on a fresh connection. */
int lf_auth_ask(struct lf_auth *a, lf_wire *w, lf_err *err);
/* Hub, after each receive: 1 proven (the answer is queued), 0 not yet, LF_ECOMM wrong. */
int lf_auth_check(struct lf_auth *a, lf_wire *w, lf_err *err);
/* Daemon, on a connected socket: all of it, waiting up to ms for each part. */
int lf_auth_answer(struct lf_auth *a, int fd, int ms, lf_err *err);

int lf_key_parse(uint8_t key[LF_KEY_BYTES], const char *hex, lf_err *err);

#endif
