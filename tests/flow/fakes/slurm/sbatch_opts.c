/* SPDX-License-Identifier: Apache-2.0
 *
 * sbatch's options and what it says of their values before it asks the controller.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tests/flow/fakes/slurm/fk.h"

/* Every option of sbatch 22.05; those with done = 0 are refused with exit 99. */
const fk_opt fk_sbatch_opts[] = {
    {"account", 'A', 'r', 1, NULL, NULL, "SBATCH_ACCOUNT"},
    {"acctg-freq", 0, 'r', 1, NULL, NULL, "SBATCH_ACCTG_FREQ"},
    {"array", 'a', 'r', 0, NULL, NULL, "SBATCH_ARRAY_INX"},
    {"batch", 0, 'r', 0, NULL, NULL, NULL},
    {"bb", 0, 'r', 0, NULL, NULL, NULL},
    {"bbf", 0, 'r', 0, NULL, NULL, NULL},
    {"begin", 'b', 'r', 1, NULL, NULL, NULL},
    {"chdir", 'D', 'r', 1, NULL, NULL, NULL},
    {"cluster-constraint", 0, 'r', 0, NULL, NULL, NULL},
    {"clusters", 'M', 'r', 0, NULL, NULL, "SBATCH_CLUSTERS"},
    {"comment", 0, 'r', 1, NULL, NULL, NULL},
    {"constraint", 'C', 'r', 1, NULL, NULL, "SBATCH_CONSTRAINT"},
    {"container", 0, 'r', 0, NULL, NULL, "SBATCH_CONTAINER"},
    {"contiguous", 0, 'n', 1, NULL, NULL, NULL},
    {"core-spec", 'S', 'r', 1, NULL, NULL, "SBATCH_CORE_SPEC"},
    {"cores-per-socket", 0, 'r', 1, NULL, NULL, NULL},
    {"cpu-freq", 0, 'r', 1, NULL, NULL, NULL},
    {"cpus-per-gpu", 0, 'r', 1, NULL, NULL, "SBATCH_CPUS_PER_GPU"},
    {"cpus-per-task", 'c', 'r', 1, NULL, NULL, NULL},
    {"deadline", 0, 'r', 0, NULL, NULL, NULL},
    {"delay-boot", 0, 'r', 1, NULL, NULL, "SBATCH_DELAY_BOOT"},
    {"dependency", 'd', 'r', 1, NULL, NULL, NULL},
    {"distribution", 'm', 'r', 1, NULL, NULL, "SBATCH_DISTRIBUTION"},
    {"error", 'e', 'r', 1, NULL, NULL, "SBATCH_ERROR"},
    {"exclude", 'x', 'r', 1, NULL, NULL, NULL},
    {"exclusive", 0, 'o', 1, NULL, NULL, "SBATCH_EXCLUSIVE"},
    {"export", 0, 'r', 1, NULL, NULL, "SBATCH_EXPORT"},
    {"export-file", 0, 'r', 0, NULL, NULL, NULL},
    {"extra-node-info", 'B', 'r', 0, NULL, NULL, NULL},
    {"get-user-env", 0, 'o', 1, NULL, NULL, "SBATCH_GET_USER_ENV"},
    {"gid", 0, 'r', 0, NULL, NULL, NULL},
    {"gpu-bind", 0, 'r', 1, NULL, NULL, "SBATCH_GPU_BIND"},
    {"gpu-freq", 0, 'r', 1, NULL, NULL, "SBATCH_GPU_FREQ"},
    {"gpus", 'G', 'r', 1, NULL, NULL, "SBATCH_GPUS"},
    {"gpus-per-node", 0, 'r', 1, NULL, NULL, "SBATCH_GPUS_PER_NODE"},
    {"gpus-per-socket", 0, 'r', 1, NULL, NULL, NULL},
    {"gpus-per-task", 0, 'r', 1, NULL, NULL, "SBATCH_GPUS_PER_TASK"},
    {"gres", 0, 'r', 1, NULL, NULL, "SBATCH_GRES"},
    {"gres-flags", 0, 'r', 1, NULL, NULL, "SBATCH_GRES_FLAGS"},
    {"help", 'h', 'n', 0, NULL, NULL, NULL},
    {"hint", 0, 'r', 1, NULL, NULL, "SBATCH_HINT"},
    {"hold", 'H', 'n', 1, NULL, NULL, NULL},
    {"ignore-pbs", 0, 'n', 1, NULL, NULL, "SBATCH_IGNORE_PBS"},
    {"input", 'i', 'r', 1, NULL, NULL, "SBATCH_INPUT"},
    {"job-name", 'J', 'r', 1, NULL, NULL, "SBATCH_JOB_NAME"},
    {"kill-on-invalid-dep", 0, 'r', 1, NULL, NULL, NULL},
    {"licenses", 'L', 'r', 1, NULL, NULL, NULL},
    {"mail-type", 0, 'r', 1, NULL, NULL, NULL},
    {"mail-user", 0, 'r', 1, NULL, NULL, NULL},
    {"mcs-label", 0, 'r', 1, NULL, NULL, NULL},
    {"mem", 0, 'r', 1, NULL, NULL, "SBATCH_MEM_PER_NODE"},
    {"mem-bind", 0, 'r', 1, NULL, NULL, "SBATCH_MEM_BIND"},
    {"mem-per-cpu", 0, 'r', 1, NULL, NULL, "SBATCH_MEM_PER_CPU"},
    {"mem-per-gpu", 0, 'r', 1, NULL, NULL, "SBATCH_MEM_PER_GPU"},
    {"mincpus", 0, 'r', 1, NULL, NULL, NULL},
    {"network", 0, 'r', 1, NULL, NULL, "SBATCH_NETWORK"},
    {"nice", 0, 'o', 1, NULL, NULL, NULL},
    {"no-kill", 'k', 'o', 1, NULL, NULL, "SBATCH_NO_KILL"},
    {"no-requeue", 0, 'n', 1, "requeue", "no", "SBATCH_NO_REQUEUE"},
    {"nodefile", 'F', 'r', 0, NULL, NULL, NULL},
    {"nodelist", 'w', 'r', 1, NULL, NULL, NULL},
    {"nodes", 'N', 'r', 1, NULL, NULL, NULL},
    {"ntasks", 'n', 'r', 1, NULL, NULL, NULL},
    {"ntasks-per-core", 0, 'r', 1, NULL, NULL, NULL},
    {"ntasks-per-gpu", 0, 'r', 1, NULL, NULL, NULL},
    {"ntasks-per-node", 0, 'r', 1, NULL, NULL, NULL},
    {"ntasks-per-socket", 0, 'r', 1, NULL, NULL, NULL},
    {"open-mode", 0, 'r', 1, NULL, NULL, "SBATCH_OPEN_MODE"},
    {"output", 'o', 'r', 1, NULL, NULL, "SBATCH_OUTPUT"},
    {"overcommit", 'O', 'n', 1, NULL, NULL, "SBATCH_OVERCOMMIT"},
    {"oversubscribe", 's', 'n', 1, NULL, NULL, NULL},
    {"parsable", 0, 'n', 1, NULL, NULL, NULL},
    {"partition", 'p', 'r', 1, NULL, NULL, "SBATCH_PARTITION"},
    {"power", 0, 'r', 1, NULL, NULL, "SBATCH_POWER"},
    {"prefer", 0, 'r', 1, NULL, NULL, NULL},
    {"priority", 0, 'r', 1, NULL, NULL, NULL},
    {"profile", 0, 'r', 1, NULL, NULL, "SBATCH_PROFILE"},
    {"propagate", 0, 'o', 1, NULL, NULL, NULL},
    {"qos", 'q', 'r', 1, NULL, NULL, "SBATCH_QOS"},
    {"quiet", 'Q', 'n', 1, NULL, NULL, NULL},
    {"reboot", 0, 'n', 0, NULL, NULL, NULL},
    {"requeue", 0, 'n', 1, "requeue", "yes", "SBATCH_REQUEUE"},
    {"reservation", 0, 'r', 1, NULL, NULL, "SBATCH_RESERVATION"},
    {"signal", 0, 'r', 1, NULL, NULL, "SBATCH_SIGNAL"},
    {"sockets-per-node", 0, 'r', 1, NULL, NULL, NULL},
    {"spread-job", 0, 'n', 1, NULL, NULL, "SBATCH_SPREAD_JOB"},
    {"switches", 0, 'r', 1, NULL, NULL, "SBATCH_REQ_SWITCH"},
    {"test-only", 0, 'n', 1, NULL, NULL, NULL},
    {"thread-spec", 0, 'r', 1, NULL, NULL, "SBATCH_THREAD_SPEC"},
    {"threads-per-core", 0, 'r', 1, NULL, NULL, "SBATCH_THREADS_PER_CORE"},
    {"time", 't', 'r', 1, NULL, NULL, "SBATCH_TIMELIMIT"},
    {"time-min", 0, 'r', 1, NULL, NULL, NULL},
    {"tmp", 0, 'r', 1, NULL, NULL, NULL},
    {"uid", 0, 'r', 0, NULL, NULL, NULL},
    {"usage", 0, 'n', 0, NULL, NULL, NULL},
    {"use-min-nodes", 0, 'n', 1, NULL, NULL, "SBATCH_USE_MIN_NODES"},
    {"verbose", 'v', 'n', 1, NULL, NULL, NULL},
    {"version", 'V', 'n', 1, NULL, NULL, NULL},
    {"wait", 'W', 'n', 0, NULL, NULL, "SBATCH_WAIT"},
    {"wait-all-nodes", 0, 'r', 1, NULL, NULL, "SBATCH_WAIT_ALL_NODES"},
    {"wckey", 0, 'r', 1, NULL, NULL, "SBATCH_WCKEY"},
    {"wrap", 0, 'r', 0, NULL, NULL, NULL},
    {0}};

/* ---- checks ---- */

long long fk_number(const json_t *o, const char *key, long long lo, long long hi,
                    long long otherwise)
{
    const char *t = fk_get(o, key);
    long long v = otherwise;
    if (t != NULL && !fk_int_in(&v, t, lo, hi))
        fk_die(1, "error: Invalid numeric value \"%s\" for --%s.", t, key);
    return v;
}

static bool listed(const char *knob, const char *otherwise, const char *word)
{
    char *list = fk_knob(knob), *save = NULL;
    char *copy = list != NULL ? list : strdup(otherwise);
    bool found = strcmp(copy, "*") == 0;
    for (char *p = strtok_r(copy, ", \n", &save); p != NULL; p = strtok_r(NULL, ", \n", &save))
        found = found || strcmp(p, word) == 0;
    free(copy);
    return found;
}

static void check_names(const json_t *o)
{
    const char *v = fk_get(o, "partition");
    char *save = NULL, *parts = strdup(v != NULL ? v : "main");
    for (char *p = strtok_r(parts, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save))
        if (!listed("partitions", "main,long", p)) {
            fprintf(stderr, "sbatch: error: invalid partition specified: %s\n", p);
            fk_refuse("Invalid partition name specified");
        }
    free(parts);
    if ((v = fk_get(o, "account")) != NULL && !listed("accounts", "*", v))
        fk_refuse("Invalid account or account/partition combination specified");
    if ((v = fk_get(o, "qos")) != NULL && !listed("qoses", "*", v))
        fk_refuse("Invalid qos specification");
    if ((v = fk_get(o, "constraint")) != NULL && !listed("features", "", v))
        fk_refuse("Invalid feature specification");
    if ((v = fk_get(o, "reservation")) != NULL && !listed("reservations", "", v))
        fk_refuse("Requested reservation is invalid");
}

/* [TYPE:]N of --gpus..., gpu[:TYPE]:N of --gres */
static void check_gpus(const char *option, const char *text)
{
    const char *colon = strrchr(text, ':');
    long long v;
    bool gres = strcmp(option, "gres") == 0;
    if (gres && strncmp(text, "gpu", 3) != 0)
        fk_refuse("Invalid generic resource (gres) specification");
    if (!fk_int_in(&v, colon != NULL ? colon + 1 : text, 1, 64) && !(gres && colon == NULL))
        fk_die(1, "error: Invalid --%s specification", option);
    if (v > (long long)fk_knob_num("gpus", 8))
        fk_refuse("Requested node configuration is not available");
}

static void check_words(const json_t *o, const char *key, const char *const *words)
{
    const char *v = fk_get(o, key);
    char *copy = v != NULL ? strdup(v) : NULL, *save = NULL;
    for (char *p = v != NULL ? strtok_r(copy, ",", &save) : NULL; p != NULL;
         p = strtok_r(NULL, ",", &save)) {
        bool ok = false;
        for (size_t i = 0; words[i] != NULL; i++)
            ok = ok || strcasecmp(words[i], p) == 0;
        if (!ok)
            fk_die(1, "error: Invalid --%s specification", key);
    }
    free(copy);
}

void fk_sbatch_check(const json_t *o)
{
    static const char *const mail[] = {
        "NONE",          "BEGIN",          "END",         "FAIL",       "REQUEUE",
        "ALL",           "INVALID_DEPEND", "STAGE_OUT",   "TIME_LIMIT", "TIME_LIMIT_90",
        "TIME_LIMIT_80", "TIME_LIMIT_50",  "ARRAY_TASKS", NULL};
    static const char *const limits[] = {"ALL",  "NONE",  "AS",      "CORE",   "CPU",
                                         "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC",
                                         "RSS",  "STACK", NULL};
    static const char *const modes[] = {"append", "truncate", NULL}, *const yesno[] = {"yes", "no",
                                                                                       NULL};
    check_words(o, "mail-type", mail);
    if (fk_get(o, "propagate") != NULL && fk_get(o, "propagate")[0] != '\0')
        check_words(o, "propagate", limits);
    check_words(o, "open-mode", modes);
    check_words(o, "kill-on-invalid-dep", yesno);
    if ((fk_get(o, "mem") != NULL) + (fk_get(o, "mem-per-cpu") != NULL) +
            (fk_get(o, "mem-per-gpu") != NULL) >
        1)
        fk_die(1, "fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.");
    long long mb;
    for (int i = 0; i < 3; i++) {
        const char *key = i == 0   ? "mem"
                          : i == 1 ? "mem-per-cpu"
                                   : "mem-per-gpu",
                   *v = fk_get(o, key);
        if (v != NULL && !fk_mem_mb(&mb, v))
            fk_die(1, "error: Invalid --%s specification", key);
        if (v != NULL && i == 0 && mb > (long long)fk_knob_num("node_memory_mb", 1e7)) {
            fprintf(stderr, "sbatch: error: Memory specification can not be satisfied\n");
            fk_refuse("Requested node configuration is not available");
        }
    }
    static const char *const gpu_opts[] = {"gpus", "gpus-per-node", "gpus-per-task", "gres", NULL};
    for (int i = 0; gpu_opts[i] != NULL; i++)
        if (fk_get(o, gpu_opts[i]) != NULL)
            check_gpus(gpu_opts[i], fk_get(o, gpu_opts[i]));
    if (fk_get(o, "exclusive") != NULL && fk_get(o, "exclusive")[0] != '\0' &&
        strcmp(fk_get(o, "exclusive"), "user") != 0 && strcmp(fk_get(o, "exclusive"), "mcs") != 0)
        fk_die(1, "error: Invalid --exclusive specification");
    check_names(o);
}
