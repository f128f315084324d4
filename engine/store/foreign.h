/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of other programs that several ranks have written and that are not read here. They
 * are known by the names of their files alone; nothing is opened.
 *
 *     common.pt                              Megatron Core (torch_dist, zarr)
 *     *.distcp                               PyTorch's distributed checkpoints (DCP), FSDP
 *     layer_*-model_*-model_states.pt        DeepSpeed with a pipeline, GPT-NeoX
 *     *mp_rank_*_model_states.pt,
 *     *zero_pp_rank_*                        DeepSpeed (ZeRO)
 */
#ifndef LF_STORE_FOREIGN_H
#define LF_STORE_FOREIGN_H

#include "engine/base/err.h"

/* For a path that holds nothing that is read. LF_ENOTSUP: dir or one of its directories holds such
 * files; the message names one, the program, and what makes files of them that are read. Else 0,
 * also where dir cannot be looked into. */
int lf_foreign_refuse(const char *dir, lf_err *err);

#endif
