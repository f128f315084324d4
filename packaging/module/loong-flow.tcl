#%Module1.0
# SPDX-License-Identifier: Apache-2.0
#
# A module file for Environment Modules and Lmod. Copy it to MODULEPATH/loong-flow/VERSION and write
# the --prefix of the installation here:
set prefix /opt/loong-flow/VERSION

proc ModulesHelp {} {
    puts stderr "loong-flow trains language models from raw text on batch clusters."
    puts stderr "loong-flow --help; man loong-flow"
}
module-whatis "loong-flow: training of language models end to end on batch clusters"
conflict loong-flow

if {![file executable $prefix/bin/loong-flow]} {
    puts stderr "loong-flow is not installed in $prefix"
    break
}
prepend-path PATH $prefix/bin
# Completion finds the program's own file through XDG_DATA_DIRS; man pages go by MANPATH.
prepend-path MANPATH $prefix/share/man
prepend-path XDG_DATA_DIRS $prefix/share
# An empty entry keeps the system's own man pages.
append-path MANPATH ""
