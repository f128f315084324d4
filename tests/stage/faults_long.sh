#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/stage/faults.sh with a full disk at each change, also in the middle of calls in a row on one file.
FAULTS_LONG=yes
. "$LF_SRCDIR/tests/stage/faults.sh"
