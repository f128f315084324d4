/* SPDX-License-Identifier: Apache-2.0
 *
 * The series of a stage over several starts: what earlier ones wrote behind the step at which a
 * later one begins is not in it, however late the later one writes its first record.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "flow/run/samples.h"
#include "flow/run/series.h"
#include "tests/tap/tap.h"

static char dirs[3][PATH_MAX];
static struct lf_handed handed[3];
static struct lf_claim claims[3];
static lf_start incs[3];
static lf_doc_stage plan = {.spec_id = (char[]){"s"}};
static lf_stage_view stage;

static void record(int start, const char *text)
{
    char path[PATH_MAX + 16];
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof path, "%s/metrics", dirs[start - 1]);
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    if (!w || lf_frame_append(w, text, strlen(text), &err) < 0)
        tap_bail("%s", err.text);
    lf_frame_writer_close(w, &err);
}

/* Steps with a loss; those of multiples of five have a validation, too. */
static void steps(int start, int from, int to)
{
    for (int s = from; s <= to; s++) {
        char text[100];
        snprintf(text, sizeof text, "{\"step\":%d,\"t\":%d,\"loss\":1.5%s}", s, 100 * start + s,
                 s % 5 == 0 ? ",\"valid_loss\":2.5" : "");
        record(start, text);
    }
}

/* Starts 1 to n; each has been handed something over unless it is `anew`. */
static void starts(const char *name, size_t n, size_t anew)
{
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < n; i++) {
        snprintf(dirs[i], sizeof dirs[i], "%s/%s/1.%zu", tap_tmpdir(), name, i + 1);
        lf_io_mkdirs(dirs[i], 0755, &err);
        handed[i] = (struct lf_handed){.rel = "checkpoints/step-00000010", .taken = i + 1 != anew};
        claims[i] = (struct lf_claim){.from = &handed[i], .n_from = 1};
        incs[i] =
            (lf_start){.attempt = 1, .epoch = (int)i + 1, .dir = dirs[i], .claim = &claims[i]};
    }
    stage = (lf_stage_view){.plan = &plan, .dir = dirs[0], .incs = incs, .n_incs = n};
}

/* Steps of a key: the first, the last, how many. */
static void check(const char *key, int first, int last, size_t n, const char *what)
{
    lf_err err = LF_ERR_INIT;
    lf_points p = {0};
    lf_metric_rows records;
    if (lf_metrics_records(&records, &stage, &err) < 0 ||
        lf_metrics_points(&p, &records, key, &err) < 0)
        tap_bail("%s", err.text);
    tap_i64((int64_t)p.n, (int64_t)n, what);
    tap_ok(n == 0 || ((int)p.x[0] == first && (int)p.x[p.n - 1] == last), "from %d to %d", first,
           last);
    for (size_t i = 1; i < p.n; i++)
        if (p.x[i] <= p.x[i - 1])
            tap_ok(false, "step %g follows %g", p.x[i], p.x[i - 1]);
    lf_points_fini(&p);
    lf_metric_rows_fini(&records);
}

static void sample(int start, const char *text)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/samples.jsonl", dirs[start - 1]);
    FILE *f = fopen(path, "a");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        tap_bail("%s", path);
}

/* "STEP:ID" of each sample that counts. */
static void check_samples(const char *want, const char *what)
{
    lf_err err = LF_ERR_INIT;
    char is[200] = "";
    size_t n = 0;
    lf_text_lines rows;
    if (lf_samples_records(&rows, &stage, &err) < 0)
        tap_bail("%s", err.text);
    for (size_t i = 0; i < rows.n; i++)
        n += (size_t)snprintf(is + n, sizeof is - n, "%d:%s ", (int)rows.v[i].step.v, rows.v[i].id);
    tap_str(is, want, what);
    lf_text_lines_fini(&rows);
}

static void test_samples(void)
{
    starts("samples", 2, 1);
    check_samples("", "a stage that samples nothing");
    sample(1, "{\"step\":5,\"id\":\"a\",\"prompt\":\"p\",\"text\":\"t\",\"token_ids\":[1,2]}\n"
              "{\"step\":5,\"id\":\"b\",\"text\":\"\",\"score\":-0.5}\n{\"step\":10,\"id\":\"a\","
              "\"text\":\"\"}\nno JSON\n"
              "{\"step\":15,\"id\":\"a\",\"text\":\"\"}\n{\"step\":20,\"id");
    check_samples("5:a 5:b 10:a 15:a ", "whole lines count, what is no sample does not");
    sample(2, "{\"step\":10,\"resumed\":true}\n");
    check_samples("5:a 5:b 10:a ", "a start that resumed at 10 has said nothing yet");
    sample(2, "{\"step\":15,\"id\":\"c\",\"text\":\"\"}\n");
    check_samples("5:a 5:b 10:a 15:c ", "what it says stands behind that step");
    lf_err err = LF_ERR_INIT;
    lf_text_lines rows;
    lf_samples_records(&rows, &stage, &err);
    tap_str(rows.v[0].text, "t", "its text");
    tap_i64((int64_t)lf_text_line_tokens(&rows.v[0]), 2, "of two tokens");
    tap_ok(rows.v[1].score.given && rows.v[1].score.v < 0 && !rows.v[0].score.given, "a score");
    lf_text_lines_fini(&rows);
    starts("samples", 2, 2);
    check_samples("15:c ", "a start that was handed nothing over begins anew");
}

int main(void)
{
    TAP(8, test_samples());
    starts("said", 2, 1);
    steps(1, 1, 20);
    record(2, "{\"step\":10,\"resumed\":true}");
    check("loss", 1, 10, 10, "a start that resumed at 10 and made no step yet");
    check("valid_loss", 5, 10, 2, "the validations of 15 and 20 are gone");
    steps(2, 11, 12);
    check("loss", 1, 12, 12, "and made two");
    check("valid_loss", 5, 10, 2, "nobody has validated since");
    steps(1, 21, 25);
    check("loss", 1, 12, 12, "what the first start goes on to write does not count");

    starts("sparse", 2, 1);
    steps(1, 1, 20);
    record(2, "{\"step\":10,\"resumed\":true}");
    record(2, "{\"step\":20,\"loss\":1.5}");
    check("loss", 1, 20, 11, "one that writes fewer records: none between 10 and 20");

    starts("measured", 2, 1);
    steps(1, 1, 20);
    record(2, "{\"step\":20,\"resumed\":true}");
    record(2, "{\"step\":20,\"sample_tokens\":12}");
    check("loss", 1, 20, 20, "a step that is only measured again keeps what training it gave");
    check("sample_tokens", 20, 20, 1, "and has what was measured");

    starts("silent", 3, 1);
    steps(1, 1, 20);
    steps(2, 11, 18);
    check("loss", 1, 18, 18,
          "a start that does not say where it begins, begins before its first record");
    steps(3, 6, 6);
    check("loss", 1, 6, 6, "and so for two starts before");

    starts("anew", 2, 2);
    steps(1, 1, 20);
    check("loss", 0, 0, 0, "a start that was handed nothing over begins anew");
    steps(2, 1, 3);
    check("loss", 1, 3, 3, "with its own steps");

    char path[PATH_MAX + 16];
    starts("first", 1, 1);
    snprintf(path, sizeof path, "%s/metrics", dirs[0]);
    record(1, "{\"step\":10,\"resumed\":true}");
    lf_metric_row first;
    tap_ok(!lf_metrics_first(&first, path), "where a start resumed is not its first record");
    steps(1, 11, 12);
    lf_metrics_first(&first, path);
    tap_i64((int64_t)first.step.v, 11, "its first step is");
    lf_metric_row_fini(&first);
    return tap_done();
}
