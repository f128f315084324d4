/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attn_f32.cu"
