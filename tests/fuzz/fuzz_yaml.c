/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the YAML reader.
 */
#include "engine/base/yaml.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = "yaml";

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
    json_t *v = lf_yaml_load_text((const char *)data, size, "fuzz.yaml", &err);
    fuzz_check_error(v ? 0 : err.rc ? err.rc : LF_EFORMAT, &err);
    json_decref(v);
    return 0;
}
