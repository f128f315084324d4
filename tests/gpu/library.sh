# SPDX-License-Identifier: Apache-2.0
# Sourced by check.sh and bench.sh: which cuBLASLt and cuDNN our programs load. Those beside a Python that has torch come first: the peer of
# a benchmark loads them too, and they are often newer than a toolkit's (our attention needs cuDNN 9.18.1). Else what the loader finds, else
# what lies in a toolkit. LF_CUBLASLT and LF_CUDNN name them, unless they are set.
find_library() { # VARIABLE FILE-PATTERN
    eval "[ -z \"\${$1:-}\" ]" || return 0
    _found=$(${PYTHON:-python3} -c 'import glob, sys
print(max((f for p in sys.path if p for f in glob.glob(p + "/nvidia/*/lib/" + sys.argv[1])), default=""))' "$2" 2>/dev/null)
    if [ -z "$_found" ]; then
        if { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q "[[:space:]]$2"; then return 0; fi
        _found=$(for _d in ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda*/lib64 /opt/cuda*/lib64 /usr/local/cuda*/lib; do ls "$_d"/$2; done 2>/dev/null | head -n 1)
    fi
    [ -r "$_found" ] || return 0
    eval "$1=\$_found"
    export "${1?}"
}
find_libraries() {
    find_library LF_CUBLASLT 'libcublasLt.so.1[23]'
    find_library LF_CUDNN 'libcudnn.so.9'
}
