/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of warnings: see warned.h.
 */
#include "config.h"

#include "engine/base/warned.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cause.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"

#define PREFIX    "warnings."
#define MAX_BYTES ((size_t)1 << 20) /* of one file */
#define MAX_FILES 256

static int path_of_mine(char path[PATH_MAX], const char *dir)
{
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    int n = snprintf(path, PATH_MAX, "%s/" PREFIX "%s.%ld", dir, host, (long)getpid());
    return n > 0 && n < PATH_MAX ? 0 : LF_EINVAL;
}

void lf_warned_note(const char *text)
{
    static atomic_int noted;
    const char *dir = getenv(LF_CAUSE_DIR_ENV);
    char path[PATH_MAX], line[1024];
    if (!dir || dir[0] == '\0' || atomic_fetch_add(&noted, 1) >= LF_WARNED_MAX)
        return;
    int n = snprintf(line, sizeof line - 1, "%s", text);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < ' ')
            line[i] = ' ';
    line[len++] = '\n';
    int fd = path_of_mine(path, dir) == 0
                 ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640)
                 : -1;
    if (fd < 0)
        return;
    if (write(fd, line, len) < 0) /* a full disk: the log has it, if anything has */
        errno = 0;
    close(fd);
}

static int is_ours(const struct dirent *e)
{
    return strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0;
}

static int read_one(const char *path, int (*each)(void *, const char *, lf_err *), void *user,
                    lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_io_read_file(path, MAX_BYTES, &b, err);
    char *at = rc == 0 ? b.data : NULL;
    while (rc == 0 && at && *at) {
        char *end = strchr(at, '\n');
        if (!end)
            break; /* a line that a kill has cut off */
        *end = '\0';
        for (size_t n = strlen(at), i = lf_utf8_check(at, n); i < n;
             i += lf_utf8_check(at + i, n - i))
            at[i] = '?'; /* half of a character that was cut off: JSON takes valid UTF-8 only */
        rc = each(user, at, err);
        at = end + 1;
    }
    lf_buf_fini(&b);
    return rc;
}

int lf_warned_read(const char *dir, int (*each)(void *user, const char *text, lf_err *err),
                   void *user, lf_err *err)
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, is_ours, alphasort), rc = 0;
    if (n < 0)
        return errno == ENOENT ? 0 : lf_fail_errno(err, "cannot list %s", dir);
    for (int i = 0; i < n; i++) {
        char *path = rc == 0 && i < MAX_FILES ? lf_path_join(dir, names[i]->d_name, err) : NULL;
        if (path)
            rc = read_one(path, each, user, err);
        free(path);
        free(names[i]);
    }
    free(names);
    return rc;
}
