#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# light.sh DIR TOOL FLOW STAGE..: makes libraries in DIR that stand in for what stages load and hardly call: tests start stages thousands of
# times, and most of a start is the loading of libraries. Two are called by nobody here: libcurl, by which HDF5 reads from S3, and
# libxml2, by which libarchive reads xar. A function of them that is called ends the process by name. Of others, such as oneDNN and UCX, the
# first call loads the real library. DIR stays empty of what is not loaded, and of a library with which a file cannot be written or a
# stage not be started. DIR/bin has loong-flow and the stages without what debuggers read, five sixths of them, because a run copies and
# hashes its programs. No test by itself.
set -u
dir=$1 tool=$2 flow=$3
shift 3
stages=$*
rm -rf "$dir"
mkdir -p "$dir" || exit 1
find_library() { # find_library PROGRAM NAME FIELD: its name there (1), or where it is (2)
    ldd "$1" 2>/dev/null | sed -n "s|^[[:space:]]*\($2[^ ]*\) => \(/[^ ]*\) .*|\\$3|p" | head -n 1
}
# start: every stage, with what is in DIR, and with every function that it calls
start() {
    for program in $stages; do
        LD_LIBRARY_PATH=$dir LD_BIND_NOW=1 "$program" --version >/dev/null 2>"$dir/said" && [ ! -s "$dir/said" ] || return
    done
}
version_map() { # of the lines of $dir/names, which begin "VERSION NAME"
    awk '$1 != last { if (last != "") print "};"; print $1 " { global:"; last = $1 } { print $2 ";" }
        END { print "};"; print "LF_LIGHT { local: *; };" }' "$dir/names"
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
    version_map >"$dir/map"
    ${CC:-cc} -shared -fPIC -Wl,-soname,"$name" -Wl,--version-script="$dir/map" -o "$dir/$name" "$dir/all.c" 2>/dev/null &&
        LD_LIBRARY_PATH=$dir LD_BIND_NOW=1 "$tool" data "$dir/try" 4 0 >/dev/null 2>&1 &&
        start || rm -f "$dir/$name"
    rm -rf "$dir/names" "$dir/map" "$dir/all.c" "$dir/try" "$dir/said"
}
# later NAME..: light_later.c in place of all these libraries, with the functions of C that they have. What another library needs of
# them it gets from there, too, and variables from the real one: libucp:libucs says that real libucs is to be loaded before libucp.
later() {
    for name; do
        first=${name#*:} name=${name%:*}
        if [ "$first" = "$name" ]; then first=; fi
        for program in $stages; do
            real=$(find_library "$program" "$name" 2)
            [ -z "$real" ] || break
        done
        [ -n "$real" ] || continue
        ln -s later.so "$dir/$(find_library "$program" "$name" 1)"
        [ -z "$first" ] || first=$(find_library "$program" "$first" 2)
        # "VERSION NAME LIBRARY FIRST" of each function; any version will do where the library has none
        readelf -W --dyn-syms "$real" 2>/dev/null |
            awk -v real="$real" -v first="$first" '$4 == "FUNC" && $7 != "UND" && $8 ~ /^[a-zA-Z][a-zA-Z0-9_]*(@@.*)?$/ {
                n = split($8, q, "@"); print (n > 1 ? q[n] : "ANY"), q[1], real, first }'
    done | sort >"$dir/names"
    awk '{ printf "LATER(%d, %s, \"%s\", \"%s\")\n", NR - 1, $2, $3, $4 }' "$dir/names" >"$dir/functions.h"
    version_map >"$dir/map"
    ${CC:-cc} -O2 -shared -fPIC -I"$dir" -Wl,-soname,later.so -Wl,--version-script="$dir/map" -o "$dir/later.so" \
        "$(dirname "$0")/light_later.c" 2>/dev/null && start || find "$dir" '(' -type l -o -name later.so ')' -exec rm -f {} +
    rm -f "$dir/names" "$dir/functions.h" "$dir/map" "$dir/said"
}
# opens: are the real PMIx and UCX loaded at the first call, where they stand in DIR?
opens() {
    [ -e "$dir/later.so" ] || return 0
    {
        echo 'const char *ucp_get_version_string(void);'
        echo 'int PMIx_Initialized(void);'
        echo 'int main(void) { return PMIx_Initialized() || !ucp_get_version_string(); }'
    } >"$dir/try.c"
    ${CC:-cc} -o "$dir/try" "$dir/try.c" "$dir"/libpmix.so.* "$dir"/libucp.so.* 2>/dev/null && LD_LIBRARY_PATH=$dir "$dir/try"
    opened=$?
    rm -f "$dir/try" "$dir/try.c"
    return $opened
}
stand_in "$tool" libhdf5 libcurl '^curl_[a-z_]*@'
stand_in "${stages%% *}" libarchive libxml2 '@LIBXML2_'
few="libdnnl libarchive libpcre2-8 libutf8proc libsnappy libjpeg libpng16 libwebp"
# A stage of one rank needs neither PMIx nor UCX, which measures the processor's clock as it is loaded.
later $few libpmix libucs libucp:libucs
opens || { find "$dir" '(' -type l -o -name later.so ')' -exec rm -f {} + && later $few; }
mkdir "$dir/bin" || exit 1
for program in "$flow" $stages; do
    ${STRIP:-strip} -o "$dir/bin/$(basename "$program")" "$program" 2>/dev/null || ln -f "$program" "$dir/bin" || exit 1
done
exit 0
