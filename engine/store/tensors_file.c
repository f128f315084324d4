/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening files of a directory that others wrote, without following a link to somewhere else
 * (tensors.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/str.h"
#include "engine/store/tensors.h"

/* O_NONBLOCK: opening a FIFO must not wait for its writer. */
#define OPEN_FLAGS (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

static bool plain_component(const char *s)
{
    return s[0] && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0 &&
           strlen(s) < 256;
}

/* The hub cache's own link: NAME of "../../blobs/NAME", below the directory two above. */
static int open_blob(int dir_fd, const char *dir, const char *name, lf_err *err)
{
    static const char prefix[] = "../../blobs/";
    char to[512];
    ssize_t n = readlinkat(dir_fd, name, to, sizeof to - 1);
    if (n < 0)
        return lf_fail_errno(err, "cannot read the link %s/%s", dir, name);
    to[n] = '\0';
    if (!lf_str_has_prefix(to, prefix) || !plain_component(to + sizeof prefix - 1))
        return lf_fail(err, LF_EINVAL,
                       "%s/%s is a symbolic link to %.200s; only the links of the Hugging Face "
                       "cache (%sNAME) are "
                       "followed in a model directory; put the file itself there",
                       dir, name, to, prefix);
    int blobs = openat(dir_fd, "../../blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = blobs < 0 ? -1 : openat(blobs, to + sizeof prefix - 1, OPEN_FLAGS);
    int e = errno;
    if (blobs >= 0)
        close(blobs);
    /* Not LF_ENOENT: the name itself is there. */
    return fd < 0 ? lf_fail(err, LF_EIO, "cannot follow the link %s/%s to %s: %s", dir, name, to,
                            strerror(e))
                  : fd;
}

int lf_st_open_file(const char *dir, const char *name, lf_err *err)
{
    struct stat st;
    if (!plain_component(name))
        return lf_fail(
            err, LF_EINVAL,
            "%s: \"%.200s\" is not the name of a file in this directory (no path, no \"..\")", dir,
            name);
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return lf_fail_errno(err, "cannot open directory %s", dir);
    int fd = openat(dir_fd, name, OPEN_FLAGS);
    if (fd < 0 && errno == ELOOP)
        fd = open_blob(dir_fd, dir, name, err);
    else if (fd < 0)
        fd = lf_fail_errno(err, "cannot open %s/%s", dir, name);
    close(dir_fd);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        return lf_fail(err, LF_EINVAL, "%s/%s is not a regular file", dir, name);
    }
    return fd;
}
