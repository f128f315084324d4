/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: shard files. Even first byte: the rest is the file; odd: patches on a valid shard.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/store/shard.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = NULL;

static lf_buf base;
static char path[512];

static void make_base(void)
{
    lf_err err = LF_ERR_INIT;
    lf_shard_info info = {
        .vocab_size = 300, .eos_id = 0, .source = "fuzz", .rows = LF_ROWS_PROMPTS};
    lf_shard_writer *w;
    uint32_t doc[40];
    memset(info.tokenizer_sha256, 'a', 64);
    snprintf(path, sizeof path, "%s/base.h5", fuzz_dir());
    if (lf_shard_create(&w, path, &info, 0, &err))
        abort();
    for (uint32_t d = 0; d < 9; d++) {
        for (uint32_t k = 0; k < 40; k++)
            doc[k] = (d * 7 + k * 3) % 300;
        lf_shard_doc row = {
            .tokens = doc, .n = 4 * d, .rest = "{\"answer\":42}", .rest_len = d % 2 ? 13 : 2};
        if (lf_shard_append_doc(w, &row, &err))
            abort();
    }
    lf_buf_init(&base);
    if (lf_shard_finish(w, NULL, &err) || lf_io_read_file(path, 1 << 20, &base, &err))
        abort();
    snprintf(path, sizeof path, "%s/fuzz.h5", fuzz_dir());
}

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    static const uint8_t patch[] = {1, 255, 255, 8, 0, 0, 3, 200, 0, 0, 9};
    if (base.len == 0)
        make_base();
    if (i == 0) {
        memcpy(buf, patch, sizeof patch);
        return sizeof patch;
    }
    if (i > 1 || base.len >= cap)
        return 0;
    buf[0] = 0;
    memcpy(buf + 1, base.data, base.len);
    return base.len + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_shard *s = NULL;
    lf_err err = LF_ERR_INIT;
    if (base.len == 0)
        make_base();
    if (size == 0)
        return 0;
    if (data[0] % 2)
        fuzz_write_patched(path, (const uint8_t *)base.data, base.len, data + 1, size - 1);
    else
        fuzz_write(path, data + 1, size - 1);
    int rc = lf_shard_open(&s, path, &err);
    fuzz_check_error(rc, &err);
    if (rc)
        return 0;
    const lf_shard_info *info = lf_shard_get_info(s);
    const uint64_t *off = lf_shard_offsets(s);
    int32_t buf[64];
    for (uint64_t d = 0; d < info->n_docs && d < 64; d++) {
        uint64_t n = off[d + 1] - off[d];
        rc = lf_shard_read(s, off[d], n < 64 ? (size_t)n : 64, buf, &err);
        fuzz_check_error(rc, &err);
        lf_err_clear(&err);
        size_t len = 0, sum = 0;
        const char *rest = lf_shard_rest(s, d, &len);
        for (size_t i = 0; i < len; i++)
            sum += (unsigned char)rest[i];
        if (sum + lf_shard_label(s, d) == SIZE_MAX ||
            (d % 2 == 0 && lf_shard_margin(s, d / 2) > 1e38f))
            abort();
    }
    lf_shard_close(s);
    return 0;
}
