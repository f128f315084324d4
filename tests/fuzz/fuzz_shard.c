/* SPDX-License-Identifier: Apache-2.0
 *
 * Shard reader. The first byte chooses how the rest becomes a file:
 *   0  as it is
 *   1  edits (u16 offset, u8 value) of a valid shard: damage, which HDF5's checksums mostly catch
 *   2  a recipe: attributes, types, offsets and tokens of a well-formed HDF5 file, so that our own checks are reached
 * Whatever opens is read to the end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/store/h5.h"
#include "engine/store/shard.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

static char dir[256], path[300];
static lf_buf valid;

static void put_file(const char *p, const void *data, size_t n)
{
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
    lf_err err = LF_ERR_INIT;
    char sub[280];
    (void)argc;
    (void)argv;
    snprintf(dir, sizeof dir, "%s/lf-fuzz-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir))
        abort();
    atexit(clean_up);
    snprintf(path, sizeof path, "%s/x.h5", dir);
    snprintf(sub, sizeof sub, "%s/s", dir);
    lf_buf_init(&valid);
    if (lf_shard_write_synthetic(sub, 9, 0, 1, 30, 100, 1, &err) < 0)
        abort();
    snprintf(sub, sizeof sub, "%s/s/train-00000.h5", dir);
    if (lf_io_read_file(sub, (size_t)1 << 26, &valid, &err) < 0)
        abort();
    return 0;
}

static void edited(const unsigned char *d, size_t n)
{
    char *copy = malloc(valid.len);
    memcpy(copy, valid.data, valid.len);
    for (; n >= 3; d += 3, n -= 3)
        copy[(d[0] | d[1] << 8) % (int)valid.len] = (char)d[2];
    put_file(path, copy, n == 1 ? valid.len * d[0] / 256 : valid.len);
    free(copy);
}

static void recipe(const unsigned char *d, size_t n)
{
    static const char *const formats[] = {"lf-shard-1", "lf-shard-1", "lf-shard-1", "x"};
    unsigned char h[12] = {0};
    uint64_t off[64] = {0};
    char sha[LF_HASH_HEX] = "";
    lf_h5 *f = NULL;
    memcpy(h, d, n < sizeof h ? n : sizeof h);
    memset(sha, h[0] & 1 ? 'a' : 'g' - (h[0] & 2), 64);
    d += n < sizeof h ? n : sizeof h;
    n -= n < sizeof h ? n : sizeof h;
    size_t n_off = h[1] % 64;
    for (size_t i = 0; i < n_off && i < n; i++)
        off[i] = (i ? off[i - 1] : 0) + (uint64_t)(signed char)d[i];
    unlink(path);
    if (lf_h5_create(&f, path, NULL) < 0)
        abort();
    lf_h5_put_attr_str(f, "lf_format", formats[h[2] & 3], NULL);
    if (h[3] & 1)
        lf_h5_put_attr_str(f, h[3] & 2 ? "vocab_size" : "source", "s", NULL);
    lf_h5_put_attr_str(f, "tokenizer_sha256", sha, NULL);
    lf_h5_put_attr_i64(f, "vocab_size", (int64_t)(signed char)h[4] * h[5], NULL);
    lf_h5_put_attr_i64(f, "eos_id", (signed char)h[6], NULL);
    enum lf_h5_type t = (enum lf_h5_type)(1 + h[7] % 9);
    if (h[8] & 1 && lf_h5_begin_growing(f, "tokens", t, 1 + h[9], NULL) == 0)
        lf_h5_append(f, d, n / lf_h5_type_bytes(t), NULL);
    else
        lf_h5_put(f, "tokens", t, d, n / lf_h5_type_bytes(t), NULL);
    lf_h5_put(f, "doc_offsets", h[8] & 2 ? LF_H5_I64 : LF_H5_U64, off, n_off, NULL);
    lf_h5_close(f, NULL);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    lf_shard *s = NULL;
    lf_err err = LF_ERR_INIT;
    int32_t buf[256];
    if (n < 1 || n > 1 << 16)
        return 0;
    if (data[0] % 3 == 0)
        put_file(path, data + 1, n - 1);
    else if (data[0] % 3 == 1)
        edited(data + 1, n - 1);
    else
        recipe(data + 1, n - 1);
    if (lf_shard_open(&s, path, &err) < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    for (uint64_t i = 0, m = lf_shard_get_info(s)->n_tokens; i < m; i += 256)
        lf_shard_read(s, i, m - i < 256 ? (size_t)(m - i) : 256, buf, NULL);
    lf_shard_close(s);
    return 0;
}
