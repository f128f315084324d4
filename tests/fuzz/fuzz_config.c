/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: config.json of a Hugging Face model; what is read must be written and read again as
 * the same model, or refused, and its mapping rows must expand or be refused.
 */
#include "engine/base/json.h"
#include "engine/convert/hf.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = "config";

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    (void)i;
    (void)buf;
    (void)cap;
    return 0;
}

static void use(const struct lf_hf_family *f, const lf_model_config *c)
{
    lf_err err = LF_ERR_INIT;
    lf_map map = {0};
    json_t *o = lf_hf_config_write(f, c, "float32", &err);
    fuzz_check_error(o ? 0 : -1, &err);
    json_decref(o);
    if (c->layers > 16) /* time, not correctness */
        return;
    lf_err_clear(&err);
    struct lf_map_form form;
    int rc = lf_hf_form(&form, f, c, NULL, NULL, &err);
    rc = rc ? rc : lf_map_build(&map, &form, c, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0)
        lf_map_fini(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    json_t *o = lf_json_load_text((const char *)data, size, "config.json", &err);
    if (json_is_object(o)) {
        const struct lf_hf_family *f = lf_hf_family_of(o, "config.json", &err);
        int rc = f ? lf_hf_config_read(&c, f, o, "config.json", &err) : -1;
        fuzz_check_error(rc, &err);
        if (rc == 0)
            use(f, &c);
    }
    json_decref(o);
    return 0;
}
