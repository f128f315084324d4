/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrapper's arithmetic: when to ask a stage to stop, and the dependency texts of SLURM.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/str.h"
#include "flow/job/exec.h"
#include "tests/tap/tap.h"

static void test_lead(void)
{
    lf_exec_pace p = {.save_s = 30, .spacing_s = 10};
    tap_f64(lf_exec_lead_s(&p, 120, 3600), 120, 1e-9, "the grace when saving is quick");
    p.save_s = 100;
    tap_f64(lf_exec_lead_s(&p, 120, 3600), 210, 1e-9,
            "twice the save and one spacing when it is not");
    tap_f64(lf_exec_lead_s(&p, 120, 60), 30, 1e-9, "never more than half of a short job");
}

static void test_dependencies(void)
{
    static const struct {
        const char *text, *want;
        bool found;
    } rows[] = {
        {"afterok:5(unfulfilled)", "afterok:77", true},
        {"afterok:5(unfulfilled),afterok:6(unfulfilled)", "afterok:77,afterok:6", true},
        {"afterok:55(unfulfilled),afterany:15(failed)", "afterok:55,afterany:15", false},
        {"afterok:4:5:6", "afterok:4:77:6", true},
        {"afterok:5_3(unfulfilled)", "afterok:5_3", false},
        {"singleton(unfulfilled)?afterok:5", "singleton?afterok:77", true},
        {"(null)", "", false},
        {"", "", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_buf b;
        lf_buf_init(&b);
        tap_i64(lf_slurm_dependency_replace(&b, rows[i].text, "5", "77"), rows[i].found,
                rows[i].text);
        tap_str(b.len > 0 ? b.data : "", rows[i].want, rows[i].text);
        lf_buf_fini(&b);
    }
}

int main(void)
{
    TAP(3, test_lead());
    TAP(16, test_dependencies());
    return tap_done();
}
