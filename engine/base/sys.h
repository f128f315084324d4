/* SPDX-License-Identifier: Apache-2.0
 *
 * The process: stop requests, clocks, memory in use, log lines, progress on a terminal.
 */
#ifndef LF_BASE_SYS_H
#define LF_BASE_SYS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

/* Stop requests. Installs handlers for SIGTERM, SIGINT and SIGUSR2 that only set a flag; a second
 * SIGINT ends the process at once. SIGPIPE and SIGXFSZ are ignored, so that write(2) fails instead.
 * The existence of the file stop_path, when it is not NULL, is a stop request too, and so is a
 * closed fence (fence.h). Both are looked for at most once a second. Call once, from a stage's
 * main. */
int lf_stop_install(const char *stop_path, lf_err *err);
/* Has a stop been requested? This is cheap enough for every step. */
bool lf_stop_requested(void);
/* "SIGTERM", "SIGUSR2", "SIGINT", "stop file", "a newer start has taken over" or NULL. */
const char *lf_stop_reason(void);

double lf_now_s(void);  /* monotonic seconds */
double lf_wall_s(void); /* seconds since the epoch */
/* Writes "2026-11-21T11:20:05Z" into buf and returns buf. */
const char *lf_time_iso(char buf[21], double wall_s);

/* Peak and current resident bytes of this process; -1 when unknown. */
int64_t lf_rss_peak_bytes(void);
int64_t lf_rss_bytes(void);

/* Log lines go to stderr: `lf-pretrain: step 1200 loss 2.31`. Only stages and the flow log;
 * libraries return errors or use a callback. The levels are 0 error, 1 warning, 2 info, 3 debug.
 * Lines above the threshold are dropped. */
void lf_log_init(const char *program, int threshold);
void lf_log(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Shows rate and remaining time of a long loop: one line that is rewritten on a terminal, otherwise
 * a log line at most every 10 s. total <= 0: unknown. In a start of a stage it also keeps
 * LF_PROGRESS_FILE in the directory that LF_RANKS_DIR names (cause.h), for whoever shows the stage:
 * {"what", "unit", "done", "total", "per_s", "t"}, replaced at most once a second, by the first
 * rank. per_s is counted from begin on, t is lf_wall_s(). Failing to write it is silent. */
#define LF_PROGRESS_FILE "progress.json"
typedef struct lf_progress {
    const char *what, *unit;
    double total, done, t0, last;
    double done_at_start;
    double kept; /* when the file was written */
    bool tty;
} lf_progress;
void lf_progress_begin(lf_progress *p, const char *what, const char *unit, double done,
                       double total);
void lf_progress_update(lf_progress *p, double done);
void lf_progress_end(lf_progress *p);

/* Is the descriptor a terminal that wants colours (NO_COLOR, TERM)? */
bool lf_wants_colour(int fd);

/* Processors that this process may run on, or that its CPU quota is worth (quota.h), if fewer. */
int lf_ncpu(void);

#endif
