/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges around segments reach a tool that NVTX_INJECTION64_PATH names; without one, or with one
 * that refuses or is no such library, nothing is called. Each case is a process of its own, as a
 * tool attaches once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/graph/nvtx.h"
#include "tests/unit/graph_util.h"

/* One forward, backward and optimizer step in a process where the variable is `library` (NULL:
 * unset); 0 when a tool attached. */
static int one_step(const char *library)
{
    pid_t pid = fork();
    if (pid == 0) {
        lf_err err = LF_ERR_INIT;
        struct gu_opts o = gu_f32;
        struct gu u;
        struct gu_batch b;
        unsetenv("NVTX_INJECTION64_PATH");
        if (library)
            setenv("NVTX_INJECTION64_PATH", library, 1);
        o.optimizer = true;
        gu_open(&u, &gu_llama, &o);
        gu_batch_make(&b, &u.m, u.m.rows, 1);
        gu_feed(&u, u.train, 0, &b);
        gu_record(&u, b.trained, 1e-3f);
        gu_fwd_bwd(&u, 0, LF_FIRST);
        int rc = lf_exec_run(u.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err);
        _exit(rc ? 9 : lf_nvtx_get() ? 0 : 1);
    }
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static void test_tools(void)
{
    const char *build = getenv("LF_BUILDDIR");
    char library[4096], log[4096];
    lf_err err = LF_ERR_INIT;
    lf_buf text;
    lf_buf_init(&text);
    snprintf(library, sizeof library, "%s/tests/unit/fake_nvtx.so", build ? build : ".");
    snprintf(log, sizeof log, "%s/log", tap_tmpdir());
    setenv("FAKE_NVTX_LOG", log, 1);
    tap_i64(one_step(NULL), 1, "no tool: no range");
    tap_i64(one_step("/nonexistent.so"), 1, "no such library: no range, and no failure");
    setenv("FAKE_NVTX_REFUSE", "1", 1);
    tap_i64(one_step(library), 1, "a tool that refuses: no range");
    unsetenv("FAKE_NVTX_REFUSE");
    tap_ok(access(log, F_OK) != 0, "nothing was called");
    tap_i64(one_step(library), 0, "a tool attaches");
    tap_rc(lf_io_read_file(log, 1 << 20, &text, &err), 0, &err, NULL, "and is told");
    tap_str(text.data,
            "push train forward\npop \npush train backward\npop \npush optimizer\npop \n",
            "every segment by its name");
    lf_buf_fini(&text);
}

int main(void)
{
    TAP(7, test_tools());
    return tap_done();
}
