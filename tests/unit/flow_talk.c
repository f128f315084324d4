/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a growing log is told: each line once, of many the ones that matter and the last ones.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/io.h"
#include "flow/sched/drive.h"
#include "flow/sched/talk.h"
#include "tests/tap/tap.h"

static char told[1 << 16];
static int lines;

static void say(void *user, const char *text)
{
    (void)user;
    size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%s\n", text);
    lines++;
}

static void log_text(const char *dir, const char *mode, const char *text)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/log", dir);
    FILE *f = fopen(path, mode);
    if (!f || fputs(text, f) < 0 || fclose(f))
        tap_bail("%s", path);
}

static void more(lf_talk *t, const lf_start *start)
{
    told[0] = '\0';
    lines = 0;
    lf_talk_on(t, start, say, NULL);
}

static void test_each_line_once(char *dir)
{
    lf_talk t = {0};
    lf_start start = {.epoch = 1, .dir = dir};
    more(&t, &start);
    tap_i64(lines, 0, "no log says nothing");
    log_text(dir, "w", "lf-x: one\nlf-x: saved 3 MiB\nlf-x: debug: two\nlf-x: thr");
    more(&t, &start);
    tap_str(told, "  lf-x: one\n", "whole lines, without what only the log needs");
    log_text(dir, "a", "ee\nlf-x: warning: four\n");
    more(&t, &start);
    tap_str(told, "  lf-x: three\n  lf-x: warning: four\n",
            "then the rest of the line and what follows");
    tap_i64(t.warned, 1, "warnings are counted");
    more(&t, &start);
    tap_i64(lines, 0, "and nothing twice");
    start.epoch = 2;
    more(&t, &start);
    tap_ok(lines == 3 && t.warned == 1, "another start has another log");
}

static void test_many(char *dir)
{
    lf_talk t = {0};
    lf_start start = {.epoch = 1, .dir = dir};
    char line[100];
    log_text(dir, "w", "");
    for (int i = 1; i <= 100; i++) {
        snprintf(line, sizeof line, "lf-x: step %d loss 2%s\n", i, i % 25 == 0 ? " valid 3" : "");
        log_text(dir, "a", line);
    }
    more(&t, &start);
    tap_i64(lines, 12, "of a hundred lines some are told");
    tap_ok(strstr(told, "step 25 ") && strstr(told, "step 50 ") && strstr(told, "step 75 "),
           "those of validations");
    tap_ok(strstr(told, "step 99 ") && strstr(told, "step 93 ") && !strstr(told, "step 90 "),
           "and the last ones");
    for (int i = 0; i < 3000; i++)
        log_text(dir, "a", "lf-x: a line of some length that nobody needs to see at all\n");
    log_text(dir, "a", "lf-x: done: 7\n");
    more(&t, &start);
    tap_ok(lines == 12 && strstr(told, "  lf-x: done: 7\n"), "so it is with a large log");
}

/* A warning that there was no room for was not told: the end of the stage tells it. */
static void test_many_warnings(char *dir)
{
    lf_talk t = {0};
    lf_start start = {.epoch = 1, .dir = dir};
    log_text(dir, "w", "");
    for (int i = 0; i < 30; i++)
        log_text(dir, "a", "lf-x: warning: again\n");
    more(&t, &start);
    tap_ok(lines == 12 && t.warned == 12, "as many are told as counted: %d and %lld", lines,
           (long long)t.warned);
}

/* On a terminal a live line stands for the rest. */
static void test_brief(char *dir)
{
    lf_talk t = {.brief = true};
    lf_start start = {.epoch = 3, .dir = dir};
    log_text(dir, "w",
             "lf-x: step 1 loss 2\nlf-x: step 2 loss 2 valid 3.5 grad 1\nlf-x: warning: odd\n"
             "lf-x: valid bits_per_byte 2.9\nlf-x: done: 2 steps\nlf-x: note: others are busy\n");
    more(&t, &start);
    tap_str(told,
            "  lf-x: step 2 loss 2 valid 3.5 grad 1\n  lf-x: warning: odd\n"
            "  lf-x: note: others are busy\n",
            "validations, warnings and notes stay; a score and the log's own end do not");
    tap_ok(t.brief, "it stays so over starts");
}

/* A small run is looked at four times a second; reading a large one may take a fiftieth of a
 * processor, and it is looked at every 5 s whatever that costs. */
static void test_pause(void)
{
    tap_ok(lf_drive_pause_s(0) == 0.25, "nothing to read");
    tap_ok(lf_drive_pause_s(0.004) == 0.25, "a few stages");
    tap_f64(lf_drive_pause_s(0.024), 1.2, 1e-12, "manifests of thousands of tensors");
    tap_ok(lf_drive_pause_s(3) == 5, "more than that");
}

int main(void)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", tap_tmpdir());
    TAP(6, test_each_line_once(dir));
    TAP(4, test_many(dir));
    TAP(1, test_many_warnings(dir));
    TAP(2, test_brief(dir));
    TAP(4, test_pause());
    return tap_done();
}
