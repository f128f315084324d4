/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the targets that open sets of tensors.
 */
#include "tests/fuzz/fuzz_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define MOST                                                                                       \
    ((int64_t)1                                                                                    \
     << 16) /* bytes of one tensor that are read: an expanded view can be larger than any memory   \
                                 */

void fuzz_memory_file(char *path, size_t cap, const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, cap, "/proc/self/fd/%d", fd);
}

void fuzz_read_tensors(const lf_st *s)
{
    unsigned char *buf = malloc((size_t)MOST);
    if (!buf)
        abort();
    for (size_t i = 0; i < lf_st_n_entries(s) && i < 64; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        lf_err err = LF_ERR_INIT;
        int64_t most = MOST / (int64_t)lf_st_dtype_bytes(e->dtype),
                n = e->elems < most ? e->elems : most;
        int rc = lf_st_read(s, e, 0, n, buf, &err);
        if (rc == 0)
            rc = lf_st_read(s, e, e->elems - n / 2, n / 2, buf, &err);
        lf_st_count_nonfinite(e->dtype, buf, n / 2);
        if (rc < 0 || e->alias_of >= (int)i || lf_st_find(s, e->name) != e) {
            fprintf(stderr, "tensor %s: %s\n", e->name, err.text);
            abort();
        }
    }
    free(buf);
}
