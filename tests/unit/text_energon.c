/* SPDX-License-Identifier: Apache-2.0
 *
 * energon.h: names with braces as Python's braceexpand has them, members, and what a folder must
 * say. That rows are those of Energon itself is the stage test's (tests/stage/energon.sh).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/text/corpus/energon_priv.h"
#include "tests/tap/tap.h"

static void test_braces(void)
{
    static const struct {
        const char *text, *is;
    } v[] = {
        {"a.tar", "a.tar"},
        {"s_{000..003}.tar", "s_000.tar s_001.tar s_002.tar s_003.tar"},
        {"{8..11}", "8 9 10 11"},
        {"{08..11}", "08 09 10 11"},
        {"{3..1}", "3 2 1"},
        {"{1..7..3}", "1 4 7"},
        {"{a,b}{1,2}", "a1 a2 b1 b2"},
        {"x{a,b{1..2},}y", "xay xb1y xb2y xy"},
        {"{{1,2},3}", "1 2 3"},
        {"", ""},
        {"a{b", "a brace"},
        {"a}b", "a brace"},
        {"a{b}c", "neither a comma"},
        {"a{a..c}", "neither a comma"},
        {"{1..9999999}", "more than 1000000"},
        {"a\\{b", "a backslash"},
    };
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_err err = LF_ERR_INIT;
        char text[200] = "";
        json_t *out = json_array(), *one;
        size_t k;
        int rc = lf_energon_braces(out, v[i].text, "p", &err);
        json_array_foreach(out, k, one)
        {
            if (strlen(text) < 100)
                snprintf(text + strlen(text), 100, "%s%s", k ? " " : "", json_string_value(one));
        }
        if (rc == 0)
            tap_str(text, v[i].is, v[i].text);
        else
            tap_ok(strstr(err.text, v[i].is) != NULL, "%s: %s", v[i].text, err.text);
        json_decref(out);
    }
}

static void test_members(void)
{
    static const struct {
        const char *name;
        bool is;
    } v[] = {{"a.jpg", true},     {"d/a.b.jpg", true}, {"a", false},
             {".a.jpg", false},   {"d.e/a", false},    {"__m__/a.jpg", false},
             {"__m__.jpg", true}, {"____/a.b", false}, {"__m/a.jpg", true}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        tap_i64(lf_energon_member(v[i].name), v[i].is, v[i].name);
    tap_i64(lf_energon_part_kind("a.JSON"), LF_ENERGON_JSON, "json");
    tap_i64(lf_energon_part_kind("txt"), LF_ENERGON_TEXT, "txt");
    tap_i64(lf_energon_part_kind("json.png"), LF_ENERGON_PICTURE, "png");
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        tap_bail("cannot write %s", path);
}

#define TYPE  "sample_type:\n  __class__: "
#define SPLIT "split_parts:\n  train:\n  - s{0..1}.tar\n  val: []\n"

static void test_folders(void)
{
    static const struct {
        const char *data, *split, *info, *says;
    } v[] = {
        {TYPE "TextSample\nfield_map: {text: txt}\n", SPLIT, "shard_counts: {s0.tar: 1, s1.tar: 2}",
         NULL},
        {"__class__: CrudeWebdataset", SPLIT "exclude: [s0.tar]", "shard_counts: {s1.tar: 2}",
         NULL},
        {"sample_type: x", SPLIT, "", "sample_type has no __class__"},
        {"__class__: TextSample", SPLIT, "", "class TextSample are not read"},
        {TYPE "TextSample\n", SPLIT, "", "it has no field_map"},
        {TYPE "InterleavedSample\nfield_map: {sequence: json}", SPLIT, "",
         "it has no field_map that"},
        {TYPE "VQASample\nfield_map: {image: jpg, context: txt}", SPLIT, "",
         "field_map does not say what answers is"},
        {TYPE "TextSample\nfield_map: {text: }\n", SPLIT, "", "text of field_map names no part"},
        {"__class__: CrudeWebdataset", SPLIT, "a: b", "it has no shard_counts"},
        {"__class__: CrudeWebdataset", SPLIT, "shard_counts: {a: b}", "a has no number of samples"},
        {"__class__: CrudeWebdataset", SPLIT, "shard_counts: {s0.tar: 1}",
         "s1.tar has no number of samples in .info"},
        {"__class__: CrudeWebdataset", "split_parts: {val: [a]}", "shard_counts: {a: 1}",
         "no split is called \"train\"; there are val"},
        {"__class__: CrudeWebdataset", "split_parts: {train: [../a]}", "shard_counts: {../a: 1}",
         "../a is outside of the folder"},
        {"__class__: CrudeWebdataset", "split_parts: {train: []}", "shard_counts: {a: 1}",
         "split train has no archive"},
        {"- a", SPLIT, "", "it is no mapping of keys"},
    };
    char dir[] = "/tmp/lf-energon-XXXXXX", meta[64], command[128];
    if (!mkdtemp(dir))
        tap_bail("no directory");
    snprintf(meta, sizeof meta, "%s/.nv-meta", dir);
    tap_ok(!lf_energon_is(dir), "a directory is no folder");
    if (mkdir(meta, 0700) != 0)
        tap_bail("no directory");
    tap_ok(lf_energon_is(dir), "now it is");
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        const lf_energon_opts o = {.split = "train"};
        lf_energon *e = NULL;
        lf_err err = LF_ERR_INIT;
        put(meta, "dataset.yaml", v[i].data);
        put(meta, "split.yaml", v[i].split);
        put(meta, ".info.yaml", v[i].info);
        int rc = lf_energon_open(&e, dir, &o, &err);
        if (v[i].says)
            tap_ok(rc < 0 && strstr(err.text, v[i].says), "refused: %s", v[i].says);
        else
            tap_ok(rc == 0 && lf_energon_samples(e, lf_energon_archives(e) - 1) == 2 &&
                       !lf_energon_excluded(e, 0, "k"),
                   "a folder: %s", err.text);
        if (v[i].says && (rc == 0 || !strstr(err.text, v[i].says)))
            tap_diag("%s", err.text);
        lf_energon_close(e);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    if (system(command) != 0)
        tap_diag("%s is left", dir);
}

int main(void)
{
    test_braces();
    test_members();
    test_folders();
    return tap_done();
}
