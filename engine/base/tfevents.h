/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files as TensorBoard reads them: curves and texts for a program that is not ours. Nothing
 * of ours reads them back; the metrics of a run are in frame.h.
 *
 * A file is a sequence of records (TFRecord):
 *
 *     u64le length | u32le masked CRC-32C of these 8 bytes | payload | u32le masked CRC-32C of it
 *     mask(crc) = rotate_right(crc, 15) + 0xa282ead8, modulo 2^32
 *
 * Each payload is one protobuf message `Event`. Of it and of what it contains these fields are
 * written (field number : type):
 *
 *     Event            wall_time 1 : double, step 2 : int64, and one of file_version 3 : string,
 *                      summary 5 : Summary, session_log 7 : SessionLog
 *     Summary          value 1 : repeated Value
 *     Value            tag 1 : string, simple_value 2 : float, tensor 8 : TensorProto,
 *                      metadata 9 : SummaryMetadata
 *     SummaryMetadata  plugin_data 1 : PluginData { plugin_name 1 : string }
 *     TensorProto      dtype 1 : DT_STRING = 7, tensor_shape 2 : { dim 2 : { size 1 : int64 } },
 *                      string_val 8 : bytes
 *     SessionLog       status 1 : START = 1
 *
 * The first record says file_version "brain.Event:2". Each record is one write(2), so a reader
 * that follows sees whole records, or at the end a part of one.
 */
#ifndef LF_BASE_TFEVENTS_H
#define LF_BASE_TFEVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* The masked CRC of n bytes. */
uint32_t lf_tfevents_crc(const void *data, size_t n);

typedef struct lf_tfevents lf_tfevents;
/* Makes dir and in it a new file events.out.tfevents.SECONDS.HOST.PID.N, with the version record.
 * TensorBoard reads the files of a directory in the order of their names, so SECONDS is that of
 * wall_s (since the epoch), or one more than the greatest there, whichever is later: a node whose
 * clock is behind does not put a resumed run before what it continues. The caller owns the
 * writer. */
lf_tfevents *lf_tfevents_open(const char *dir, double wall_s, lf_err *err);
const char *lf_tfevents_path(const lf_tfevents *w); /* borrowed */
/* Says that a session starts whose first step is `step`: TensorBoard then forgets what earlier
 * files of this directory say of that step and of later ones. */
int lf_tfevents_start(lf_tfevents *w, double wall_s, int64_t step, lf_err *err);
/* Adds a point of the curve `tag` to the event that lf_tfevents_flush writes. value is rounded to
 * f32. */
void lf_tfevents_scalar(lf_tfevents *w, const char *tag, double value);
/* The same for the number `key` of a metrics record: the curve valid/X for valid_X, train/X for any
 * other X. `step` and `t`, which are axis and time, are passed over. */
void lf_tfevents_metric(lf_tfevents *w, const char *key, double value);
/* Writes the points that were added as one event. Without points nothing is written. */
int lf_tfevents_flush(lf_tfevents *w, double wall_s, int64_t step, lf_err *err);
/* Writes a text of n bytes, UTF-8 and shown as Markdown. */
int lf_tfevents_text(lf_tfevents *w, double wall_s, int64_t step, const char *tag, const char *text,
                     size_t n, lf_err *err);
/* On a failure of the three functions above the file ends with its last whole record, and the next
 * call goes on behind it. */
void lf_tfevents_close(lf_tfevents *w); /* w may be NULL */

#endif
