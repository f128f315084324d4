#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The recipes of packaging/ as far as their own tools read them without building: EasyBuild's style and dry run, Spack's Python, the environment module loaded and unloaded.
. "$LF_SRCDIR/tests/pack/lib.sh"
pack=$LF_SRCDIR/packaging
V=$(version)

eb=$(ls "$pack"/easybuild/*.eb)

# Environment Modules, as they are installed in several places.
modulecmd=
for f in "${MODULESHOME:-/nowhere}/libexec/modulecmd.tcl" /usr/share/Modules/libexec/modulecmd.tcl \
    /usr/lib/*/modulecmd.tcl /usr/lib/modulecmd.tcl; do
    [ -n "$modulecmd" ] || [ ! -f "$f" ] || modulecmd=$f
done
command -v tclsh >/dev/null || modulecmd=

# --- EasyBuild ---
if command -v eb >/dev/null && [ -n "$modulecmd" ] && command -v bash >/dev/null; then
    mkdir -p home/libexec && ln -s "$modulecmd" home/libexec/modulecmd.tcl
    cat >eb.sh <<'SH'
MODULESHOME=$T/home
module() { eval "$(tclsh "$MODULESHOME/libexec/modulecmd.tcl" bash "$@")"; }
export MODULESHOME
export -f module
root=
[ "$(id -u)" -ne 0 ] || root=--allow-use-as-root-and-accept-consequences
exec eb "$@" $root --prefix="$T/eb" --tmpdir="$T" --modules-tool=EnvironmentModules \
    --module-syntax=Tcl --allow-modules-tool-mismatch
SH
    export T
    bash eb.sh "$eb" --check-style >log 2>&1; ok $? "EasyBuild's style" "$(last log)"
    bash eb.sh "$eb" -D --robot >log 2>&1 && grep -q 'module: loong-flow/' log
    ok $? "EasyBuild's dry run finds every dependency" "$(last log)"
    sed "s/'PMIx', '[0-9.]*'/'PMIx', '0.0.1'/" "$eb" >"${eb##*/}"
    ! bash eb.sh "${eb##*/}" -D --robot >log 2>&1
    ok $? "which sees one that is not there" "$(last log)"
else
    skip "EasyBuild's style and dry run" "no eb, or no Environment Modules"
fi

# --- Spack ---
if command -v python3 >/dev/null; then
    python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' \
        "$pack/spack/package.py" >log 2>&1
    ok $? "Spack's recipe is Python" "$(last log)"
else
    skip "Spack's recipe is Python" "no python3"
fi

# --- an environment module ---
mkdir -p "m/loong-flow" there/bin
sed "s|^set prefix .*|set prefix $T/there|" "$pack/module/loong-flow.tcl" >"m/loong-flow/$V"
if [ -n "$modulecmd" ]; then
    module() { tclsh "$modulecmd" sh "$@"; }
    MODULEPATH=$T/m MANPATH=/usr/man
    export MODULEPATH MANPATH
    eval "$(module load loong-flow 2>log)"
    case $PATH in *"$T/there"*) false ;; *) grep -q 'not installed in' log ;; esac
    ok $? "a module of nothing is not loaded" "$(last log)"
    printf '#!/bin/sh\n' >there/bin/loong-flow && chmod +x there/bin/loong-flow
    old_path=$PATH old_man=$MANPATH
    eval "$(module load loong-flow 2>log)"
    is "${PATH%%:*}" "$T/there/bin" "module load: PATH"
    is "${MANPATH%%:*}" "$T/there/share/man" "MANPATH"
    case $MANPATH in *:) true ;; *) false ;; esac; ok $? "and man's own pages" "$MANPATH"
    module help loong-flow 2>&1 | grep -q 'man loong-flow'; ok $? "module help"
    eval "$(module unload loong-flow 2>log)"
    is "$PATH" "$old_path" "module unload: PATH as it was"
    is "${MANPATH%:}" "$old_man" "MANPATH"
elif command -v tclsh >/dev/null; then
    cat >eval.tcl <<'TCL'
foreach word {module-whatis conflict prepend-path append-path break} { proc $word args {} }
set prefix x
source [lindex $argv 0]
TCL
    tclsh eval.tcl "m/loong-flow/$V" 2>log; ok $? "the module file is Tcl" "$(last log)"
else
    skip "the module file" "no tclsh"
fi
finish_min 3 # more with EasyBuild and Environment Modules
