/* SPDX-License-Identifier: Apache-2.0
 *
 * Artifacts: publish and load, every state, hostile paths and links, hashes, removal.
 */
#include "engine/base/artifact.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "tests/tap/tap.h"

static char dir[4096], tmp[8192];

static const char *at(const char *name)
{
    snprintf(tmp, sizeof tmp, "%s/%s", dir, name);
    return tmp;
}

static void put(const char *name, const void *data, size_t n)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0640);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        tap_bail("cannot write %s", tmp);
    close(fd);
}

static void fresh(const char *name)
{
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), name);
    if (lf_io_mkdirs(dir, 0750, NULL) < 0)
        tap_bail("cannot make %s", dir);
}

static enum lf_artifact_state state_of(lf_err *err)
{
    enum lf_artifact_state s = 99;
    tap_i64(lf_artifact_state(&s, dir, err), 0, "the state can be found");
    return s;
}

static void publish_two(void)
{
    lf_artifact a;
    lf_err err = LF_ERR_INIT;
    mkdir(at("sub"), 0750);
    put("b.bin", "hello", 5);
    put("sub/a.bin", "", 0);
    lf_artifact_init(&a, "thing", &err);
    tap_rc(lf_artifact_add_hashed(&a, dir, "sub/a.bin", &err), 0, &err, NULL, "add an empty file");
    tap_rc(lf_artifact_add_hashed(&a, dir, "b.bin", &err), 0, &err, NULL, "add a file");
    tap_rc(lf_artifact_add_hashed(&a, dir, "b.bin", &err), LF_EEXIST, &err, "twice",
           "a file once only");
    json_object_set_new(a.meta, "x", json_real(0.1));
    tap_rc(lf_artifact_publish(&a, dir, &err), 0, &err, NULL, "publish");
    tap_rc(lf_artifact_publish(&a, dir, &err), LF_EEXIST, &err, NULL,
           "publishing again is refused");
    lf_artifact_fini(&a);
}

static void test_round_trip(void)
{
    lf_artifact a;
    lf_err err = LF_ERR_INIT;
    uint8_t sha[LF_HASH_BYTES], id[LF_HASH_BYTES], id2[LF_HASH_BYTES];
    int64_t bytes = 0;
    fresh("round");
    tap_i64(state_of(&err), LF_ARTIFACT_ABSENT, "nothing there");
    tap_i64(err.rc, 0, "absence is no error");
    publish_two();
    tap_rc(lf_artifact_load(&a, dir, "thing", &err), 0, &err, NULL, "load");
    tap_i64((int64_t)a.n_files, 2, "two files");
    tap_str(a.files[0].path, "b.bin", "sorted by path");
    tap_f64(json_real_value(json_object_get(a.meta, "x")), 0.1, 0.0, "meta is exact");
    lf_tree_hash_file(sha, &bytes, at("b.bin"), &err);
    tap_mem(lf_artifact_find(&a, "b.bin")->sha256, sha, sizeof sha,
            "the threaded hash is the tree hash");
    tap_ok(lf_artifact_find(&a, "c.bin") == NULL, "find says no");
    tap_rc(lf_artifact_check_hashes(&a, dir, 2, &err), 0, &err, NULL, "hashes are right");
    lf_artifact_id(&a, id, &err);
    a.files[0].bytes++;
    lf_artifact_id(&a, id2, &err);
    tap_ok(memcmp(id, id2, sizeof id) != 0, "the identity depends on the files");
    lf_artifact_fini(&a);
    tap_rc(lf_artifact_load(&a, dir, "shards", &err), LF_EFORMAT, &err, "'thing'",
           "another kind is refused");
}

static void test_states(void)
{
    lf_err err = LF_ERR_INIT;
    lf_artifact a;
    tap_i64(state_of(&err), LF_ARTIFACT_PRESENT, "present");
    put("b.bin", "jello", 5);
    tap_i64(state_of(&err), LF_ARTIFACT_PRESENT, "lengths do not see a changed byte");
    lf_artifact_load(&a, dir, NULL, &err);
    tap_rc(lf_artifact_check_hashes(&a, dir, 0, &err), LF_EFORMAT, &err, "b.bin",
           "hashes do, and name the file");
    lf_artifact_fini(&a);
    put("b.bin", "hell", 4);
    tap_i64(state_of(&err), LF_ARTIFACT_BROKEN, "a file cut short");
    tap_rc(err.rc, LF_EFORMAT, &err, "b.bin has 4 bytes", "says which");
    unlink(at("b.bin"));
    tap_i64(state_of(&err), LF_ARTIFACT_PURGED, "a file gone");
    tap_rc(err.rc, LF_ENOENT, &err, "b.bin", "says which");
    if (symlink("/etc/passwd", at("b.bin")) < 0)
        tap_bail("symlink");
    tap_i64(state_of(&err), LF_ARTIFACT_BROKEN, "a link instead of a file");
    tap_rc(err.rc, LF_EFORMAT, &err, "symbolic", "says so");
    put("manifest.json", "{", 1);
    tap_i64(state_of(&err), LF_ARTIFACT_BROKEN, "a manifest cut short");
    lf_err_clear(&err);
    tap_rc(lf_artifact_remove(dir, &err), 0, &err, NULL, "remove");
    tap_i64(state_of(&err), LF_ARTIFACT_ABSENT, "gone");
    tap_rc(lf_artifact_remove(dir, &err), 0, &err, NULL, "removing nothing is fine");
}

static void test_bad_manifests(void)
{
#define SHA "0000000000000000000000000000000000000000000000000000000000000000"
#define FILE_ROW(path, bytes, sha)                                                                 \
    "{\"path\":\"" path "\",\"bytes\":" bytes ",\"tree_sha256\":\"" sha "\"}"
#define DOC(files) "{\"lf_manifest\":1,\"kind\":\"k\",\"meta\":{},\"files\":[" files "]}"
    static const struct {
        const char *text, *want;
    } v[] = {
        {DOC(FILE_ROW("../x", "1", SHA)), "../x"},
        {DOC(FILE_ROW("/etc/passwd", "1", SHA)), "/etc/passwd"},
        {DOC(FILE_ROW("a//b", "1", SHA)), "a//b"},
        {DOC(FILE_ROW("a/./b", "1", SHA)), "a/./b"},
        {DOC(FILE_ROW("", "1", SHA)), "0 bytes"},
        {DOC(FILE_ROW("manifest.json", "1", SHA)), "itself"},
        {DOC(FILE_ROW("x", "-1", SHA)), "negative"},
        {DOC(FILE_ROW("x", "1", "00")), "64"},
        {DOC(FILE_ROW("x", "1", SHA) "," FILE_ROW("x", "1", SHA)), "sorted"},
        {DOC(FILE_ROW("y", "1", SHA) "," FILE_ROW("x", "1", SHA)), "sorted"},
        {DOC("1"), "no object"},
        {"[]", "object"},
        {"{\"lf_manifest\":2,\"kind\":\"k\",\"meta\":{},\"files\":[]}", "version 2"},
        {"{\"kind\":\"k\",\"meta\":{},\"files\":[]}", "lf_manifest"},
        {"{\"lf_manifest\":1,\"kind\":\"k\",\"files\":[]}", "meta"},
        {"{\"lf_manifest\":1,\"kind\":\"k\",\"meta\":{}}", "files"},
    };
    fresh("bad");
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_artifact a;
        lf_err err = LF_ERR_INIT;
        put("manifest.json", v[i].text, strlen(v[i].text));
        int rc = lf_artifact_load(&a, dir, NULL, &err);
        tap_ok(rc == LF_EFORMAT || rc == LF_ENOTSUP || rc == LF_EINVAL,
               "manifest %zu is refused: %s", i, err.text);
        tap_ok(strstr(err.text, v[i].want) && strstr(err.text, "manifest"), "and says '%s': %s",
               v[i].want, err.text);
    }
}

static void test_publish_checks(void)
{
    lf_artifact a;
    lf_err err = LF_ERR_INIT;
    const uint8_t zero[LF_HASH_BYTES] = {0};
    fresh("checks");
    lf_artifact_init(&a, "k", &err);
    tap_rc(lf_artifact_add(&a, "../up", 1, zero, &err), LF_EFORMAT, &err, "leave", "no way out");
    lf_artifact_add(&a, "gone", 1, zero, &err);
    tap_rc(lf_artifact_publish(&a, dir, &err), LF_ENOENT, &err, "gone",
           "a missing file cannot be published");
    put("gone", "12", 2);
    tap_rc(lf_artifact_publish(&a, dir, &err), LF_EFORMAT, &err, "2 bytes",
           "nor one of another length");
    tap_i64(state_of(&err), LF_ARTIFACT_ABSENT, "and nothing appeared");
    lf_artifact_fini(&a);
    if (symlink("/etc", at("link")) < 0)
        tap_bail("symlink");
    tap_rc(lf_artifact_open_file(dir, "link/passwd", &err), LF_EFORMAT, &err, "symbolic",
           "a linked directory is refused");
    fresh("subs");
    publish_two();
    unlink(at("sub/a.bin"));
    rmdir(at("sub"));
    tap_i64(state_of(&err), LF_ARTIFACT_PURGED, "a folder gone");
    lf_err_clear(&err);
    put("sub", "x", 1);
    tap_i64(state_of(&err), LF_ARTIFACT_BROKEN, "a file where a folder was");
}

int main(void)
{
    TAP(17, test_round_trip());
    TAP(20, test_states());
    TAP(32, test_bad_manifests());
    TAP(15, test_publish_checks());
    return tap_done();
}
