/* SPDX-License-Identifier: Apache-2.0
 *
 * What came out of a stage: numbers from metrics and manifests, and their words.
 */
#include "config.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "flow/run/closing.h"
#include "tests/tap/tap.h"

/* A stage with one start below a directory of its own, which holds what the case writes there. */
struct made {
    char dir[PATH_MAX];
    lf_doc_stage plan;
    lf_start start;
    lf_stage_view view;
    lf_closing c;
    lf_texts words;
};

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 64];
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (lf_io_write_file(path, text, strlen(text), 0640, &err) < 0)
        tap_bail("%s", err.text);
}

static void record(const char *dir, const char *text)
{
    char path[PATH_MAX + 16];
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof path, "%s/metrics", dir);
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    if (!w || lf_frame_append(w, text, strlen(text), &err) < 0)
        tap_bail("%s", err.text);
    lf_frame_writer_close(w, &err);
}

static void begin(struct made *m, char *name, char *kind)
{
    lf_err err = LF_ERR_INIT;
    *m = (struct made){.plan = {.name = name, .kind = kind, .spec_id = (char[]){"s"}}};
    snprintf(m->dir, sizeof m->dir, "%s/%s", tap_tmpdir(), name);
    if (lf_io_mkdirs(m->dir, 0750, &err) < 0)
        tap_bail("%s", err.text);
    m->start = (lf_start){.attempt = 1, .epoch = 1, .dir = m->dir};
    m->view = (lf_stage_view){.plan = &m->plan,
                              .state = LF_STATE_DONE,
                              .incs = &m->start,
                              .n_incs = 1,
                              .result = &m->start,
                              .result_dir = m->dir};
}

/* outputs: of done.json. */
static void finish(struct made *m, const char *outputs)
{
    char done[4096];
    lf_err err = LF_ERR_INIT;
    snprintf(done, sizeof done, "{\"lf_done\":1,\"outputs\":{%s}}", outputs);
    write_text(m->dir, "done.json", done);
    if (lf_done_load(&m->start.done, m->dir, &err) < 0)
        tap_bail("%s", err.text);
    m->view.result_done = m->start.done;
    if (lf_closing_of(&m->c, &m->view, &err) < 0 ||
        (m->c.given && lf_closing_words(&m->words, &m->c, &err) < 0))
        tap_bail("%s", err.text);
}

static void end(struct made *m)
{
    lf_texts_fini(&m->words);
    lf_closing_fini(&m->c);
    lf_done_free(m->start.done);
}

static const char *line(const struct made *m, size_t i)
{
    return i < m->words.n ? m->words.v[i] : "no such line";
}

static void test_training(void)
{
    struct made m;
    begin(&m, (char[]){"train"}, (char[]){"pretrain"});
    record(m.dir, "{\"step\":1,\"loss\":9,\"tokens_per_s\":1000,\"step_s\":3}");
    record(m.dir, "{\"step\":2,\"loss\":5,\"valid_loss\":4.5,\"tokens_per_s\":3000,\"step_s\":1}");
    record(m.dir, "{\"step\":3,\"loss\":4,\"valid_loss\":4.75,\"tokens_per_s\":1500,\"step_s\":4}");
    finish(&m, "\"checkpoint\":{\"kind\":\"checkpoint\",\"path\":\"out/c\","
               "\"meta\":{\"tensors\":[1,2]}}");
    const double w = 0.98;
    tap_ok(fabs(m.c.loss.v - (9 * w * w + 5 * w + 4) / (w * w + w + 1)) < 1e-12,
           "the loss is the mean of the last steps, as the log's");
    tap_str(line(&m, 0), "loss 9 -> 5.966, validation 4.75 (best 4.5 at step 2), 1.5k tokens/s",
            "training in words");
    tap_ok(!m.c.tensors.given, "tensors are counted of conversions only");
    end(&m);
}

static void test_dataset(void)
{
    struct made m;
    begin(&m, (char[]){"tok"}, (char[]){"tokenize"});
    finish(&m, "\"shards\":{\"kind\":\"shards\",\"path\":\"out/s\",\"meta\":{\"splits\":{"
               "\"train\":{\"docs\":1100,\"tokens\":90000,\"bytes_per_token\":3.777},"
               "\"valid\":{\"docs\":100,\"tokens\":10000,\"bytes_per_token\":9}}}}");
    tap_str(line(&m, 0), "1.2k documents, 100.0k tokens, 3.78 bytes a token", "a dataset in words");
    end(&m);
}

static void test_features(void)
{
    struct made m;
    begin(&m, (char[]){"eyes"}, (char[]){"features"});
    finish(&m, "\"features\":{\"kind\":\"features\",\"path\":\"out/f\",\"meta\":{\"uses\":1234,"
               "\"width\":32}}");
    tap_str(line(&m, 0), "1.2k pictures", "features in words");
    end(&m);
}

static void test_scores(void)
{
    struct made m;
    begin(&m, (char[]){"eval"}, (char[]){"eval"});
    finish(&m, "\"results\":{\"kind\":\"results\",\"path\":\"out/r\",\"meta\":{\"results\":{"
               "\"valid\":{\"alias\":\"valid\",\"tokens\":12,\"token_loss,none\":5.81,"
               "\"token_loss_stderr,none\":0.027},"
               "\"arc\":{\"acc,none\":0.25,\"acc,strict\":0.5}}}}");
    tap_i64((int64_t)m.c.scores.n, 3, "counts and standard errors are no scores");
    tap_str(line(&m, 0), "", "there are rows only");
    tap_str(line(&m, 1), "valid  token_loss          5.81 +- 0.027", "a value and its error");
    tap_str(line(&m, 2), "arc    acc                 0.25", "a value without one");
    tap_str(line(&m, 3), "arc    acc (strict)         0.5", "another filter");
    end(&m);
}

static void test_texts(void)
{
    struct made m;
    char *prompts[] = {(char[]){"You may"}, (char[]){"Then\ncome"}};
    lf_list option = {.name = (char[]){"prompt"}, .values = {.v = prompts, .n = 2, .given = true}};
    begin(&m, (char[]){"gen"}, (char[]){"generate"});
    m.plan.options = (lf_lists){.v = &option, .n = 1, .given = true};
    lf_io_mkdirs(m.dir, 0750, NULL);
    char sub[PATH_MAX + 8];
    snprintf(sub, sizeof sub, "%s/t", m.dir);
    lf_io_mkdirs(sub, 0750, NULL);
    write_text(
        sub, "out.jsonl",
        "{\"id\":\"prompt-1\",\"sample\":0,\"text\":\" go \\u001b[31m on\\nand on\"}\n"
        "{\"id\":\"prompt-2\",\"text\":\"a b c d e f g h i j k l m n o p q r s t u v w x y z "
        "a b c d e f g h i j k l m n o p q r s t u v w x y z 1\\n2\\n3\"}\n"
        "{\"id\":\"x\",\"text\":\"third\"}\n");
    finish(&m,
           "\"text\":{\"kind\":\"text\",\"path\":\"t\",\"meta\":{\"results\":3,\"refused\":1}}");
    tap_str(line(&m, 0), "3 texts, 1 of them could not be made", "how many");
    tap_str(line(&m, 1), "[You may]", "the first by its prompt");
    tap_str(line(&m, 2), "   go \033[31m on", "its bytes, for the printer to make visible");
    tap_str(line(&m, 4), "[Then ...]", "a prompt stays one line");
    tap_str(line(&m, 5),
            "  a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l",
            "a long line breaks at a blank");
    tap_str(line(&m, 7), "  2 ...", "after three lines there is more");
    tap_i64((int64_t)m.words.n, 8, "and the third text is not shown");
    end(&m);
}

static void test_conversion(void)
{
    struct made m;
    char *none[] = {(char[]){"none"}}, *file[] = {(char[]){"x.json"}};
    lf_list option = {.name = (char[]){"verify"}, .values = {.v = none, .n = 1, .given = true}};
    static const char out[] = "\"checkpoint\":{\"kind\":\"checkpoint\",\"path\":\"out/c\","
                              "\"meta\":{\"tensors\":{\"a\":\"1\",\"b\":\"2\"}}}";
    begin(&m, (char[]){"in"}, (char[]){"convert"});
    m.plan.options = (lf_lists){.v = &option, .n = 1, .given = true};
    finish(&m, out);
    tap_str(line(&m, 0), "2 tensors, not verified (verify = none)", "nobody has compared it");
    end(&m);
    begin(&m, (char[]){"in2"}, (char[]){"convert"});
    option.values.v = file;
    m.plan.options = (lf_lists){.v = &option, .n = 1, .given = true};
    finish(&m, out);
    tap_str(line(&m, 0), "2 tensors, verified", "it was compared");
    end(&m);
}

/* A record of a stage has the number of tensors, whatever its manifest says of each. */
static void test_tensors(void)
{
    static const char *const metas[] = {"{\"tensors\":{\"a\":\"1\",\"b\":\"2\"},\"step\":3}",
                                        "{\"tensors\":[{\"name\":\"a\"},{}],\"step\":3}",
                                        "{\"tensors\":2,\"step\":3}"};
    for (size_t i = 0; i < sizeof metas / sizeof metas[0]; i++) {
        struct lf_output o = {.kind = "checkpoint"};
        lf_closing c = {.given = false};
        tap_i64(lf_output_take_meta(&o, json_loads(metas[i], 0, NULL), NULL), 0, "a meta is taken");
        char *kept = json_dumps(o.meta, JSON_COMPACT | JSON_SORT_KEYS);
        tap_str(kept, "{\"step\":3,\"tensors\":2}", "the list becomes a number, the rest stays");
        lf_closing_add_output(&c, &o, NULL);
        tap_i64(c.tensors.v, 2, "which is told");
        free(kept);
        json_decref(o.meta);
        lf_closing_fini(&c);
    }
}

static void test_nothing(void)
{
    struct made m;
    begin(&m, (char[]){"none"}, (char[]){"work"});
    record(m.dir, "{\"step\":0,\"score\":0.5}");
    finish(&m, "\"x\":{\"kind\":\"else\",\"path\":\"out/x\",\"meta\":{}}");
    tap_ok(!m.c.given, "a stage that says none of this has no closing");
    end(&m);
}

int main(void)
{
    TAP(3, test_training());
    TAP(1, test_dataset());
    TAP(1, test_features());
    TAP(5, test_scores());
    TAP(7, test_texts());
    TAP(2, test_conversion());
    TAP(9, test_tensors());
    TAP(1, test_nothing());
    return tap_done();
}
