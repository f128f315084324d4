/* SPDX-License-Identifier: Apache-2.0
 *
 * sacct. Knob `sacct`: off (the default: no accounting storage), on, empty. Knob sacct_old: a
 * version that lacks some fields. Knob acct_shift: seconds that accounting's times lie in the past
 * ("jobs that ended yesterday").
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

static const fk_opt table[] = {{"accounts", 'A', 'r', 1, NULL, NULL, NULL},
                               {"allclusters", 'L', 'n', 0, NULL, NULL, NULL},
                               {"allocations", 'X', 'n', 1, NULL, NULL, NULL},
                               {"allusers", 'a', 'n', 1, NULL, NULL, NULL},
                               {"associations", 'x', 'r', 0, NULL, NULL, NULL},
                               {"batch-script", 'B', 'n', 0, NULL, NULL, NULL},
                               {"brief", 'b', 'n', 0, NULL, NULL, NULL},
                               {"clusters", 'M', 'r', 0, NULL, NULL, "SLURM_CLUSTERS"},
                               {"completion", 'c', 'n', 0, NULL, NULL, NULL},
                               {"constraints", 'C', 'r', 0, NULL, NULL, NULL},
                               {"delimiter", 0, 'r', 1, NULL, NULL, NULL},
                               {"duplicates", 'D', 'n', 1, NULL, NULL, NULL},
                               {"endtime", 'E', 'r', 1, NULL, NULL, NULL},
                               {"env-vars", 0, 'n', 0, NULL, NULL, NULL},
                               {"federation", 0, 'n', 0, NULL, NULL, "SACCT_FEDERATION"},
                               {"file", 'f', 'r', 0, NULL, NULL, NULL},
                               {"flags", 'F', 'r', 0, NULL, NULL, NULL},
                               {"format", 'o', 'r', 1, NULL, NULL, "SACCT_FORMAT"},
                               {"gid", 0, 'r', 0, NULL, NULL, NULL},
                               {"group", 'g', 'r', 0, NULL, NULL, NULL},
                               {"help", 'h', 'n', 0, NULL, NULL, NULL},
                               {"helpformat", 'e', 'n', 1, NULL, NULL, NULL},
                               {"jobs", 'j', 'r', 1, NULL, NULL, NULL},
                               {"json", 0, 'n', 0, NULL, NULL, NULL},
                               {"local", 0, 'n', 1, NULL, NULL, "SACCT_LOCAL"},
                               {"long", 'l', 'n', 0, NULL, NULL, NULL},
                               {"name", 0, 'r', 1, NULL, NULL, NULL},
                               {"ncpus", 'I', 'r', 0, NULL, NULL, NULL},
                               {"nnodes", 'i', 'r', 0, NULL, NULL, NULL},
                               {"noconvert", 0, 'n', 1, NULL, NULL, NULL},
                               {"nodelist", 'N', 'r', 0, NULL, NULL, NULL},
                               {"noheader", 'n', 'n', 1, NULL, NULL, NULL},
                               {"parsable", 'p', 'n', 1, NULL, NULL, NULL},
                               {"parsable2", 'P', 'n', 1, NULL, NULL, NULL},
                               {"partition", 'r', 'r', 1, NULL, NULL, NULL},
                               {"qos", 'q', 'r', 1, NULL, NULL, NULL},
                               {"reason", 'R', 'r', 0, NULL, NULL, NULL},
                               {"starttime", 'S', 'r', 1, NULL, NULL, NULL},
                               {"state", 's', 'r', 1, NULL, NULL, NULL},
                               {"timelimit-min", 'k', 'r', 0, NULL, NULL, NULL},
                               {"timelimit-max", 'K', 'r', 0, NULL, NULL, NULL},
                               {"truncate", 'T', 'n', 0, NULL, NULL, NULL},
                               {"uid", 'u', 'r', 1, NULL, NULL, NULL},
                               {"units", 0, 'r', 1, NULL, NULL, NULL},
                               {"usage", 'U', 'n', 0, NULL, NULL, NULL},
                               {"use-local-uid", 0, 'n', 1, NULL, NULL, NULL},
                               {"user", 0, 'r', 1, "uid", NULL, NULL},
                               {"verbose", 'v', 'n', 1, NULL, NULL, NULL},
                               {"version", 'V', 'n', 1, NULL, NULL, NULL},
                               {"wckeys", 'W', 'r', 0, NULL, NULL, NULL},
                               {"whole-hetjob", 0, 'o', 1, NULL, NULL, NULL},
                               {"yaml", 0, 'n', 0, NULL, NULL, NULL},
                               {0}};

/* What sacct -e of 22.05 lists; '-' stands before those that an old version lacks. */
static const char *const fields[] = {"Account",
                                     "AdminComment",
                                     "AllocCPUS",
                                     "AllocNodes",
                                     "AllocTRES",
                                     "AssocID",
                                     "AveCPU",
                                     "AveCPUFreq",
                                     "AveDiskRead",
                                     "AveDiskWrite",
                                     "AvePages",
                                     "AveRSS",
                                     "AveVMSize",
                                     "BlockID",
                                     "Cluster",
                                     "Comment",
                                     "-Constraints",
                                     "ConsumedEnergy",
                                     "ConsumedEnergyRaw",
                                     "-Container",
                                     "CPUTime",
                                     "CPUTimeRAW",
                                     "DBIndex",
                                     "DerivedExitCode",
                                     "Elapsed",
                                     "ElapsedRaw",
                                     "Eligible",
                                     "End",
                                     "ExitCode",
                                     "-Flags",
                                     "GID",
                                     "Group",
                                     "JobID",
                                     "JobIDRaw",
                                     "JobName",
                                     "Layout",
                                     "MaxDiskRead",
                                     "MaxDiskReadNode",
                                     "MaxDiskReadTask",
                                     "MaxDiskWrite",
                                     "MaxDiskWriteNode",
                                     "MaxDiskWriteTask",
                                     "MaxPages",
                                     "MaxPagesNode",
                                     "MaxPagesTask",
                                     "MaxRSS",
                                     "MaxRSSNode",
                                     "MaxRSSTask",
                                     "MaxVMSize",
                                     "MaxVMSizeNode",
                                     "MaxVMSizeTask",
                                     "McsLabel",
                                     "MinCPU",
                                     "MinCPUNode",
                                     "MinCPUTask",
                                     "NCPUS",
                                     "NNodes",
                                     "NodeList",
                                     "NTasks",
                                     "Partition",
                                     "-Planned",
                                     "-PlannedCPU",
                                     "-PlannedCPURAW",
                                     "Priority",
                                     "QOS",
                                     "QOSRAW",
                                     "-Reason",
                                     "ReqCPUFreq",
                                     "ReqCPUFreqGov",
                                     "ReqCPUFreqMax",
                                     "ReqCPUFreqMin",
                                     "ReqCPUS",
                                     "ReqMem",
                                     "ReqNodes",
                                     "ReqTRES",
                                     "Reservation",
                                     "ReservationId",
                                     "Reserved",
                                     "ResvCPU",
                                     "ResvCPURAW",
                                     "Start",
                                     "State",
                                     "Submit",
                                     "-SubmitLine",
                                     "Suspended",
                                     "SystemComment",
                                     "SystemCPU",
                                     "Timelimit",
                                     "TimelimitRaw",
                                     "TotalCPU",
                                     "TRESUsageInAve",
                                     "TRESUsageInMax",
                                     "TRESUsageInMaxNode",
                                     "TRESUsageInMaxTask",
                                     "TRESUsageInMin",
                                     "TRESUsageInMinNode",
                                     "TRESUsageInMinTask",
                                     "TRESUsageInTot",
                                     "TRESUsageOutAve",
                                     "TRESUsageOutMax",
                                     "TRESUsageOutMaxNode",
                                     "TRESUsageOutMaxTask",
                                     "TRESUsageOutMin",
                                     "TRESUsageOutMinNode",
                                     "TRESUsageOutMinTask",
                                     "TRESUsageOutTot",
                                     "UID",
                                     "User",
                                     "UserCPU",
                                     "WCKey",
                                     "WCKeyID",
                                     "WorkDir",
                                     NULL};

static const char *field_name(const char *f, bool old)
{
    return f[0] != '-' ? f : old ? NULL : f + 1;
}

static void help_format(bool old)
{
    int n = 0;
    for (int i = 0; fields[i] != NULL; i++) {
        const char *f = field_name(fields[i], old);
        if (f != NULL)
            printf("%-19s%s", f, ++n % 4 == 0 ? "\n" : " ");
    }
    if (n % 4 != 0)
        putchar('\n');
}

static const char *known_field(const char *name, size_t len, bool old)
{
    for (int i = 0; fields[i] != NULL; i++) {
        const char *f = field_name(fields[i], old);
        if (f != NULL && strlen(f) == len && strncasecmp(f, name, len) == 0)
            return f;
    }
    return NULL;
}

static void state_text(char *buf, size_t cap, const json_t *r)
{
    char *forced = fk_knob("sacct_state");
    if (forced != NULL)
        snprintf(buf, cap, "%s", forced);
    else if (strcmp(fk_s(r, "state"), "CANCELLED") == 0)
        snprintf(buf, cap, "CANCELLED by %u", (unsigned)getuid());
    else
        snprintf(buf, cap, "%s", fk_s(r, "state"));
    free(forced);
}

static void exit_code(char *buf, size_t cap, const json_t *r)
{
    int st = (int)fk_i(r, "status");
    if (strcmp(fk_s(r, "state"), "OUT_OF_MEMORY") == 0)
        snprintf(buf, cap, "0:125");
    else
        snprintf(buf, cap, "%d:%d", st >> 8 & 255, st & 127);
}

static void value(char *buf, size_t cap, const char *f, const json_t *r, double shift)
{
    double start = fk_f(r, "start_t"),
           end = fk_is_final(r) || strcmp(fk_s(r, "state"), "REQUEUED") == 0 ? fk_f(r, "end_t") : 0;
    double now = fk_now();
    json_t *nodes = json_object_get(r, "node_list");
    buf[0] = '\0';
    if (strcmp(f, "JobID") == 0 || strcmp(f, "JobIDRaw") == 0)
        snprintf(buf, cap, "%lld", fk_i(r, "id"));
    else if (strcmp(f, "JobName") == 0)
        snprintf(buf, cap, "%s", fk_s(r, "name"));
    else if (strcmp(f, "State") == 0)
        state_text(buf, cap, r);
    else if (strcmp(f, "ExitCode") == 0 || strcmp(f, "DerivedExitCode") == 0)
        exit_code(buf, cap, r);
    else if (strcmp(f, "Submit") == 0 || strcmp(f, "Eligible") == 0)
        fk_time(buf, cap, fk_f(r, "submit_t") - shift);
    else if (strcmp(f, "Start") == 0)
        start > 0 ? fk_time(buf, cap, start - shift) : (void)snprintf(buf, cap, "Unknown");
    else if (strcmp(f, "End") == 0)
        end > 0 ? fk_time(buf, cap, end - shift) : (void)snprintf(buf, cap, "Unknown");
    else if (strcmp(f, "Elapsed") == 0)
        fk_elapsed(buf, cap, start > 0 ? (end > 0 ? end : now) - start : 0);
    else if (strcmp(f, "ElapsedRaw") == 0)
        snprintf(buf, cap, "%lld", start > 0 ? (long long)((end > 0 ? end : now) - start) : 0);
    else if (strcmp(f, "Timelimit") == 0)
        fk_elapsed(buf, cap, 60 * (double)fk_i(r, "limit_min"));
    else if (strcmp(f, "TimelimitRaw") == 0)
        snprintf(buf, cap, "%lld", fk_i(r, "limit_min"));
    else if (strcmp(f, "NNodes") == 0 || strcmp(f, "AllocNodes") == 0 || strcmp(f, "ReqNodes") == 0)
        snprintf(buf, cap, "%lld", fk_i(r, "nodes"));
    else if (strcmp(f, "NodeList") == 0) {
        size_t n = 0;
        for (size_t i = 0; i < json_array_size(nodes) && n < cap; i++)
            n += (size_t)snprintf(buf + n, cap - n, "%s%s", i > 0 ? "," : "",
                                  json_string_value(json_array_get(nodes, i)));
        if (n == 0)
            snprintf(buf, cap, "None assigned");
    } else if (strcmp(f, "NCPUS") == 0 || strcmp(f, "AllocCPUS") == 0 || strcmp(f, "ReqCPUS") == 0)
        snprintf(buf, cap, "%lld", fk_i(r, "cpus"));
    else if (strcmp(f, "Reason") == 0)
        snprintf(buf, cap, "%s", fk_s(r, "reason"));
    else if (strcmp(f, "Partition") == 0)
        snprintf(buf, cap, "%s", fk_s(r, "partition"));
    else if (strcmp(f, "Account") == 0)
        snprintf(buf, cap, "%s", fk_s(r, "account"));
    else if (strcmp(f, "QOS") == 0)
        snprintf(buf, cap, "%s", fk_s(r, "qos"));
    else if (strcmp(f, "User") == 0)
        snprintf(buf, cap, "%s", fk_s(r, "user"));
    else if (strcmp(f, "WorkDir") == 0)
        snprintf(buf, cap, "%s", fk_s(r, "cwd"));
    else if (strcmp(f, "Cluster") == 0)
        snprintf(buf, cap, "%s",
                 fk_s(fk_root(), "cluster")[0] != '\0' ? fk_s(fk_root(), "cluster") : "fake");
    else if (strcmp(f, "Comment") == 0 &&
             fk_knob_num("job_comment", 0) != 0) /* only with AccountingStoreFlags=job_comment */
        snprintf(buf, cap, "%s", fk_s(r, "comment"));
}

static void print_record(const json_t *o, const char *format, const json_t *r, bool header,
                         bool old)
{
    const char *delim = fk_get(o, "delimiter") != NULL ? fk_get(o, "delimiter") : "|";
    bool p1 = fk_get(o, "parsable") != NULL, p2 = fk_get(o, "parsable2") != NULL;
    double shift = fk_knob_num("acct_shift", 0);
    for (const char *p = format; *p != '\0';) {
        size_t n = strcspn(p, ","), name = strcspn(p, "%,");
        char text[2048];
        const char *f = known_field(p, name, old);
        long width = p[name] == '%' ? strtol(p + name + 1, NULL, 10) : 10;
        bool left = width < 0, last = p[n] == '\0';
        width = width < 0 ? -width : width;
        if (f == NULL)
            fk_die(1, "fatal: Invalid field requested: \"%.*s\"", (int)name, p);
        if (header)
            snprintf(text, sizeof text, "%s", f);
        else
            value(text, sizeof text, f, r, shift);
        if (p1 || p2)
            printf("%s%s", text, p1 || !last ? delim : "");
        else if (strlen(text) > (size_t)width)
            printf("%.*s+ ", (int)width - 1, text); /* cut */
        else
            printf(left ? "%-*s " : "%*s ", (int)width, text);
        p += n + !last;
    }
    putchar('\n');
}

static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p != '\0'; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncasecmp(p, word, n) == 0)
            return true;
    return false;
}

static bool wanted(const json_t *o, const json_t *r, double from, double to)
{
    const char *v;
    char id[32];
    double shift = fk_knob_num("acct_shift", 0),
           end = fk_is_pending(r) || strcmp(fk_s(r, "state"), "RUNNING") == 0
                     ? fk_now()
                     : fk_f(r, "end_t") - shift;
    snprintf(id, sizeof id, "%lld", fk_i(r, "id"));
    return ((v = fk_get(o, "jobs")) == NULL || in_list(v, id)) &&
           ((v = fk_get(o, "name")) == NULL || in_list(v, fk_s(r, "name"))) &&
           fk_is_of(r, fk_get(o, "uid")) && end >= from && fk_f(r, "submit_t") - shift <= to;
}

static double time_option(const json_t *o, const char *key, double otherwise)
{
    const char *v = fk_get(o, key);
    double t = v != NULL ? fk_time_parse(v) : otherwise;
    if (t < 0)
        fk_die(1, "error: Invalid time specification: \"%s\"", v);
    return t;
}

static void list(const json_t *o, const char *format, bool old)
{
    /* With -j the window opens at the epoch, otherwise (and in old versions) at midnight. */
    bool ids = fk_get(o, "jobs") != NULL && fk_knob_num("sacct_midnight", 0) == 0;
    double from = time_option(o, "starttime", ids ? 0 : fk_time_parse("midnight")),
           to = time_option(o, "endtime", 4e9);
    size_t i, k;
    json_t *r, *later, *all = json_copy(fk_acct());
    json_array_foreach(fk_jobs(), i, r) if (!fk_is_final(r)) json_array_append(all, r);
    json_array_foreach(all, i, r)
    {
        bool shown = wanted(o, r, from, to);
        json_array_foreach(all, k, later) /* the newest of an id, unless -D */
            if (k > i && fk_i(later, "id") == fk_i(r, "id") && fk_get(o, "duplicates") == NULL)
                shown = false;
        if (shown)
            print_record(o, format, r, false, old);
        if (shown && fk_get(o, "allocations") == NULL) { /* the batch step, too */
            json_t *step = json_deep_copy(r);
            fk_set_s(step, "name", "batch");
            print_record(o, format, step, false, old);
            json_decref(step);
        }
    }
    json_decref(all);
}

int fk_sacct(int argc, char **argv)
{
    json_t *o = json_object();
    fk_parse_env(o, table);
    int at = fk_parse(o, table, argc, argv);
    bool old = fk_knob_num("sacct_old", 0) != 0;
    if (at != argc)
        fk_die(1, "error: Unrecognized option: %s", argv[at]);
    if (fk_get(o, "version") != NULL) {
        puts(FK_VERSION);
        return 0;
    }
    if (fk_get(o, "helpformat") != NULL) {
        help_format(old);
        return 0;
    }
    const char *format = fk_get(o, "format");
    if (format == NULL)
        format = "jobid,jobname,partition,account,alloccpus,state,exitcode";
    char *mode = fk_knob("sacct");
    if (mode == NULL || strcmp(mode, "off") == 0) {
        fprintf(stderr, "Slurm accounting storage is disabled\n");
        return 1;
    }
    if (fk_knob_take("sacct_down", NULL)) {
        fprintf(stderr, "sacct: error: slurm_persist_conn_open_without_init: failed to open "
                        "persistent connection to "
                        "host:localhost:6819: Connection refused\nsacct: error: Problem talking to "
                        "the database: Connection "
                        "refused\n");
        return 1;
    }
    fk_enter();
    if (fk_get(o, "noheader") == NULL)
        print_record(o, format, NULL, true, old);
    if (strcmp(mode, "on") == 0)
        list(o, format, old);
    fk_leave();
    return 0;
}
