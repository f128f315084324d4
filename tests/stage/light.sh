#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# light.sh DIR TRAIN_TOOL STAGE: makes libraries in DIR that stand in for what stages load and nobody calls here: libcurl, by which
# HDF5 reads from S3, and libxml2, by which libarchive reads xar. Those bring forty libraries, half of what a start of a stage costs,
# and tests of stages start thousands. A function of them that is called ends the process by name. DIR stays empty of what is not
# loaded, and of a library with which a file cannot be written or the stage not be started. No test by itself.
set -u
dir=$1 tool=$2 stage=$3
rm -rf "$dir"
mkdir -p "$dir" || exit 1
find_library() { # find_library PROGRAM NAME FIELD: its name there (1), or where it is (2)
    ldd "$1" 2>/dev/null | sed -n "s|^[[:space:]]*\($2[^ ]*\) => \(/[^ ]*\) .*|\\$3|p" | head -n 1
}
# stand_in PROGRAM USER NAME PATTERN: for the library NAME, whose functions are those of USER that are like PATTERN: NAME@VERSION
stand_in() {
    user=$(find_library "$1" "$2" 2) name=$(find_library "$1" "$3" 1)
    { [ -n "$user" ] && [ -n "$name" ]; } || return
    # "VERSION NAME" of each function
    readelf -W --dyn-syms "$user" 2>/dev/null |
        awk -v p="$4" '$4 == "FUNC" && $7 == "UND" && $8 ~ p { n = split($8, q, "@"); print q[n], q[1] }' | sort >"$dir/names"
    {
        echo '#include <stdio.h>'
        echo '#include <stdlib.h>'
        awk '{ printf "void %s(void);\nvoid %s(void) { fputs(\"%s is called\\n\", stderr); abort(); }\n", $2, $2, $2 }' "$dir/names"
    } >"$dir/all.c"
    awk '$1 != last { if (last != "") print "};"; print $1 " { global:"; last = $1 } { print $2 ";" } END { print "};" }' "$dir/names" >"$dir/map"
    ${CC:-cc} -shared -fPIC -Wl,-soname,"$name" -Wl,--version-script="$dir/map" -o "$dir/$name" "$dir/all.c" 2>/dev/null &&
        LD_LIBRARY_PATH=$dir LD_BIND_NOW=1 "$tool" data "$dir/try" 4 0 >/dev/null 2>&1 &&
        LD_LIBRARY_PATH=$dir LD_BIND_NOW=1 "$stage" --version >/dev/null 2>&1 || rm -f "$dir/$name"
    rm -rf "$dir/names" "$dir/map" "$dir/all.c" "$dir/try"
}
stand_in "$tool" libhdf5 libcurl '^curl_[a-z_]*@'
stand_in "$stage" libarchive libxml2 '@LIBXML2_'
exit 0
