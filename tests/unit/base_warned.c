/* SPDX-License-Identifier: Apache-2.0
 *
 * warned.h: what is logged as a warning is found again, by whatever process it was logged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cause.h"
#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/base/warned.h"
#include "tests/tap/tap.h"

struct seen {
    int n, stop_at;
    size_t longest;
    char first[1200], last[1200];
};

static int see(void *user, const char *text, lf_err *err)
{
    struct seen *s = user;
    (void)err;
    if (strlen(text) > s->longest)
        s->longest = strlen(text);
    snprintf(s->n++ == 0 ? s->first : s->last, sizeof s->last, "%s", text);
    return s->n == s->stop_at ? 7 : 0;
}

static struct seen seen_in(const char *dir)
{
    struct seen s = {0};
    lf_err err = LF_ERR_INIT;
    if (lf_warned_read(dir, see, &s, &err) < 0)
        tap_bail("%s", err.text);
    return s;
}

static void test_two_processes(const char *dir)
{
    unsetenv(LF_CAUSE_DIR_ENV);
    lf_log(1, "nobody asks");
    setenv(LF_CAUSE_DIR_ENV, "/nowhere/at/all", 1);
    lf_log(1, "nowhere to go");
    tap_i64(seen_in("/nowhere/at/all").n, 0, "a directory that is not there has none");
    setenv(LF_CAUSE_DIR_ENV, dir, 1);
    lf_log(2, "not a warning");
    lf_log(1, "%d sequences\nwere replaced", 9000);
    pid_t child = fork();
    if (child == 0) {
        lf_log(1, "of another rank");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    struct seen s = seen_in(dir);
    tap_i64(s.n, 2, "two processes gave one warning each");
    bool mine = strcmp(s.first, "9000 sequences were replaced") == 0 ||
                strcmp(s.last, "9000 sequences were replaced") == 0;
    tap_ok(mine, "on one line");
    s = (struct seen){.stop_at = 1};
    tap_i64(lf_warned_read(dir, see, &s, NULL), 7, "a reader may end early");
}

static void test_odd(const char *dir)
{
    char path[4096], big[5000];
    snprintf(path, sizeof path, "%s/warnings.z.1", dir);
    lf_io_write_file(path, "cut caf\xe9\nhalf of", 16, 0640, NULL);
    struct seen s = seen_in(dir);
    tap_str(s.last, "cut caf?", "valid UTF-8 alone comes out, and whole lines alone");
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    remove(path);
    for (int i = 0; i < 2 * LF_WARNED_MAX; i++)
        lf_warned_note(big);
    s = seen_in(dir);
    tap_ok(s.n <= LF_WARNED_MAX && s.n > LF_WARNED_MAX - 10, "no process fills the disk: %d", s.n);
    tap_ok(s.longest > 900 && s.longest < 1100, "and long ones are cut: %zu", s.longest);
}

int main(void)
{
    const char *dir = tap_tmpdir();
    lf_log_init("test", 1);
    TAP(4, test_two_processes(dir));
    TAP(3, test_odd(dir));
    return tap_done();
}
