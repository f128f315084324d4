/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of a tied tensor's gradients over the first and the last rank of a pipeline, where the
 * host sees their memory. The last one has its part long before the first is through its passes, so
 * it goes in pieces into room that the first has for it, beside what that one computes. The first
 * adds piece after piece to its own part and sends the sum back, beside the norm and the update.
 *
 * Each rank has a request for each piece: on the first rank it receives the piece, then it sends
 * the sum; on the last it sends, then it receives to the same place. A rank begins the second of
 * them when the first is done, so no order of calls waits in a circle, even where a send waits for
 * its receive: the first rank's receives are there before its passes, and the last has asked for
 * the sum of a piece once its own has left.
 */
#include "engine/train/devcomm_priv.h"

#define PIECE ((size_t)1 << 20) /* floats, at least */

/* Elements of a piece, of which there are LF_DEVCOMM_PIECES at most. */
static size_t piece_of(size_t n)
{
    const size_t share = (n + LF_DEVCOMM_PIECES - 1) / LF_DEVCOMM_PIECES;
    return share > PIECE ? share : PIECE;
}

static bool is_first(const struct lf_devcomm *d)
{
    return d->ends->rank == 0;
}

/* Begins to send a piece to the other rank, or to receive it. */
static int begin_piece(struct lf_devcomm *d, float *data, size_t n, bool send, lf_comm_req *q,
                       lf_err *err)
{
    const int other = 1 - d->ends->rank;
    const size_t bytes = n * sizeof *data;
    const int tag = lf_comm_tag(LF_COMM_BACKWARD, 0); /* the way of gradients, to the first chunk */
    return send ? lf_comm_isend(d->ends, data, bytes, other, tag, q, err)
                : lf_comm_irecv(d->ends, data, bytes, other, tag, q, err);
}

int lf_devcomm_tied_begin(void *user, float *data, size_t n, lf_err *err)
{
    struct lf_devcomm *d = user;
    struct lf_devcomm_tied *t = &d->tied;
    const size_t most = piece_of(n);
    float *from = is_first(d) ? t->room : data;
    int rc = 0;
    for (size_t i = 0, at = 0; at < n && rc == 0; i++, at += most)
        rc =
            begin_piece(d, from + at, n - at < most ? n - at : most, !is_first(d), &t->req[i], err);
    t->begun = rc == 0;
    return rc;
}

/* As an all-reduce adds: the first rank's part, then the other's. */
static void add(float *sum, const float *more, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += more[i];
}

int lf_devcomm_tied_sum(void *user, float *data, size_t n, lf_err *err)
{
    struct lf_devcomm *d = user;
    struct lf_devcomm_tied *t = &d->tied;
    const size_t most = piece_of(n);
    int rc = t->begun ? 0 : lf_devcomm_tied_begin(user, data, n, err);
    for (size_t i = 0, at = 0; at < n && rc == 0; i++, at += most) {
        const size_t count = n - at < most ? n - at : most;
        rc = lf_comm_wait(&t->req[i], err);
        if (rc == 0 && is_first(d))
            add(data + at, t->room + at, count);
        if (rc == 0)
            rc = begin_piece(d, data + at, count, is_first(d), &t->req[i], err);
    }
    return rc;
}

int lf_devcomm_tied_end(void *user, lf_err *err)
{
    struct lf_devcomm_tied *t = &((struct lf_devcomm *)user)->tied;
    t->begun = false;
    return lf_comm_wait_all(t->req, LF_DEVCOMM_PIECES, err);
}
