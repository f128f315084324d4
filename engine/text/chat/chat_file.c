/* SPDX-License-Identifier: Apache-2.0
 *
 * The template of a tokenizer: which text counts, and the variables that are the tokenizer's.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/chat/chat_priv.h"
#include "engine/text/token/tokenizer_forms.h"

/* ---- what a source has ---- */

/* {% name %}, with any white space and signs that cut it. */
static bool has_block(const char *s, size_t n, const char *name)
{
    for (const char *p = s, *end = s + n; (p = memmem(p, (size_t)(end - p), "{%", 2)) != NULL;
         p += 2) {
        const char *q = p + 2;
        q += q < end && (*q == '-' || *q == '+');
        while (q < end && (*q == ' ' || *q == '\t' || *q == '\n' || *q == '\r'))
            q++;
        size_t k = strlen(name);
        if ((size_t)(end - q) > k && memcmp(q, name, k) == 0 && strchr(" \t\r\n-+%", q[k]))
            return true;
    }
    return false;
}

/* Sources are added to text, for the hash. */
static int add_template(lf_chat *c, const char *source, size_t len, const char *name,
                        bool for_tools, lf_buf *text, lf_err *err)
{
    size_t bom = lf_utf8_bom(source, len);
    source += bom;
    len -= bom;
    if (c->now == 0 && memmem(source, len, "strftime_now", 12))
        return lf_fail(err, LF_EINVAL, "%s writes the date into its text; say which (chat_time)",
                       name);
    lf_jinja *t = lf_jinja_parse(source, len, name, err);
    if (!t)
        return err && err->rc ? err->rc : LF_EFORMAT;
    lf_buf_add(text, source, len + 1);
    bool marks = has_block(source, len, "generation");
    if (for_tools) {
        c->tools = t;
        c->tools_marks = marks;
    } else {
        c->main = t;
        c->marks = marks;
    }
    return 0;
}

/* ---- variables ---- */

static const struct {
    const char *name;
    int64_t (*id)(
        const lf_tokenizer *t); /* where the files beside do not say it; NULL: it is left out */
} tokens[] = {{"bos_token", lf_tokenizer_bos},
              {"eos_token", lf_tokenizer_eos},
              {"unk_token", lf_tokenizer_unk},
              {"pad_token", lf_tokenizer_pad},
              {"sep_token", NULL},
              {"cls_token", NULL},
              {"mask_token", NULL}};

static int set_tokens(lf_chat *c, const lf_tok_conf *conf, lf_err *err)
{
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        const char *text = conf ? lf_tok_conf_token(conf, tokens[i].name) : NULL;
        int64_t id = !text && tokens[i].id ? tokens[i].id(c->tok) : -1;
        const uint8_t *bytes = NULL;
        size_t n = 0;
        json_t *v = text ? json_string(text) : NULL;
        if (id >= 0 && lf_tokenizer_text(c->tok, (uint32_t)id, &bytes, &n))
            v = json_stringn((const char *)bytes, n);
        if (v && json_object_set_new(c->vars, tokens[i].name, v) != 0)
            return lf_fail(err, LF_ENOMEM, "no memory for the variables of a template");
    }
    return 0;
}

static int add_vars(lf_chat *c, const char *text, lf_err *err)
{
    json_t *v = text ? lf_json_load_text(text, strlen(text), "chat_vars", err) : NULL;
    int rc = 0;
    if (text && !v)
        return LF_EFORMAT;
    if (v && !json_is_object(v))
        rc = lf_fail(err, LF_EINVAL, "chat_vars is no JSON object: %.80s", text);
    else if (v && json_object_update(c->vars, v) != 0)
        rc = LF_ENOMEM;
    json_decref(v);
    return rc;
}

static lf_chat *create(const lf_tokenizer *tok, const lf_tok_conf *conf, const lf_chat_opts *o,
                       lf_err *err)
{
    lf_chat *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return NULL;
    *c = (lf_chat){.tok = tok, .vars = json_object(), .now = o ? o->now : 0};
    int rc = c->vars ? set_tokens(c, conf, err) : LF_ENOMEM;
    if (rc == 0 && o)
        rc = add_vars(c, o->vars, err);
    if (rc == 0)
        return c;
    lf_chat_destroy(c);
    return NULL;
}

void lf_chat_destroy(lf_chat *c)
{
    if (!c)
        return;
    lf_jinja_destroy(c->main);
    lf_jinja_destroy(c->tools);
    json_decref(c->vars);
    free(c->sources);
    free(c);
}

const char *lf_chat_sha256(const lf_chat *c)
{
    return c->sha256;
}

/* Everything is there. */
static int seal(lf_chat *c, lf_buf *all, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_buf text;
    lf_buf_init(&text);
    for (const char *p = all->data; p < all->data + all->len; p += strlen(p) + 1)
        lf_buf_addf(&text, "%s\n", p);
    if (!(c->sources = lf_buf_steal(&text, err)))
        return LF_ENOMEM;
    char *vars = lf_json_dump(c->vars, err);
    lf_buf_addf(all, "%s\n%lld\n", vars ? vars : "", (long long)c->now);
    int rc = vars ? lf_buf_check(all, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_hash_buf(digest, all->data, all->len, err);
    if (rc == 0)
        lf_hash_hex(c->sha256, digest);
    free(vars);
    return rc;
}

static bool is_word(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_';
}

bool lf_chat_reads(const void *chat, const char *member)
{
    const lf_chat *c = chat;
    size_t n = strlen(member);
    for (const char *p = c->sources; n && (p = strstr(p, member)) != NULL; p++)
        if (!is_word(p[n]) && (p == c->sources || !is_word(p[-1])))
            return true;
    return false;
}

/* ---- finding ---- */

/* Of a list of {name, template}, or of an object of templates by name. */
static const char *find_named(json_t *list, const char *name)
{
    size_t i;
    json_t *e;
    if (json_is_object(list))
        return json_string_value(json_object_get(list, name));
    json_array_foreach(list, i, e)
    {
        const char *s = json_string_value(json_object_get(e, "name"));
        if (s && strcmp(s, name) == 0)
            return json_string_value(json_object_get(e, "template"));
    }
    return NULL;
}

/* "chat_template" of a tokenizer_config.json. */
static int from_config(lf_chat *c, json_t *v, const char *path, const char *name, lf_buf *all,
                       lf_err *err)
{
    char *label = NULL;
    lf_buf b;
    bool several = json_is_array(v) || json_is_object(v);
    const char *text = several ? find_named(v, name ? name : "default") : json_string_value(v);
    const char *tool_use = several && !name ? find_named(v, "tool_use") : NULL;
    if (!v || json_is_null(v))
        return lf_fail(err, LF_ENOENT,
                       "%s has no chat template (%s, or chat_template in tokenizer_config.json); "
                       "give one with "
                       "chat_template",
                       path, LF_CHAT_FILE);
    if (!text)
        return lf_fail(err, LF_EFORMAT, "%s: tokenizer_config.json has no chat_template%s%s", path,
                       several ? " called " : " that is a text",
                       several ? name ? name : "default" : "");
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s: chat_template", path);
    int rc = (label = lf_buf_steal(&b, err)) ? 0 : LF_ENOMEM;
    if (rc == 0)
        rc = add_template(c, text, strlen(text), label, false, all, err);
    if (rc == 0 && tool_use)
        rc = add_template(c, tool_use, strlen(tool_use), label, true, all, err);
    free(label);
    return rc;
}

static int from_file(lf_chat *c, const char *file, lf_buf *all, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_io_read_file(file, LF_JINJA_MAX_SOURCE, &b, err);
    if (rc == 0)
        rc = add_template(c, b.data, b.len, file, false, all, err);
    lf_buf_fini(&b);
    return rc;
}

lf_chat *lf_chat_from_files(const lf_tok_files *f, const char *path, const lf_tokenizer *tok,
                            const lf_chat_opts *o, lf_err *err)
{
    lf_tok_conf conf;
    lf_chat *c = NULL;
    const lf_buf *own = lf_tok_files_get(f, LF_CHAT_FILE);
    const char *name = o ? o->name : NULL;
    lf_buf all;
    int rc = lf_tok_conf_read(&conf, f, path, err);
    if (rc != 0)
        return NULL;
    lf_buf_init(&all);
    if (!(c = create(tok, &conf, o, err)))
        rc = LF_ENOMEM;
    else if (o && o->file)
        rc = from_file(c, o->file, &all, err);
    else if (own && (!name || strcmp(name, "default") == 0))
        rc = add_template(c, own->data, own->len, LF_CHAT_FILE, false, &all, err);
    else
        rc = from_config(c, json_object_get(conf.config, "chat_template"), path, name, &all, err);
    if (rc == 0)
        rc = seal(c, &all, err);
    lf_buf_fini(&all);
    lf_tok_conf_fini(&conf);
    if (rc == 0)
        return c;
    lf_chat_destroy(c);
    return NULL;
}

lf_chat *lf_chat_load(const char *path, const lf_tokenizer *tok, const lf_chat_opts *o, lf_err *err)
{
    lf_tok_files f;
    if (lf_tok_files_read(&f, path, err) != 0)
        return NULL;
    lf_chat *c = lf_chat_from_files(&f, path, tok, o, err);
    lf_tok_files_fini(&f);
    return c;
}

lf_chat *lf_chat_from_text(const char *source, size_t len, const char *name,
                           const lf_tokenizer *tok, const lf_chat_opts *o, lf_err *err)
{
    lf_buf all;
    lf_buf_init(&all);
    lf_chat *c = create(tok, NULL, o, err);
    int rc = c ? add_template(c, source, len, name, false, &all, err) : LF_ENOMEM;
    if (rc == 0)
        rc = seal(c, &all, err);
    lf_buf_fini(&all);
    if (rc == 0)
        return c;
    lf_chat_destroy(c);
    return NULL;
}
