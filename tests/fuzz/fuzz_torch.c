/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: files of torch.save, zip and older. Seeds: the good and hostile files of the unit
 * test.
 */
#include "engine/store/torch_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_tensors.h"

const char *const fuzz_corpus = "../../golden/store/torch";

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    (void)i;
    (void)buf;
    (void)cap;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    char path[64];
    fuzz_memory_file(path, sizeof path, data, size);
    fuzz_check_error(lf_torch_open(&s, path, &err), &err);
    if (s)
        fuzz_read_tensors(s);
    lf_st_close(s);
    return 0;
}
