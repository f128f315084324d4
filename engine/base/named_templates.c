/* SPDX-License-Identifier: Apache-2.0
 *
 * See named_templates.h. */
#include "engine/base/named_templates.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#define FOLDER   "additional_chat_templates"
#define ENDING   ".jinja"
#define FILE_MAX ((size_t)16 << 20)

static int is_template(const struct dirent *e)
{
    return e->d_name[0] != '.' && lf_str_has_suffix(e->d_name, ENDING);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds {"name", "template"}: the name is that of the file without its ending. */
static int add_file(json_t *list, const char *dir, const char *file, const char *name, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    char *path = lf_path_join(dir, file, err);
    int rc = path ? lf_io_read_file(path, FILE_MAX, &text, err) : LF_ENOMEM;
    json_t *s = rc == 0 ? json_stringn(text.data, text.len) : NULL, *n = json_string(name), *o;
    if (rc == 0 && (!s || !n))
        rc = lf_fail(err, LF_EFORMAT, "%s: a template is not valid UTF-8", path);
    o = rc == 0 ? json_pack("{s:O, s:O}", "name", n, "template", s) : NULL;
    if (rc == 0 && (!o || json_array_append_new(list, o)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(n);
    json_decref(s);
    free(path);
    lf_buf_fini(&text);
    return rc;
}

/* The default of a tokenizer_config.json that has one text, where there is no file of it. */
static int add_default(json_t *list, json_t *config, const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, LF_TEMPLATE_FILE, err);
    const bool file = path && lf_io_exists(path);
    json_t *own = json_object_get(config, "chat_template");
    int rc = !path ? LF_ENOMEM : 0;
    free(path);
    if (rc == 0 && file)
        return add_file(list, dir, LF_TEMPLATE_FILE, "default", err);
    if (rc == 0 && json_is_string(own) &&
        json_array_append_new(list, json_pack("{s:s, s:O}", "name", "default", "template", own)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

static json_t *read_config(const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, LF_TEMPLATE_CONFIG, err);
    json_t *o = !path                ? NULL
                : lf_io_exists(path) ? lf_json_load_file(path, FILE_MAX, err)
                                     : json_object();
    if (o && !json_is_object(o)) {
        lf_fail(err, LF_EFORMAT, "%s: not a JSON object", path);
        json_decref(o);
        o = NULL;
    }
    free(path);
    return o;
}

static int fold(lf_buf *config, const char *dir, const char *folder, struct dirent **files, int n,
                lf_err *err)
{
    json_t *o = read_config(dir, err), *list = json_array();
    int rc = o && list ? add_default(list, o, dir, err) : LF_EFORMAT;
    for (int i = 0; i < n && rc == 0; i++) {
        char *name = lf_strndup(files[i]->d_name, strlen(files[i]->d_name) - strlen(ENDING), err);
        rc = name ? add_file(list, folder, files[i]->d_name, name, err) : LF_ENOMEM;
        free(name);
    }
    if (rc == 0 && json_object_set(o, "chat_template", list))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    char *text = rc == 0 ? lf_json_dump(o, err) : NULL;
    if (rc == 0 && !text)
        rc = LF_ENOMEM;
    if (rc == 0) {
        lf_buf_clear(config);
        lf_buf_adds(config, text);
        rc = lf_buf_check(config, err);
    }
    free(text);
    json_decref(list);
    json_decref(o);
    return rc;
}

int lf_named_templates(lf_buf *config, const char *dir, bool *any, lf_err *err)
{
    struct dirent **files = NULL;
    char *folder = lf_path_join(dir, FOLDER, err);
    int n = folder ? scandir(folder, &files, is_template, by_name) : -1;
    int rc = folder ? 0 : LF_ENOMEM;
    *any = n > 0;
    if (n > 0)
        rc = fold(config, dir, folder, files, n, err);
    for (int i = 0; i < n; i++)
        free(files[i]);
    free(files);
    free(folder);
    return rc;
}
