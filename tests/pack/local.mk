# SPDX-License-Identifier: Apache-2.0
# Tests of packaging/ and of what every package says of itself. Those of LONG_TESTS take
# minutes, most of them a build.
TESTS += tests/pack/version.sh tests/pack/install.sh tests/pack/listed.sh
EXTRA_DIST += tests/pack/lib.sh tests/pack/version.sh tests/pack/install.sh tests/pack/listed.sh
LONG_TESTS += tests/pack/dist.sh
EXTRA_DIST += tests/pack/dist.sh
LONG_TESTS += tests/pack/commands.sh
EXTRA_DIST += tests/pack/commands.sh
LONG_TESTS += tests/pack/deb.sh
EXTRA_DIST += tests/pack/deb.sh
LONG_TESTS += tests/pack/rpm.sh
EXTRA_DIST += tests/pack/rpm.sh
LONG_TESTS += tests/pack/recipes.sh
EXTRA_DIST += tests/pack/recipes.sh
# For another processor; skipped unless LF_ARM_SYSROOT names a root with its libraries.
LONG_TESTS += tests/pack/arm.sh
EXTRA_DIST += tests/pack/arm.sh tests/pack/arm_root.sh
