dnl SPDX-License-Identifier: Apache-2.0
dnl One macro per question asked of the machine.

dnl LF_MISSING(WHAT, WHY, DEBIAN, RHEL): stop with the commands that help.
AC_DEFUN([LF_MISSING], [AC_MSG_ERROR([$1 not found; it is needed for $2.
  Debian, Ubuntu:  apt-get install $3
  RHEL (and EPEL): dnf install $4
  Spack or conda-forge: see ./autogen.sh --packages])])

dnl LF_REQUIRE_PKG(VAR, MODULE, WHY, DEBIAN, RHEL): a required pkg-config module.
AC_DEFUN([LF_REQUIRE_PKG], [PKG_CHECK_MODULES([$1], [$2], [], [LF_MISSING([$2], [$3], [$4], [$5])])])

dnl LF_REQUIRE([HDF5], WHY, DEBIAN, RHEL): the serial HDF5 C library. RHEL has no .pc file for it, so the header is
dnl looked for as well. Reading compressed shards asks for the place of a chunk (H5Dget_chunk_info_by_coord), which is why
dnl 1.10.5 is the oldest that will do.
AC_DEFUN([LF_REQUIRE], [
  PKG_CHECK_MODULES([$1], [hdf5 >= 1.10.5], [],
    [PKG_CHECK_MODULES([$1], [hdf5-serial >= 1.10.5], [], [
      AC_CHECK_HEADER([hdf5.h], [$1_CFLAGS= $1_LIBS=-lhdf5], [LF_MISSING([HDF5 1.10.5 or newer], [$2], [$3], [$4])])])])
  lf_save_LIBS=$LIBS LIBS="$[]$1_LIBS $LIBS"
  AC_CHECK_FUNC([H5Dget_chunk_info_by_coord], [],
    [AC_MSG_ERROR([the HDF5 library found is older than 1.10.5 or cannot be linked ($[]$1_LIBS; see config.log)])])
  LIBS=$lf_save_LIBS
])

dnl LF_WITH_PMIX: --with-pmix[=DIR] (default yes), --without-pmix.
AC_DEFUN([LF_WITH_PMIX], [
  AC_ARG_WITH([pmix], [AS_HELP_STRING([--without-pmix], [one rank only (default: PMIx is required)])], [], [with_pmix=yes])
  lf_have_pmix=no
  AS_IF([test "x$with_pmix" != xno], [
    AS_IF([test "x$with_pmix" != xyes],
      [PMIX_CFLAGS="-I$with_pmix/include" PMIX_LIBS="-L$with_pmix/lib -lpmix -Wl,-rpath,$with_pmix/lib" lf_have_pmix=yes],
      [PKG_CHECK_MODULES([PMIX], [pmix >= 3.2], [lf_have_pmix=yes], [
        dnl Debian 12 ships the header and library in a folder of their own and no .pc file on the default path. A build for
        dnl another machine looks in the root that pkg-config was given.
        for d in /usr/lib/$host_cpu-linux-gnu/pmix2 /usr/lib64/pmix /usr; do
          d=$PKG_CONFIG_SYSROOT_DIR$d
          AS_IF([test $lf_have_pmix = no && test -r $d/include/pmix.h],
            [PMIX_CFLAGS="-I$d/include" PMIX_LIBS="-L$d/lib -lpmix" lf_have_pmix=yes])
        done])])
    AS_IF([test $lf_have_pmix = no],
      [LF_MISSING([PMIx], [starting ranks (--without-pmix builds for one rank)], [libpmix-dev], [pmix-devel])])
    AC_DEFINE([HAVE_PMIX], [1], [ranks bootstrap through PMIx])
    dnl Its .pc file asks for DT_RUNPATH, which libraries of libraries do not inherit: a bundle needs DT_RPATH (Makefile.am). A run
    dnl path is one of the machine that the programs are for, without the root that this one keeps its libraries in.
    PMIX_LIBS=`AS_ECHO(["$PMIX_LIBS"]) | sed "s/-Wl,--enable-new-dtags//; s:\(-Wl,-rpath -Wl,\)$PKG_CONFIG_SYSROOT_DIR/:\1/:"`
  ])
  AC_SUBST([PMIX_CFLAGS]) AC_SUBST([PMIX_LIBS])
  AM_CONDITIONAL([HAVE_PMIX], [test $lf_have_pmix = yes])
])

dnl LF_WITH_UCX: --without-ucx.
AC_DEFUN([LF_WITH_UCX], [
  AC_ARG_WITH([ucx], [AS_HELP_STRING([--without-ucx], [no collectives between CPU ranks (default: UCX is required)])], [], [with_ucx=yes])
  lf_have_ucx=no
  AS_IF([test "x$with_ucx" != xno], [
    PKG_CHECK_MODULES([UCX], [ucx >= 1.10], [lf_have_ucx=yes], [
      AC_CHECK_HEADER([ucp/api/ucp.h], [UCX_LIBS="-lucp -lucs" lf_have_ucx=yes])])
    AS_IF([test $lf_have_ucx = no],
      [LF_MISSING([UCX], [messages between CPU ranks (--without-ucx builds for one rank)], [libucx-dev], [ucx-devel])])
    AC_DEFINE([HAVE_UCX], [1], [CPU collectives over UCX])
  ])
  AC_SUBST([UCX_CFLAGS]) AC_SUBST([UCX_LIBS])
  AM_CONDITIONAL([HAVE_UCX], [test $lf_have_ucx = yes])
])

dnl LF_WITH_CODEC(name, HEADER, LIB, FUNCTION, DEBIAN, RHEL): --with-NAME=auto|yes|no, a codec of parquet pages. One that is
dnl not built in is refused by name when a file needs it.
AC_DEFUN([LF_WITH_CODEC], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1], [read parquet files compressed by $1 (default: auto)])], [], [with_$1=auto])
  lf_have_$1=no
  AS_IF([test "x$with_$1" != xno], [
    AC_CHECK_HEADER([$2], [AC_CHECK_LIB([$3], [$4], [lf_have_$1=yes])])
    AS_IF([test $lf_have_$1 = no && test "x$with_$1" = xyes],
      [LF_MISSING([$1], [the parquet files that --with-$1 asks for], [$5], [$6])])
    AS_IF([test $lf_have_$1 = yes], [
      AS_VAR_APPEND([CODEC_LIBS], [" -l$3"])
      AS_VAR_APPEND([lf_codecs], [" $1"])
      AC_DEFINE([HAVE_]m4_toupper([$1]), [1], [pages of parquet compressed by $1])])
  ])
])

dnl LF_WITH_MEDIA: --with-media=auto|yes|no. The decoders of pictures: auto takes those that are there and names the others, yes
dnl wants all three, no builds none. A picture whose decoder is not built in is refused by name. JPEG needs libjpeg-turbo: the
dnl library of the IJG enlarges the colour planes by another rule, and the pixels would differ from those of other programs.
AC_DEFUN([LF_WITH_MEDIA], [
  AC_ARG_WITH([media], [AS_HELP_STRING([--with-media], [read pictures: JPEG, PNG and WebP (default: auto)])], [], [with_media=auto])
  AS_CASE([$with_media], [auto|yes|no], [], [AC_MSG_ERROR([--with-media=$with_media: it takes auto, yes or no])])
  lf_media=
  LF_MEDIA_LIB([JPEG], [libjpeg >= 1.5], [jpeglib.h],
    [AC_LANG_PROGRAM([[#include <stdio.h>
#include <jpeglib.h>]], [[return LIBJPEG_TURBO_VERSION_NUMBER == 0;]])], [libjpeg-dev], [libjpeg-turbo-devel])
  LF_MEDIA_LIB([PNG], [libpng >= 1.6.32], [png.h],
    [AC_LANG_PROGRAM([[#include <png.h>]], [[return png_access_version_number() == 0;]])], [libpng-dev], [libpng-devel])
  LF_MEDIA_LIB([WEBP], [libwebp >= 1.0], [webp/decode.h],
    [AC_LANG_PROGRAM([[#include <webp/decode.h>]], [[return WebPGetDecoderVersion() == 0;]])], [libwebp-dev], [libwebp-devel])
  AC_SUBST([MEDIA_CFLAGS]) AC_SUBST([MEDIA_LIBS])
])
dnl LF_MEDIA_LIB(NAME, MODULE, HEADER, PROGRAM, DEBIAN, RHEL): one of them. PROGRAM must compile and link, which is why a
dnl module that is present but is not the right library counts as missing.
AC_DEFUN([LF_MEDIA_LIB], [
  lf_have_$1=no
  AS_IF([test "x$with_media" != xno], [
    PKG_CHECK_MODULES([$1], [$2], [
      lf_save_CPPFLAGS=$CPPFLAGS lf_save_LIBS=$LIBS
      CPPFLAGS="$CPPFLAGS $$1_CFLAGS" LIBS="$$1_LIBS $LIBS"
      AC_LINK_IFELSE([$4], [lf_have_$1=yes])
      CPPFLAGS=$lf_save_CPPFLAGS LIBS=$lf_save_LIBS], [:])
    AS_IF([test $lf_have_$1 = no && test "x$with_media" = xyes],
      [LF_MISSING([$2 ($3)], [the pictures that --with-media=yes asks for], [$5], [$6])])
    AS_IF([test $lf_have_$1 = yes], [
      AS_VAR_APPEND([MEDIA_CFLAGS], [" $$1_CFLAGS"])
      AS_VAR_APPEND([MEDIA_LIBS], [" $$1_LIBS"])
      AS_VAR_APPEND([lf_media], [" $1"])
      AC_DEFINE([HAVE_$1], [1], [pictures in $1])])
  ])
])

dnl LF_WITH_ONEDNN: --with-onednn=auto|yes|no. Only the C API of 2.6 to 3.x is used.
AC_DEFUN([LF_WITH_ONEDNN], [
  AC_ARG_WITH([onednn], [AS_HELP_STRING([--with-onednn], [faster CPU GEMM through oneDNN (default: auto)])], [], [with_onednn=auto])
  lf_have_onednn=no
  AS_IF([test "x$with_onednn" != xno], [
    AC_CHECK_HEADER([oneapi/dnnl/dnnl.h], [
      AC_CHECK_LIB([dnnl], [dnnl_engine_create], [ONEDNN_LIBS=-ldnnl lf_have_onednn=yes])])
    AS_IF([test $lf_have_onednn = no && test "x$with_onednn" = xyes],
      [LF_MISSING([oneDNN], [the faster CPU GEMM that --with-onednn asks for], [libdnnl-dev], [onednn-devel])])
    AS_IF([test $lf_have_onednn = yes], [AC_DEFINE([HAVE_ONEDNN], [1], [oneDNN GEMM in fast mode])])
  ])
  AC_SUBST([ONEDNN_LIBS])
  AM_CONDITIONAL([HAVE_ONEDNN], [test $lf_have_onednn = yes])
])

dnl LF_WITH_CUDA: --with-cuda[=DIR]: nvcc compiles the GPU's code. Only headers and nvcc are needed; libraries are loaded at run time.
dnl It takes longer than all the rest, so it is not done unless asked for; lf_cuda_hint says so where it could be.
AC_DEFUN([LF_WITH_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [compile for GPUs, with the toolkit in DIR (default: no)])],
    [], [with_cuda=unasked])
  AC_ARG_VAR([NVCC_GENCODE], [nvcc's options for the GPUs to make code for (default: sm_80, sm_90, sm_100 and PTX)])
  lf_have_cuda=no lf_cuda_hint=
  AS_CASE([$with_cuda], [yes|unasked|no], [lf_cuda_dirs="$CUDA_HOME /usr/local/cuda /opt/cuda /usr"], [lf_cuda_dirs=$with_cuda])
  AS_IF([test "x$with_cuda" != xno], [
    lf_cuda_dir=
    for d in $lf_cuda_dirs; do
      AS_IF([test -z "$lf_cuda_dir" && test -x $d/bin/nvcc && test -r $d/include/cuda_runtime_api.h], [lf_cuda_dir=$d])
    done
    AS_IF([test "x$with_cuda" = xunasked], [
        AS_IF([test -n "$lf_cuda_dir"], [lf_cuda_hint="a toolkit was found in $lf_cuda_dir: configure --with-cuda builds for GPUs"],
          [test -e /dev/nvidiactl], [lf_cuda_hint="a GPU was found, but no toolkit: configure --with-cuda=DIR builds for it"])],
      [test -n "$lf_cuda_dir"], [NVCC=$lf_cuda_dir/bin/nvcc CUDA_CFLAGS="-I$lf_cuda_dir/include" lf_have_cuda=yes],
      [AC_MSG_ERROR([no CUDA toolkit (bin/nvcc, include/cuda_runtime_api.h) under: $lf_cuda_dirs])])
  ])
  dnl GPU code for what this nvcc knows of Ampere, Hopper and Blackwell; PTX of the oldest and the newest serves what comes between and after.
  AS_IF([test $lf_have_cuda = yes], [
    AC_DEFINE([HAVE_NVCC], [1], [GPU code is in kernels/cuda/images.c])
    AS_IF([test -z "$NVCC_GENCODE"], [
      NVCC_GENCODE="-gencode arch=compute_80,code=compute_80"
      lf_newest=80
      for a in 80 90 100; do
        AS_IF([$NVCC --list-gpu-code 2>/dev/null | grep -qx "sm_$a"], [NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$a,code=sm_$a" lf_newest=$a])
      done
      AS_IF([test $lf_newest != 80], [NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$lf_newest,code=compute_$lf_newest"])
    ])
  ])
  AC_SUBST([NVCC]) AC_SUBST([CUDA_CFLAGS])
  AM_CONDITIONAL([HAVE_CUDA], [test $lf_have_cuda = yes])
])
