/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a container of tokenizer files (tokenizer_files.h): tiktoken ranks, vocab.json +
 * merges.txt, vocab.txt and the configuration beside them.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tok_use.h"

const char *const fuzz_corpus = "tokforms";

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
    lf_tokenizer *t = lf_tokenizer_parse((const char *)data, size, "fuzz.tiktoken", &err);
    fuzz_check_error(t ? 0 : -1, &err);
    fuzz_use_tokenizer(t);
    return 0;
}
