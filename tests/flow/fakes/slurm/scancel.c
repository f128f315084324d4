/* SPDX-License-Identifier: Apache-2.0
 *
 * scancel: a pending job is gone at once; a running one gets TERM, then KILL after KillWait, and
 * counts as cancelled however its script ends. With --signal only that signal is sent: to the
 * steps, with --batch to the batch shell, with --full to all.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tests/flow/fakes/slurm/fk.h"

static const fk_opt table[] = {{"account", 'A', 'r', 0, NULL, NULL, "SCANCEL_ACCOUNT"},
                               {"batch", 'b', 'n', 1, NULL, NULL, "SCANCEL_BATCH"},
                               {"clusters", 'M', 'r', 0, NULL, NULL, "SLURM_CLUSTERS"},
                               {"ctld", 0, 'n', 1, NULL, NULL, "SCANCEL_CTLD"},
                               {"full", 'f', 'n', 1, NULL, NULL, "SCANCEL_FULL"},
                               {"help", 0, 'n', 0, NULL, NULL, NULL},
                               {"hurry", 'H', 'n', 1, NULL, NULL, "SCANCEL_HURRY"},
                               {"interactive", 'i', 'n', 0, NULL, NULL, "SCANCEL_INTERACTIVE"},
                               {"jobname", 'n', 'r', 1, "name", NULL, "SCANCEL_NAME"},
                               {"me", 0, 'n', 1, NULL, NULL, NULL},
                               {"name", 0, 'r', 1, NULL, NULL, NULL},
                               {"nodelist", 'w', 'r', 0, NULL, NULL, NULL},
                               {"partition", 'p', 'r', 1, NULL, NULL, "SCANCEL_PARTITION"},
                               {"qos", 'q', 'r', 0, NULL, NULL, "SCANCEL_QOS"},
                               {"quiet", 'Q', 'n', 1, NULL, NULL, NULL},
                               {"reservation", 'R', 'r', 0, NULL, NULL, NULL},
                               {"sibling", 0, 'r', 0, NULL, NULL, NULL},
                               {"signal", 's', 'r', 1, NULL, NULL, NULL},
                               {"state", 't', 'r', 1, NULL, NULL, "SCANCEL_STATE"},
                               {"usage", 0, 'n', 0, NULL, NULL, NULL},
                               {"user", 'u', 'r', 1, NULL, NULL, "SCANCEL_USER"},
                               {"verbose", 'v', 'n', 1, NULL, NULL, "SCANCEL_VERBOSE"},
                               {"version", 'V', 'n', 1, NULL, NULL, NULL},
                               {"wckey", 0, 'r', 0, NULL, NULL, "SCANCEL_WCKEY"},
                               {0}};

static void one(json_t *j, const json_t *o)
{
    const char *sig = fk_get(o, "signal");
    if (fk_is_final(j))
        return;
    if (sig != NULL && !fk_is_pending(j)) {
        int n = fk_signal_number(sig);
        char which = fk_get(o, "full") != NULL ? 'a' : fk_get(o, "batch") != NULL ? 'b' : 's';
        if (n != SIGKILL || which == 'b') {
            fk_tree_signal((pid_t)fk_i(j, "stepd"), n, which);
            return;
        }
    }
    fk_append("history", "%.3f cancel %lld %s %s\n", fk_now(), fk_i(j, "id"), fk_s(j, "state"),
              fk_s(j, "name"));
    if (fk_is_pending(j))
        fk_finish(j, "CANCELLED", "None", 0);
    else if (fk_s(j, "ending")[0] == '\0')
        fk_kill_begin(j, "CANCELLED");
    else
        fk_set_s(j, "ending", "CANCELLED"); /* a requeue in progress is undone */
}

static bool filter(const json_t *o, const json_t *j)
{
    const char *v;
    return ((v = fk_get(o, "name")) == NULL || strcmp(v, fk_s(j, "name")) == 0) &&
           fk_is_of(j, fk_get(o, "user")) &&
           ((v = fk_get(o, "partition")) == NULL || strcmp(v, fk_s(j, "partition")) == 0) &&
           ((v = fk_get(o, "state")) == NULL || strcasecmp(v, fk_state_word(j)) == 0);
}

static int by_id(const json_t *o, const char *word)
{
    long long id;
    if (!fk_int_in(&id, word, 1, 2147483647)) {
        fprintf(stderr, "scancel: error: Invalid job id %s\n", word);
        return 1;
    }
    json_t *j = fk_job(id);
    if (j != NULL && filter(o, j)) /* silent for one that is unknown or has ended */
        one(j, o);
    return 0;
}

int fk_scancel(int argc, char **argv)
{
    json_t *o = json_object(), *j;
    int code = 0;
    size_t i;
    fk_parse_env(o, table);
    int at = fk_parse(o, table, argc, argv);
    bool some = fk_get(o, "name") || fk_get(o, "user") || fk_get(o, "me") ||
                fk_get(o, "partition") || fk_get(o, "state");
    if (fk_get(o, "version") != NULL) {
        puts(FK_VERSION);
        return 0;
    }
    if (fk_get(o, "signal") != NULL && fk_signal_number(fk_get(o, "signal")) == 0)
        fk_die(1, "error: Unknown job signal: %s", fk_get(o, "signal"));
    if (at == argc && !some)
        fk_die(1, "error: No job identification provided");
    if (fk_down() || fk_knob_take("scancel_down", NULL)) {
        for (int k = at; k < argc; k++)
            fprintf(stderr, "scancel: error: Kill job error on job id %s: " FK_DOWN "\n", argv[k]);
        return 1;
    }
    fk_enter();
    for (int k = at; k < argc; k++)
        code |= by_id(o, argv[k]);
    if (at == argc)
        json_array_foreach(fk_jobs(), i, j) if (!fk_is_final(j) && filter(o, j)) one(j, o);
    fk_leave();
    return code;
}
