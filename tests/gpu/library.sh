# SPDX-License-Identifier: Apache-2.0
# Sourced by check.sh and bench.sh: where cuBLASLt or cuDNN is no library that the loader finds, it may still lie on this node, in a
# toolkit or beside a Python that has torch. LF_CUBLASLT and LF_CUDNN name them for our programs, unless they are set.
find_library() { # VARIABLE FILE-PATTERN
    eval "[ -z \"\${$1:-}\" ]" || return 0
    if { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q "[[:space:]]$2"; then return 0; fi
    _found=$(for _d in ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda*/lib64 /opt/cuda*/lib64 /usr/local/cuda*/lib; do ls "$_d"/$2; done 2>/dev/null | head -n 1)
    [ -n "$_found" ] || _found=$(${PYTHON:-python3} -c 'import glob, sys
print(max((f for p in sys.path if p for f in glob.glob(p + "/nvidia/*/lib/" + sys.argv[1])), default=""))' "$2" 2>/dev/null)
    [ -r "$_found" ] || return 0
    eval "$1=\$_found"
    export "${1?}"
}
find_libraries() {
    find_library LF_CUBLASLT 'libcublasLt.so.1[23]'
    find_library LF_CUDNN 'libcudnn.so.9'
}
