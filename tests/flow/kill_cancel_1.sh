#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
LF_KILL_PART=1/2
. "$LF_SRCDIR/tests/flow/kill_cancel.sh"
