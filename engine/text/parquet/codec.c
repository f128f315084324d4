/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs of pages, each by its library.
 */
#include "config.h"

#include <limits.h>

#include "engine/text/parquet/parquet_priv.h"

#ifdef HAVE_SNAPPY
#include <snappy-c.h>
#endif
#ifdef HAVE_ZLIB
#define ZLIB_CONST
#include <zlib.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

enum { SNAPPY = 1, GZIP = 2, ZSTD = 6 };

static const struct {
    const char *name, *debian, *rhel; /* packages; NULL: never read */
} codecs[] = {{"uncompressed", NULL, NULL},
              {"snappy", "libsnappy-dev", "snappy-devel"},
              {"gzip", "zlib1g-dev", "zlib-devel"},
              {"lzo", NULL, NULL},
              {"brotli", NULL, NULL},
              {"lz4", NULL, NULL},
              {"zstd", "libzstd-dev", "libzstd-devel"},
              {"lz4_raw", NULL, NULL}};
#define N_CODECS ((int)(sizeof codecs / sizeof codecs[0]))

static bool built(int codec)
{
    switch (codec) {
    case LF_PQ_UNCOMPRESSED:
        return true;
#ifdef HAVE_SNAPPY
    case SNAPPY:
        return true;
#endif
#ifdef HAVE_ZLIB
    case GZIP:
        return true;
#endif
#ifdef HAVE_ZSTD
    case ZSTD:
        return true;
#endif
    default:
        return false;
    }
}

#define CONVERT "duckdb -c \"COPY (FROM 'OLD.parquet') TO 'NEW.parquet' (COMPRESSION zstd)\""

int lf_pq_codec_check(const lf_parquet *p, int codec, const char *column, lf_err *err)
{
    if (built(codec))
        return 0;
    if (codec >= N_CODECS)
        return lf_fail(err, LF_ENOTSUP, "%s: column %s: codec number %d is not known; convert: %s",
                       p->path, column, codec, CONVERT);
    if (codecs[codec].debian)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: column %s is compressed by %s, which this build cannot unpack; build "
                       "with %s (Debian) or %s (RHEL), or convert: %s",
                       p->path, column, codecs[codec].name, codecs[codec].debian,
                       codecs[codec].rhel, "duckdb's COPY with COMPRESSION uncompressed");
    return lf_fail(err, LF_ENOTSUP,
                   "%s: column %s is compressed by %s, which is not read; convert: %s", p->path,
                   column, codecs[codec].name, CONVERT);
}

bool lf_pq_codec_plausible(int codec, size_t n, size_t to)
{
    /* Snappy copies at most 64 bytes by 3; deflate makes at most 1032 of one; a block of zstd has
     * at most 128 KiB and at least 4 bytes. */
    size_t most = codec == SNAPPY ? 22 : codec == GZIP ? 1040 : codec == ZSTD ? 32768 : 1;
    return to / most <= n + 1;
}

#ifdef HAVE_ZLIB
static bool gunzip(const uint8_t *from, size_t n, uint8_t *out, size_t to)
{
    z_stream z = {0};
    if (n > UINT_MAX || to > UINT_MAX || inflateInit2(&z, 15 + 32) != Z_OK) /* zlib and gzip */
        return false;
    z.next_in = from;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)to;
    int got = inflate(&z, Z_FINISH);
    while (got == Z_STREAM_END && z.avail_in > 0 && inflateReset(&z) == Z_OK) /* a second member */
        got = inflate(&z, Z_FINISH);
    bool whole = got == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    return whole;
}
#endif

bool lf_pq_codec_unpack(int codec, const uint8_t *from, size_t n, uint8_t *out, size_t to)
{
    switch (codec) {
#ifdef HAVE_SNAPPY
    case SNAPPY: {
        size_t len = 0;
        return snappy_uncompressed_length((const char *)from, n, &len) == SNAPPY_OK && len == to &&
               snappy_uncompress((const char *)from, n, (char *)out, &len) == SNAPPY_OK;
    }
#endif
#ifdef HAVE_ZLIB
    case GZIP:
        return gunzip(from, n, out, to);
#endif
#ifdef HAVE_ZSTD
    case ZSTD:
        return ZSTD_decompress(out, to, from, n) == to;
#endif
    default:
        (void)from, (void)n, (void)out, (void)to;
        return false;
    }
}
