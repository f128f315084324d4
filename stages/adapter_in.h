/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter as users name it: a checkpoint of ours, or PEFT's directory, which becomes one below
 * out first. */
#ifndef LF_STAGES_ADAPTER_IN_H
#define LF_STAGES_ADAPTER_IN_H

#include "engine/comm/comm.h"
#include "engine/convert/peft.h"

/* Does dir hold PEFT's files? */
bool lf_adapter_in_is_peft(const char *dir);

/* Collective over comm (NULL: alone). *dir: the checkpoint of the adapter, owned. base: checkpoint
 * that it is for. PEFT's files are put into OUT/peft-XXXXXXXXXXXX, named by their hash, once; out
 * NULL: LF_EINVAL for them. */
int lf_adapter_in(char **dir, lf_comm *comm, const char *from, const char *base, const char *out,
                  int threads, lf_err *err);

#endif
