/* SPDX-License-Identifier: Apache-2.0
 *
 * sys.h and json.h: stop requests, times, log lines; JSON positions, types, refusals.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/machine.h"
#include "engine/base/quota.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "tests/tap/tap.h"

static void test_stop(void)
{
    lf_err err = LF_ERR_INIT;
    char path[1024];
    snprintf(path, sizeof path, "%s/stop", tap_tmpdir());
    tap_rc(lf_stop_install(path, &err), 0, &err, NULL, "install");
    tap_ok(!lf_stop_requested() && !lf_stop_reason(), "no request yet");
    lf_io_replace(path, "", 0, 0644, &err);
    bool heard = false;
    for (int i = 0; i < 6000 && !heard; i++, usleep(10000)) /* it is looked for once a second */
        heard = lf_stop_requested();
    tap_ok(heard, "a stop file is a request");
    tap_str(lf_stop_reason(), "stop file", "its name");
    static const struct {
        int sig;
        const char *name;
    } v[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR2, "SIGUSR2"}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_stop_install(NULL, &err);
        raise(v[i].sig);
        tap_ok(lf_stop_requested(), "%s is a request", v[i].name);
        tap_str(lf_stop_reason(), v[i].name, "its name");
    }
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        lf_stop_install(NULL, NULL);
        raise(SIGINT);
        raise(SIGINT);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "a second SIGINT ends the process");
    lf_stop_install(NULL, &err);
    raise(SIGPIPE);
    tap_ok(!lf_stop_requested(), "SIGPIPE is ignored");
}

static void test_times(void)
{
    char b[21];
    tap_str(lf_time_iso(b, 0), "1970-01-01T00:00:00Z", "the epoch");
    tap_str(lf_time_iso(b, 1795260005.9), "2026-11-21T11:20:05Z", "seconds are cut");
    tap_str(lf_time_iso(b, -0.5), "1969-12-31T23:59:59Z", "before the epoch");
    double a = lf_now_s();
    tap_ok(lf_now_s() >= a && lf_wall_s() > 1.7e9, "clocks");
    tap_ok(lf_rss_bytes() > 100000 && lf_rss_peak_bytes() >= lf_rss_bytes() / 2, "resident bytes");
    tap_ok(lf_ncpu() >= 1, "processors");
}

/* One made file of a machine whose root is `root`. */
static void made(const char *root, const char *name, const char *text)
{
    lf_err err = LF_ERR_INIT;
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", root, name);
    *strrchr(path, '/') = '\0';
    if (lf_io_mkdirs(path, 0755, &err) == 0) {
        path[strlen(path)] = '/';
        lf_io_replace(path, text, strlen(text), 0644, &err);
    }
    if (err.rc < 0)
        tap_bail("%s", err.text);
}

static void test_quota(void)
{
    static const struct {
        const char *name, *cgroup, *file[3][2];
        int want;
    } v[] = {
        {"no files", NULL, {{0}}, 0},
        {"two processors", "0::/job/7\n", {{"sys/fs/cgroup/job/7/cpu.max", "200000 100000\n"}}, 2},
        {"one and a half is two",
         "0::/job/7\n",
         {{"sys/fs/cgroup/job/7/cpu.max", "150000 100000\n"}},
         2},
        {"a tenth is one", "0::/\n", {{"sys/fs/cgroup/cpu.max", "10000 100000\n"}}, 1},
        {"no limit", "0::/job\n", {{"sys/fs/cgroup/job/cpu.max", "max 100000\n"}}, 0},
        {"no sense", "0::/job\nx\n", {{"sys/fs/cgroup/job/cpu.max", "3 0\n"}}, 0},
        {"of the group above",
         "0::/a/b/c\n",
         {{"sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
          {"sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"},
          {"sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"}},
         3},
        {"version 1",
         "5:cpuset:/x\n4:cpuacct,cpu:/docker/7\n0::/\n",
         {{"sys/fs/cgroup/cpu/docker/7/cpu.cfs_quota_us", "250000\n"},
          {"sys/fs/cgroup/cpu/docker/7/cpu.cfs_period_us", "100000\n"}},
         3},
        {"version 1, files at the mount",
         "4:cpu,cpuacct:/docker/7\n",
         {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n"},
          {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
         4},
        {"version 1, no limit",
         "4:cpu:/\n",
         {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
          {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
         0},
        {"version 1, of other controllers",
         "5:cpuset,cpuacct:/\n",
         {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
          {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
         0},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char root[1024];
        snprintf(root, sizeof root, "%s/machine%zu", tap_tmpdir(), i);
        if (v[i].cgroup)
            made(root, "proc/self/cgroup", v[i].cgroup);
        for (int k = 0; k < 3 && v[i].file[k][0]; k++)
            made(root, v[i].file[k][0], v[i].file[k][1]);
        const int got = lf_cpu_quota(root);
        tap_ok(got == v[i].want, "a CPU quota, %s: %d, %d expected", v[i].name, got, v[i].want);
    }
    const int quota = lf_cpu_quota("");
    tap_ok(quota == 0 || lf_ncpu() <= quota, "no more processors than that");
}

static void test_processor(void)
{
    static const struct {
        const char *cpuinfo, *want;
    } v[] = {
        {"processor\t: 0\nmodel name\t: AMD EPYC 9654\nmodel name\t: other\n", "AMD EPYC 9654"},
        {"processor\t: 0\nBogoMIPS\t: 2000\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\n"
         "CPU part\t: 0xd4f\nCPU revision\t: 0\n\nprocessor\t: 1\nCPU implementer\t: 0x46\n"
         "CPU part\t: 0x001\n",
         "Arm Neoverse V2"},
        {"CPU implementer\t: 0x46\nCPU part\t: 0x001\n", "Fujitsu A64FX"},
        {"CPU implementer\t: 0x61\nCPU part\t: 0x022\n",
         "AArch64 processor, implementer 0x61, part 0x022"},
    };
    char path[1024], got[256];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        made(tap_tmpdir(), "machine/cpuinfo", v[i].cpuinfo);
        snprintf(path, sizeof path, "%s/machine/cpuinfo", tap_tmpdir());
        tap_str(lf_cpu_model_in(path, got, sizeof got), v[i].want, "the processor is named");
    }
    struct utsname u;
    uname(&u);
    tap_str(lf_cpu_model_in("/nowhere/cpuinfo", got, sizeof got), u.machine,
            "else the architecture is");
}

static void test_log(void)
{
    lf_err err = LF_ERR_INIT;
    char path[1024];
    lf_buf b;
    lf_buf_init(&b);
    snprintf(path, sizeof path, "%s/log", tap_tmpdir());
    fflush(stderr);
    int saved = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    lf_log_init("lf-test", 2);
    lf_log(2, "step %d loss %.2f", 1200, 2.31);
    lf_log(0, "bad");
    lf_log(3, "hidden");
    lf_progress p;
    lf_progress_begin(&p, "tokenizing", "tokens", 0, 1000);
    lf_progress_update(&p, 500);
    lf_progress_end(&p);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    lf_io_read_file(path, 10000, &b, &err);
    tap_ok(lf_str_has_prefix(b.data, "lf-test: step 1200 loss 2.31\nlf-test: error: bad\nlf-test: "
                                     "tokenizing 500 of 1.0k tokens"),
           "%s", b.data);
    lf_buf_fini(&b);
}

/* What others may read of a loop, and who writes it. */
static void test_kept(void)
{
    lf_err err = LF_ERR_INIT;
    char path[1024];
    lf_buf b;
    lf_progress p;
    lf_buf_init(&b);
    lf_log_init("lf-test", 0);
    snprintf(path, sizeof path, "%s/" LF_PROGRESS_FILE, tap_tmpdir());
    setenv("LF_RANKS_DIR", tap_tmpdir(), 1);
    setenv("PMIX_RANK", "1", 1);
    lf_progress_begin(&p, "tokenizing", "tokens", 0, 1000);
    tap_ok(!lf_io_exists(path), "another rank than the first keeps no progress");
    unsetenv("PMIX_RANK");
    lf_progress_begin(&p, "tokenizing", "tokens", 100, 1000);
    tap_rc(lf_io_read_file(path, 10000, &b, &err), 0, &err, NULL, "the beginning is kept");
    tap_ok(lf_str_has_prefix(b.data, "{\"what\":\"tokenizing\",\"unit\":\"tokens\",\"done\":100,"
                                     "\"total\":1000,\"per_s\":0,"),
           "%s", b.data);
    lf_buf_clear(&b);
    p.done = 600;
    lf_progress_end(&p);
    lf_io_read_file(path, 10000, &b, &err);
    tap_ok(strstr(b.data, "\"done\":600,") != NULL, "and so is the end: %s", b.data);
    lf_buf_fini(&b);
    unsetenv("LF_RANKS_DIR");
}

static void test_json(void)
{
    lf_err err = LF_ERR_INIT;
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"{\"a\": 1,\n \"a\": 2}", "f.json:2:"},
        {"{\n  \"a\": }", "f.json:2:"},
        {"", "f.json:1:"},
        {"{\"a\": 1} x", "f.json:1:"},
        {"{\"a\": \"\\u0000\"}", "f.json:1:"},
        {"{\"a\": \"\xff\"}", "f.json:1:"},
        {"{\"a\": 1e999}", "f.json:1:"},
        {"{\"a\": 99999999999999999999, \"b\": }", "f.json:1:"},
        {"3", "f.json:1:"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tap_ok(!lf_json_load_text(bad[i].text, strlen(bad[i].text), "f.json", &err), "refused");
        tap_rc(err.rc, LF_EFORMAT, &err, bad[i].error, bad[i].text);
    }
    json_t *marked = lf_json_load_text("\xEF\xBB\xBF{}", 5, "f.json", &err);
    tap_ok(json_is_object(marked), "a byte order mark in front is passed over");
    json_decref(marked);
    /* transformers' "no bound" is an integer that no 64 bits hold; texts and short numbers beside
     * it stay as they are. */
    static const char wide[] =
        "{\"m\": 1000000000000000019884624838656, \"n\": -99999999999999999999, \"i\": "
        "[7,1234567890],"
        " \"t\": \"\\\"1000000000000000019884624838656\", \"f\": 12345678901234567890123.5e1}";
    json_t *w = lf_json_load_text(wide, strlen(wide), "wide", &err);
    tap_ok(w != NULL, "an integer beyond 64 bits: %s", err.text);
    tap_f64(json_real_value(json_object_get(w, "m")), 1e30, 0, "is a real");
    tap_f64(json_real_value(json_object_get(w, "n")), -1e20, 0, "a negative one too");
    tap_f64(json_real_value(json_object_get(w, "f")), 12345678901234567890123.5e1, 0,
            "reals are as they are");
    tap_i64(json_integer_value(json_array_get(json_object_get(w, "i"), 1)), 1234567890,
            "integers too");
    tap_str(json_string_value(json_object_get(w, "t")), "\"1000000000000000019884624838656",
            "and texts");
    json_decref(w);
    char *deep = malloc(100001);
    memset(deep, '[', 100000);
    tap_ok(!lf_json_load_text(deep, 100000, "deep", &err), "nesting without end is refused");
    lf_err_clear(&err);
    free(deep);
    static const char text[] =
        "{\"s\":\"x\",\"i\":7,\"f\":0.1,\"b\":true,\"a\":[1],\"o\":{\"k\":null}}";
    json_t *o = lf_json_load_text(text, strlen(text), "f", &err), *v = NULL;
    const char *s = NULL;
    int64_t i = -1;
    double f = -1;
    bool b = false;
    tap_rc(lf_json_get_str(&s, o, "s", true, "f", &err), 0, &err, NULL, "string");
    tap_str(s, "x", "string");
    tap_rc(lf_json_get_i64(&i, o, "i", true, "f", &err), 0, &err, NULL, "integer");
    tap_i64(i, 7, "integer");
    tap_rc(lf_json_get_f64(&f, o, "i", true, "f", &err), 0, &err, NULL, "an integer is a number");
    tap_f64(f, 7, 0, "number");
    tap_rc(lf_json_get_i64(&i, o, "f", true, "f", &err), LF_EFORMAT, &err,
           "f: \"f\" is a number, not an integer", "type");
    tap_rc(lf_json_get_bool(&b, o, "b", true, "f", &err), 0, &err, NULL, "boolean");
    tap_rc(lf_json_get_array(&v, o, "a", true, "f", &err), 0, &err, NULL, "list");
    tap_rc(lf_json_get_object(&v, o, "a", true, "f", &err), LF_EFORMAT, &err,
           "is a list, not an object", "not object");
    tap_rc(lf_json_get_str(&s, o, "zz", true, "what", &err), LF_EFORMAT, &err, "what has no \"zz\"",
           "missing");
    tap_rc(lf_json_get_i64(&i, o, "zz", false, "what", &err), 0, &err, NULL,
           "missing, with a default");
    tap_i64(i, 7, "default kept");
    tap_rc(lf_json_get_str(&s, json_object_get(o, "a"), "k", false, "what", &err), LF_EFORMAT, &err,
           "is a list", "parent");
    char *d = lf_json_dump(o, &err);
    tap_str(
        d,
        "{\"a\":[1],\"b\":true,\"f\":0.10000000000000001,\"i\":7,\"o\":{\"k\":null},\"s\":\"x\"}",
        "canonical");
    free(d);
    json_decref(o);
}

int main(void)
{
    TAP(12, test_stop());
    TAP(6, test_times());
    TAP(12, test_quota());
    TAP(5, test_processor());
    TAP(1, test_log());
    TAP(4, test_kept());
    TAP(41, test_json());
    return tap_done();
}
