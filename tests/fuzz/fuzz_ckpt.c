/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint reader: a valid checkpoint of two data files in pieces, one file of which is replaced (mode 0) or edited
 * with triples u16 offset, u8 value (mode 1). Bit 4 of the first byte makes the manifest agree with an edited data file
 * again, as someone with a purpose would, so that the checks behind the hashes are reached. Whatever opens is read
 * whole.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/store/ckpt.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

enum { N_FILES = 4 };
static const char *const names[N_FILES] = {"manifest.json", "state.json", "data-00000.h5", "data-00001.h5"};
static char dir[256], ckpt[280];
static lf_buf valid[N_FILES];

static void put_file(const char *name, const void *data, size_t n)
{
    char p[400];
    snprintf(p, sizeof p, "%s/%s", ckpt, name);
    int fd = open(p, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    close(fd);
}

static void clean_up(void)
{
    lf_io_remove_tree(dir, NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static float a[6][10];
    static uint16_t b[7] = {1, 2, 3, 4, 5, 6, 7};
    lf_ckpt_tensor t[] = {{"model/a", "weight", LF_H5_F32, 2, {6, 10}, a}, {"b", "adam_m", LF_H5_BF16, 1, {7}, b}};
    lf_ckpt_options o = {.threads = 1, .file_bytes = 200, .piece_bytes = 130};
    lf_ckpt_writer *w = NULL;
    json_t *state = json_pack("{s:i}", "step", 3);
    (void)argc;
    (void)argv;
    snprintf(dir, sizeof dir, "%s/lf-fuzz-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir))
        abort();
    atexit(clean_up);
    snprintf(ckpt, sizeof ckpt, "%s/c", dir);
    if (lf_ckpt_writer_create(&w, t, 2, &o, NULL) < 0 || lf_ckpt_save_begin(w, ckpt, state, NULL) < 0)
        abort();
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    for (int i = 0; i < N_FILES; i++) {
        char p[400];
        snprintf(p, sizeof p, "%s/%s", ckpt, names[i]);
        lf_buf_init(&valid[i]);
        if (lf_io_read_file(p, (size_t)1 << 26, &valid[i], NULL) < 0)
            abort();
    }
    return 0;
}

/* Give the manifest the present lengths and hashes of the files. */
static void agree(void)
{
    lf_artifact a, b;
    char p[400];
    if (lf_artifact_load(&a, ckpt, NULL, NULL) < 0)
        abort();
    if (lf_artifact_init(&b, a.kind, NULL) < 0)
        abort();
    json_object_update(b.meta, a.meta);
    for (size_t i = 0; i < a.n_files; i++)
        if (lf_artifact_add_hashed(&b, ckpt, a.files[i].path, NULL) < 0)
            abort();
    snprintf(p, sizeof p, "%s/manifest.json", ckpt);
    unlink(p);
    if (lf_artifact_publish(&b, ckpt, NULL) < 0)
        abort();
    lf_artifact_fini(&a);
    lf_artifact_fini(&b);
}

static void try_open(void)
{
    lf_ckpt *c = NULL;
    lf_err err = LF_ERR_INIT;
    if (lf_ckpt_open(&c, ckpt, 1, &err) < 0) {
        if (!err.text[0])
            abort();
        return;
    }
    for (size_t i = 0; i < lf_ckpt_n_entries(c); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
        size_t n = lf_h5_type_bytes(e->dtype);
        for (int k = 0; k < e->ndim; k++)
            n *= (size_t)e->shape[k];
        if (n > 1 << 20) /* the bytes exist, so this cannot be */
            abort();
        void *buf = malloc(n);
        lf_ckpt_read(c, e, NULL, NULL, buf, NULL);
        free(buf);
    }
    lf_ckpt_close(c);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    if (n < 1 || n > 1 << 16)
        return 0;
    int which = data[0] & 3, edit = data[0] & 4, consistent = data[0] & 16;
    const unsigned char *d = data + 1;
    n--;
    if (edit) {
        char *copy = malloc(valid[which].len);
        memcpy(copy, valid[which].data, valid[which].len);
        for (; n >= 3; d += 3, n -= 3)
            copy[(d[0] | d[1] << 8) % (int)valid[which].len] = (char)d[2];
        put_file(names[which], copy, valid[which].len);
        free(copy);
    } else {
        put_file(names[which], d, n);
    }
    if (consistent && which > 0)
        agree();
    try_open();
    put_file(names[which], valid[which].data, valid[which].len);
    put_file(names[0], valid[0].data, valid[0].len);
    return 0;
}
