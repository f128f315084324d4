/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: start the ranks of a program, on this machine or on the nodes of a job (launch_job.h).
 * The same program is the daemon that it starts on the nodes, and the probe that tells whether a
 * launcher's PMIx works.
 */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/id.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/launch/job.h"
#include "flow/launch/probe.h"
#include "flow/record/record.h"
#include "flow/run/freeze.h"

enum { MAX_WORDS = 1 << 20, MAX_RANKS = 65536 };

static const lf_opt launch_rows[] = {
    LF_CMD_COMMON,
    {.name = "ranks",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .min = 1,
     .max = MAX_RANKS,
     .help = "ranks in all"},
    {.name = "hosts", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "hosts and their ranks: a:2,b:2"},
    {.name = "nodes",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .min = 1,
     .max = MAX_RANKS,
     .help = "nodes to spread the ranks over; default: those of the SLURM or PBS job, else 1"},
    {.name = "start",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "auto",
     .choices = LF_LAUNCH_STARTS,
     .help = "how daemons get onto the nodes"},
    {.name = "cpus",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .min = 1,
     .max = MAX_RANKS,
     .help = "processors per rank: OMP_NUM_THREADS where it is not set, and for --cpu-bind"},
    {.name = "cpu_bind",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "give each rank processors of its own"},
    {.name = "raw",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "print lines as they are, without [rank] before each"},
    {.name = "probe",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND | LF_OPT_HIDDEN,
     .def = "no",
     .help = "be a rank: find the --ranks others through PMIx and end"},
    {.name = "daemon",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_HIDDEN,
     .help = "be the daemon of a node; env, stdin or a file tells whose"},
    {.name = "node",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND | LF_OPT_HIDDEN,
     .max = MAX_RANKS,
     .help = "number of the node of this daemon"},
};
LF_CMD_TABLE(launch, "start a program as ranks that find each other through PMIx", launch_rows);

/* A host that stands there twice has the ranks of both places: it is one node. */
static int add_host(struct lf_launch_job *j, size_t *cap, const char *name, size_t len, int ranks,
                    lf_err *err)
{
    for (int k = 0; k < j->nodes; k++)
        if (strlen(j->node[k].host) == len && memcmp(j->node[k].host, name, len) == 0) {
            j->node[k].n += ranks;
            return 0;
        }
    int rc = lf_grow(&j->node, cap, (size_t)j->nodes, sizeof *j->node, err);
    char *host = rc == 0 ? lf_strndup(name, len, err) : NULL;
    if (host == NULL)
        return LF_ENOMEM;
    j->node[j->nodes++] = (struct lf_launch_node){.host = host, .n = ranks};
    return 0;
}

/* "a:2,b" : host and ranks, 1 where no number stands. */
static int parse_hosts(struct lf_launch_job *j, const char *text, lf_err *err)
{
    size_t cap = 0;
    for (const char *p = text; *p != '\0';) {
        const size_t len = strcspn(p, ","), name = strcspn(p, ":,");
        int64_t n = 1;
        char *count = name < len ? lf_strndup(p + name + 1, len - name - 1, err) : NULL;
        int rc = name < len ? (count != NULL ? lf_parse_i64(&n, count, err) : LF_ENOMEM) : 0;
        free(count);
        if (rc < 0)
            return lf_err_prefix(err, "--hosts");
        if (name == 0 || p[0] == '-' || n < 1 || n > MAX_RANKS)
            return lf_fail(err, LF_EINVAL, "--hosts %s: host:ranks, separated by commas", text);
        rc = add_host(j, &cap, p, name, (int)n, err);
        if (rc < 0)
            return rc;
        j->ranks += (int)n;
        p += len + (p[len] == ',');
    }
    for (int k = 0, first = 0; k < j->nodes; first += j->node[k++].n)
        j->node[k].first = first;
    return j->nodes > 0 ? 0 : lf_fail(err, LF_EINVAL, "--hosts is empty");
}

static int place_ranks(struct lf_launch_job *j, const lf_cmd *c, lf_err *err)
{
    const char *hosts = lf_optset_str(c->opts, "hosts");
    const int ranks = (int)lf_optset_int(c->opts, "ranks"),
              nodes = (int)lf_optset_int(c->opts, "nodes");
    j->start = (enum lf_launch_start)lf_optset_choice(c->opts, "start");
    if (hosts != NULL) {
        int rc = parse_hosts(j, hosts, err);
        if (rc < 0)
            return rc;
        if ((ranks > 0 && ranks != j->ranks) || nodes > 0)
            return lf_fail(err, LF_EINVAL,
                           "--hosts gives %d ranks on %d hosts; leave --ranks and --nodes out",
                           j->ranks, j->nodes);
        if (j->start == LF_START_AUTO)
            j->start = getenv("PBS_NODEFILE") != NULL ? LF_START_PBSDSH : LF_START_SSH;
        return j->start == LF_START_SRUN
                   ? lf_fail(err, LF_EINVAL, "--start srun takes --nodes: SLURM knows the hosts")
                   : 0;
    }
    if (ranks < 1)
        return lf_fail(err, LF_EINVAL,
                       "give the number of ranks: loong-flow launch -n N -- program arguments");
    j->ranks = ranks;
    int rc = lf_launch_find_nodes(j, nodes, err);
    if (rc == 0 && j->ranks < j->nodes)
        rc = lf_fail(err, LF_EINVAL, "%d ranks on %d nodes; give --nodes", j->ranks, j->nodes);
    if (rc == 0)
        lf_launch_deal(j);
    return rc;
}

static int name_job(struct lf_launch_job *j, char *self, size_t cap, lf_err *err)
{
    char ulid[LF_ULID_SIZE];
    ssize_t n = readlink("/proc/self/exe", self, cap - 1);
    if (n < 0)
        return lf_fail_errno(err, "/proc/self/exe");
    self[n] = '\0';
    j->self = self;
    int rc = lf_ulid(ulid, err);
    snprintf(j->ns, sizeof j->ns, "loong-%s", ulid);
    if (rc == 0)
        rc = lf_random_bytes(j->key, sizeof j->key, err);
    for (size_t i = 0; i < sizeof j->key; i++)
        snprintf(j->key_hex + 2 * i, 3, "%02x", j->key[i]);
    return rc;
}

static bool on_path(const char *name)
{
    char path[PATH_MAX];
    const char *dirs = getenv("PATH");
    for (const char *p = dirs; p != NULL && *p != '\0';) {
        const size_t n = strcspn(p, ":");
        if (lf_path_set(path, NULL, "%.*s/%s", (int)n, p, name) == 0 && access(path, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

/* Stages are not on PATH: their plain name stands for the one that this loong-flow would run. NULL:
 * it is none. */
static char *find_stage(const char *word)
{
    char *path = NULL;
    if (!lf_str_has_prefix(word, "lf-") || strchr(word, '/') != NULL || on_path(word))
        return NULL;
    (void)lf_exe_find(&path, word, NULL);
    return path;
}

static int run_launch(lf_cmd *c, lf_err *err)
{
    const char *daemon = lf_optset_str(c->opts, "daemon");
    char self[PATH_MAX];
    if (lf_optset_bool(c->opts, "probe"))
        return lf_launch_be_probed((int)lf_optset_int(c->opts, "ranks"), err);
    if (daemon != NULL)
        return lf_launch_daemon_main(
            daemon, lf_optset_is_set(c->opts, "node") ? (int)lf_optset_int(c->opts, "node") : -1,
            err);
    if (c->n_words == 0)
        return lf_fail(err, LF_EINVAL,
                       "nothing to launch: loong-flow launch -n N -- program arguments");
    struct lf_launch_job j = {.cpus = (int)lf_optset_int(c->opts, "cpus"),
                              .bind = lf_optset_bool(c->opts, "cpu_bind"),
                              .tag = !lf_optset_bool(c->opts, "raw")};
    char **argv = lf_calloc((size_t)c->n_words + 1, sizeof *argv, err);
    int rc = argv != NULL ? place_ranks(&j, c, err) : LF_ENOMEM;
    for (int i = 0; rc == 0 && i < c->n_words; i++)
        argv[i] = c->words[i];
    char *stage = rc == 0 ? find_stage(argv[0]) : NULL;
    if (stage != NULL)
        argv[0] = stage;
    j.argv = argv;
    if (rc == 0)
        rc = name_job(&j, self, sizeof self, err);
#ifndef HAVE_PMIX
    if (rc == 0)
        rc = lf_fail(err, LF_ENOTSUP,
                     "this loong-flow was built --without-pmix and cannot start ranks");
#endif
    if (rc == 0)
        rc = lf_launch_hub(&j, err);
    for (int k = 0; k < j.nodes; k++)
        free(j.node[k].host);
    free(j.node);
    free(argv);
    free(stage);
    return rc;
}

const lf_cmd_def lf_cmd_launch = {.table = &launch_table,
                                  .words = "-n N -- PROGRAM [ARGUMENT...]",
                                  .max_words = MAX_WORDS,
                                  .run = run_launch};
