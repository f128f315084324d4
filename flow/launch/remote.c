/* SPDX-License-Identifier: Apache-2.0
 *
 * A daemon that was started by srun, pbsdsh, ssh or as a local process: it reads the boot document,
 * connects to the hub, proves that it knows the key, and is a daemon like any other from there.
 *
 * The boot document: {"key", "port", "addresses": [..]} and, unless the starter carries them,
 * "env": [..] and "cwd".
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/net.h"
#include "flow/launch/job.h"
#include "flow/launch/message.h"

enum { MAX_BOOT = 4 << 20, CONNECT_MS = 10000 };

static int read_boot(lf_buf *b, const char *how, lf_err *err)
{
    if (strcmp(how, "env") == 0) {
        const char *v = getenv("LF_LAUNCH_BOOT");
        if (v == NULL)
            return lf_fail(err, LF_EINVAL,
                           "LF_LAUNCH_BOOT is not set; daemons are started by `loong-flow launch`");
        lf_buf_adds(b, v);
        unsetenv("LF_LAUNCH_BOOT"); /* the ranks need no key */
        return lf_buf_check(b, err);
    }
    char buf[4096];
    struct stat st;
    const bool in = strcmp(how, "stdin") == 0;
    int fd = in ? 0 : open(how, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return lf_fail_errno(err, "cannot open %s", how);
    if (!in && (st.st_uid != getuid() || (st.st_mode & 077) != 0 || !S_ISREG(st.st_mode)))
        rc = lf_fail(err, LF_EINVAL, "%s is not a file that only I can read", how);
    for (ssize_t n = 0; rc == 0 && (n = read(fd, buf, sizeof buf)) != 0;) {
        if (n < 0 && errno != EINTR)
            rc = lf_fail_errno(err, "cannot read %s", how);
        if (n > 0)
            lf_buf_add(b, buf, (size_t)n);
        if (b->len > MAX_BOOT)
            rc = lf_fail(err, LF_EFORMAT, "%s is too long", how);
    }
    if (!in)
        close(fd);
    return rc < 0 ? rc : lf_buf_check(b, err);
}

/* The hub's environment, but what belongs to this node stays. */
static void take_environment(char *const *env)
{
    static const char *const local[] = {
        "SLURM", "PBS_",     "HOSTNAME=", "TMPDIR=", "XDG_RUNTIME_DIR=",
        "SSH_",  "DISPLAY=", "LF_LAUNCH_"};
    for (; *env != NULL; env++) {
        char *e = *env;
        bool skip = strchr(e, '=') == NULL;
        for (size_t k = 0; !skip && k < sizeof local / sizeof local[0]; k++)
            skip = lf_str_has_prefix(e, local[k]);
        if (!skip) {
            char *eq = strchr(e, '=');
            *eq = '\0';
            setenv(e, eq + 1, 1);
        }
    }
}

static int connect_hub(const struct lf_boot *boot, lf_err *err)
{
    struct lf_auth auth;
    lf_net_names names = {.n = 0};
    int rc = lf_key_parse(auth.key, boot->key, err);
    if (rc < 0)
        return rc;
    for (char **a = boot->addresses; *a != NULL && names.n < LF_NET_MAX_ADDRESSES; a++)
        snprintf(names.address[names.n++], LF_NET_ADDRESS, "%s", *a);
    int fd = lf_net_connect(&names, names.n == 0, boot->port, CONNECT_MS, err);
    if (fd < 0)
        return lf_err_prefix(err, "the launcher cannot be reached");
    rc = lf_auth_answer(&auth, fd, CONNECT_MS, err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    lf_net_keepalive(fd);
    return fd;
}

int lf_launch_daemon_main(const char *how, int node_index, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = read_boot(&b, how, err);
    struct lf_boot boot = {.key = NULL};
    if (rc == 0)
        rc = lf_boot_read(&boot, b.data, b.len, err);
    int fd = rc == 0 ? connect_hub(&boot, err) : rc;
    if (fd >= 0) {
        take_environment(boot.env);
        if (boot.cwd != NULL && chdir(boot.cwd) != 0)
            rc = lf_fail_errno(err, "cannot work in %s on this node", boot.cwd);
    }
    lf_boot_fini(&boot);
    lf_buf_fini(&b);
    if (fd < 0 || rc < 0)
        return fd < 0 ? fd : rc;
    return lf_launch_daemon(fd, node_index, err);
}
