/* SPDX-License-Identifier: Apache-2.0
 *
 * The request to end a training stage early and to take what is there. It is a file that
 * `loong-flow finish` publishes and that nobody removes, so every start of the stage finds it until
 * one has honoured it. Whoever starts the stage passes its name in the environment. The file is a
 * JSON object; with "decay": true the stage lets its learning rate decay first.
 *
 * A finish is no stop: the stage ends well, with its final checkpoint. Where a stop is requested
 * too, the stop goes first, because a stop may be followed by a kill.
 *
 * And the step at which a start of a stage stops because its sweep compares its children there
 * (a rung). That is a stop: the stage saves and goes on from there when the sweep wants it to.
 */
#ifndef LF_BASE_ENDING_H
#define LF_BASE_ENDING_H

#include <stdint.h>

#include "engine/base/err.h"

/* The wrapper passes the name of the file to the stage's processes in this environment variable. */
#define LF_ENDING_ENV "LF_ENDING"

/* Ascending: who asked for a decay may ask for the end at once later, not the other way round. */
enum lf_ending { LF_ENDING_NO, LF_ENDING_DECAY, LF_ENDING_NOW };

/* path NULL or "": nobody will ask. Call once, from a stage's main. */
int lf_ending_install(const char *path, lf_err *err);
/* What is asked for. The file is looked for at most once a second, so this is cheap enough for
 * every step; what was found once stays. */
enum lf_ending lf_ending_requested(void);
/* The same at once, whatever was found before: for who makes or reads such files. */
enum lf_ending lf_ending_read(const char *path);

/* The wrapper passes the step in this environment variable, as a decimal number. */
#define LF_STOP_STEP_ENV "LF_STOP_STEP"

/* text NULL or "": there is none. LF_EINVAL: no number of 1 or more. Call once, from a stage's
 * main. */
int lf_stop_step_install(const char *text, lf_err *err);
/* A start that has made this step or a later one stops; INT64_MAX: there is none. */
int64_t lf_stop_step(void);

#endif
