#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/stage/cuda_zero.sh with more ranks, orders of streams, precisions and models: experts, adapters, frozen layers.
CUDA_ZERO_LONG=yes
. "$LF_SRCDIR/tests/stage/cuda_zero.sh"
