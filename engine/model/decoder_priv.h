/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the decoder, for the files of engine/model. */
#ifndef LF_MODEL_DECODER_PRIV_H
#define LF_MODEL_DECODER_PRIV_H

#include "engine/model/decoder.h"

struct lf_decoder {
    lf_model_config c;
    int64_t positions;
};

#endif
