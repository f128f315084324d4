/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: Megatron .idx files over a .bin of 64 bytes. Even first byte: the rest is the .idx;
 * odd: patches on a valid one. What opens must be readable: every sequence, and given to a writer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/store/megatron_data.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = NULL;

static lf_buf base;
static char path[512], copy[512];

static void make_base(void)
{
    lf_err err = LF_ERR_INIT;
    lf_megatron_writer *w;
    uint32_t ids[16];
    for (uint32_t i = 0; i < 16; i++)
        ids[i] = i * 7;
    snprintf(path, sizeof path, "%s/base", fuzz_dir());
    if (lf_megatron_create(&w, path, LF_MEGATRON_I32, true, &err))
        abort();
    for (size_t n = 0; n < 5; n++)
        if (lf_megatron_append(w, ids, n + 1, (int8_t)n, &err) ||
            (n % 2 == 0 && lf_megatron_end_document(w, &err)))
            abort();
    lf_buf_init(&base);
    if (lf_megatron_finish(w, &err))
        abort();
    snprintf(path, sizeof path, "%s/base.idx", fuzz_dir());
    if (lf_io_read_file(path, 1 << 20, &base, &err))
        abort();
    snprintf(path, sizeof path, "%s/fuzz.bin", fuzz_dir());
    fuzz_write(path, (const uint8_t *)ids, sizeof ids);
    snprintf(path, sizeof path, "%s/fuzz.idx", fuzz_dir());
    snprintf(copy, sizeof copy, "%s/copy", fuzz_dir());
}

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    static const uint8_t patch[] = {1, 255, 255, 34, 0, 0, 2, 47, 0, 0, 9};
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

/* Write what was read; LF_EFORMAT of a token is fine, anything else is a finding. */
static void write_again(const lf_megatron_data *d)
{
    const lf_megatron_info *i = lf_megatron_get_info(d);
    lf_err err = LF_ERR_INIT;
    lf_megatron_writer *w;
    uint32_t ids[64];
    int rc = lf_megatron_create(&w, copy, i->dtype, i->modes != NULL, &err);
    fuzz_check_error(rc, &err);
    if (rc) /* floats */
        return;
    for (uint64_t k = 0; k < i->n_docs && rc == 0; k++) {
        for (int64_t s = i->docs[k]; s < i->docs[k + 1] && rc == 0; s++) {
            if (i->lengths[s] > 64)
                abort(); /* longer than the .bin */
            rc = lf_megatron_read_ids(d, (uint64_t)s, 0, (size_t)i->lengths[s], ids, &err);
            fuzz_check_error(rc, &err);
            if (rc == 0 &&
                lf_megatron_append(w, ids, (size_t)i->lengths[s], i->modes ? i->modes[s] : 0, &err))
                abort();
        }
        if (rc == 0 && lf_megatron_end_document(w, &err))
            abort();
    }
    lf_megatron_abort(
        w); /* finishing would mostly measure fsync; the golden test compares what it writes */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_megatron_data *d = NULL;
    lf_err err = LF_ERR_INIT;
    if (base.len == 0)
        make_base();
    if (size == 0)
        return 0;
    if (data[0] % 2)
        fuzz_write_patched(path, (const uint8_t *)base.data, base.len, data + 1, size - 1);
    else
        fuzz_write(path, data + 1, size - 1);
    int rc = lf_megatron_open(&d, path, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0)
        write_again(d);
    lf_megatron_close(d);
    return 0;
}
