# SPDX-License-Identifier: Apache-2.0
# For tests that start stages: source it, and what light.sh has made stands before the libraries of the system.
LD_LIBRARY_PATH=$LF_BUILDDIR/tests/light${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
# light_flow: $LF is loong-flow, which finds the real stages, all of them as small as they can be
light_flow() {
    LF=$LF_BUILDDIR/tests/light/bin/loong-flow LF_LIBEXEC=$LF_BUILDDIR/tests/light/bin
    [ -x "$LF" ] || LF=$LF_BUILDDIR/loong-flow LF_LIBEXEC=$LF_BUILDDIR/stages
    export LF_LIBEXEC
}
