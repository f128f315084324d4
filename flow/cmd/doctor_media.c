/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: the decoders of pictures. The command links none, so it asks lf-tokenize --decoders,
 * which prints a line for each format: name, version or "no", and a word, with tabs between.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/err.h"
#include "flow/cmd/doctor.h"
#include "flow/run/freeze.h"

enum { ANSWER_MAX = 4096, PATIENCE_S = 30 };

static void become(const char *exe, int out)
{
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(out, 1);
    dup2(null, 2);
    alarm(PATIENCE_S); /* stays over execl and ends a program that hangs */
    execl(exe, exe, "--decoders", (char *)NULL);
    _exit(127);
}

/* What it prints, as a text; false: it does not start, fails, or says too much. */
static bool ask(char answer[ANSWER_MAX], const char *exe)
{
    int p[2], status = 0;
    size_t n = 0;
    ssize_t got = 1;
    if (pipe2(p, O_CLOEXEC) < 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        become(exe, p[1]);
    close(p[1]);
    while (pid > 0 && got > 0 && n < ANSWER_MAX - 1) {
        got = read(p[0], answer + n, ANSWER_MAX - 1 - n);
        if (got > 0)
            n += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    close(p[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    answer[n] = 0;
    return pid > 0 && got == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const struct {
    const char *word, *verdict, *text, *advice;
} verdicts[] = {
    {"same", "ok", "reads pictures with the pixels of the reference", NULL},
    {"absent", "ok", "not built in: such pictures are refused",
     "to read them, install its library and run configure again (./autogen.sh --packages)"},
    {"differs", "warn", "the library rounds otherwise: pixels differ from those of the reference",
     "prepare pictures on one machine alone, or install the library of a supported release"},
    {"fails", "fail", "the library refuses a correct picture", "install the library anew"},
};

/* One line "format TAB version TAB word". */
static bool tell(lf_doctor *d, char *line)
{
    char *rest = line, *format = strsep(&rest, "\t"), *version = strsep(&rest, "\t");
    for (size_t i = 0; rest != NULL && i < sizeof verdicts / sizeof verdicts[0]; i++)
        if (strcmp(rest, verdicts[i].word) == 0) {
            lf_doctor_add(d, verdicts[i].verdict, "pictures", verdicts[i].advice, "%s (%s) %s",
                          format, version, verdicts[i].text);
            return true;
        }
    return false;
}

void lf_doctor_media(lf_doctor *d)
{
    char answer[ANSWER_MAX], *exe = NULL, *rest = answer, *line;
    lf_err e = LF_ERR_INIT;
    if (lf_exe_find(&exe, "lf-tokenize", &e) < 0)
        return; /* the check of executables has said so */
    bool good = ask(answer, exe);
    while (good && (line = strsep(&rest, "\n")) != NULL && line[0] != 0)
        good = tell(d, line);
    if (!good)
        lf_doctor_add(d, "warn", "pictures", "try it by hand", "%s --decoders gives no answer",
                      exe);
    free(exe);
}
