/* SPDX-License-Identifier: Apache-2.0
 *
 * What `run` and `resume` show while they drive. On a terminal the last line is live: what the
 * running stages do, redrawn in place about once a second and never longer than the screen. Lines
 * that stay are printed above it. Elsewhere there are only lines that stay, without control
 * sequences.
 */
#ifndef LF_FLOW_CONSOLE_H
#define LF_FLOW_CONSOLE_H

#include <stdbool.h>

#include "flow/run/state.h"

typedef struct lf_console {
    bool live;  /* there may be a live line */
    bool quiet; /* nothing at all is said */
    int jobs;   /* stages at once */
    double next;
    char line[1024]; /* that stands there now, "": none */
} lf_console;

/* One line that stays. user: the console; as lf_drive.say. */
void lf_console_say(void *user, const char *text);
/* The run as it is; as lf_drive.look, so that NULL takes the live line away until the next call. */
void lf_console_look(void *user, const lf_run_view *v, const bool *selected);

#endif
