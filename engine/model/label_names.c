/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of labels: see label_names.h. */
#include "engine/model/label_names.h"

#include <stdio.h>
#include <string.h>

int64_t lf_label_count(const lf_model_config *c)
{
    return lf_model_classifies(c)          ? c->classes.labels
           : c->output == LF_OUTPUT_LABELS ? c->labels
                                           : 0;
}

json_t *lf_label_config(const json_t *state)
{
    json_t *v = json_object_get(json_object_get(state, "hf"), "config");
    v = v ? v : json_object_get(state, "hf_config");
    return json_is_string(v) ? v : NULL;
}

/* All names of id2label; *says: one of them is not LABEL_k. */
static json_t *list(const json_t *names, int64_t n, bool *says)
{
    json_t *out = json_array();
    for (int64_t i = 0; i < n && out; i++) {
        char key[32], plain[40];
        snprintf(key, sizeof key, "%lld", (long long)i);
        snprintf(plain, sizeof plain, "LABEL_%s", key);
        json_t *name = json_object_get(names, key);
        if (!json_is_string(name) || json_array_append(out, name)) {
            json_decref(out);
            return NULL;
        }
        *says = *says || strcmp(json_string_value(name), plain) != 0;
    }
    return out;
}

/* Those that the data of a training had. */
static json_t *of_data(const json_t *state, int64_t n)
{
    json_t *names = json_object_get(state, "label_names"), *v;
    size_t i;
    bool fit = n > 0 && json_array_size(names) == (size_t)n;
    json_array_foreach(names, i, v) fit = fit && json_is_string(v);
    return fit ? json_incref(names) : NULL;
}

json_t *lf_label_names(const json_t *state, int64_t n)
{
    json_t *mine = of_data(state, n);
    if (mine)
        return mine;
    const json_t *text = lf_label_config(state);
    json_t *config =
               text ? json_loadb(json_string_value(text), json_string_length(text), 0, NULL) : NULL,
           *names = json_object_get(config, "id2label"), *out = NULL;
    bool says = false;
    if (n > 0 && json_object_size(names) == (size_t)n)
        out = list(names, n, &says);
    json_decref(config);
    if (says)
        return out;
    json_decref(out);
    return NULL;
}
