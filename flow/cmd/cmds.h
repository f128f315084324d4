/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations of every command's entry, from the one list in cmds.def.
 */
#ifndef LF_FLOW_CMDS_H
#define LF_FLOW_CMDS_H

#include "flow/cmd/cmd.h"

#define LF_CMD(name) extern const lf_cmd_def lf_cmd_##name;
#include "flow/cmd/cmds.def"
#undef LF_CMD

#endif
