/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of logs for the console: see talk.h.
 */
#include "config.h"

#include "flow/sched/talk.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "flow/record/record.h"
#include "flow/run/classify.h"
#include "flow/run/closing.h"

#define LOOK_BYTES ((size_t)64 << 10) /* of the end of what is new */
#define MOST_LINES 12                 /* told at once */
#define LAST_LINES 4                  /* of them the last ones, whatever they say */

enum weight { LINE_SKIP, LINE_PLAIN, LINE_MUST, LINE_WARNING };

/* "valid 4.21" of a step; an evaluation may have a task of that name. */
static bool validates(const char *line)
{
    const char *at = strstr(line, " valid ");
    return at != NULL && strspn(at + strlen(" valid "), "-0123456789") > 0;
}

static bool notes(const char *line)
{
    return strstr(line, ": note: ") != NULL;
}

static enum weight weight_of(const char *line)
{
    if (line[0] == '\0' || strstr(line, ": debug: ") != NULL || strstr(line, ": saved ") != NULL)
        return LINE_SKIP;
    if (strstr(line, ": warning: ") != NULL)
        return LINE_WARNING;
    bool must = validates(line) || strstr(line, ": done: ") != NULL || notes(line);
    return must ? LINE_MUST : LINE_PLAIN;
}

/* What is new, from the beginning of a line to the end of the last whole one; owned. NULL:
 * nothing. */
static char *read_new(lf_talk *t, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    int64_t from = size - t->at > (int64_t)LOOK_BYTES ? size - (int64_t)LOOK_BYTES : t->at;
    char *text = size > from ? lf_malloc(LOOK_BYTES + 1, 1, NULL) : NULL;
    ssize_t n = text != NULL ? pread(fd, text, LOOK_BYTES, from) : -1;
    if (fd >= 0)
        close(fd);
    while (n > 0 && text[n - 1] != '\n')
        n--;
    if (n <= 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    if (from > t->at) /* the first line is half of one */
        memmove(text, strchr(text, '\n') + 1, strlen(strchr(text, '\n') + 1) + 1);
    t->at = from + n;
    return text;
}

/* How many plain lines have no room beside those that must be told. */
static int plain_too_many(const char *text)
{
    int must = 0, plain = 0;
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        must += weight_of(line) >= LINE_MUST;
        plain += weight_of(line) == LINE_PLAIN;
    }
    return plain - (must + LAST_LINES < MOST_LINES ? MOST_LINES - must : LAST_LINES);
}

void lf_talk_on(lf_talk *t, const lf_start *start, void (*say)(void *user, const char *text),
                void *user)
{
    char path[PATH_MAX], told[512 + 8];
    if (start->epoch != t->epoch)
        *t = (lf_talk){.epoch = start->epoch, .brief = t->brief};
    char *text = lf_path_set(path, NULL, "%s/log", start->dir) == 0 ? read_new(t, path) : NULL;
    if (text == NULL)
        return;
    int left_out = plain_too_many(text), musts = 0;
    for (char *at = text, *end; *at != '\0'; at = end + 1) {
        end = strchr(at, '\n');
        *end = '\0';
        enum weight w = weight_of(at);
        if (t->brief && w == LINE_MUST && !validates(at) &&
            !notes(at)) /* the stage's closing line has it */
            w = LINE_PLAIN;
        if (w == LINE_SKIP || (w == LINE_PLAIN && (t->brief || left_out-- > 0)) ||
            (w != LINE_PLAIN && musts++ >= MOST_LINES))
            continue;
        t->warned += w == LINE_WARNING;
        snprintf(told, sizeof told, "  %.500s", at);
        say(user, told);
    }
    free(text);
}

void lf_talk_done(const lf_stage_view *s, const char *head,
                  void (*say)(void *user, const char *text), void *user)
{
    lf_closing c;
    lf_texts words = {.n = 0};
    char line[1400];
    if (lf_closing_of(&c, s, NULL) == 0 && c.given && lf_closing_words(&words, &c, NULL) < 0)
        words = (lf_texts){.n = 0}; /* no memory: the end is said without numbers */
    snprintf(line, sizeof line, "%s%s%s", head, words.n > 0 && words.v[0][0] != '\0' ? ": " : "",
             words.n > 0 ? words.v[0] : "");
    say(user, line);
    for (size_t i = 1; i < words.n; i++) {
        snprintf(line, sizeof line, "    %.1000s", words.v[i]);
        say(user, line);
    }
    lf_texts_fini(&words);
    lf_closing_fini(&c);
}
