/* SPDX-License-Identifier: Apache-2.0
 *
 * cause.h: the class of an error, the first word stands, what cannot be said is not said.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cause.h"
#include "engine/base/io.h"
#include "tests/tap/tap.h"

static const char *class_of(int rc, int errnum, const char *text)
{
    lf_err e = LF_ERR_INIT;
    lf_fail(&e, rc, "%s", text);
    e.errnum = errnum;
    return lf_cause_class(&e);
}

static void test_classes(void)
{
    tap_str(class_of(LF_EINVAL, 0, "steps"), "config",
            "a value that does not fit is of the settings");
    tap_str(class_of(LF_ENOTSUP, 0, "fp8"), "config", "so is what is not built in");
    tap_str(class_of(LF_EEXIST, 0, "out"), "config", "and a result of other options");
    tap_str(class_of(LF_EFORMAT, 0, "hash"), "bad_input",
            "what a file should not be is of the input");
    tap_str(class_of(LF_EIO, ENOSPC, "write"), "disk", "an errno says more than the code");
    tap_str(class_of(LF_EFORMAT, ESTALE, "read"), "filesystem", "of any code");
    tap_str(class_of(LF_EIO, 0, "write"), "", "a code that says nothing has no class");
    tap_str(class_of(LF_ENOMEM, 0, "out of memory"), "oom", "memory of the host");
    tap_str(class_of(LF_ENOMEM, 0, "CUDA device 0: out of memory"), "oom_device",
            "and of a device");
    tap_str(class_of(LF_ENUMERIC, 0, "loss"), "diverged", "numbers");
    tap_str(class_of(LF_ECOMM, 0, "rank 1 failed"), "rank", "ranks");
    tap_str(lf_cause_signal(SIGKILL), "rank", "a killed rank");
    tap_str(lf_cause_signal(SIGSEGV), "crash", "one that crashed");
}

static void test_words(const char *dir)
{
    lf_cause c;
    lf_err err = LF_ERR_INIT;
    unsetenv(LF_CAUSE_DIR_ENV);
    lf_cause_say("nobody", "config", "unheard");
    setenv(LF_CAUSE_DIR_ENV, "/nowhere/at/all", 1);
    lf_cause_say("nobody", "config", "unheard");
    setenv(LF_CAUSE_DIR_ENV, dir, 1);
    tap_rc(lf_cause_load(&c, dir, &err), LF_ENOENT, &err, LF_CAUSE_FILE, "nothing was said");
    lf_err_clear(&err);
    lf_cause_say("lf-eval", "disk", "no \"space\" for caf\xe9");
    lf_cause_say("launcher", "rank", "what followed");
    tap_rc(lf_cause_load(&c, dir, &err), 0, &err, NULL, "something was");
    tap_str(c.cls, "disk", "the first word stands");
    tap_str(c.reason, "no \"space\" for caf?", "with its text as UTF-8");
    tap_str(c.by, "lf-eval", "and who said it");
}

static void test_odd_files(const char *dir)
{
    lf_cause c;
    lf_err err = LF_ERR_INIT;
    char big[3000];
    char path[4096];
    snprintf(path, sizeof path, "%s/" LF_CAUSE_FILE, dir);
    remove(path);
    memset(big, 'x', sizeof big);
    memcpy(big + 698, "\xc3\xa9", 2); /* a character that the end of the buffer cuts */
    big[sizeof big - 1] = '\0';
    lf_cause_say("lf-eval", "config", big);
    tap_rc(lf_cause_load(&c, dir, &err), 0, &err, NULL, "a long text is cut");
    tap_ok(strlen(c.reason) == 699 && c.reason[698] == '?', "to what fits");
    lf_io_replace(path, "[1]", 3, 0640, NULL);
    tap_rc(lf_cause_load(&c, dir, &err), LF_EFORMAT, &err, NULL,
           "a file that is something else says nothing");
}

/* Who saw the end of a process knows more than the watchdog, and no more than others. */
static void test_saw(const char *dir)
{
    static const struct {
        const char *by, *cls, *stays;
    } first[] = {{LF_CAUSE_WATCH, "rank", "launcher"},
                 {LF_CAUSE_WATCH, "hang", LF_CAUSE_WATCH},
                 {"lf-eval", "rank", "lf-eval"}};
    lf_cause c;
    lf_err err = LF_ERR_INIT;
    char path[4096];
    snprintf(path, sizeof path, "%s/" LF_CAUSE_FILE, dir);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        remove(path);
        lf_cause_say(first[i].by, first[i].cls, "a rank is gone");
        lf_cause_saw("launcher", "crash", "it had signal 11");
        lf_cause_say(LF_CAUSE_WATCH, "rank", "a rank is gone");
        tap_rc(lf_cause_load(&c, dir, &err), 0, &err, NULL, "something was said");
        tap_str(c.by, first[i].stays, first[i].cls);
    }
}

int main(void)
{
    const char *dir = tap_tmpdir();
    TAP(13, test_classes());
    TAP(5, test_words(dir));
    TAP(6, test_saw(dir));
    TAP(3, test_odd_files(dir));
    return tap_done();
}
