/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of GLUE (engine/text/corpus/glue.h): rows of each task, files with and without names and
 * labels, what is refused; and through the corpus, whose places in files are those of lines.
 */
#include "engine/text/corpus/glue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/text/corpus/rowfile.h"
#include "tests/tap/tap.h"

/* The last row that lines, divided by newlines, give; "" when none does. Owned. */
static char *last_row(const char *task, const char *lines, lf_err *err)
{
    lf_glue g;
    lf_buf row;
    int got = lf_glue_set(&g, task, NULL, err);
    bool any = false;
    lf_buf_init(&row);
    for (uint64_t n = 1; got >= 0 && *lines; n++) {
        const size_t len = strcspn(lines, "\n");
        got = lf_glue_row(&g, lines, len, n, &row, err);
        any = any || got == 1;
        lines += len + (lines[len] == '\n');
    }
    char *text = strdup(got < 0 ? "error" : any ? row.data : "");
    if (!text)
        tap_bail("no memory");
    lf_buf_fini(&row);
    return text;
}

static void test_tasks(void)
{
    static const struct {
        const char *task, *lines, *row;
    } all[] = {
        {"cola", "gj04\t0\t*\tThey drank the pub.",
         "{\"prompt\":\"They drank the pub.\",\"label\":0}"},
        {"cola", "index\tsentence\n0\tBill whistled.", "{\"prompt\":\"Bill whistled.\"}"},
        {"sst2", "sentence\tlabel\nit 's \"charming\" \t1",
         "{\"prompt\":\"it 's \\\"charming\\\" \",\"label\":1}"},
        {"mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said so .\tSo he said .",
         "{\"prompt\":\"He said so .[SEP]So he said .\",\"label\":1}"},
        {"qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tHow?\tWhy?\t0",
         "{\"prompt\":\"How?[SEP]Why?\",\"label\":0}"},
        {"stsb", "index\tsentence1\tsentence2\tscore\n0\tA man.\tA boy.\t3.250",
         "{\"prompt\":\"A man.[SEP]A boy.\",\"label\":3.25}"},
        {"mnli", "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tA\tB\tneutral\tcontradiction",
         "{\"prompt\":\"A[SEP]B\",\"label\":2}"},
        {"qnli", "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment",
         "{\"prompt\":\"Who?[SEP]He.\",\"label\":0}"},
        {"rte", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tnot_entailment",
         "{\"prompt\":\"A[SEP]B\",\"label\":1}"},
        {"wnli", "index\tsentence1\tsentence2\tlabel\n", ""}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lf_err err = LF_ERR_INIT;
        char *row = last_row(all[i].task, all[i].lines, &err);
        tap_str(row, all[i].row, all[i].task);
        free(row);
    }
}

static void test_refused(void)
{
    static const struct {
        const char *task, *lines, *says;
    } bad[] = {
        {"sst", "sentence\tlabel\n", "glue = sst is none of its tasks: cola, sst2, mrpc"},
        {"sst2", "text\tlabel\na\t1\n", "names no column sentence, which files of glue = sst2"},
        {"rte", "sentence1\tlabel\nA\tentailment\n", "names no column sentence2"},
        {"sst2", "sentence\tlabel\na\t1\tb\n", "it has 3 columns, and the first line"},
        {"sst2", "sentence\tlabel\na\t2\n", "label = '2' is no label of glue = sst2"},
        {"sst2", "sentence\tlabel\na\t\n", "label = '' is no label"},
        {"mnli", "sentence1\tsentence2\tgold_label\nA\tB\t-\n", "gold_label = '-' is no label"},
        {"stsb", "sentence1\tsentence2\tscore\nA\tB\t3.x\n", "score = '3.x' is no label"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lf_err err = LF_ERR_INIT;
        char *row = last_row(bad[i].task, bad[i].lines, &err);
        tap_ok(strcmp(row, "error") == 0 && strstr(err.text, bad[i].says), "refused: %s", err.text);
        free(row);
    }
    lf_glue g;
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_glue_set(&g, NULL, "|", &err), LF_EINVAL, &err, "glue_between belongs to glue",
           "what is between texts of no task is refused");
    lf_buf row;
    lf_buf_init(&row);
    lf_err_clear(&err);
    if (lf_glue_set(&g, "sst2", NULL, &err) ||
        lf_glue_row(&g, "sentence\tlabel", 14, 1, &row, &err))
        tap_bail("%s", err.text);
    tap_rc(lf_glue_row(&g, "a\t1\0x", 5, 2, &row, &err), LF_EFORMAT, &err, "is no label",
           "a label that a zero byte cuts short is none");
    lf_buf_fini(&row);
}

static void test_file(void)
{
    static const char text[] =
        "\xEF\xBB\xBFsentence\tlabel\r\ngood\t1\r\n\r\nbad\t0\r\nworse\tx\r\n";
    char path[4000];
    lf_err err = LF_ERR_INIT;
    lf_glue g;
    lf_rowfile f = {0};
    snprintf(path, sizeof path, "%s/dev.tsv", tap_tmpdir());
    if (lf_io_write_file(path, text, sizeof text - 1, 0600, &err) ||
        lf_glue_set(&g, "sst2", NULL, &err) || lf_rowfile_open_glue(&f, path, &g, &err))
        tap_bail("%s", err.text);
    tap_ok(lf_rowfile_next(&f, &err) == 1 && f.record.line == 2 && f.record.in_source == 0,
           "the first row is the second line");
    json_t *row = NULL;
    tap_ok(lf_rowfile_next(&f, &err) == 1 && f.record.line == 4 &&
               lf_rowfile_object(&f, &row, 0, &err) == 0 &&
               strcmp(json_string_value(json_object_get(row, "prompt")), "bad") == 0,
           "line ends of any kind, blank lines and a mark at the beginning are none of it");
    json_decref(row);
    tap_ok(lf_rowfile_next(&f, &err) == 1 && lf_rowfile_object(&f, &row, 0, &err) == LF_EFORMAT &&
               strstr(err.text, "dev.tsv:5: label = 'x'") && lf_rowfile_next(&f, &err) == 0,
           "what is wrong is told with its place, and is the row's fault: %s", err.text);
    lf_rowfile_close(&f);
}

int main(void)
{
    TAP(10, test_tasks());
    TAP(10, test_refused());
    TAP(3, test_file());
    return tap_done();
}
