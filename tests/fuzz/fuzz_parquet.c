/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a parquet file, in memory under a name. Every row that it gives must be an object,
 * and there are as many as it says.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/text/corpus/rowjson.h"
#include "engine/text/parquet/parquet.h"
#include "tests/fuzz/fuzz.h"

#define ROWS_MAX 100000 /* runs of nulls are as long as a file says that they are */

const char *const fuzz_corpus = "parquet";

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    (void)i, (void)buf, (void)cap;
    return 0;
}

static void check_row(const lf_buf *row)
{
    json_t *v = NULL;
    lf_err err = LF_ERR_INIT;
    const lf_corpus_record r = {.raw = row->data, .len = row->len, .form = LF_RECORD_PACKED};
    int rc = lf_row_json(&v, &r, LF_ROW_NUL, "row", NULL, &err);
    fuzz_check_error(rc, &err);
    if (rc != 0 || !json_is_object(v))
        abort();
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const lf_parquet_opts o = {.max_row_bytes = 1 << 16};
    lf_parquet *p = NULL;
    lf_err err = LF_ERR_INIT;
    lf_buf row;
    lf_buf_init(&row);
    int rc = lf_parquet_open(&p, path, &o, &err);
    int64_t rows = 0;
    fuzz_check_error(rc, &err);
    while (rc == 0 && rows < ROWS_MAX && (rc = lf_parquet_next(p, &row, &err)) == 1) {
        check_row(&row);
        rows++;
        rc = 0;
    }
    fuzz_check_error(rc, &err);
    if (p && rc == 0 && rows < ROWS_MAX && rows != lf_parquet_rows(p))
        abort();
    lf_parquet_close(p);
    lf_buf_fini(&row);
    return 0;
}
