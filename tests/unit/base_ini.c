/* SPDX-License-Identifier: Apache-2.0
 *
 * ini.h: what is read, from where, and every refusal with its position.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/ini.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "tests/tap/tap.h"

static void test_good(void)
{
    lf_err err = LF_ERR_INIT;
    lf_ini ini = {0};
    static const char text[] = "\xEF\xBB\xBF# comment\r\n"
                               "[ stage\t  train ]\r\n"
                               "lr = 3e-4 # not a comment\r\n"
                               "  ; a comment inside\r\n"
                               "  second = line  \r\n"
                               "empty =\r\n"
                               "\r\n"
                               "paths =\r\n"
                               "    a\r\n"
                               "    b\r\n"
                               "[model]\r\n"
                               "na\xC3\xAFve.x=1\r\n"; /* replaced below */
    char copy[sizeof text];
    memcpy(copy, text, sizeof text);
    memcpy(strstr(copy, "na\xC3\xAFve"), "nai_ve", 6);
    tap_rc(lf_ini_parse_text(&ini, copy, strlen(copy), "p.ini", &err), 0, &err, NULL, "parse");
    tap_i64((int64_t)ini.n_sections, 2, "sections");
    tap_i64((int64_t)ini.n_entries, 4, "entries");
    const lf_ini_entry *e = lf_ini_find(&ini, "stage train", "lr");
    tap_str(e ? e->value : NULL, "3e-4 # not a comment\nsecond = line",
            "continuation, and comments stand alone");
    tap_i64(e ? e->line : 0, 3, "line");
    tap_i64(e ? e->column : 0, 6, "column");
    e = lf_ini_find(&ini, "stage train", "empty");
    tap_str(e ? e->value : NULL, "", "empty value");
    e = lf_ini_find(&ini, "stage train", "paths");
    tap_str(e ? e->value : NULL, "a\nb", "a value that begins on the next line");
    tap_i64(e ? e->line : 0, 9, "and is there");
    tap_i64(e ? e->column : 0, 5, "column of it");
    tap_ok(lf_ini_find(&ini, "model", "nai_ve.x") && !lf_ini_find(&ini, "model", "lr"),
           "keys of another section");
    tap_ok(!lf_ini_find_section(&ini, "stage"), "no such section");
    tap_i64((int64_t)lf_ini_find_section(&ini, "stage train")->n, 3, "entries of a section");
    lf_ini_fini(&ini);
    tap_rc(lf_ini_parse_text(&ini, "", 0, "p", &err), 0, &err, NULL, "an empty file");
    tap_i64((int64_t)ini.n_sections, 0, "has nothing");
    lf_ini_fini(&ini);
    tap_rc(lf_ini_parse_text(&ini, "[a]\nk=v", 7, "p", &err), 0, &err, NULL,
           "no newline at the end");
    tap_str(lf_ini_find(&ini, "a", "k")->value, "v", "last value");
    lf_ini_fini(&ini);
    tap_rc(lf_ini_parse_text(&ini, "[a]\n[b]\nk=1\n[c]\nk=2\n", 20, "p", &err), 0, &err, NULL,
           "an empty section");
    tap_str(lf_ini_find(&ini, "c", "k")->value, "2", "the same key in two sections");
    lf_ini_fini(&ini);
}

static void test_bad(void)
{
    static const struct {
        const char *text;
        size_t len; /* 0: strlen */
        const char *error;
    } v[] = {
        {"k = 1\n", 0, "p.ini:1:1: key before the first [section]"},
        {"[a]\nk = 1\nk = 2\n", 0, "p.ini:3:1: k is set twice in [a]: lines 2 and 3"},
        {"[a]\n[b]\n[ a ]\n", 0, "p.ini:3:1: section [a] again; it began at line 1"},
        {"[a]\nhello\n", 0, "p.ini:2:1: no = in this line"},
        {"[a]\n9k = 1\n", 0, "p.ini:2:1: a key begins with a letter"},
        {"[a]\n= 1\n", 0, "p.ini:2:1: a key begins with a letter"},
        {"[a]\nk x = 1\n", 0, "p.ini:2:3: a key holds letters"},
        {"[a]\nk\xC3\xA4 = 1\n", 0, "p.ini:2:2: a key holds letters"},
        {"[a\n", 0, "p.ini:1:3: section without its closing ]"},
        {"[a] # x\n", 0, "p.ini:1:4: text after ]"},
        {"[a[b]\n", 0, "p.ini:1:3: [ inside"},
        {"[  ]\n", 0, "p.ini:1:1: empty section name"},
        {"  k = 1\n", 0, "p.ini:1:3: this line begins with a blank"},
        {"[a]\n  k = 1\n", 0, "p.ini:2:3: this line begins with a blank"},
        {"[a]\nk = 1\n\n  more\n", 0, "p.ini:4:3: this line begins with a blank"},
        {"[a]\nk = a\0b\n", 12, "p.ini:2:6: NUL byte"},
        {"[a]\nk = \xC3\xA4\xFF\n", 0, "p.ini:2:6: byte 0xff is not UTF-8"},
        {"[a]\nk = a\rb\n", 0, "p.ini:2:6: control character 0x0d"},
        {"\xFF\xFE[\0a\0]\0", 8, "p.ini:1:1: this is UTF-16"},
    };
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_err err = LF_ERR_INIT;
        lf_ini ini = {0};
        int rc = lf_ini_parse_text(&ini, v[i].text, v[i].len ? v[i].len : strlen(v[i].text),
                                   "p.ini", &err);
        tap_rc(rc, LF_EFORMAT, &err, v[i].error, v[i].error);
        tap_ok(!ini.entries && !ini.priv, "untouched on failure");
    }
}

static void test_large(void)
{
    lf_err err = LF_ERR_INIT;
    lf_ini ini = {0};
    lf_buf b;
    char path[1024];
    lf_buf_init(&b);
    lf_buf_adds(&b, "[a]\nlong = ");
    for (int i = 0; i < 100000; i++)
        lf_buf_adds(&b, "0123456789");
    lf_buf_addc(&b, '\n');
    for (int i = 0; i < 100000; i++)
        lf_buf_addf(&b, "k%d = %d\n", i, i);
    tap_rc(lf_ini_parse_text(&ini, b.data, b.len, "p", &err), 0, &err, NULL,
           "a line of 1 MB and 100,000 keys");
    tap_i64((int64_t)strlen(lf_ini_find(&ini, "a", "long")->value), 1000000, "nothing is cut");
    tap_str(lf_ini_find(&ini, "a", "k99999")->value, "99999", "last key");
    lf_ini_fini(&ini);
    while (b.len <= (size_t)16 << 20)
        lf_buf_adds(&b, "# filler filler filler filler filler filler filler filler filler\n");
    snprintf(path, sizeof path, "%s/large.ini", tap_tmpdir());
    lf_io_replace(path, b.data, b.len, 0644, &err);
    tap_rc(lf_ini_parse_file(&ini, path, &err), LF_EFORMAT, &err, "larger than 16777216 bytes",
           "above 16 MiB");
    tap_rc(lf_ini_parse_file(&ini, "/nonexistent/x.ini", &err), LF_ENOENT, &err,
           "/nonexistent/x.ini", "no file");
    lf_buf_fini(&b);
}

int main(void)
{
    TAP(19, test_good());
    TAP(38, test_bad());
    TAP(5, test_large());
    return tap_done();
}
