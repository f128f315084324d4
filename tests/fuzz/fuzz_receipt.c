/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: receipts of parts of a checkpoint. One of two is patched and both are published.
 * What is published then must open.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/store/ckpt.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = NULL;

static char dir[512], file[600];
static char *receipts[2];
static json_t *state;

static void make_base(void)
{
    static const float a[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint16_t b[6] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
    lf_err err = LF_ERR_INIT;
    snprintf(dir, sizeof dir, "%s/ckpt", fuzz_dir());
    snprintf(file, sizeof file, "%s/receipt", fuzz_dir());
    state = json_pack("{s:i,s:s}", "step", 3, "note", "fuzz");
    for (int i = 0; i < 2; i++) {
        const lf_ckpt_tensor t[] = {{.name = "model/a.weight",
                                     .kind = "weight",
                                     .dtype = LF_H5_F32,
                                     .ndim = 2,
                                     .shape = {3, 4},
                                     .flat = {i ? 5 : 0, i ? 12 : 5},
                                     .data = i ? a + 5 : a},
                                    {.name = "model/b.weight",
                                     .kind = "weight",
                                     .dtype = LF_H5_BF16,
                                     .ndim = 1,
                                     .shape = {6},
                                     .data = b}};
        const lf_ckpt_options o = {.part = i, .parts = 2, .run = 7};
        lf_ckpt_writer *w;
        if (lf_ckpt_writer_create(&w, t, i ? 2 : 1, &o, &err) ||
            lf_ckpt_save_begin(w, dir, state, &err) || lf_ckpt_save_wait(w, NULL, &err) < 0 ||
            !(receipts[i] = strdup(lf_ckpt_save_receipt(w))))
            abort();
        lf_ckpt_writer_destroy(w);
    }
}

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    static const uint8_t patch[] = {255, 255, 40, 0, 0, '7', 120, 1, 0, '"', 200, 2, 0, '1'};
    (void)cap;
    if (i >= 2)
        return 0;
    buf[0] = (uint8_t)i;
    memcpy(buf + 1, patch, sizeof patch);
    return sizeof patch + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *c = NULL;
    lf_buf text;
    if (!state)
        make_base();
    if (size == 0)
        return 0;
    const int which = data[0] % 2;
    fuzz_write_patched(file, (const uint8_t *)receipts[which], strlen(receipts[which]), data + 1,
                       size - 1);
    lf_buf_init(&text);
    if (lf_io_read_file(file, 1 << 20, &text, &err))
        abort();
    const char *both[2] = {receipts[0], receipts[1]};
    both[which] = text.data;
    int rc = lf_ckpt_publish(
        dir, &(struct lf_ckpt_parts){.receipts = both, .n = 2, .state = state, .threads = 1}, NULL,
        &err);
    fuzz_check_error(rc, &err);
    lf_err_clear(&err);
    if (rc == 0) { /* hashes of leaves are the writer's word; all else must hold */
        rc = lf_ckpt_open_checked(&c, dir, LF_CKPT_CHECK_READS, 1, &err);
        fuzz_check_error(rc, &err);
        if (rc != 0)
            abort();
        lf_ckpt_close(c);
        snprintf(file, sizeof file, "%s/manifest.json", dir);
        unlink(file);
        snprintf(file, sizeof file, "%s/receipt", fuzz_dir());
    }
    lf_buf_fini(&text);
    return 0;
}
