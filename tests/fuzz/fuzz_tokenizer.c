/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: tokenizer.json; what loads must encode and decode without harm.
 */
#include "engine/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = "tokenizer";

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    (void)i;
    (void)buf;
    (void)cap;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello  wor\xff" "ld's 123\n\xe2\x82\xac\xf0\x9f\x98\x80 <|endoftext|>";
    lf_err err = LF_ERR_INIT;
    lf_tokenizer *t = lf_tokenizer_parse((const char *)data, size, "fuzz.json", &err);
    fuzz_check_error(t ? 0 : -1, &err);
    if (!t)
        return 0;
    lf_ids ids = {0};
    lf_buf out;
    lf_buf_init(&out);
    lf_tok_state *s = lf_tok_state_create(t, &err);
    if (s) {
        int rc = lf_tokenizer_encode(s, text, sizeof text - 1, LF_TOK_TEMPLATE, &ids, NULL, &err);
        fuzz_check_error(rc, &err);
        if (rc == 0)
            fuzz_check_error(lf_tokenizer_decode(t, ids.v, ids.n, false, &out, &err), &err);
    }
    lf_tok_state_destroy(s);
    lf_ids_fini(&ids);
    lf_buf_fini(&out);
    lf_tokenizer_destroy(t);
    return 0;
}
