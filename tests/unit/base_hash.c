/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 in lanes equals libcrypto's, and files hashed by leaves side by side have the tree hash
 * of their bytes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/sha_lanes.h"
#include "tests/tap/tap.h"

static void lanes_equal(int lanes)
{
    enum { N = 64 * 9 };
    static uint8_t data[LF_SHA_MAX_LANES * N];
    uint8_t got[LF_SHA_MAX_LANES][32], want[LF_HASH_BYTES];
    uint32_t v = 1;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)((v = v * 1664525u + 1013904223u) >> 24);
    for (size_t n = 0; n <= N; n += 64) {
        lf_sha_lanes s;
        bool ok = true;
        lf_sha_lanes_init(&s, lanes);
        lf_sha_lanes_update(&s, data, N, n / 128 * 64);
        lf_sha_lanes_update(&s, data + n / 128 * 64, N, n - n / 128 * 64);
        lf_sha_lanes_final(&s, got);
        for (int k = 0; k < lanes; k++)
            ok &= lf_hash_buf(want, data + k * N, n, NULL) == 0 && memcmp(want, got[k], 32) == 0;
        tap_ok(ok, "%d lanes, %zu bytes", lanes, n);
    }
    data[3 * N] ^= 1;
    lf_hash_buf(want, data + 3 * N, N, NULL);
    tap_ok(memcmp(want, got[3], 32) != 0, "another byte is another hash");
}

/* Sparse files, so that leaves cost no disk: each has a few bytes of its own in each leaf. */
static void write_file(const char *dir, const char *name, size_t leaves, size_t rest,
                       unsigned char salt)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    off_t end = (off_t)(leaves * LF_HASH_LEAF + rest);
    bool ok = fd >= 0 && ftruncate(fd, end) == 0;
    for (size_t i = 0; i < leaves && ok; i++) {
        unsigned char mark[2] = {(unsigned char)(i + 1), salt};
        ok = pwrite(fd, mark, 2, (off_t)(i * LF_HASH_LEAF + 1000003 * i)) == 2;
    }
    if (!ok || close(fd) < 0)
        tap_bail("cannot write %s", path);
}

static void files(void)
{
    lf_artifact_hash_job jobs[] = {{.path = "a"}, {.path = "b"}, {.path = "none"}, {.path = "c"}};
    const size_t n = sizeof jobs / sizeof *jobs;
    lf_err err = LF_ERR_INIT;
    const char *dir = tap_tmpdir();
    write_file(dir, "a", 3, 5, 1);
    write_file(dir, "b", 2, 0, 2);
    write_file(dir, "none", 0, 0, 0);
    write_file(dir, "c", 0, 77, 3);
    for (int threads = 1; threads <= 2; threads++) {
        tap_rc(lf_artifact_hash_files(dir, jobs, n, threads, &err), 0, &err, NULL, "files");
        for (size_t i = 0; i < n; i++) {
            uint8_t want[LF_HASH_BYTES];
            int64_t bytes = 0;
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", dir, jobs[i].path);
            if (threads == 1 && lf_tree_hash_file(want, &bytes, path, &err) == 0) {
                tap_mem(jobs[i].sha256, want, sizeof want, jobs[i].path);
                tap_i64(jobs[i].bytes, bytes, "length");
                memcpy(jobs[i].sha256, want, sizeof want);
            }
        }
    }
    lf_artifact_hash_job again[] = {{.path = "a"}, {.path = "b"}};
    lf_artifact_hash_files(dir, again, 2, 1, &err);
    tap_mem(again[0].sha256, jobs[0].sha256, LF_HASH_BYTES,
            "the company of other files changes nothing");
    lf_artifact_hash_job gone[] = {{.path = "a"}, {.path = "gone"}};
    tap_rc(lf_artifact_hash_files(dir, gone, 2, 2, &err), LF_ENOENT, &err, "gone",
           "a missing file");
}

int main(void)
{
    int max = lf_sha_lanes_max();
    if (max >= 8)
        TAP(11, lanes_equal(8));
    if (max >= 16)
        TAP(11, lanes_equal(16));
    if (max == 0)
        tap_skip(1, "no AVX2 on this machine");
    TAP(12, files());
    return tap_done();
}
