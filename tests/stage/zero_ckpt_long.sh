#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/stage/zero_ckpt.sh with every pair of numbers of ranks, up to 8, and 25 kills in each of six places.
ZERO_KILLS=25
. "$LF_SRCDIR/tests/stage/zero_ckpt.sh"
