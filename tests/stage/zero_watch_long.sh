#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/stage/zero_watch.sh where no other test runs: everything has ended 5 seconds after the patience at the latest.
WATCH_S=$((${LF_TEST_PATIENCE:-20} + 5))
. "$LF_SRCDIR/tests/stage/zero_watch.sh"
