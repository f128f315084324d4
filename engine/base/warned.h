/* SPDX-License-Identifier: Apache-2.0
 *
 * Warnings that outlive the log. lf_log(1, ...) writes a warning to the log, and here it also
 * becomes a line of the file DIR/warnings.<host>.<pid>, so that the wrapper of the start can hand
 * it on to run, status and report without reading the log. DIR is what LF_RANKS_DIR names, as for
 * cause.h. Without that setting nothing is written. Each process has a file of its own, because
 * appending to one file from several nodes is not safe on NFS.
 */
#ifndef LF_BASE_WARNED_H
#define LF_BASE_WARNED_H

#include <stddef.h>

#include "engine/base/err.h"

/* A process writes at most this many warnings down. The log has the rest. */
#define LF_WARNED_MAX 200

/* Write it down: one line, control characters become spaces. A failure is silent, because the log
 * has the warning in any case. Safe to call from any thread. */
void lf_warned_note(const char *text);

/* Call `each` for all warnings below dir, by file and in their order. It returns 0 to go on; what
 * else it returns ends the reading and is returned. A directory that is not there has none. */
int lf_warned_read(const char *dir, int (*each)(void *user, const char *text, lf_err *err),
                   void *user, lf_err *err);

#endif
