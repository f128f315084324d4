/* SPDX-License-Identifier: Apache-2.0
 *
 * Which command am I? Every call is written to $LF_FAKE_DIR/calls: time, name, words.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

/* Commands that end at once free nothing. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

static const struct {
    const char *name;
    int (*run)(int, char **);
} commands[] = {{"sbatch", fk_sbatch},     {"squeue", fk_squeue},   {"sacct", fk_sacct},
                {"scontrol", fk_scontrol}, {"scancel", fk_scancel}, {"srun", fk_srun},
                {"sinfo", fk_sinfo},       {"fakeslurm", fk_world}, {"slurmctld", fk_slurmctld}};

static void note_call(int argc, char **argv)
{
    char line[4096];
    size_t n = (size_t)snprintf(line, sizeof line, "%.3f %s", fk_now(), fk_name);
    for (int i = 1; i < argc && n < sizeof line - 2; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, " %s", argv[i]);
    for (char *c = line; *c != '\0'; c++)
        if (*c == '\n')
            *c = '~';
    fk_append("calls", "%s\n", line);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    fk_name = slash != NULL ? slash + 1 : argv[0];
    fk_dir = getenv("LF_FAKE_DIR");
    struct stat st;
    if (fk_dir == NULL || stat(fk_dir, &st) < 0 || !S_ISDIR(st.st_mode))
        fk_die(98, "LF_FAKE_DIR is not set to a directory");
    if (strcmp(fk_name, "slurmctld") != 0)
        note_call(argc, argv);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, fk_name) == 0) {
            int code = commands[i].run(argc, argv);
            return fflush(stdout) == 0 ? code : 1;
        }
    fk_die(98, "unknown name");
}
