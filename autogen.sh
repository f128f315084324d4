#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e
cd "$(dirname "$0")"
mkdir -p build-aux
autoreconf --install --force
