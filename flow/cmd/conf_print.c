/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration back to INI text.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/cmd/prep.h"

static void print_value(lf_buf *out, const lf_conf_item *it)
{
    const char *v = it->value != NULL ? it->value : it->raw;
    lf_buf_addf(out, "%s = ", it->key);
    for (; *v != '\0'; v++) {
        lf_buf_addc(out, *v);
        if (*v == '\n')
            lf_buf_adds(out, "    ");
    }
    lf_buf_addc(out, '\n');
}

int lf_conf_print(const lf_conf *c, bool origins, lf_buf *out, lf_err *err)
{
    for (size_t s = 0; s < c->n_sections; s++) {
        for (size_t i = c->sections[s].first; i != LF_CONF_END; i = c->items[i].next) {
            const lf_conf_item *it = &c->items[i];
            if (i == c->sections[s].first)
                lf_buf_addf(out, "%s[%s]\n", out->len > 0 ? "\n" : "", it->section);
            if (origins && it->line > 0)
                lf_buf_addf(out, "# %s:%d:%d (%s%s%s)\n", it->path, it->line, it->column, it->layer,
                            it->via != NULL ? ", through " : "", it->via != NULL ? it->via : "");
            else if (origins)
                lf_buf_addf(out, "# %s\n", it->layer);
            print_value(out, it);
        }
    }
    return lf_buf_check(out, err);
}
