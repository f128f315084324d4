/* SPDX-License-Identifier: Apache-2.0
 *
 * The same small file work for many stages at once. Each record that is made durable waits for the
 * disk; waits of several threads are one wait.
 */
#ifndef LF_FLOW_PAR_H
#define LF_FLOW_PAR_H

#include <stddef.h>

#include "engine/base/err.h"

/* Call fn(user, i) for i in 0..n-1 on a few threads; every call is made unless an earlier one
 * failed. The first failure by index is reported. fn must not touch what another i's call
 * writes. */
int lf_par_each(size_t n, int (*fn)(void *user, size_t i, lf_err *err), void *user, lf_err *err);

#endif
