/* SPDX-License-Identifier: Apache-2.0
 *
 * See machine.h.
 */
#include "config.h"

#include "engine/base/machine.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "engine/base/cause.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"

/* The value behind the colon of a line of /proc/cpuinfo; false: the line has another key. */
static bool value_of(const char *line, const char *key, char *buf, size_t cap)
{
    const size_t n = strlen(key);
    if (strncmp(line, key, n) != 0)
        return false;
    const char *v = line + n + strspn(line + n, " \t");
    if (*v != ':')
        return false;
    v += 1 + strspn(v + 1, " \t");
    snprintf(buf, cap, "%.*s", (int)strcspn(v, "\n"), v);
    return buf[0] != '\0';
}

/* AArch64 names a processor by two numbers: who made it, and which of their parts it is. */
static const struct {
    unsigned long maker, part;
    const char *name;
} arm_parts[] = {
    {0x41, 0xd08, "Arm Cortex-A72"},   {0x41, 0xd0c, "Arm Neoverse N1"},
    {0x41, 0xd40, "Arm Neoverse V1"},  {0x41, 0xd49, "Arm Neoverse N2"},
    {0x41, 0xd4f, "Arm Neoverse V2"},  {0x41, 0xd84, "Arm Neoverse V3"},
    {0x41, 0xd8e, "Arm Neoverse N3"},  {0x43, 0x0af, "Marvell ThunderX2"},
    {0x46, 0x001, "Fujitsu A64FX"},    {0x48, 0xd01, "HiSilicon Kunpeng 920"},
    {0xc0, 0xac3, "Ampere AmpereOne"},
};

/* One that is not in the list keeps its numbers. */
static void arm_name(char *buf, size_t cap, const char *maker, const char *part)
{
    const unsigned long m = strtoul(maker, NULL, 0), p = strtoul(part, NULL, 0);
    for (size_t i = 0; i < sizeof arm_parts / sizeof arm_parts[0]; i++)
        if (arm_parts[i].maker == m && arm_parts[i].part == p) {
            snprintf(buf, cap, "%s", arm_parts[i].name);
            return;
        }
    snprintf(buf, cap, "AArch64 processor, implementer %s, part %s", maker, part);
}

const char *lf_cpu_model_in(const char *cpuinfo, char *buf, size_t cap)
{
    char line[512], maker[16] = "", part[16] = "";
    struct utsname u;
    bool found = false;
    FILE *f = fopen(cpuinfo, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        found = value_of(line, "model name", buf, cap) || value_of(line, "cpu model", buf, cap);
        if (!maker[0])
            value_of(line, "CPU implementer", maker, sizeof maker);
        if (!part[0])
            value_of(line, "CPU part", part, sizeof part);
    }
    if (f)
        fclose(f);
    if (!found && maker[0] && part[0])
        arm_name(buf, cap, maker, part);
    else if (!found)
        snprintf(buf, cap, "%s", uname(&u) == 0 ? u.machine : "");
    return buf;
}

const char *lf_cpu_model(char *buf, size_t cap)
{
    return lf_cpu_model_in("/proc/cpuinfo", buf, cap);
}

static double seconds_of(int who)
{
    struct rusage r;
    if (getrusage(who, &r) != 0)
        return 0;
    return (double)r.ru_utime.tv_sec + (double)r.ru_stime.tv_sec +
           1e-6 * ((double)r.ru_utime.tv_usec + (double)r.ru_stime.tv_usec);
}

double lf_cpu_time_s(void)
{
    return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN);
}

int lf_rank_say(const char *dir, const struct lf_rank_said *r, lf_err *err)
{
    char cpu[256];
    const lf_proc_id *p = &r->process;
    lf_buf path;
    lf_buf_init(&path);
    lf_buf_addf(&path, "%s/%s.%lld.json", dir, p->host, (long long)p->pid);
    json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:i}", "rank", r->rank, "host",
                          p->host, "boot", p->boot_id, "pidns", (json_int_t)p->pid_ns, "pid",
                          (json_int_t)p->pid, "start", (json_int_t)p->start, "processor",
                          lf_cpu_model(cpu, sizeof cpu), "isa", r->isa, "threads", r->threads);
    if (o && r->cpu_s >= 0 && json_object_set_new(o, "cpu_s", json_real(r->cpu_s)) != 0) {
        json_decref(o);
        o = NULL;
    }
    char *text = o ? lf_json_dump(o, err) : NULL;
    int rc = text ? lf_buf_check(&path, err) : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_io_replace(path.data, text, strlen(text), 0640, err);
    free(text);
    json_decref(o);
    lf_buf_fini(&path);
    return rc;
}

void lf_machine_note_gpu(const char *device)
{
    char host[65] = "", path[PATH_MAX];
    const char *dir = getenv(LF_CAUSE_DIR_ENV);
    if (!device || !dir || dir[0] == '\0')
        return;
    gethostname(host, sizeof host - 1);
    int n = snprintf(path, sizeof path, "%s/gpu.%s.%ld", dir, host, (long)getpid());
    if (n > 0 && n < PATH_MAX)
        lf_io_write_file(path, device, strlen(device), 0640, NULL);
}
