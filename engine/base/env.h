/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings in the environment. The names of all our variables begin with LF_.
 */
#ifndef LF_BASE_ENV_H
#define LF_BASE_ENV_H

#include "engine/base/err.h"

/* LF_EINVAL: a variable with one of the old names, LOONG_*, is set, which nothing reads any more.
 * The message says today's name. */
int lf_env_check(lf_err *err);

#endif
