/* SPDX-License-Identifier: Apache-2.0
 *
 * Do others keep the cores busy? Two answers: of a machine before something is started on it, by
 * its load; and of a process that runs, by how long its threads stood ready and waited for a core.
 */
#ifndef LF_BASE_BUSY_H
#define LF_BASE_BUSY_H

#include <stdbool.h>
#include <stddef.h>

/* How many cores others use, by the text of /proc/loadavg ("0.20 0.18 0.12 1/80 11206"): the mean
 * over a minute or what is ready now without the reader, whichever is less, because the mean
 * remembers what has ended. Negative: the text says nothing. */
double lf_busy_others(const char *loadavg);
/* Is there not room for three quarters of `allowed` threads on `cores` cores beside so many? */
bool lf_busy_crowded(double others, int cores, int allowed);
/* Words it for this machine and this process; false: there is room, or nobody knows. */
bool lf_busy_machine(char *text, size_t cap);

/* Of a process: CPU time of its threads, and time that they were ready without a core, in seconds
 * since they began. */
typedef struct lf_busy_time {
    double ran, waited;
} lf_busy_time;
/* By /proc/self/task; false: the kernel does not say it. */
bool lf_busy_now(lf_busy_time *out);
/* Over a span of so many seconds: did they work for a good part of it, and wait for a third of the
 * time in which they could have worked? */
bool lf_busy_waited(lf_busy_time begin, lf_busy_time end, double span_s);

/* Seconds over which a process judges itself, 30 without this setting. 0: never, and nobody asks
 * for the load of the machine either. */
#define LF_BUSY_ENV "LF_BUSY_SPAN"
/* One look at this process, cheap enough for every line of a log. When a span has passed since the
 * last judgement, it judges; the first judgement that is bad is worded. true: say the text, which
 * happens once in the life of a process. Any thread may call it. */
bool lf_busy_look(char *text, size_t cap);

#endif
