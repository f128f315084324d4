/* SPDX-License-Identifier: Apache-2.0
 *
 * tfevents.h: checksums, one event of each kind in the bytes that the protobuf classes of the
 * Python package tensorboard 2.21 make of it, order of files, a full disk, a directory that cannot
 * be written. tests/golden/tfevents/check_tfevents.py reads files with that
 * package itself.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/tfevents.h"
#include "tests/tap/tap.h"

#define WALL 1700000000.25

static const char version[] = "1800000000000000a37f4b220900001040fc54d941"
                              "1a0d627261696e2e4576656e743a32338d2fe9";
static const char start[] = "100000000000000095fbfe180900005040fc54d94110ad023a0208012381b115";
static const char scalars[] = "3200000000000000241956ec0900009040fc54d94110ad022a24"
                              "0a110a0a747261696e2f6c6f73731500002040"
                              "0a0f0a08747261696e2f6c7215cdccccbd3fca781d";
static const char text_begins[] = "d9000000000000008945ade1090000d040fc54d941108080808080202ac601"
                                  "0ac3010a0973616d706c65732f3142ab01080712041202080142a001";
static const char text_ends[] = "4a080a060a0474657874e846e94e";

static char base[1000];

static const char *at(const char *name)
{
    static char path[1100];
    snprintf(path, sizeof path, "%s/%s", base, name);
    return path;
}

/* The file as hexadecimal digits. */
static char *hex_of(const char *path)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b, hex;
    lf_buf_init(&b);
    lf_buf_init(&hex);
    if (lf_io_read_file(path, 1 << 20, &b, &err) != 0)
        tap_bail("%s", err.text);
    for (size_t i = 0; i < b.len; i++)
        lf_buf_addf(&hex, "%02x", (unsigned char)b.data[i]);
    lf_buf_fini(&b);
    return lf_buf_steal(&hex, &err);
}

static void test_sums(void)
{
    tap_i64(lf_tfevents_crc("123456789", 9), 0xc78ab0e5, "the masked sum of the check value");
    tap_i64(lf_tfevents_crc("", 0), 0xa282ead8, "of nothing");
}

static void test_golden(void)
{
    static const char line[] = "Gr\xc3\xbc\xc3\x9f"
                               "e\n";
    char text[8 * 20 + 1] = "", want[2000];
    lf_err err = LF_ERR_INIT;
    lf_tfevents *w = lf_tfevents_open(at("golden"), WALL, &err);
    if (!w)
        tap_bail("%s", err.text);
    tap_ok(strstr(lf_tfevents_path(w), "/events.out.tfevents.1700000000.") != NULL, "its name");
    tap_rc(lf_tfevents_start(w, WALL + 1, 301, &err), 0, &err, NULL, "a start");
    tap_rc(lf_tfevents_flush(w, WALL + 2, 301, &err), 0, &err, NULL, "no points, no event");
    lf_tfevents_scalar(w, "train/loss", 2.5);
    lf_tfevents_scalar(w, "train/lr", -0.1);
    tap_rc(lf_tfevents_flush(w, WALL + 2, 301, &err), 0, &err, NULL, "two points");
    for (int i = 0; i < 20; i++)
        memcpy(text + 8 * i, line, 8);
    tap_rc(lf_tfevents_text(w, WALL + 3, INT64_C(1) << 40, "samples/1", text, 160, &err), 0, &err,
           NULL, "a text");
    char *got = hex_of(lf_tfevents_path(w));
    size_t n =
        (size_t)snprintf(want, sizeof want, "%s%s%s%s", version, start, scalars, text_begins);
    for (int i = 0; i < 160; i++)
        n += (size_t)snprintf(want + n, sizeof want - n, "%02x", (unsigned char)text[i]);
    snprintf(want + n, sizeof want - n, "%s", text_ends);
    tap_str(got, want, "the bytes of the events");
    free(got);
    lf_tfevents_close(w);
    lf_tfevents_close(NULL);
}

/* Names sort as the files were made, whatever the clock says. */
static void test_order(void)
{
    lf_err err = LF_ERR_INIT;
    lf_tfevents *a = lf_tfevents_open(at("order"), WALL, &err),
                *b = lf_tfevents_open(at("order"), WALL - 3600, &err),
                *c = lf_tfevents_open(at("order"), WALL + 9, &err);
    if (!a || !b || !c)
        tap_bail("%s", err.text);
    tap_ok(strcmp(lf_tfevents_path(a), lf_tfevents_path(b)) < 0,
           "behind the first, by a late clock");
    tap_ok(strcmp(lf_tfevents_path(b), lf_tfevents_path(c)) < 0, "and before the third");
    lf_tfevents_close(a);
    lf_tfevents_close(b);
    lf_tfevents_close(c);
}

/* A file of somebody else whose name has a number that no clock shows. */
static void test_foreign(void)
{
    lf_err err = LF_ERR_INIT;
    lf_io_mkdirs(at("foreign"), 0755, &err);
    const int fd =
        open(at("foreign/events.out.tfevents.9223372036854775807.h"), O_WRONLY | O_CREAT, 0644);
    lf_tfevents *w = lf_tfevents_open(at("foreign"), WALL, &err);
    if (fd < 0 || !w)
        tap_bail("%s", err.text);
    close(fd);
    char want[64];
    snprintf(want, sizeof want, "tfevents.%010lld.", (long long)WALL);
    tap_ok(strstr(lf_tfevents_path(w), want) != NULL, "it moves no time: %s", lf_tfevents_path(w));
    lf_tfevents_close(w);
}

static void test_full(void)
{
    struct rlimit old, small;
    struct stat st;
    lf_err err = LF_ERR_INIT;
    char text[400] = {0};
    lf_tfevents *w = lf_tfevents_open(at("full"), WALL, &err);
    if (!w)
        tap_bail("%s", err.text);
    if (getrlimit(RLIMIT_FSIZE, &old) != 0 || stat(lf_tfevents_path(w), &st) != 0)
        tap_bail("no limit");
    const off_t before = st.st_size;
    small = old;
    small.rlim_cur = 200;
    signal(SIGXFSZ, SIG_IGN);
    /* The limit is that of standard output too. */
    int limited = setrlimit(RLIMIT_FSIZE, &small);
    int rc = lf_tfevents_text(w, WALL, 1, "t", text, sizeof text, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    tap_i64(limited, 0, "a limit of 200 bytes");
    tap_ok(rc < 0, "no room for a text");
    tap_ok(strstr(err.text, "tfevents") != NULL, "the message names the file: %s", err.text);
    tap_ok(stat(lf_tfevents_path(w), &st) == 0 && st.st_size == before, "nothing is left of it");
    lf_err_clear(&err);
    tap_rc(lf_tfevents_start(w, WALL + 1, 301, &err), 0, &err, NULL, "later there is room");
    char want[400], *got = hex_of(lf_tfevents_path(w));
    snprintf(want, sizeof want, "%s%s", version, start);
    tap_str(got, want, "the file is whole");
    free(got);
    lf_tfevents_close(w);
}

static void test_refused(void)
{
    lf_err err = LF_ERR_INIT;
    int fd = open(at("file"), O_WRONLY | O_CREAT, 0644);
    close(fd);
    tap_ok(!lf_tfevents_open(at("file"), WALL, &err), "a file in the place of the directory");
    tap_ok(strstr(err.text, "/file") != NULL, "the message names it: %s", err.text);
}

int main(void)
{
    snprintf(base, sizeof base, "%s", tap_tmpdir());
    TAP(2, test_sums());
    TAP(6, test_golden());
    TAP(2, test_order());
    TAP(1, test_foreign());
    TAP(6, test_full());
    TAP(2, test_refused());
    return tap_done();
}
