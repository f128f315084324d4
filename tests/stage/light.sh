#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# light.sh DIR TRAIN_TOOL: makes a libcurl in DIR that stands in for the one which HDF5 loads to read from S3, and nobody
# calls here. That one brings thirty libraries, a third of what a start of a stage costs, and tests of stages start
# thousands. A function of it that is called ends the process by name. DIR stays empty where HDF5 loads none, or a
# file cannot be written with it. No test by itself.
set -u
dir=$1 program=$2
rm -rf "$dir"
mkdir -p "$dir" || exit 1
find_library() { ldd "$program" 2>/dev/null | sed -n "s|^[[:space:]]*\($1[^ ]*\) => \(/[^ ]*\) .*|\\$2|p" | head -n 1; }
hdf5=$(find_library libhdf5 2) curl=$(find_library libcurl 1)
{ [ -n "$hdf5" ] && [ -n "$curl" ]; } || exit 0
# "VERSION NAME" of each function that HDF5 takes from it
readelf -W --dyn-syms "$hdf5" 2>/dev/null | awk '$4 == "FUNC" && $7 == "UND" && $8 ~ /^curl_[a-z_]*@/ { split($8, p, "@"); print p[2], p[1] }' |
    sort >"$dir/names"
{
    echo '#include <stdio.h>'
    echo '#include <stdlib.h>'
    awk '{ printf "void %s(void);\nvoid %s(void) { fputs(\"%s is called\\n\", stderr); abort(); }\n", $2, $2, $2 }' "$dir/names"
} >"$dir/curl.c"
awk '$1 != last { if (last != "") print "};"; print $1 " { global:"; last = $1 } { print $2 ";" } END { print "};" }' "$dir/names" >"$dir/map"
${CC:-cc} -shared -fPIC -Wl,-soname,"$curl" -Wl,--version-script="$dir/map" -o "$dir/$curl" "$dir/curl.c" 2>/dev/null &&
    LD_LIBRARY_PATH=$dir LD_BIND_NOW=1 "$program" data "$dir/try" 4 0 >/dev/null 2>&1 || rm -f "$dir/$curl"
rm -rf "$dir/names" "$dir/map" "$dir/curl.c" "$dir/try"
exit 0
