#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every layout of ranks with every pair of other switches, in every mode: ranks in lock step against one rank, and the modes bit for bit.
exec "$LF_BUILDDIR/tests/layout/matrix" all
