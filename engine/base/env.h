/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings in the environment. All of ours begin with LF_.
 */
#ifndef LF_BASE_ENV_H
#define LF_BASE_ENV_H

#include "engine/base/err.h"

/* LF_EINVAL when a setting is there under its name of before, LOONG_*, which nobody would read: the
 * message says the name of today. */
int lf_env_check(lf_err *err);

#endif
