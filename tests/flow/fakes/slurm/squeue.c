/* SPDX-License-Identifier: Apache-2.0
 *
 * squeue: short formats only (-o); an unknown letter is an error. One id that the controller does
 * not know is an error, in a list of several it is left out.
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

static const fk_opt table[] = {{"account", 'A', 'r', 1, NULL, NULL, "SQUEUE_ACCOUNT"},
                               {"all", 'a', 'n', 1, NULL, NULL, "SQUEUE_ALL"},
                               {"array", 'r', 'n', 1, NULL, NULL, "SQUEUE_ARRAY"},
                               {"array-unique", 0, 'n', 1, NULL, NULL, "SQUEUE_ARRAY_UNIQUE"},
                               {"clusters", 'M', 'r', 0, NULL, NULL, "SLURM_CLUSTERS"},
                               {"federation", 0, 'n', 0, NULL, NULL, "SQUEUE_FEDERATION"},
                               {"format", 'o', 'r', 1, NULL, NULL, "SQUEUE_FORMAT"},
                               {"Format", 'O', 'r', 0, NULL, NULL, "SQUEUE_FORMAT2"},
                               {"help", 0, 'n', 0, NULL, NULL, NULL},
                               {"hide", 0, 'n', 1, NULL, NULL, NULL},
                               {"iterate", 'i', 'r', 0, NULL, NULL, NULL},
                               {"jobs", 'j', 'r', 1, NULL, NULL, NULL},
                               {"json", 0, 'n', 0, NULL, NULL, NULL},
                               {"licenses", 'L', 'r', 0, NULL, NULL, "SQUEUE_LICENSES"},
                               {"local", 0, 'n', 1, NULL, NULL, "SQUEUE_LOCAL"},
                               {"long", 'l', 'n', 0, NULL, NULL, NULL},
                               {"me", 0, 'n', 1, NULL, NULL, NULL},
                               {"name", 'n', 'r', 1, NULL, NULL, "SQUEUE_NAMES"},
                               {"noconvert", 0, 'n', 1, NULL, NULL, NULL},
                               {"nodelist", 'w', 'r', 0, NULL, NULL, NULL},
                               {"noheader", 'h', 'n', 1, NULL, NULL, NULL},
                               {"partition", 'p', 'r', 1, NULL, NULL, "SQUEUE_PARTITION"},
                               {"priority", 'P', 'n', 1, NULL, NULL, "SQUEUE_PRIORITY"},
                               {"qos", 'q', 'r', 1, NULL, NULL, "SQUEUE_QOS"},
                               {"reservation", 'R', 'r', 0, NULL, NULL, NULL},
                               {"sibling", 0, 'n', 0, NULL, NULL, "SQUEUE_SIBLING"},
                               {"sort", 'S', 'r', 1, NULL, NULL, "SQUEUE_SORT"},
                               {"start", 0, 'n', 1, NULL, NULL, NULL},
                               {"states", 't', 'r', 1, NULL, NULL, "SQUEUE_STATES"},
                               {"steps", 's', 'o', 0, NULL, NULL, NULL},
                               {"usage", 0, 'n', 0, NULL, NULL, NULL},
                               {"user", 'u', 'r', 1, NULL, NULL, "SQUEUE_USERS"},
                               {"verbose", 'v', 'n', 1, NULL, NULL, NULL},
                               {"version", 'V', 'n', 1, NULL, NULL, NULL},
                               {"yaml", 0, 'n', 0, NULL, NULL, NULL},
                               {0}};

static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p != '\0'; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncasecmp(p, word, n) == 0)
            return true;
    return false;
}

/* A line "ID WORD" (or "* WORD") of knob `name` replaces a state: words that no test of a program
 * has seen yet. */
static void state_word(char *buf, size_t cap, const char *knob, const json_t *j, const char *word)
{
    char *text = fk_knob(knob), *save = NULL, id[32], state[64];
    snprintf(buf, cap, "%s", word);
    for (char *p = text != NULL ? strtok_r(text, "\n", &save) : NULL; p != NULL;
         p = strtok_r(NULL, "\n", &save))
        if (sscanf(p, "%31s %63[^\n]", id, state) == 2 &&
            (id[0] == '*' || strtoll(id, NULL, 10) == fk_i(j, "id")))
            snprintf(buf, cap, "%s", state);
    free(text);
}

static void elapsed_limit(char *buf, size_t cap, const json_t *j)
{
    long long m = fk_i(j, "limit_min");
    if (m < 0)
        snprintf(buf, cap, "UNLIMITED");
    else
        fk_elapsed(buf, cap, (double)m * 60);
}

static void nodes_text(char *buf, size_t cap, const json_t *j)
{
    size_t i, n = 0;
    json_t *v;
    buf[0] = '\0';
    json_array_foreach(json_object_get(j, "node_list"), i, v) if (n < cap) n +=
        (size_t)snprintf(buf + n, cap - n, "%s%s", i > 0 ? "," : "", json_string_value(v));
}

static const char *or_na(const char *s)
{
    return s[0] != '\0' ? s : "(null)";
}

/* One field into buf; false: no such letter. */
static bool field(char *buf, size_t cap, char c, const json_t *j)
{
    double now = fk_now(), start = fk_f(j, "start_t");
    char nodes[512], *dep;
    nodes_text(nodes, sizeof nodes, j);
    bool live = !fk_is_pending(j) && start > 0;
    switch (c) {
    case 'a':
        snprintf(buf, cap, "%s", or_na(fk_s(j, "account")));
        break;
    case 'A':
    case 'F':
    case 'i':
        snprintf(buf, cap, "%lld", fk_i(j, "id"));
        break;
    case 'b':
        snprintf(buf, cap, "%s", fk_s(j, "gpus")[0] != '\0' ? fk_s(j, "gpus") : "N/A");
        break;
    case 'B':
        snprintf(buf, cap, "%s", nodes[0] != '\0' ? nodes : "n/a");
        break;
    case 'c':
    case 'C':
        snprintf(buf, cap, "%lld", fk_i(j, "cpus"));
        break;
    case 'D':
        snprintf(buf, cap, "%lld", fk_i(j, "nodes"));
        break;
    case 'e':
        fk_time(buf, cap, fk_end_time(j));
        break;
    case 'E':
        dep = fk_dep_text(j);
        snprintf(buf, cap, "%s", dep);
        free(dep);
        break;
    case 'f':
        snprintf(buf, cap, "%s", or_na(fk_s(j, "constraint")));
        break;
    case 'g':
        snprintf(buf, cap, "users");
        break;
    case 'h':
        snprintf(buf, cap, "OK");
        break;
    case 'j':
        snprintf(buf, cap, "%s", fk_s(j, "name"));
        break;
    case 'k':
        snprintf(buf, cap, "%s", or_na(fk_s(j, "comment")));
        break;
    case 'l':
        elapsed_limit(buf, cap, j);
        break;
    case 'L':
        fk_elapsed(buf, cap, live ? fk_end_time(j) - now : fk_f(j, "limit_s"));
        break;
    case 'm':
        snprintf(buf, cap, "%lldM", fk_i(j, "mem_mb"));
        break;
    case 'M':
        fk_elapsed(buf, cap, !live ? 0 : fk_is_final(j) ? fk_f(j, "end_t") - start : now - start);
        break;
    case 'N':
        snprintf(buf, cap, "%s", nodes);
        break;
    case 'o':
        snprintf(buf, cap, "%s", fk_s(j, "command"));
        break;
    case 'p':
        snprintf(buf, cap, "0.50000000000000");
        break;
    case 'P':
        snprintf(buf, cap, "%s", fk_s(j, "partition"));
        break;
    case 'q':
        snprintf(buf, cap, "%s", or_na(fk_s(j, "qos")));
        break;
    case 'Q':
        snprintf(buf, cap, "4294901000");
        break;
    case 'r':
        snprintf(buf, cap, "%s", fk_s(j, "reason"));
        break;
    case 'R':
        if (fk_is_pending(j))
            snprintf(buf, cap, "(%s)", fk_s(j, "reason"));
        else
            snprintf(buf, cap, "%s", nodes);
        break;
    case 'S':
        fk_time(buf, cap, fk_is_pending(j) ? fk_knob_num("start_estimate", 0) : start);
        break;
    case 't':
        state_word(buf, cap, "squeue_state", j, fk_state_short(j));
        break;
    case 'T':
        state_word(buf, cap, "squeue_state", j, fk_state_word(j));
        break;
    case 'u':
        snprintf(buf, cap, "%s", fk_s(j, "user"));
        break;
    case 'U':
        snprintf(buf, cap, "0");
        break;
    case 'v':
        snprintf(buf, cap, "%s", or_na(fk_s(j, "reservation")));
        break;
    case 'V':
        fk_time(buf, cap, fk_f(j, "submit_t"));
        break;
    case 'y':
        snprintf(buf, cap, "0");
        break;
    case 'Z':
        snprintf(buf, cap, "%s", fk_s(j, "cwd"));
        break;
    case 'd':
    case 'G':
    case 'H':
    case 'I':
    case 'J':
    case 'K':
    case 'n':
    case 'O':
    case 's':
    case 'w':
    case 'W':
    case 'x':
    case 'X':
    case 'Y':
    case 'z':
        fk_die(99, "%%%c is a field of the real command, but not imitated", c);
    default:
        return false;
    }
    return true;
}

/* quiet: only look whether the format is right. */
static void print_row(const char *format, const json_t *j, bool quiet)
{
    char text[4096];
    for (const char *p = format; *p != '\0'; p++) {
        if (*p != '%') {
            if (!quiet)
                putchar(*p);
            continue;
        }
        bool right = *++p == '.';
        p += right;
        char *end = NULL;
        long width = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : 0;
        p = end != NULL ? end : p;
        if (*p == '\0' || !field(text, sizeof text, *p, j)) {
            fprintf(stderr, "squeue: error: Invalid job format specification: %%%c\n", *p);
            exit(1);
        }
        if (quiet)
            continue;
        if (width > 0)
            printf(right ? "%*.*s" : "%-*.*s", (int)width, (int)width, text);
        else
            fputs(text, stdout);
    }
    if (!quiet)
        putchar('\n');
}

static bool wanted_state(const json_t *o, const json_t *j)
{
    static const char *const words[] = {
        "PENDING",    "PD", "RUNNING",      "R",  "SUSPENDED",    "S",  "COMPLETED",     "CD",
        "CANCELLED",  "CA", "FAILED",       "F",  "TIMEOUT",      "TO", "NODE_FAIL",     "NF",
        "PREEMPTED",  "PR", "BOOT_FAIL",    "BF", "DEADLINE",     "DL", "OUT_OF_MEMORY", "OOM",
        "COMPLETING", "CG", "CONFIGURING",  "CF", "RESIZING",     "RS", "REVOKED",       "RV",
        "SIGNALING",  "SI", "SPECIAL_EXIT", "SE", "STAGE_OUT",    "SO", "STOPPED",       "ST",
        "REQUEUED",   "RQ", "REQUEUE_FED",  "RF", "REQUEUE_HOLD", "RH", "RESV_DEL_HOLD", "RD",
        "all",        NULL};
    const char *want = fk_get(o, "states");
    if (want == NULL)
        return !fk_is_final(j);
    char *copy = strdup(want), *save = NULL;
    for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
        bool known = false;
        for (int i = 0; words[i] != NULL; i++)
            known = known || strcasecmp(words[i], p) == 0;
        if (!known) {
            fprintf(stderr,
                    "squeue: error: Invalid job state specified: %s\nsqueue: error: Valid job "
                    "states include: "
                    "PENDING,RUNNING,...\n",
                    p);
            exit(1);
        }
    }
    free(copy);
    return in_list(want, "all") || in_list(want, fk_state_word(j)) ||
           in_list(want, fk_state_short(j));
}

static bool wanted(const json_t *o, const json_t *j)
{
    const char *v, *ids = fk_get(o, "jobs");
    char id[32];
    snprintf(id, sizeof id, "%lld", fk_i(j, "id"));
    return (ids == NULL || ids[0] == '\0' || in_list(ids, id)) && fk_is_of(j, fk_get(o, "user")) &&
           ((v = fk_get(o, "name")) == NULL || in_list(v, fk_s(j, "name"))) &&
           ((v = fk_get(o, "partition")) == NULL || in_list(v, fk_s(j, "partition"))) &&
           ((v = fk_get(o, "account")) == NULL || in_list(v, fk_s(j, "account"))) &&
           ((v = fk_get(o, "qos")) == NULL || in_list(v, fk_s(j, "qos"))) && wanted_state(o, j);
}

static void check_ids(const char *ids)
{
    char *copy = strdup(ids), *save = NULL;
    bool unknown = false, several = strchr(ids, ',') != NULL;
    for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
        long long v;
        if (!fk_int_in(&v, p, 1, 2147483647)) {
            fprintf(stderr, "squeue: error: Invalid job id: %s\n", p);
            exit(1);
        }
        unknown = unknown || fk_job(v) == NULL;
    }
    free(copy);
    if (unknown && (!several || fk_knob_num("squeue_strict_ids", 0) != 0)) {
        fprintf(stderr, "slurm_load_jobs error: Invalid job id specified\n");
        exit(1);
    }
}

int fk_squeue(int argc, char **argv)
{
    json_t *o = json_object(), *j;
    char *text;
    size_t i;
    fk_parse_env(o, table);
    int at = fk_parse(o, table, argc, argv);
    if (at != argc)
        fk_die(1, "error: Unrecognized option: %s", argv[at]);
    if (fk_get(o, "version") != NULL) {
        puts(FK_VERSION);
        return 0;
    }
    if (fk_down() || fk_knob_take("squeue_down", NULL)) {
        fprintf(stderr, "slurm_load_jobs error: " FK_DOWN "\n");
        return 1;
    }
    if (fk_knob_take("squeue_hang", NULL))
        for (;;)
            pause();
    if (fk_knob_take("squeue_empty",
                     NULL)) /* an overloaded controller that answers nothing, with success */
        return 0;
    if (fk_knob_take("squeue_says", &text)) {
        fputs(text, stdout);
        return 0;
    }
    fk_enter();
    if (fk_get(o, "jobs") != NULL && fk_get(o, "jobs")[0] != '\0')
        check_ids(fk_get(o, "jobs"));
    const char *format = fk_get(o, "format");
    if (format == NULL)
        format = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
    json_t *nobody = json_pack("{s:s}", "state", "PENDING");
    print_row(format, nobody, true);
    json_decref(nobody);
    if (fk_get(o, "noheader") == NULL)
        puts(
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)");
    json_array_foreach(fk_jobs(), i, j) if (wanted(o, j)) print_row(format, j, false);
    fk_leave();
    return 0;
}
