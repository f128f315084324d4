/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes, and how `loong-flow launch --daemon` gets onto them. Starters are children of the
 * hub that end with it.
 *
 * The boot document with the key never stands in an argument list, where other users could read it:
 * srun and local daemons get it in the environment, ssh's on standard input, pbsdsh's in a file of
 * mode 0600 in the working directory (which the nodes share), removed when all have joined.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/net.h"
#include "flow/launch/job.h"
#include "flow/launch/launch.h"
#include "flow/launch/message.h"

extern char **environ;

/* ---- nodes ---- */

void lf_launch_deal(struct lf_launch_job *j)
{
    for (int k = 0; k < j->nodes; k++) {
        j->node[k].first = (int)((long)j->ranks * k / j->nodes);
        j->node[k].n = (int)((long)j->ranks * (k + 1) / j->nodes) - j->node[k].first;
    }
}

static int count_from(const char *variable, int *out)
{
    const char *v = getenv(variable);
    int64_t n = 0;
    if (v == NULL || lf_parse_i64(&n, v, NULL) < 0 || n < 1 || n > 1000000)
        return -1;
    *out = (int)n;
    return 0;
}

/* The fewest processors that the job has on one of its nodes: SLURM_JOB_CPUS_PER_NODE is
 * "4(x2),1". */
static int least_cpus(void)
{
    const char *p = getenv("SLURM_JOB_CPUS_PER_NODE");
    int64_t least = 0;
    while (p != NULL && *p >= '0' && *p <= '9') {
        const size_t len = strcspn(p, "(,");
        char text[16];
        int64_t n = 0;
        snprintf(text, sizeof text, "%.*s", len < sizeof text ? (int)len : 0, p);
        if (lf_parse_i64(&n, text, NULL) < 0)
            break;
        least = least == 0 || n < least ? n : least;
        p += strcspn(p, ",");
        p += *p == ',';
    }
    return least > 0 ? (int)least : 1;
}

static int plain_nodes(struct lf_launch_job *j, int nodes, lf_err *err)
{
    j->node = lf_calloc((size_t)nodes, sizeof *j->node, err);
    j->nodes = j->node != NULL ? nodes : 0;
    return j->node != NULL ? 0 : LF_ENOMEM;
}

/* Each host of the node file once, in its order. */
static int pbs_nodes(struct lf_launch_job *j, const char *path, int want, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    size_t cap = 0;
    int rc = lf_io_read_file(path, (size_t)16 << 20, &b, err);
    for (char *p = b.data; rc == 0 && *p != '\0' && (want == 0 || j->nodes < want);) {
        const size_t n = strcspn(p, " \t\r\n");
        bool known = n == 0;
        for (int k = 0; !known && k < j->nodes; k++)
            known = strlen(j->node[k].host) == n && memcmp(j->node[k].host, p, n) == 0;
        if (!known) {
            rc = lf_grow(&j->node, &cap, (size_t)j->nodes, sizeof *j->node, err);
            if (rc == 0) {
                j->node[j->nodes] = (struct lf_launch_node){.host = lf_strndup(p, n, err)};
                rc = j->node[j->nodes].host != NULL ? 0 : LF_ENOMEM;
                j->nodes += rc == 0;
            }
        }
        p += n + (p[n] != '\0');
    }
    lf_buf_fini(&b);
    if (rc == 0 && (j->nodes == 0 || (want > 0 && j->nodes < want)))
        rc = lf_fail(err, LF_EINVAL, "%s names %d hosts, %d are asked for", path, j->nodes,
                     want > 0 ? want : 1);
    return rc;
}

int lf_launch_find_nodes(struct lf_launch_job *j, int nodes, lf_err *err)
{
    const char *pbs = getenv("PBS_NODEFILE");
    const bool slurm = getenv("SLURM_JOB_ID") != NULL;
    if (j->start == LF_START_AUTO)
        j->start = nodes == 1 || (nodes == 0 && !slurm && pbs == NULL) ? LF_START_LOCAL
                   : slurm                                             ? LF_START_SRUN
                   : pbs != NULL                                       ? LF_START_PBSDSH
                                                                       : LF_START_AUTO;
    if (j->start == LF_START_AUTO)
        return lf_fail(
            err, LF_EINVAL,
            "%d nodes, but this is neither a SLURM nor a PBS job: name them with --hosts", nodes);
    if (j->start == LF_START_LOCAL)
        return plain_nodes(j, nodes > 0 ? nodes : 1, err);
    if (j->start == LF_START_SRUN) {
        if (nodes == 0 && count_from("SLURM_JOB_NUM_NODES", &nodes) < 0 &&
            count_from("SLURM_NNODES", &nodes) < 0)
            return lf_fail(err, LF_EINVAL, "--start srun outside of a SLURM job: give --nodes");
        return plain_nodes(j, nodes, err);
    }
    if (pbs == NULL)
        return lf_fail(err, LF_EINVAL,
                       "--start %s needs --hosts, or a PBS job with its PBS_NODEFILE",
                       j->start == LF_START_SSH ? "ssh" : "pbsdsh");
    return pbs_nodes(j, pbs, nodes, err);
}

/* ---- the boot document ---- */

static int boot_document(const struct lf_launch_job *j, uint16_t port, bool whole, lf_buf *out,
                         lf_err *err)
{
    lf_net_names names = {.n = 0};
    char cwd[4096];
    int rc = j->start != LF_START_LOCAL ? lf_net_names_get(&names, err) : 0;
    char *addresses[LF_NET_MAX_ADDRESSES + 1] = {NULL};
    for (int i = 0; i < names.n; i++)
        addresses[i] = names.address[i];
    const struct lf_boot b = {.key = (char *)(uintptr_t)j->key_hex,
                              .port = port,
                              .addresses = addresses,
                              .cwd = whole ? getcwd(cwd, sizeof cwd) : NULL,
                              .env = whole ? environ : NULL};
    char *text = rc == 0 ? lf_boot_text(&b, err) : NULL;
    if (rc == 0 && text == NULL)
        rc = LF_ENOMEM;
    if (rc == 0)
        lf_buf_adds(out, text);
    free(text);
    return rc < 0 ? rc : lf_buf_check(out, err);
}

/* ---- processes ---- */

static void starter_main(const char *const *argv, int in, const char *boot, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG,
          SIGTERM); /* ends ssh and srun; a daemon is deaf to it and ends its ranks first */
    if (getppid() != parent)
        _exit(125);
    setpgid(0, 0); /* Ctrl-C goes to the hub alone */
    if (in < 0)
        in = open("/dev/null", O_RDONLY);
    if (in >= 0)
        dup2(in, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    lf_launch_scrub();
    if (boot != NULL)
        setenv("LF_LAUNCH_BOOT", boot, 1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    dprintf(2, "loong-flow launch: cannot execute %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* boot: for the environment; input: for standard input; either may be NULL. */
static int start_process(pid_t *pid, const char *const *argv, const char *boot, const lf_buf *input,
                         lf_err *err)
{
    int p[2] = {-1, -1}, rc = 0;
    if (input != NULL && pipe2(p, O_CLOEXEC) < 0)
        return lf_fail_errno(err, "no pipe for %s", argv[0]);
    pid_t parent = getpid();
    *pid = fork();
    if (*pid == 0)
        starter_main(argv, p[0], boot, parent);
    if (*pid < 0)
        rc = lf_fail_errno(err, "cannot start %s", argv[0]);
    if (p[0] >= 0)
        close(p[0]);
    if (rc == 0 && input != NULL) {
        struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
        sigaction(SIGPIPE, &ignore, &old);
        lf_io_write_all(p[1], input->data, input->len, argv[0],
                        NULL); /* one that does not read fails by itself */
        sigaction(SIGPIPE, &old, NULL);
    }
    if (p[1] >= 0)
        close(p[1]);
    return rc;
}

static int start_local(const struct lf_launch_job *j, uint16_t port, pid_t *pids, int *n,
                       lf_err *err)
{
    lf_buf boot;
    lf_buf_init(&boot);
    int rc = boot_document(j, port, false, &boot, err);
    for (int k = 0; rc == 0 && k < j->nodes; k++) {
        char index[16];
        snprintf(index, sizeof index, "%d", k);
        const char *const argv[] = {j->self, "launch", "--daemon", "env", "--node", index, NULL};
        rc = start_process(&pids[*n], argv, boot.data, NULL, err);
        *n += rc == 0;
    }
    lf_buf_fini(&boot);
    return rc;
}

static int start_srun(const struct lf_launch_job *j, uint16_t port, pid_t *pids, int *n,
                      lf_err *err)
{
    char nodes[32], tasks[32], cpus[48] = "";
    int per = 0;
    lf_buf boot;
    lf_buf_init(&boot);
    int rc = boot_document(j, port, false, &boot, err);
    for (int k = 0; k < j->nodes; k++)
        per = j->node[k].n > per ? j->node[k].n : per;
    const int c = j->cpus > 0 ? j->cpus * per : least_cpus();
    snprintf(nodes, sizeof nodes, "--nodes=%d", j->nodes);
    snprintf(tasks, sizeof tasks, "--ntasks=%d", j->nodes);
    snprintf(cpus, sizeof cpus, "%d", c);
    const char *argv[] = {"srun",  "--mpi=none", "--export=ALL",
                          nodes,   tasks,        "--ntasks-per-node=1",
                          "-c",    cpus,         "--kill-on-bad-exit=0",
                          j->self, "launch",     "--daemon",
                          "env",   NULL,         NULL};
    if (getenv("SLURM_STEP_ID") != NULL) { /* a step inside a step shares what that one holds */
        memmove(&argv[10], &argv[9], 4 * sizeof argv[0]);
        argv[9] = "--overlap";
    }
    if (rc == 0)
        rc = start_process(&pids[0], argv, boot.data, NULL, err);
    *n = rc == 0;
    lf_buf_fini(&boot);
    return rc;
}

static int start_ssh(const struct lf_launch_job *j, uint16_t port, pid_t *pids, int *n, lf_err *err)
{
    lf_buf boot, command;
    lf_buf_init(&boot);
    int rc = boot_document(j, port, true, &boot, err);
    for (int k = 0; rc == 0 && k < j->nodes; k++) {
        lf_buf_init(&command);
        lf_buf_adds(&command, "exec "); /* a shell reads it on the other side */
        lf_buf_add_shell(&command, j->self);
        lf_buf_addf(&command, " launch --daemon stdin --node %d", k);
        rc = lf_buf_check(&command, err);
        const char *const argv[] = {
            "ssh",        "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "--", j->node[k].host,
            command.data, NULL};
        if (rc == 0)
            rc = start_process(&pids[*n], argv, NULL, &boot, err);
        *n += rc == 0;
        lf_buf_fini(&command);
    }
    lf_buf_fini(&boot);
    return rc;
}

/* The index of a host's first line in the node file, which is how pbsdsh -n counts. */
static int pbs_index(const char *host)
{
    lf_buf b;
    lf_buf_init(&b);
    int index = 0, found = -1;
    const char *path = getenv("PBS_NODEFILE");
    if (path != NULL && lf_io_read_file(path, (size_t)16 << 20, &b, NULL) == 0)
        for (const char *p = b.data; *p != '\0' && found < 0;) {
            const size_t n = strcspn(p, " \t\r\n");
            if (n == strlen(host) && memcmp(p, host, n) == 0)
                found = index;
            index += n > 0;
            p += n + (p[n] != '\0');
        }
    lf_buf_fini(&b);
    return found;
}

static int start_pbsdsh(const struct lf_launch_job *j, uint16_t port, pid_t *pids, int *n,
                        char **key_file, lf_err *err)
{
    char path[4200], cwd[4096];
    lf_buf boot;
    lf_buf_init(&boot);
    if (getcwd(cwd, sizeof cwd) == NULL)
        return lf_fail_errno(err, "no working directory");
    snprintf(path, sizeof path, "%s/.loong-launch.%s", cwd, j->ns);
    int rc = boot_document(j, port, true, &boot, err);
    if (rc == 0)
        rc = lf_io_publish(path, boot.data, boot.len, 0600, err);
    if (rc == 0 && (*key_file = lf_strdup(path, err)) == NULL)
        rc = LF_ENOMEM;
    for (int k = 0; rc == 0 && k < j->nodes; k++) {
        char index[16], vnode[16];
        snprintf(index, sizeof index, "%d", k);
        snprintf(vnode, sizeof vnode, "%d", pbs_index(j->node[k].host));
        if (vnode[0] == '-')
            rc = lf_fail(err, LF_EINVAL, "host %s is not in PBS_NODEFILE", j->node[k].host);
        const char *const argv[] = {"pbsdsh",   "-n", vnode,    "--",  j->self, "launch",
                                    "--daemon", path, "--node", index, NULL};
        if (rc == 0)
            rc = start_process(&pids[*n], argv, NULL, NULL, err);
        *n += rc == 0;
    }
    lf_buf_fini(&boot);
    return rc;
}

int lf_launch_start_daemons(const struct lf_launch_job *j, uint16_t port, pid_t *pids, int *n_pids,
                            char **key_file, lf_err *err)
{
    switch (j->start) {
    case LF_START_SRUN:
        return start_srun(j, port, pids, n_pids, err);
    case LF_START_SSH:
        return start_ssh(j, port, pids, n_pids, err);
    case LF_START_PBSDSH:
        return start_pbsdsh(j, port, pids, n_pids, key_file, err);
    default:
        return start_local(j, port, pids, n_pids, err);
    }
}
