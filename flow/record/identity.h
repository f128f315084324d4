/* SPDX-License-Identifier: Apache-2.0
 *
 * PROJECT/.loong/project.json: {"lf_project":1,"id":ULID,"created"}, published once.
 */
#ifndef LF_FLOW_IDENTITY_H
#define LF_FLOW_IDENTITY_H

#include "engine/base/err.h"

/* The id, as it is written there; owned. */
int lf_identity_load(char **id, const char *path, lf_err *err);
/* LF_EEXIST: it is there. */
int lf_identity_write(const char *path, const char *id, lf_err *err);

#endif
