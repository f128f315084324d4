/* SPDX-License-Identifier: Apache-2.0
 *
 * What people and programs read of a pipeline schedule.
 */
#ifndef LF_PIPE_SHOW_H
#define LF_PIPE_SHOW_H

#include "engine/base/str.h"
#include "engine/pipe/walk.h"

struct json_t;

/* Adds one line per rank, "rank 0  F0 F1 Z0 Z1\n": the letter of the item and its micro-batch, and
 * with chunks a point and the pipeline stage, as in F0.2. Messages are left out. A line that is
 * longer than `columns` (at least 40) ends in "..." behind the last item that fits. The caller asks
 * lf_buf_check. */
void lf_pipe_draw(lf_buf *out, const struct lf_pipe *p, int columns);

/* Sets *out, which the caller owns:
 *
 *   schedule, ranks, chunks, micro_batches, group, messages
 *   end_s, idle_share
 *   lists    per rank: rank, busy_s, idle_s, peak_micro_batches (of all layers of the rank),
 *            peak_deferred, peak_bytes, chunks, items
 *     chunks   per chunk: stage (the pipeline stage), slots, and receive_buffers and send_buffers,
 *              each [activation, gradient]
 *     items    op (F B W Z send receive wait_send wait_receive), chunk, micro_batch, begin_s,
 *              end_s, and where the item has them: direction, slot, peer, tag, receive_buffer,
 *              send_buffer
 *
 * t is the timing of the same lists. */
int lf_pipe_json(struct json_t **out, const struct lf_pipe *p, const struct lf_pipe_timing *t,
                 lf_err *err);

#endif
