# SPDX-License-Identifier: Apache-2.0
# For tests that start stages: source it, and what light.sh has made stands before the libraries of the system.
LD_LIBRARY_PATH=$LF_BUILDDIR/tests/light${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
