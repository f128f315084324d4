/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: checkpoints. The first byte chooses the file that is patched: the manifest,
 * state.json, or the data file; for the last two the manifest is made again to fit, so that what
 * lies behind the hashes is reached.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/store/ckpt.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = NULL;

enum { MANIFEST = 0, STATE, DATA, N_FILES };
static const char *const names[N_FILES] = {"manifest.json", "state.json", "data-00000.h5"};
static lf_buf base[N_FILES];
static char dir[512];

static const char *file_path(int i)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, names[i]);
    return path;
}

static void make_base(void)
{
    static const float a[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint16_t b[6] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
    const lf_ckpt_tensor t[] = {{.name = "model/a.weight",
                                 .kind = "weight",
                                 .dtype = LF_H5_F32,
                                 .ndim = 2,
                                 .shape = {3, 4},
                                 .data = a},
                                {.name = "model/b.weight",
                                 .kind = "weight",
                                 .dtype = LF_H5_BF16,
                                 .ndim = 1,
                                 .shape = {6},
                                 .data = b}};
    lf_err err = LF_ERR_INIT;
    lf_ckpt_writer *w;
    json_t *state = json_pack("{s:i,s:s}", "step", 3, "note", "fuzz");
    snprintf(dir, sizeof dir, "%s/ckpt", fuzz_dir());
    if (lf_ckpt_writer_create(&w, t, 2, &(lf_ckpt_options){0}, &err) ||
        lf_ckpt_save_begin(w, dir, state, &err) || lf_ckpt_save_wait(w, NULL, &err) < 0)
        abort();
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    for (int i = 0; i < N_FILES; i++) {
        lf_buf_init(&base[i]);
        if (lf_io_read_file(file_path(i), 1 << 20, &base[i], &err))
            abort();
    }
}

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    static const uint8_t patch[] = {0, 255, 255, 40, 0, 0, '7', 120, 0, 0, '"', 200, 2, 0, 1};
    (void)cap;
    if (i >= N_FILES)
        return 0;
    memcpy(buf, patch, sizeof patch);
    buf[0] = (uint8_t)i;
    return sizeof patch;
}

/* The manifest with the hashes and lengths of what lies there now; its other contents stay. */
static int refit(lf_err *err)
{
    lf_artifact old = {0}, a = {0};
    fuzz_write(file_path(MANIFEST), (const uint8_t *)base[MANIFEST].data, base[MANIFEST].len);
    int rc = lf_artifact_load(&old, dir, NULL, err);
    unlink(file_path(MANIFEST));
    if (rc == 0)
        rc = lf_artifact_init(&a, old.kind, err);
    for (size_t i = 0; rc == 0 && i < old.n_files; i++)
        rc = lf_artifact_add_hashed(&a, dir, old.files[i].path, err);
    if (rc == 0) {
        json_object_update(a.meta, old.meta);
        rc = lf_artifact_publish(&a, dir, err);
    }
    lf_artifact_fini(&old);
    lf_artifact_fini(&a);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *c = NULL;
    if (base[0].len == 0)
        make_base();
    if (size == 0)
        return 0;
    int which = data[0] % N_FILES;
    for (int i = 0; i < N_FILES; i++)
        if (i != which)
            fuzz_write(file_path(i), (const uint8_t *)base[i].data, base[i].len);
    fuzz_write_patched(file_path(which), (const uint8_t *)base[which].data, base[which].len,
                       data + 1, size - 1);
    if (which != MANIFEST && refit(&err)) {
        fuzz_check_error(-1, &err);
        return 0;
    }
    int rc = lf_ckpt_open(&c, dir, 1, &err);
    fuzz_check_error(rc, &err);
    if (rc)
        return 0;
    for (size_t i = 0; i < lf_ckpt_n_entries(c); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
        size_t n = 4;
        for (int k = 0; k < e->ndim; k++)
            n *= (size_t)e->shape[k];
        void *buf = n < 1 << 20 ? malloc(n + 8) : NULL;
        if (buf)
            fuzz_check_error(lf_ckpt_read(c, e, NULL, NULL, buf, &err), &err);
        lf_err_clear(&err);
        free(buf);
    }
    lf_ckpt_close(c);
    return 0;
}
