/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an adapter that an option names: a checkpoint of ours, or a directory of PEFT, which is
 * first converted to a checkpoint below out.
 */
#ifndef LF_STAGES_ADAPTER_IN_H
#define LF_STAGES_ADAPTER_IN_H

#include "engine/comm/comm.h"
#include "engine/convert/peft.h"

/* Whether dir holds PEFT's files. */
bool lf_adapter_in_is_peft(const char *dir);

/* Collective over comm (NULL: alone). *dir becomes the checkpoint of the adapter; the caller owns
 * the text. base is the checkpoint that the adapter is for. PEFT's files are converted once, into
 * OUT/peft-XXXXXXXXXXXX, named by their hash. With out NULL they give LF_EINVAL. */
int lf_adapter_in(char **dir, lf_comm *comm, const char *from, const char *base, const char *out,
                  int threads, lf_err *err);

#endif
