#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
LF_KILL_PART=2/2
. "$LF_SRCDIR/tests/flow/kill_cancel.sh"
