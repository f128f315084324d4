/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes of JSON lines: each is recognised and read; columns and roles are renamed; what is
 * ambiguous, unmapped or of a wrong type is one error that names line and column.
 */
#include "engine/text/chat/shape.h"

#include <stdio.h>
#include <string.h>

#include "tests/tap/tap.h"

static lf_shape_opts opts;

/* The row as one line: shape|prompt|completion|rejected, a turn as role:text. */
static void piece_text(char *b, size_t cap, const lf_piece *p)
{
    size_t n = strlen(b);
    snprintf(b + n, cap - n, "|%s", p->text ? p->text : "");
    for (size_t i = 0; i < p->n_turns; i++) {
        n = strlen(b);
        snprintf(b + n, cap - n, "%s%s:%s", i ? " " : "", lf_role_name(p->turns[i].role),
                 p->turns[i].text ? p->turns[i].text : "<>");
    }
}

static void good(const char *line, const char *want)
{
    char b[3000];
    lf_row r = {0};
    lf_err err = LF_ERR_INIT;
    uint64_t replaced = 0;
    int rc = lf_shape_row(&r, &opts, line, strlen(line), "f:3", &replaced, &err);
    snprintf(b, sizeof b, "%s", rc ? err.text : lf_shape_name(r.shape));
    if (!rc) {
        piece_text(b, sizeof b, &r.prompt);
        piece_text(b, sizeof b, &r.completion);
        piece_text(b, sizeof b, &r.rejected);
    }
    tap_str(b, want, line);
    lf_row_fini(&r);
}

static void bad(const char *line, const char *says)
{
    lf_row r = {0};
    lf_err err = LF_ERR_INIT;
    uint64_t replaced = 0;
    int rc = lf_shape_row(&r, &opts, line, strlen(line), "f:3", &replaced, &err);
    bool placed = rc == 0 || strncmp(err.text, "f:3: ", 5) == 0;
    tap_rc(rc, LF_EFORMAT, &err, says, line);
    tap_ok(placed, "and its place");
    lf_row_fini(&r);
}

static void test_good(void)
{
    good("{\"text\":\"a\"}", "text|a||");
    good("{\"prompt\":\"p\",\"completion\":\"c\"}", "prompt_completion|p|c|");
    good("{\"prompt\":[{\"role\":\"user\",\"content\":\"p\"}],\"completion\":[{\"role\":"
         "\"assistant\",\"content\":"
         "\"c\"}]}",
         "prompt_completion|user:p|assistant:c|");
    good("{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
         "\"u\"},{\"role\":"
         "\"assistant\",\"content\":\"a\"}]}",
         "messages|system:s user:u assistant:a||");
    good("{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}],\"tools\":\"["
         "]\"}",
         "messages|assistant:<>||");
    good("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}",
         "messages|user:<>||");
    good("{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"function_call\","
         "\"value\":\"f\"},{"
         "\"from\":"
         "\"observation\",\"value\":\"o\"},{\"from\":\"gpt\",\"value\":\"a\"}],\"system\":\"s\"}",
         "sharegpt|system:s user:q function_call:f tool:o assistant:a||");
    good("{\"instruction\":\"i\",\"input\":\"x\",\"output\":\"o\"}",
         "alpaca|user:i\nx|assistant:o|");
    good("{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\"}", "alpaca|user:i|assistant:o|");
    good("{\"instruction\":\"i\",\"output\":\"o\",\"system\":\"s\",\"history\":[[\"a\",\"b\"],["
         "\"c\",\"d\"]]}",
         "alpaca|system:s user:a assistant:b user:c assistant:d user:i|assistant:o|");
    good("{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":\"r\",\"margin\":0.5}",
         "preference|p|c|r");
    good("{\"chosen\":\"c\",\"rejected\":\"r\"}", "preference||c|r");
    good("{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"}],\"chosen\":{\"from\":\"gpt\","
         "\"value\":\"c\"},"
         "\"rejected\":{\"from\":\"gpt\",\"value\":\"r\"}}",
         "preference|user:q|assistant:c|assistant:r");
    good("{\"context\":\"p\",\"completions\":[{\"rank\":1,\"completion\":\"worse\"},{\"rank\":0,"
         "\"completion\":"
         "\"better\"}]}",
         "preference|p|better|worse");
    good("{\"prompt\":\"p\",\"completion\":\"c\",\"label\":true}", "unpaired|p|c|");
    good("{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"kto_tag\":false}",
         "unpaired||user:u|");
    good("{\"instruction\":\"i\",\"output\":\"o\",\"kto_tag\":true}",
         "unpaired|user:i|assistant:o|");
    good("{\"prompt\":\"p\"}", "prompt|p||");
    good("{\"input_ids\":[1,2]}", "tokens|||");
}

static void test_tokens(void)
{
    const char *line =
        "{\"input_ids\":[5,6,7,0],\"labels\":[-100,6,7,-100],\"attention_mask\":[1,1,1,0]}";
    lf_row r = {0};
    lf_err err = LF_ERR_INIT;
    uint64_t replaced = 0;
    tap_rc(lf_shape_row(&r, &opts, line, strlen(line), "f:1", &replaced, &err), 0, &err, NULL,
           "tokens");
    tap_ok(r.n_ids == 3 && r.ids[2] == 7 && r.mask[0] == 0 && r.mask[1] == 1 && r.mask[2] == 1,
           "ids and mask, without the padding");
    lf_row_fini(&r);
    bad("{\"input_ids\":[5,6],\"labels\":[5]}", "has 1 numbers");
    bad("{\"input_ids\":[5,6],\"labels\":[5,7]}", "labels[1] = 7");
    bad("{\"input_ids\":[5,-1]}", "input_ids[1] = -1");
    bad("{\"input_ids\":[5,2147483648]}", "no token id");
    bad("{\"input_ids\":[5,1.5]}", "list of whole numbers");
    bad("{\"input_ids\":\"5\"}", "list of numbers");
}

static void test_bad(void)
{
    bad("{\"text\":\"a\",\"messages\":[]}", "text or messages; set shape");
    bad("{\"text\":\"a\",\"prompt\":\"b\"}", "text or prompt");
    bad("{\"instruction\":\"i\",\"output\":\"o\",\"prompt\":\"p\"}", "set shape");
    bad("{\"text\":\"a\",\"id\":4}", "column \"id\" means nothing in a row of shape text");
    bad("{\"prompt\":\"a\",\"completon\":\"b\"}", "column \"completon\" means nothing");
    bad("{\"body\":\"a\",\"title\":\"b\"}", "body, title");
    bad("{}", "no shape");
    bad("[1]", "no JSON object");
    bad("{\"text\":", "not a JSON object");
    bad("{\"text\":\"a\",\"text\":\"b\"}", "not a JSON object");
    bad("{\"text\":1}", "\"text\" is not a text");
    bad("{\"text\":null}", "\"text\" is not a text");
    bad("{\"messages\":[]}", "not a list of turns");
    bad("{\"messages\":[{\"content\":\"u\"}]}", "has no role");
    bad("{\"messages\":[{\"role\":\"user\"}]}", "has no content");
    bad("{\"messages\":[{\"role\":\"bot\",\"content\":\"u\"}]}", "speaker \"bot\" is not known");
    bad("{\"messages\":[7]}", "has no role");
    bad("{\"conversations\":[{\"from\":\"gpt\",\"value\":\"x\"}],\"system\":3}",
        "\"system\" is not a text");
    bad("{\"instruction\":\"i\",\"output\":3}", "\"output\" is not a text");
    bad("{\"instruction\":\"i\",\"output\":\"o\",\"history\":[[\"a\"]]}", "pairs");
    bad("{\"chosen\":3,\"rejected\":\"r\"}", "\"chosen\" is not");
    bad("{\"chosen\":\"a\",\"rejected\":\"r\",\"margin\":\"1\"}", "\"margin\" is not a number");
    bad("{\"context\":\"p\",\"completions\":[{\"rank\":1,\"completion\":\"a\"}]}", "two answers");
    bad("{\"context\":\"p\",\"completions\":[{\"rank\":1,\"completion\":\"a\"},{\"rank\":1,"
        "\"completion\":\"b\"}]}",
        "rank 1");
    bad("{\"prompt\":\"p\",\"completion\":\"c\",\"label\":1}", "true or false");
    bad("{\"prompt\":3}", "\"prompt\" is not");
}

#define TURN(role, more) "{\"messages\":[{\"role\":\"" role "\",\"content\":\"x\"," more "}]}"

static bool reads_eot(const void *arg, const char *member)
{
    return strcmp(member, arg) == 0;
}

/* What else a turn has: known, read by the template, or a mistake. */
static void test_members(void)
{
    static const char *const fine[] = {"\"name\":\"n\"",
                                       "\"reasoning_content\":\"r\"",
                                       "\"thinking\":\"t\"",
                                       "\"tool_call_id\":\"1\"",
                                       "\"refusal\":null",
                                       "\"weight\":0",
                                       "\"loss\":false,\"train\":false"};
    char line[300];
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        snprintf(line, sizeof line, TURN("assistant", "%s"), fine[i]);
        good(line, "messages|assistant:x||");
    }
    bad(TURN("assistant", "\"trian\":false"),
        "member \"trian\" of a turn in \"messages\" means nothing");
    bad(TURN("assistant", "\"trian\":false"), "did you mean train");
    bad(TURN("assistant", "\"eot\":1"), "member \"eot\"");
    bad(TURN("assistant", "\"from\":\"gpt\""), "member \"from\"");
    bad("{\"conversations\":[{\"from\":\"gpt\",\"value\":\"x\",\"wieght\":0}]}",
        "member \"wieght\"");
    bad("{\"chosen\":{\"role\":\"user\",\"content\":\"x\",\"id\":1},\"rejected\":\"r\"}",
        "member \"id\"");
    bad("{\"context\":\"p\",\"completions\":[{\"rank\":1,\"completion\":\"a\",\"id\":1},{\"rank\":"
        "2,\"completion\":"
        "\"b\"}]}",
        "member \"id\"");
    bad(TURN("assistant", "\"weight\":0.5"),
        "\"weight\" of a turn in \"messages\" is neither 0 nor 1");
    bad(TURN("assistant", "\"loss\":\"no\""), "\"loss\" of a turn in \"messages\" is neither");
    bad(TURN("assistant", "\"train\":true,\"weight\":0"), "\"train\" and \"weight\"");
    bad(TURN("user", "\"weight\":1"), "a turn of user in \"messages\" cannot be trained");
    good(TURN("user", "\"weight\":0"), "messages|user:x||");
    opts = (lf_shape_opts){.reads = reads_eot, .reads_arg = "eot"};
    good(TURN("assistant", "\"eot\":1"), "messages|assistant:x||");
    opts = (lf_shape_opts){.ignore_unmapped = true};
    good(TURN("assistant", "\"trian\":false"), "messages|assistant:x||");
    opts = (lf_shape_opts){0};
}

static void test_options(void)
{
    static const char *const cols[] = {"prompt=question", "completion=answer", "role=who",
                                       "content=says"};
    static const char *const roles[] = {"bot=assistant", "user=tool"};
    static const char *const odd[] = {"prompt"}, *const unknown[] = {"promt=x"},
                             *const twice[] = {"text=a", "text=b"};
    static const char *const bad_role[] = {"bot=robot"};
    lf_err err = LF_ERR_INIT;
    opts = (lf_shape_opts){.columns = cols, .n_columns = 4, .roles = roles, .n_roles = 2};
    tap_rc(lf_shape_check(&opts, &err), 0, &err, NULL, "columns and roles");
    good("{\"question\":\"p\",\"answer\":\"c\"}", "prompt_completion|p|c|");
    good("{\"messages\":[{\"who\":\"bot\",\"says\":\"b\"},{\"who\":\"user\",\"says\":\"t\"}]}",
         "messages|assistant:b tool:t||");
    bad("{\"prompt\":\"p\",\"answer\":\"c\"}", "no shape");
    opts = (lf_shape_opts){.columns = odd, .n_columns = 1};
    tap_rc(lf_shape_check(&opts, &err), LF_EINVAL, &err, "NAME=NAME", "a column without =");
    opts.columns = unknown;
    tap_rc(lf_shape_check(&opts, &err), LF_EINVAL, &err, "did you mean prompt",
           "an unknown column");
    opts = (lf_shape_opts){.columns = twice, .n_columns = 2};
    tap_rc(lf_shape_check(&opts, &err), LF_EINVAL, &err, "text is given twice", "a column twice");
    opts = (lf_shape_opts){.roles = bad_role, .n_roles = 1};
    tap_rc(lf_shape_check(&opts, &err), LF_EINVAL, &err, "robot is not known", "an unknown role");
    opts = (lf_shape_opts){.ignore_unmapped = true};
    good("{\"text\":\"a\",\"id\":4}", "text|a||");
    opts = (lf_shape_opts){.shape = LF_SHAPE_PROMPT};
    good("{\"prompt\":\"p\",\"answer\":42}", "prompt|p||");
    opts = (lf_shape_opts){.shape = LF_SHAPE_MESSAGES};
    bad("{\"text\":\"a\"}", "not those of shape = messages");
    opts = (lf_shape_opts){.shape = LF_SHAPE_TEXT, .ignore_unmapped = true};
    good("{\"text\":\"a\",\"messages\":[]}", "text|a||");
    opts = (lf_shape_opts){.strict = true};
    bad("{\"text\":\"\xff\"}", "UTF-8");
    opts = (lf_shape_opts){0};
    good("{\"text\":\"\xff\"}", "text|\xEF\xBF\xBD||");
}

int main(void)
{
    TAP(19, test_good());
    TAP(14, test_tokens());
    TAP(52, test_bad());
    TAP(32, test_members());
    TAP(17, test_options());
    return tap_done();
}
