/* SPDX-License-Identifier: Apache-2.0
 *
 * on_tty COLUMNS COMMAND...: runs a command with a terminal of so many columns as its standard
 * files and copies what it writes to standard output, byte for byte. Exits as the command does. A
 * terminal of 0 columns says nothing about its width.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static void child(const char *tty, char **argv)
{
    setsid(); /* the terminal that it opens now is its controlling one */
    int fd = open(tty, O_RDWR);
    for (int i = 0; i < 3 && fd >= 0; i++)
        dup2(fd, i);
    if (fd > 2)
        close(fd);
    if (fd >= 0)
        execvp(argv[0], argv);
    _exit(127);
}

static void plain_output(int fd)
{
    struct termios t;
    if (tcgetattr(fd, &t) == 0) {
        t.c_oflag &= ~(tcflag_t)OPOST; /* newlines stay newlines */
        tcsetattr(fd, TCSANOW, &t);
    }
}

int main(int argc, char **argv)
{
    const int own = argc > 2 ? posix_openpt(O_RDWR | O_NOCTTY) : -1;
    if (own < 0 || grantpt(own) < 0 || unlockpt(own) < 0) {
        fprintf(stderr, "on_tty: needs COLUMNS COMMAND and a pseudo terminal\n");
        return 99;
    }
    const char *tty = ptsname(own);
    const struct winsize w = {.ws_row = 24, .ws_col = (unsigned short)strtol(argv[1], NULL, 10)};
    const int held = tty != NULL ? open(tty, O_RDWR | O_NOCTTY) : -1;
    if (held < 0 || ioctl(held, TIOCSWINSZ, &w) < 0)
        return 99;
    plain_output(held);
    const pid_t pid = fork();
    if (pid == 0)
        child(tty, argv + 2);
    close(held);
    char buf[4096];
    ssize_t n;
    while ((n = read(own, buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR)) /* EIO: all closed */
        if (n > 0 && write(STDOUT_FILENO, buf, (size_t)n) != n)
            return 99;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
