/* SPDX-License-Identifier: Apache-2.0
 *
 * See tok_use.h.
 */
#include "config.h"

#include "tests/fuzz/tok_use.h"

#include "tests/fuzz/fuzz.h"

static void use(const lf_tokenizer *t, lf_tok_state *s, const char *text, size_t n, unsigned flags)
{
    lf_err err = LF_ERR_INIT;
    lf_ids ids = {0};
    lf_buf out;
    lf_buf_init(&out);
    int rc = lf_tokenizer_encode(s, text, n, flags, &ids, NULL, &err);
    fuzz_check_error(rc, &err);
    for (uint32_t i = 0; rc == 0 && i < 40; i++)
        if (i < lf_tokenizer_vocab_size(t) &&
            lf_tokenizer_token(t, i, &(const uint8_t *){0}, &(size_t){0}))
            rc = lf_ids_add(&ids, i, &err);
    if (rc == 0) {
        err = (lf_err)LF_ERR_INIT;
        /* A template may name ids that have no token: that is an error, not harm. */
        fuzz_check_error(lf_tokenizer_decode(t, ids.v, ids.n, flags & LF_TOK_STRICT, &out, &err),
                         &err);
    }
    lf_ids_fini(&ids);
    lf_buf_fini(&out);
}

void fuzz_use_tokenizer(lf_tokenizer *t)
{
    static const char text[] =
        "Hello  wor\xff"
        "ld's 123\n\xe2\x82\xac\xf0\x9f\x98\x80 <|endoftext|> \xe2\x96\x81"
        "ab abab <s> \xc3\xa9\xcc\x81\xef\xac\x81 \xe4\xba\xba\xe4\xba\xba ``x'' aaaa";
    lf_err err = LF_ERR_INIT;
    lf_tok_state *s = t ? lf_tok_state_create(t, &err) : NULL;
    if (s) {
        use(t, s, text, sizeof text - 1, LF_TOK_TEMPLATE);
        use(t, s, text, sizeof text - 1, LF_TOK_SPECIAL_TEXT | LF_TOK_NO_CACHE);
        use(t, s, text, 9, LF_TOK_STRICT);
    }
    lf_tok_state_destroy(s);
    lf_tokenizer_destroy(t);
}
