/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the fuzz targets.
 */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"

static char dir[256];

static void remove_dir(void)
{
    (void)lf_io_remove_tree(dir, NULL);
}

const char *fuzz_dir(void)
{
    if (!dir[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(dir, sizeof dir, "%s/lf-fuzz-XXXXXX", tmp ? tmp : "/tmp");
        if (!mkdtemp(dir))
            abort();
        atexit(remove_dir);
    }
    return dir;
}

void fuzz_check_error(int rc, const lf_err *err)
{
    if ((rc < 0) != (err->rc < 0) || (rc < 0 && !err->text[0])) {
        fprintf(stderr, "returned %d with error %d '%s'\n", rc, err->rc, err->text);
        abort();
    }
}

void fuzz_write(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

void fuzz_write_patched(const char *path, const uint8_t *base, size_t base_len, const uint8_t *data,
                        size_t size)
{
    uint8_t *copy = malloc(base_len + 1);
    if (!copy)
        abort();
    memcpy(copy, base, base_len);
    size_t keep = base_len;
    if (size >= 2) {
        keep = (size_t)((double)(data[0] | data[1] << 8) / 65535.0 * (double)base_len);
        for (size_t i = 2; i + 4 <= size; i += 4)
            copy[(size_t)(data[i] | data[i + 1] << 8 | data[i + 2] << 16) % base_len] = data[i + 3];
    }
    fuzz_write(path, copy, keep);
    free(copy);
}

/* libhdf5 1.10 forgets a block when the checksum of an object header is wrong; leaks of ours are
 * still findings. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}
