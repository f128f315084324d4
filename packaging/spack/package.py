# SPDX-License-Identifier: Apache-2.0
"""Spack recipe for loong-flow. Not tried with Spack: see README.md beside it."""

from spack.package import *


class LoongFlow(AutotoolsPackage):
    """Trains language models from raw text on batch clusters with one command and no Python:
    an INI file of stages becomes jobs of SLURM or PBS, or runs on the local machine."""

    homepage = "https://example.invalid/loong-flow"
    # A distribution made by `make dist`, beside which spack is run.
    url = "file:///srv/loong-flow/loong-flow-0.1.0.tar.xz"

    license("Apache-2.0")

    # No checksum yet: 0.1.0 has not been published. `spack checksum loong-flow` adds it.
    version("0.1.0")

    variant("pmix", default=True, description="Several ranks, started through PMIx")
    variant("ucx", default=True, description="Collectives between ranks on processors")
    variant("onednn", default=True, description="Faster matrix products of processors")
    variant("cuda", default=False, description="GPU code (CUDA's compiler)")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hdf5@1.10.5: ~mpi")
    depends_on("jansson@2.12:")
    depends_on("libarchive@3.3:")
    depends_on("libjpeg-turbo@1.5:")
    depends_on("libpng@1.6.32:")
    depends_on("libwebp@1:")
    depends_on("openssl@1.1:")
    depends_on("pcre2@10.30:")
    depends_on("snappy")
    depends_on("sqlite@3.34:")
    depends_on("utf8proc@2.1:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("pmix@3.2:", when="+pmix")
    depends_on("ucx@1.10:", when="+ucx")
    depends_on("onednn", when="+onednn")
    depends_on("cuda", when="+cuda")

    def configure_args(self):
        args = ["--disable-bundle", "--with-snappy", "--with-zstd", "--with-zlib", "--with-media=yes"]
        args += self.with_or_without("pmix")
        args += self.with_or_without("ucx")
        args += self.with_or_without("onednn")
        if self.spec.satisfies("+cuda"):
            args.append("--with-cuda={0}".format(self.spec["cuda"].prefix))
        else:
            args.append("--without-cuda")
        return args
