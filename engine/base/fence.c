/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence belongs to the process, as its stop requests do (sys.c).
 */
#include "engine/base/fence.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"

static char *fence;

int lf_fence_install(const char *path, lf_err *err)
{
    char *copy = NULL;
    if (path && path[0] && !(copy = lf_strdup(path, err)))
        return LF_ENOMEM;
    free(fence);
    fence = copy;
    return 0;
}

/* An NFS client remembers for up to a minute that a name was not there; opening the directory makes
 * it ask again. */
bool lf_fence_there(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? lf_strndup(path, (size_t)(slash - path) + 1, NULL) : NULL;
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0)
        close(fd);
    free(dir);
    return lf_io_exists(path);
}

bool lf_fence_closed(void)
{
    return fence && lf_fence_there(fence);
}

int lf_fence_check(const char *what, lf_err *err)
{
    if (!lf_fence_closed())
        return 0;
    return lf_fail(err, LF_EBUSY, "%s is not published: a newer start of this stage has begun (%s)",
                   what, fence);
}
