/* SPDX-License-Identifier: Apache-2.0
 *
 * cut.h: against all cuts of small random models, known cuts, and cuts by hand.
 */
#include <string.h>

#include "engine/pipe/cut.h"
#include "tests/tap/tap.h"
#include "tests/unit/pipe_util.h"

enum { MOST = 9, STAGES = 6 };

struct best {
    int64_t largest, squares;
    int layers[STAGES];
    bool any;
};

static void consider(struct best *b, const struct lf_pipe_layers *of, const int *n, int stages)
{
    int64_t largest = 0, squares = 0;
    for (int s = 0, i = 0; s < stages; s++) {
        int64_t cost = (s == 0 ? of->embedding : 0) + (s == stages - 1 ? of->head : 0);
        for (int k = 0; k < n[s]; k++)
            cost += of->cost[i++];
        largest = cost > largest ? cost : largest;
        squares += cost * cost;
    }
    /* Cuts come in lexical order, so that the first of equal ones stays. */
    if (!b->any || largest < b->largest || (largest == b->largest && squares < b->squares)) {
        *b = (struct best){.largest = largest, .squares = squares, .any = true};
        memcpy(b->layers, n, (size_t)stages * sizeof *n);
    }
}

static void all_cuts(struct best *b, const struct lf_pipe_layers *of, int *n, int stage, int stages,
                     int left, bool empty)
{
    if (stage == stages - 1) {
        n[stage] = left;
        if (left > 0 || empty)
            consider(b, of, n, stages);
        return;
    }
    for (n[stage] = !empty; n[stage] <= left; n[stage]++) {
        const int now = n[stage];
        all_cuts(b, of, n, stage + 1, stages, left - now, empty);
        n[stage] = now;
    }
}

static void random_cuts(void)
{
    int largest = 0, same = 0, costs = 0, cases = 0, ends = 0;
    for (int i = 0; i < 1500; i++) {
        int64_t cost[MOST], each[STAGES], got = -1, most = 0;
        int n[STAGES], layers[STAGES];
        const int stages = 1 + pipe_below(STAGES);
        const bool empty = i % 2;
        struct best b = {0};
        struct lf_pipe_layers of = {.cost = cost, .n = pipe_below(MOST + 1)};
        if (!empty && of.n < stages)
            continue;
        /* Few values, so that many cuts are equal; layers of no cost among them. */
        for (int k = 0; k < of.n; k++)
            cost[k] = i % 3 ? pipe_below(4) : 2;
        of.embedding = i % 5 ? pipe_below(4) : 0;
        of.head = i % 7 ? pipe_below(9) : 0;
        all_cuts(&b, &of, n, 0, stages, of.n, empty);
        if (lf_pipe_cut(layers, &got, &of, stages, empty, NULL) < 0)
            tap_bail("no cut");
        lf_pipe_cut_costs(each, &of, layers, stages);
        for (int s = 0; s < stages; s++)
            most = each[s] > most ? each[s] : most;
        largest += got != b.largest;
        costs += most != b.largest;
        same += memcmp(layers, b.layers, (size_t)stages * sizeof *layers) != 0;
        ends += of.embedding > 0 && of.head > 3;
        cases++;
    }
    tap_ok(cases > 1000 && ends > 200, "%d models, %d with both ends", cases, ends);
    tap_i64(largest, 0, "the largest cost is the smallest of all cuts");
    tap_i64(costs, 0, "and that of the cut that is given");
    tap_i64(same, 0, "among equal ones it is the most even, then the first");
}

static const char *cut_of(const struct lf_pipe_layers *of, int stages, bool empty)
{
    static lf_buf text;
    int layers[64];
    lf_err err = LF_ERR_INIT;
    if (lf_pipe_cut(layers, NULL, of, stages, empty, &err) < 0)
        tap_bail("%s", err.text);
    lf_buf_fini(&text);
    lf_buf_init(&text);
    lf_pipe_cut_print(&text, layers, stages);
    return text.data;
}

static void known_cuts(void)
{
    int64_t one[64], mixed[61];
    for (int i = 0; i < 64; i++)
        one[i] = 10;
    tap_str(cut_of(&(struct lf_pipe_layers){one, 32, 0, 0}, 4, false), "8,8,8,8", "equal layers");
    tap_str(cut_of(&(struct lf_pipe_layers){one, 32, 0, 0}, 5, false), "6,6,6,7,7",
            "what is left over goes to the last pipeline stages");
    /* The head of Llama-3 8B costs as much as 2.4 layers. */
    tap_str(cut_of(&(struct lf_pipe_layers){one, 32, 0, 24}, 4, false), "8,9,9,6",
            "a head takes the place of layers");
    /* Three dense layers before 58 with experts, as DeepSeek-V3 has them. */
    for (int i = 0; i < 61; i++)
        mixed[i] = i < 3 ? 6 : 10;
    tap_str(cut_of(&(struct lf_pipe_layers){mixed, 61, 1, 12}, 8, false), "9,7,7,8,8,8,8,6",
            "layers of two kinds");
    tap_str(cut_of(&(struct lf_pipe_layers){one, 3, 40, 40}, 4, true), "0,1,2,0",
            "ends that cost more than all layers have none");
    tap_str(cut_of(&(struct lf_pipe_layers){one, 4, 40, 40}, 4, false), "1,1,1,1",
            "unless each has one");
    tap_str(cut_of(&(struct lf_pipe_layers){one, 0, 1, 1}, 2, true), "0,0", "no layers at all");
    const int64_t large = INT64_C(1) << 60;
    tap_str(
        cut_of(&(struct lf_pipe_layers){(const int64_t[]){large, large, large}, 3, 0, large / 2}, 2,
               false),
        "2,1", "large costs");
}

static void refused(const struct lf_pipe_layers *of, int stages, bool empty, const char *why)
{
    lf_err err = LF_ERR_INIT;
    int layers[4] = {-7, -7, -7, -7};
    int64_t largest = -7;
    tap_rc(lf_pipe_cut(layers, &largest, of, stages, empty, &err), LF_EINVAL, &err, why, why);
    tap_ok(layers[0] == -7 && largest == -7, "and nothing is set");
}

static void refusals(void)
{
    static const char why[] = "costs of layers are not negative, and their sum is below 2^62";
    const int64_t half = INT64_C(1) << 61, cost[3] = {1, 2, 3}, minus[3] = {1, -2, 3};
    const int64_t much[3] = {half, half, 0};
    refused(&(struct lf_pipe_layers){cost, 3, 0, 0}, 4, false, "3 layers cannot be cut into 4");
    refused(&(struct lf_pipe_layers){cost, 3, 0, 0}, 0, true, "3 layers cannot be cut into 0");
    refused(&(struct lf_pipe_layers){minus, 3, 0, 0}, 2, true, why);
    refused(&(struct lf_pipe_layers){cost, 3, -1, 0}, 2, true, why);
    refused(&(struct lf_pipe_layers){cost, 3, 0, -1}, 2, true, why);
    refused(&(struct lf_pipe_layers){much, 3, 0, 0}, 2, true, why);
    refused(&(struct lf_pipe_layers){cost, 3, half, half}, 2, true, why);
}

static void bad_text(const char *text, int stages, const char *why)
{
    lf_err err = LF_ERR_INIT;
    int layers[4] = {-7, -7, -7, -7};
    tap_rc(lf_pipe_cut_parse(layers, text, stages, 20, &err), LF_EINVAL, &err, why, why);
    tap_ok(layers[0] == -7 && layers[3] == -7, "and nothing is set");
}

static void by_hand(void)
{
    lf_err err = LF_ERR_INIT;
    int layers[5] = {0};
    lf_buf text;
    lf_buf_init(&text);
    tap_rc(lf_pipe_cut_parse(layers, "6,6,5,3", 4, 20, &err), 0, &err, NULL, "a cut by hand");
    lf_pipe_cut_print(&text, layers, 4);
    tap_str(text.data, "6,6,5,3", "is printed as it is read");
    tap_rc(lf_pipe_cut_parse(layers, "0,10,0,10,0", 5, 20, &err), 0, &err, NULL, "with empty ones");
    tap_ok(layers[0] == 0 && layers[1] == 10 && layers[3] == 10 && layers[4] == 0, "in order");
    tap_rc(lf_pipe_cut_parse(layers, "20", 1, 20, &err), 0, &err, NULL, "one pipeline stage");
    lf_buf_fini(&text);
    bad_text("6,6,5", 4, "\"6,6,5\" has 3 numbers, but there are 4 pipeline stages");
    bad_text("6,6,5,3,0", 4, "has 5 numbers, but there are 4 pipeline stages");
    bad_text("6,6,5,4", 4, "\"6,6,5,4\" has 21 layers, but the model has 20");
    bad_text("6,6,,8", 4, "number 3, \"\", is not a number of layers");
    bad_text("6,6,8,", 4, "number 4, \"\", is not");
    bad_text("", 4, "number 1, \"\", is not");
    bad_text("6,-6,5,3", 4, "number 2, \"-6\", is not");
    bad_text("6, 6,5,3", 4, "number 2, \" 6\", is not");
    bad_text("6,6,5,3x", 4, "number 4, \"3x\", is not");
    bad_text("6,6,5,99999999999999999999", 4, "number 4, \"99999999999999999999\", is not");
    bad_text("2147483647,2147483647,2147483647,1", 4, "has 6442450942 layers");
}

int main(void)
{
    TAP(4, random_cuts());
    TAP(8, known_cuts());
    TAP(14, refusals());
    TAP(27, by_hand());
    return tap_done();
}
