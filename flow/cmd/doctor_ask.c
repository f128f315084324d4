/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: questions to stages. The command links nothing that computes or decodes, so what those
 * parts can do on this machine a stage says, in answer to one word.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flow/cmd/doctor.h"

enum { PATIENCE_S = 30 };

static void become(const char *exe, const char *word, int out)
{
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(out, 1);
    dup2(null, 2);
    alarm(PATIENCE_S); /* stays over execl and ends a program that hangs */
    execl(exe, exe, word, (char *)NULL);
    _exit(127);
}

bool lf_doctor_ask(char answer[LF_DOCTOR_ANSWER], const char *exe, const char *word)
{
    int p[2], status = 0;
    size_t n = 0;
    ssize_t got = 1;
    if (pipe2(p, O_CLOEXEC) < 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        become(exe, word, p[1]);
    close(p[1]);
    while (pid > 0 && got > 0 && n < LF_DOCTOR_ANSWER - 1) {
        got = read(p[0], answer + n, LF_DOCTOR_ANSWER - 1 - n);
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
