/* SPDX-License-Identifier: Apache-2.0
 *
 * See tokenizer_files.h.
 */
#include "config.h"

#include "engine/text/token/tokenizer_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/named_templates.h"
#include "engine/text/token/spm.h"
#include "engine/text/token/tokenizer.h"

#define MAGIC        "loong-flow tokenizer files 1\n"
#define ENTRIES_MAX  100000
#define NAME_LEN_MAX 255

static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                     "generation_config.json", "chat_template.jinja"};

const lf_buf *lf_tok_files_get(const lf_tok_files *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].name, name) == 0)
            return &f->v[i].data;
    return NULL;
}

void lf_tok_files_fini(lf_tok_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->v[i].name);
        lf_buf_fini(&f->v[i].data);
    }
    memset(f, 0, sizeof(*f));
}

static lf_tok_file *add(lf_tok_files *f, const char *name, size_t n, lf_err *err)
{
    if (f->n == LF_TOK_FILES_MAX) {
        lf_fail(err, LF_EFORMAT, "more than %d tokenizer files", LF_TOK_FILES_MAX);
        return NULL;
    }
    char *copy = lf_strndup(name, n, err);
    if (!copy)
        return NULL;
    lf_tok_file *to = &f->v[f->n++];
    to->name = copy;
    lf_buf_init(&to->data);
    return to;
}

static int read_one(lf_tok_files *f, const char *dir, const char *name, lf_err *err)
{
    lf_tok_file *to = add(f, name, strlen(name), err);
    char *path = to ? lf_path_join(dir, name, err) : NULL;
    int rc = path ? lf_io_read_file(path, LF_TOK_FILE_MAX, &to->data, err) : LF_ENOMEM;
    free(path);
    return rc;
}

static bool is_there(const char *dir, const char *name)
{
    struct stat st;
    char *path = lf_path_join(dir, name, NULL);
    bool yes = path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    free(path);
    return yes;
}

/* The name of a *.model or *.tiktoken in dir, owned; the first in byte order so that the choice is
 * stable. */
static char *find_ranks(const char *dir, lf_err *err)
{
    char *best = NULL;
    DIR *d = opendir(dir);
    const struct dirent *e;
    for (size_t n = 0; d && n < ENTRIES_MAX && (e = readdir(d)) != NULL; n++) {
        bool fits =
            lf_str_has_suffix(e->d_name, ".model") || lf_str_has_suffix(e->d_name, ".tiktoken");
        if (!fits || !is_there(dir, e->d_name) || (best && strcmp(e->d_name, best) >= 0))
            continue;
        free(best);
        best = lf_strdup(e->d_name, err);
        if (!best)
            break;
    }
    if (d)
        closedir(d);
    return best;
}

/* Which form the files have, by name and content. */
static int find_form(lf_tok_files *f, const char *path, lf_err *err)
{
    const char *name = f->main = f->v[0].name;
    const lf_buf *b = &f->v[0].data;
    size_t at = strspn(b->data, " \t\r\n");
    if (strcmp(name, "vocab.json") == 0 || strcmp(name, "merges.txt") == 0)
        f->form = LF_TOK_FORM_VOCAB_MERGES;
    else if (strcmp(name, "vocab.txt") == 0)
        f->form = LF_TOK_FORM_VOCAB_TXT;
    else if (lf_spm_is_model((const uint8_t *)b->data, b->len))
        f->form = LF_TOK_FORM_SPM;
    else if (lf_str_has_suffix(name, ".model") || lf_str_has_suffix(name, ".tiktoken"))
        f->form = LF_TOK_FORM_TIKTOKEN;
    else
        f->form = LF_TOK_FORM_JSON; /* whose reader says what is wrong */
    if (f->form == LF_TOK_FORM_TIKTOKEN && at < b->len && b->data[at] == '{')
        f->form = LF_TOK_FORM_JSON;
    if (f->form == LF_TOK_FORM_VOCAB_MERGES &&
        (!lf_tok_files_get(f, "vocab.json") || !lf_tok_files_get(f, "merges.txt")))
        return lf_fail(err, LF_EFORMAT, "%s: vocab.json and merges.txt must be beside each other",
                       path);
    return 0;
}

/* The files beside; of several chat templates one file is made. */
static int read_beside(lf_tok_files *f, const char *dir, lf_err *err)
{
    lf_buf config;
    bool several = false;
    lf_buf_init(&config);
    int rc = lf_named_templates(&config, dir, &several, err);
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]) && rc == 0; i++) {
        const bool made = several && strcmp(beside[i], LF_TEMPLATE_CONFIG) == 0;
        if (several && strcmp(beside[i], LF_TEMPLATE_FILE) == 0)
            continue;
        lf_tok_file *to = made ? add(f, beside[i], strlen(beside[i]), err) : NULL;
        if (made && !to)
            rc = LF_ENOMEM;
        else if (made)
            lf_buf_add(&to->data, config.data, config.len);
        else if (is_there(dir, beside[i]))
            rc = read_one(f, dir, beside[i], err);
        if (rc == 0 && made)
            rc = lf_buf_check(&to->data, err);
    }
    lf_buf_fini(&config);
    return rc;
}

static int read_forms(lf_tok_files *f, const char *dir, const char *main, lf_err *err)
{
    int rc = read_one(f, dir, main, err);
    bool pair = strcmp(main, "vocab.json") == 0 || strcmp(main, "merges.txt") == 0;
    const char *other = strcmp(main, "vocab.json") == 0 ? "merges.txt" : "vocab.json";
    if (rc == 0 && pair && is_there(dir, other))
        rc = read_one(f, dir, other, err);
    return rc == 0 ? read_beside(f, dir, err) : rc;
}

static int read_dir(lf_tok_files *f, const char *dir, lf_err *err)
{
    if (is_there(dir, "tokenizer.json"))
        return read_forms(f, dir, "tokenizer.json", err);
    if (is_there(dir, "tokenizer.model"))
        return read_forms(f, dir, "tokenizer.model", err);
    char *ranks = find_ranks(dir, err);
    int rc;
    if (ranks)
        rc = read_forms(f, dir, ranks, err);
    else if (is_there(dir, "vocab.json"))
        rc = read_forms(f, dir, "vocab.json", err);
    else if (is_there(dir, "vocab.txt"))
        rc = read_forms(f, dir, "vocab.txt", err);
    else
        rc = lf_fail(err, LF_ENOENT,
                     "%s: no tokenizer: none of tokenizer.json, tokenizer.model, *.model, "
                     "*.tiktoken, vocab.json with "
                     "merges.txt, vocab.txt",
                     dir);
    free(ranks);
    return rc;
}

/* Of a finished artifact: is the main file what its manifest says? A flipped byte may be valid JSON
 * and other ids. */
static int check_manifest(const lf_tok_files *f, const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    uint8_t is[LF_HASH_BYTES];
    const lf_artifact_file *listed =
        lf_artifact_load(&a, dir, "tokenizer", NULL) == 0 ? lf_artifact_find(&a, f->main) : NULL;
    char *path = listed ? lf_path_join(dir, f->main, err) : NULL;
    int rc = !listed ? 0 : path ? lf_tree_hash_file(is, NULL, path, err) : LF_ENOMEM;
    if (rc == 0 && listed && memcmp(is, listed->sha256, sizeof is) != 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: its bytes do not match the hash in the manifest (damaged file)", path);
    free(path);
    lf_artifact_fini(&a);
    return rc;
}

int lf_tok_files_read(lf_tok_files *f, const char *path, lf_err *err)
{
    struct stat st;
    memset(f, 0, sizeof(*f));
    int rc;
    const bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_dir) {
        rc = read_dir(f, path, err);
    } else {
        const char *slash = strrchr(path, '/');
        char *dir = slash ? lf_strndup(path, (size_t)(slash - path) + (slash == path), err)
                          : lf_strdup(".", err);
        rc = dir ? read_forms(f, dir, slash ? slash + 1 : path, err) : LF_ENOMEM;
        free(dir);
    }
    if (rc == 0)
        rc = find_form(f, path, err);
    if (rc == 0 && is_dir)
        rc = check_manifest(f, path, err);
    if (rc != 0)
        lf_tok_files_fini(f);
    return rc;
}

int lf_tok_files_pack(const lf_tok_files *f, lf_buf *out, lf_err *err)
{
    if (f->n == 1 && f->form == LF_TOK_FORM_JSON) {
        lf_buf_add(out, f->v[0].data.data, f->v[0].data.len);
        return lf_buf_check(out, err);
    }
    lf_buf_adds(out, MAGIC);
    for (size_t i = 0; i < f->n; i++) {
        lf_buf_addf(out, "%s %zu\n", f->v[i].name, f->v[i].data.len);
        lf_buf_add(out, f->v[i].data.data, f->v[i].data.len);
    }
    return lf_buf_check(out, err);
}

/* One file of a container at *p. */
static int unpack_one(lf_tok_files *f, const char **p, const char *end, const char *path,
                      lf_err *err)
{
    const char *nl = memchr(*p, '\n', (size_t)(end - *p));
    const char *space = nl ? memrchr(*p, ' ', (size_t)(nl - *p)) : NULL;
    size_t len = 0;
    bool ok = space && space > *p && (size_t)(space - *p) <= NAME_LEN_MAX && nl - space <= 12 &&
              nl - space > 1 && !memchr(*p, '/', (size_t)(space - *p)) &&
              !memchr(*p, 0, (size_t)(space - *p));
    for (const char *q = ok ? space + 1 : *p; ok && q < nl; q++) {
        ok = *q >= '0' && *q <= '9';
        len = len * 10 + (size_t)(*q - '0');
    }
    if (!ok || len > (size_t)(end - nl - 1))
        return lf_fail(err, LF_EFORMAT, "%s: the container of tokenizer files is broken", path);
    lf_tok_file *to = add(f, *p, (size_t)(space - *p), err);
    if (!to)
        return LF_EFORMAT;
    lf_buf_add(&to->data, nl + 1, len);
    *p = nl + 1 + len;
    return lf_buf_check(&to->data, err);
}

int lf_tok_files_unpack(lf_tok_files *f, const void *data, size_t len, const char *name,
                        lf_err *err)
{
    const char *p = data, *end = p + len;
    int rc = 0;
    memset(f, 0, sizeof(*f));
    if (len >= strlen(MAGIC) && memcmp(p, MAGIC, strlen(MAGIC)) == 0) {
        for (p += strlen(MAGIC); p < end && rc == 0;)
            rc = unpack_one(f, &p, end, name, err);
        if (rc == 0 && f->n == 0)
            rc = lf_fail(err, LF_EFORMAT, "%s: the container of tokenizer files is empty", name);
    } else {
        const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
        lf_tok_file *to = add(f, base, strlen(base), err);
        if (to)
            lf_buf_add(&to->data, data, len);
        rc = to ? lf_buf_check(&to->data, err) : LF_ENOMEM;
    }
    if (rc == 0)
        rc = find_form(f, name, err);
    if (rc != 0)
        lf_tok_files_fini(f);
    return rc;
}
