/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the INI reader, and a model description read from what it accepts.
 */
#include "engine/base/ini.h"
#include "engine/model/config.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = "ini";

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    (void)i;
    (void)buf;
    (void)cap;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_ini ini;
    lf_err err = LF_ERR_INIT;
    int rc = lf_ini_parse_text(&ini, (const char *)data, size, "fuzz.ini", &err);
    fuzz_check_error(rc, &err);
    if (rc)
        return 0;
    lf_model_config c;
    rc = lf_model_config_from_ini(&c, &ini, "model", &err);
    fuzz_check_error(rc, &err);
    lf_ini_fini(&ini);
    return 0;
}
