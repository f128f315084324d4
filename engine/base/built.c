/* SPDX-License-Identifier: Apache-2.0
 *
 * What this program was built from and with.
 */
#include "config.h"

#include "engine/base/built.h"

#include <H5public.h>

#include "engine/base/commit.h"

#ifdef HAVE_PMIX
#define WITH_PMIX true
#else
#define WITH_PMIX false
#endif
#ifdef HAVE_UCX
#define WITH_UCX true
#else
#define WITH_UCX false
#endif
#ifdef HAVE_ONEDNN
#define WITH_ONEDNN true
#else
#define WITH_ONEDNN false
#endif
#ifdef HAVE_NVCC
#define WITH_CUDA true
#else
#define WITH_CUDA false
#endif
#ifdef HAVE_SNAPPY
#define WITH_SNAPPY true
#else
#define WITH_SNAPPY false
#endif
#ifdef HAVE_ZSTD
#define WITH_ZSTD true
#else
#define WITH_ZSTD false
#endif
#ifdef HAVE_ZLIB
#define WITH_ZLIB true
#else
#define WITH_ZLIB false
#endif
#ifdef HAVE_JPEG
#define WITH_JPEG true
#else
#define WITH_JPEG false
#endif
#ifdef HAVE_PNG
#define WITH_PNG true
#else
#define WITH_PNG false
#endif
#ifdef HAVE_WEBP
#define WITH_WEBP true
#else
#define WITH_WEBP false
#endif
#define TEXT_OF(x)   #x
#define NUMBER(x)    TEXT_OF(x)
#define HDF5_VERSION NUMBER(H5_VERS_MAJOR) "." NUMBER(H5_VERS_MINOR) "." NUMBER(H5_VERS_RELEASE)

static const char *const isas[] = {"plain",
#ifdef HAVE_ISA_AVX2
                                   "avx2",
#endif
#ifdef HAVE_ISA_AVX512
                                   "avx512",
#endif
#ifdef HAVE_ISA_AVX512BF16
                                   "avx512bf16",
#endif
#ifdef HAVE_ISA_NEON
                                   "neon",
#endif
#ifdef HAVE_ISA_NEONBF16
                                   "neonbf16",
#endif
#ifdef HAVE_ISA_SVE256BF16
                                   "sve256bf16",
#endif
#ifdef HAVE_ISA_SVE512
                                   "sve512",
#endif
                                   NULL};

static const lf_built built = {
    .commit = LF_COMMIT,
    .pmix = WITH_PMIX,
    .ucx = WITH_UCX,
    .onednn = WITH_ONEDNN,
    .cuda = WITH_CUDA,
    .snappy = WITH_SNAPPY,
    .zstd = WITH_ZSTD,
    .zlib = WITH_ZLIB,
    .jpeg = WITH_JPEG,
    .png = WITH_PNG,
    .webp = WITH_WEBP,
    .hdf5 = HDF5_VERSION,
    .isas = isas,
};

const lf_built *lf_built_get(void)
{
    return &built;
}

static const char *yes_no(bool v)
{
    return v ? "yes" : "no";
}

void lf_built_add(lf_buf *b)
{
    lf_buf_addf(b, "commit: %s\n", built.commit);
    lf_buf_addf(b, "features: PMIx %s, UCX %s, oneDNN %s, CUDA %s, ", yes_no(built.pmix),
                yes_no(built.ucx), yes_no(built.onednn), yes_no(built.cuda));
    lf_buf_addf(b, "snappy %s, zstd %s, zlib %s, ", yes_no(built.snappy), yes_no(built.zstd),
                yes_no(built.zlib));
    lf_buf_addf(b, "JPEG %s, PNG %s, WebP %s, HDF5 %s\n", yes_no(built.jpeg), yes_no(built.png),
                yes_no(built.webp), built.hdf5);
    lf_buf_adds(b, "instruction sets:");
    for (const char *const *p = isas; *p != NULL; p++)
        lf_buf_addf(b, " %s", *p);
    lf_buf_addc(b, '\n');
}
