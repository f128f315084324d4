/* SPDX-License-Identifier: Apache-2.0
 *
 * What earlier runs of the same conversion have left. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/convert/priv.h"

int lf_convert_left_begin(struct lf_convert_left *l, const struct lf_convert_opts *o, lf_err *err)
{
    *l = (struct lf_convert_left){.out = o->out};
    if (!(l->dirs = lf_calloc(o->n_left + 1, sizeof *l->dirs, err)))
        return LF_ENOMEM;
    int rc = lf_partial_set_aside(&l->aside, o->out, err);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < o->n_left; i++)
        l->dirs[i] = o->left[i];
    l->dirs[o->n_left] = l->aside;
    l->resume = (lf_resume){.key = l->key, .dirs = l->dirs, .n_dirs = o->n_left + 1};
    return 0;
}

/* Nothing was begun: what was set aside is all there is. */
void lf_convert_left_end(struct lf_convert_left *l)
{
    if (l->aside && (lf_io_exists(l->out) || rename(l->aside, l->out) < 0))
        (void)lf_io_remove_tree(l->aside,
                                NULL); /* its files have second links in `out`, or are of no use */
    free(l->aside);
    free(l->dirs);
}

/* Contents are told by name, length, time and inode, as flow/spec does for files of this size. */
static int add_file(lf_hash *h, const char *path, lf_err *err)
{
    struct stat st;
    char text[128];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (stat(path, &st) < 0)
        return lf_fail_errno(err, "cannot look at %s", path);
    int n =
        snprintf(text, sizeof text, " %lld %lld.%09ld %llu\n", (long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (unsigned long long)st.st_ino);
    lf_hash_update(h, name, strlen(name));
    lf_hash_update(h, text, (size_t)n);
    return 0;
}

int lf_convert_import_key(char key[LF_HASH_HEX], const struct lf_hf_model *m, int dtype,
                          lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_hash *h = lf_hash_create(err);
    int rc = h ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < lf_st_n_files(m->st) && rc == 0; i++)
        rc = add_file(h, lf_st_file_at(m->st, i), err);
    if (rc == 0) {
        const char *config = m->config_text ? m->config_text : "";
        char number[16];
        lf_hash_update(h, m->family->name, strlen(m->family->name) + 1);
        lf_hash_update(h, number, (size_t)snprintf(number, sizeof number, "%d ", dtype));
        lf_hash_update(h, config, strlen(config));
        lf_hash_final(h, digest);
        lf_hash_hex(key, digest);
    }
    lf_hash_destroy(h);
    return rc;
}
