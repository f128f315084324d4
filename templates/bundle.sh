#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bundle`: an installed tree and every shared library it needs become one directory that runs anywhere on machines of the same
# processor family whose C library is at least as new. Not carried: the C library with its loader (they belong to the kernel's
# machine), drivers and CUDA's own libraries (loaded at run time where they are).
#
#   bundle.sh INSTALLED_PREFIX BUNDLE VERSION SOURCE [GPU_PROGRAM...]
#
# BUNDLE/bin, libexec/loong-flow, share: as installed     BUNDLE/lib/loong-flow: libraries, LIBS names them one a line
# BUNDLE/gpu: the CUDA tests and benchmarks GPU_PROGRAM.. with the scripts that run them (tests/gpu/README.md)
# BUNDLE/licences: of what is carried, by package         BUNDLE/MANIFEST: sha256 of every file
set -eu
prefix=$1 bundle=$2 version=$3 src=$4
shift 4
lib=$bundle/lib/loong-flow
mkdir -p "$bundle"
cp -R "$prefix/." "$bundle"
mkdir -p "$lib" "$bundle/licences" "$bundle/examples"
cp -R "$src/examples/." "$bundle/examples"

not_carried() { # part of the machine, not of us
    case $1 in
    ld-linux* | ld64* | ld-musl* | libc.so* | libm.so* | libmvec.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libutil.so* | libnsl.so* | \
        libanl.so* | linux-vdso* | libcuda.so* | libcudart.so* | libcublas*.so* | libcudnn*.so* | libnccl.so* | libnv*.so*) return 0 ;;
    esac
    return 1
}

# Libraries that a file needs: "name path" a line. ldd resolves what libraries need in turn.
needs() { LC_ALL=C ldd "$1" 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p'; }

# The names by which a package may list a file, the likeliest first: "path<tab>name" a line.
names_of() {
    while read -r path; do
        real=$(readlink -f "$path")
        for f in "$real" "${real#/usr}" "/usr$real" "$path"; do printf '%s\t%s\n' "$path" "$f"; done
    done
}

# "path<tab>package" of each path that is read, where a package manager knows. dpkg-query reads all of its lists at each
# start, so it is asked once.
owners_of() {
    if command -v dpkg-query >/dev/null; then
        names_of >"$bundle/names"
        cut -f2 "$bundle/names" | sort -u | tr '\n' '\0' | xargs -0 dpkg-query -S 2>/dev/null >"$bundle/owners" || true
        awk -F '\t' 'NR == FNR { at = index($0, ": /"); f = substr($0, at + 2); split($0, p, ":"); if (at && !(f in owner)) owner[f] = p[1]; next }
            !($1 in pkg) { pkg[$1] = ""; order[++n] = $1 }
            pkg[$1] == "" && ($2 in owner) { pkg[$1] = owner[$2] }
            END { for (i = 1; i <= n; i++) print order[i] "\t" pkg[order[i]] }' "$bundle/owners" "$bundle/names"
        rm "$bundle/owners" "$bundle/names"
    else
        while read -r path; do
            printf '%s\t%s\n' "$path" "$(rpm -qf --queryformat '%{NAME}\n' "$(readlink -f "$path")" 2>/dev/null | head -n 1)"
        done
    fi
}

# The licence texts of the packages that the carried libraries are from.
licences() {
    sort -u "$bundle/carried" | owners_of | while IFS="$(printf '\t')" read -r path pkg; do
        [ -n "$pkg" ] || { echo "bundle: no package owns $path: look for its licence yourself" >&2; continue; }
        [ ! -e "$bundle/licences/$pkg" ] || continue
        for f in "/usr/share/doc/$pkg/copyright" "/usr/share/licenses/$pkg"; do
            if [ -e "$f" ]; then cp -RL "$f" "$bundle/licences/$pkg" && continue 2; fi
        done
        echo "bundle: no licence text of package $pkg" >&2
    done
    rm "$bundle/carried"
}

carry() { # FILE: what it needs
    needs "$1" | while read -r name path; do
        if not_carried "$name" || [ -e "$lib/$name" ]; then continue; fi
        cp -L "$path" "$lib/$name"
        chmod 755 "$lib/$name"
        echo "$path" >>"$bundle/carried"
    done
}

# Modules that a library loads by itself from a folder beside it: UCX's transports.
carry_modules() { # LIBRARY FOLDER
    [ -e "$lib/$1" ] || return 0
    from=$(dirname "$(needs "$2" | awk -v n="$1" '$1 == n { print $2 }')")/$3
    [ -d "$from" ] || return 0
    mkdir -p "$lib/$3"
    for m in "$from"/*.so.0; do
        [ -e "$m" ] || continue
        cp -L "$m" "$lib/$3/"
        echo "$m" >>"$bundle/carried"
        carry "$m"
    done
}

# op: kernels against the reference, model: whole models, bench: benchmarks
gpu_programs() {
    mkdir -p "$bundle/gpu/op" "$bundle/gpu/model" "$bundle/gpu/bench"
    for f in "$@"; do
        case $f in
        *tests/op/*) to=op ;;
        *tests/golden-gpu/*) to=model ;;
        *) to=bench ;;
        esac
        cp "$f" "$bundle/gpu/$to/"
        if command -v strip >/dev/null; then strip --strip-debug "$bundle/gpu/$to/${f##*/}"; fi # two dozen programs, mostly debug text
    done
    for f in check.sh bench.sh library.sh check-gpu bench-gpu README.md gpu_peer.py; do
        if [ -e "$src/tests/gpu/$f" ]; then cp "$src/tests/gpu/$f" "$bundle/gpu/"; fi
    done
    # What the whole-model tests read, below $LF_SRCDIR.
    mkdir -p "$bundle/gpu/data/tests/golden-gpu" "$bundle/gpu/data/tests/golden"
    cp "$src"/tests/golden-gpu/*.ini "$bundle/gpu/data/tests/golden-gpu/"
    cp -R "$src/tests/golden/families" "$bundle/gpu/data/tests/golden/"
    # The text that fp8_test learns: a megabyte of sources is enough.
    for d in base graph store model; do
        mkdir -p "$bundle/gpu/data/engine/$d"
        cp "$src/engine/$d"/*.c "$bundle/gpu/data/engine/$d/"
    done
}
if [ $# -gt 0 ]; then gpu_programs "$@"; fi

executables=$(find "$bundle/bin" "$bundle/libexec/loong-flow" "$bundle/gpu/op" "$bundle/gpu/model" "$bundle/gpu/bench" -type f 2>/dev/null) ||
    [ -n "$executables" ] # the folders below gpu/ are there where nvcc was
: >"$bundle/carried"
for f in $executables; do carry "$f"; done
for f in "$bundle"/libexec/loong-flow/*; do carry_modules libucs.so.0 "$f" ucx; done
licences
(cd "$lib" && find . -type f ! -name 'LIBS*' | sed 's|^\./||' | LC_ALL=C sort >LIBS.tmp && mv LIBS.tmp LIBS)

# Is anything left that is neither here nor part of the machine?
missing=$(for f in $executables; do
    LC_ALL=C LD_LIBRARY_PATH=$lib ldd "$f" | awk -v f="${f##*/}" '/not found/ { print f ": " $1 }'; done)
[ -z "$missing" ] || { echo "bundle: libraries not found:" >&2; echo "$missing" >&2; exit 1; }
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo 'the C library of this machine')
cat >"$bundle/README" <<END
loong-flow $version, built for $(uname -m) with $glibc: it runs where the C library is at least as new.

    bin/loong-flow init pretrain && bin/loong-flow plan && bin/loong-flow submit

$(if [ $# -gt 0 ]; then echo "On a node with an NVIDIA GPU: gpu/check-gpu tests the kernels there, gpu/bench-gpu times them."; fi)

Copy or move this directory as a whole; nothing in it names the place it lies in. Licences of the carried libraries: licences/.
END
(cd "$bundle" && find . -type f ! -name MANIFEST -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >MANIFEST)
echo "bundle: $(find "$lib" -type f ! -name LIBS | wc -l) libraries, $(du -sm "$bundle" | cut -f1) MiB"
