/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the layers of configuration and merging them. References are in conf_ref.c.
 */
#include "config.h"

#include "flow/plan/conf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/ini.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

#define CONF_MAX_BYTES   (16u << 20)
#define CONF_MAX_DEPTH   16
#define CONF_MAX_TRUSTED 64

bool lf_owner_allowed(uid_t owner, mode_t mode, uid_t me, const uid_t *trusted, size_t n_trusted,
                      const char **reason)
{
    if ((mode & S_IWOTH) != 0) {
        *reason = "it is writable by everybody";
        return false;
    }
    if (owner == me || owner == 0)
        return true;
    for (size_t i = 0; i < n_trusted; i++)
        if (trusted[i] == owner)
            return true;
    *reason = "it belongs to another user";
    return false;
}

bool lf_name_is_secret(const char *name)
{
    char up[256];
    size_t n = strlen(name);
    if (n >= sizeof up)
        return true;
    for (size_t i = 0; i <= n; i++)
        up[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 32 : name[i]);
    return lf_str_has_suffix(up, "_TOKEN") || lf_str_has_suffix(up, "_KEY") ||
           strstr(up, "PASSWORD") != NULL || strstr(up, "SECRET") != NULL ||
           strcmp(up, "TOKEN") == 0;
}

bool lf_text_has_secret(const char *text)
{
    for (const char *eq = strchr(text, '='); eq != NULL; eq = strchr(eq + 1, '=')) {
        char name[128];
        const char *b = eq, *v = eq + 1;
        while (b > text && (isalnum((unsigned char)b[-1]) || b[-1] == '_'))
            b--;
        size_t n = (size_t)(eq - b);
        if (n == 0 || n >= sizeof name)
            continue;
        memcpy(name, b, n);
        name[n] = '\0';
        v += *v == '"';
        bool asked = (*v == '$' && v[1] != '{') ||
                     *v == '`'; /* of the shell; "${...}" is ours, replaced when the file is read */
        if (lf_name_is_secret(name) && !asked && *v != '\0' && !isspace((unsigned char)*v))
            return true;
    }
    return false;
}

static int fail_at(const lf_conf_item *it, int column, lf_err *err, const char *fmt, va_list ap)
{
    char text[900];
    vsnprintf(text, sizeof text, fmt, ap);
    if (it->line == 0)
        return lf_fail(err, LF_EINVAL, "%s: %s", it->path, text);
    return lf_fail(err, LF_EINVAL, "%s:%d:%d: %s", it->path, it->line, column, text);
}

int lf_conf_fail(const lf_conf_item *it, lf_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = fail_at(it, it->column, err, fmt, ap);
    va_end(ap);
    return rc;
}

int lf_conf_fail_key(const lf_conf_item *it, lf_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = fail_at(it, 1, err, fmt, ap); /* a line that begins with a blank has no key */
    va_end(ap);
    return rc;
}

lf_conf_item *lf_conf_find(const lf_conf *c, const char *section, const char *key)
{
    size_t i = lf_names_find(&c->item_names, section, key);
    return i != LF_NAMES_NONE ? &c->items[i] : NULL;
}

const lf_conf_section *lf_conf_find_section(const lf_conf *c, const char *name)
{
    size_t i = lf_names_find(&c->section_names, name, "");
    return i != LF_NAMES_NONE ? &c->sections[i] : NULL;
}

size_t lf_conf_first(const lf_conf *c, const char *section)
{
    const lf_conf_section *s = lf_conf_find_section(c, section);
    return s != NULL ? s->first : LF_CONF_END;
}

const char *lf_conf_get(const lf_conf *c, const char *section, const char *key, const char *def)
{
    lf_conf_item *it = lf_conf_find(c, section, key);
    if (it == NULL)
        return def;
    it->read = true;
    return it->value != NULL ? it->value : it->raw;
}

static int add_section(lf_conf *c, const char *name, const char *layer, const char *path, int line,
                       lf_err *err)
{
    if (lf_conf_find_section(c, name) != NULL)
        return 0;
    int rc = lf_grow(&c->sections, &c->cap_sections, c->n_sections, sizeof *c->sections, err);
    if (rc < 0)
        return rc;
    lf_conf_section *s = &c->sections[c->n_sections];
    s->name = lf_arena_strdup(c->arena, name, err);
    s->path = lf_arena_strdup(c->arena, path, err);
    s->layer = layer;
    s->line = line;
    s->first = s->last = LF_CONF_END;
    if (s->name == NULL || s->path == NULL)
        return LF_ENOMEM;
    return lf_names_put(&c->section_names, s->name, "", c->n_sections++, err);
}

/* A new item of a section that is there, the last of it; its texts are the arena's. */
static int add_item(lf_conf *c, const lf_conf_item *it, lf_err *err)
{
    int rc = lf_grow(&c->items, &c->cap_items, c->n_items, sizeof *c->items, err);
    if (rc == 0)
        rc = lf_names_put(&c->item_names, it->section, it->key, c->n_items, err);
    if (rc < 0)
        return rc;
    lf_conf_section *s = &c->sections[lf_names_find(&c->section_names, it->section, "")];
    c->items[c->n_items] = *it;
    c->items[c->n_items].next = LF_CONF_END;
    *(s->last == LF_CONF_END ? &s->first : &c->items[s->last].next) = c->n_items;
    s->last = c->n_items++;
    return 0;
}

/* A later layer replaces the value and its origin, and keeps the place in the order. */
static int put_item(lf_conf *c, const char *layer, const lf_ini_entry *e, lf_err *err)
{
    int rc = add_section(c, e->section, layer, e->path, e->line, err);
    if (rc < 0)
        return rc;
    lf_conf_item *it = lf_conf_find(c, e->section, e->key);
    if (it == NULL) {
        lf_conf_item new = {.section = lf_conf_find_section(c, e->section)->name,
                            .key = lf_arena_strdup(c->arena, e->key, err)};
        rc = new.key == NULL ? LF_ENOMEM : add_item(c, &new, err);
        if (rc < 0)
            return rc;
        it = &c->items[c->n_items - 1];
    }
    it->raw = lf_arena_strdup(c->arena, e->value, err);
    it->path = lf_arena_strdup(c->arena, e->path, err);
    it->layer = layer;
    it->line = e->line;
    it->column = e->column;
    return it->raw != NULL && it->path != NULL ? 0 : LF_ENOMEM;
}

static int check_owner(const lf_conf *c, const struct stat *st, const char *path, lf_err *err)
{
    uid_t trusted[CONF_MAX_TRUSTED];
    size_t n = 0;
    for (size_t i = 0; i < c->n_trusted && n < CONF_MAX_TRUSTED - 1; i++) {
        const struct passwd *pw = getpwnam(c->trusted[i]);
        if (pw != NULL)
            trusted[n++] = pw->pw_uid;
    }
    const char *sudo = getenv("SUDO_UID");
    int64_t uid = 0;
    if (geteuid() == 0 && sudo != NULL && lf_parse_i64(&uid, sudo, NULL) == 0 && uid > 0)
        trusted[n++] = (uid_t)uid;
    const char *reason = NULL;
    if (lf_owner_allowed(st->st_uid, st->st_mode, geteuid(), trusted, n, &reason))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "%s: refused: %s (owner uid %u, mode %04o); change it, or list the owner under "
                   "[user] trust in your "
                   "user file",
                   path, reason, (unsigned)st->st_uid, (unsigned)st->st_mode & 07777u);
}

/* The checks are made on the descriptor that is read, so the file cannot be exchanged between
 * them. */
static int read_checked(const lf_conf *c, const char *path, lf_buf *text, lf_err *err)
{
    int rc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return lf_fail_errno(err, "%s: cannot open", path);
    struct stat st;
    if (fstat(fd, &st) < 0) {
        rc = lf_fail_errno(err, "%s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = lf_fail(err, LF_EINVAL, "%s: not a regular file", path);
        goto out;
    }
    rc = check_owner(c, &st, path, err);
    if (rc < 0)
        goto out;
    char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = lf_fail_errno(err, "%s: cannot read", path);
        if (n <= 0)
            break;
        lf_buf_add(text, chunk, (size_t)n);
        if (text->len > CONF_MAX_BYTES) {
            rc = lf_fail(err, LF_EFORMAT, "%s: larger than 16 MiB", path);
            break;
        }
    }
    if (rc == 0)
        rc = lf_buf_check(text, err);
out:
    close(fd);
    return rc;
}

static int read_layer(lf_conf *c, const char *path, const char *layer, const char *const *chain,
                      int depth, lf_err *err);

/* Path of an included file, relative to the file that names it. */
static char *beside(const char *base, const char *name, lf_err *err)
{
    if (name[0] == '/')
        return lf_strdup(name, err);
    const char *slash = strrchr(base, '/');
    lf_buf b;
    lf_buf_init(&b);
    if (slash != NULL)
        lf_buf_add(&b, base, (size_t)(slash - base) + 1);
    lf_buf_adds(&b, name);
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}

static int read_includes(lf_conf *c, const lf_ini *ini, const char *layer, const char *const *chain,
                         int depth, lf_err *err)
{
    const lf_ini_entry *e = lf_ini_find(ini, "pipeline", "include");
    if (e == NULL)
        return 0;
    char *list = lf_strdup(e->value, err), *save = NULL;
    int rc = list == NULL ? LF_ENOMEM : 0;
    for (char *name = rc < 0 ? NULL : strtok_r(list, "\n", &save); name != NULL && rc == 0;
         name = strtok_r(NULL, "\n", &save)) {
        char *path = beside(e->path, name, err);
        if (path == NULL)
            rc = LF_ENOMEM;
        else if (depth + 1 >= CONF_MAX_DEPTH)
            rc = lf_fail(err, LF_EINVAL, "%s:%d:%d: includes are nested more than %d deep", e->path,
                         e->line, e->column, CONF_MAX_DEPTH);
        for (int i = 0; rc == 0 && i <= depth; i++)
            if (strcmp(chain[i], path) == 0)
                rc = lf_fail(err, LF_EINVAL, "%s:%d:%d: %s includes itself", e->path, e->line,
                             e->column, path);
        if (rc == 0 && !lf_io_exists(path))
            rc = lf_fail(err, LF_ENOENT, "%s:%d:%d: included file %s does not exist", e->path,
                         e->line, e->column, path);
        if (rc == 0)
            rc = read_layer(c, path, layer, chain, depth + 1, err);
        free(path);
    }
    free(list);
    return rc;
}

static int read_layer(lf_conf *c, const char *path, const char *layer, const char *const *chain,
                      int depth, lf_err *err)
{
    const char *links[CONF_MAX_DEPTH];
    for (int i = 0; i < depth; i++)
        links[i] = chain[i];
    links[depth] = path;
    lf_ini ini;
    memset(&ini, 0, sizeof ini);
    lf_buf text;
    lf_buf_init(&text);
    int rc = read_checked(c, path, &text, err);
    if (rc == 0)
        rc = lf_ini_parse_text(&ini, text.data, text.len, path, err);
    if (rc == LF_EFORMAT &&
        err != NULL) /* for the user it is a wrong setting, not a damaged file */
        rc = err->rc = LF_EINVAL;
    if (rc == 0)
        rc = read_includes(c, &ini, layer, links, depth, err);
    for (size_t i = 0; rc == 0 && i < ini.n_sections; i++)
        rc = add_section(c, ini.sections[i].name, layer, path, ini.sections[i].line, err);
    for (size_t i = 0; rc == 0 && i < ini.n_entries; i++)
        if (strcmp(ini.entries[i].section, "pipeline") != 0 ||
            strcmp(ini.entries[i].key, "include") != 0)
            rc = put_item(c, layer, &ini.entries[i], err);
    lf_ini_fini(&ini);
    lf_buf_fini(&text);
    return rc;
}

/* "--set train.steps=5" means the stage of that name when there is no such section, else the
 * template, model or kind. */
static int complete_section(char **section, const lf_conf *c, lf_err *err)
{
    static const char *const kinds[] = {"stage", "template", "model", "kind"};
    for (size_t i = 0;
         i < sizeof kinds / sizeof kinds[0] && lf_conf_find_section(c, *section) == NULL; i++) {
        lf_buf b;
        lf_buf_init(&b);
        lf_buf_addf(&b, "%s %s", kinds[i], *section);
        char *full = lf_buf_steal(&b, err);
        lf_buf_fini(&b);
        if (full == NULL)
            return LF_ENOMEM;
        if (lf_conf_find_section(c, full) != NULL) {
            free(*section);
            *section = full;
        } else {
            free(full);
        }
    }
    return 0;
}

int lf_conf_split(char **section, char **key, const lf_conf *c, const char *name, lf_err *err)
{
    const char *dot = strchr(name, '.');
    if (dot == NULL || dot == name || dot[1] == '\0')
        return lf_fail(err, LF_EINVAL, "\"%s\" is not section.key", name);
    char *s = lf_strndup(name, (size_t)(dot - name), err), *k = lf_strdup(dot + 1, err);
    int rc = s != NULL && k != NULL ? complete_section(&s, c, err) : LF_ENOMEM;
    if (rc < 0) {
        free(s);
        free(k);
        return rc;
    }
    *section = s;
    *key = k;
    return 0;
}

static int apply_over(lf_conf *c, const lf_conf_set *over, lf_err *err)
{
    char *section = NULL, *key = NULL;
    int rc = lf_conf_split(&section, &key, c, over->name, err);
    if (rc < 0)
        return rc;
    lf_ini_entry e = {.section = section,
                      .key = key,
                      .value = over->value,
                      .path = over->path,
                      .line = over->line,
                      .column = over->column};
    rc = put_item(c, over->layer, &e, err);
    free(section);
    free(key);
    return rc;
}

static int apply_set(lf_conf *c, const char *arg, lf_err *err)
{
    const char *eq = strchr(arg, '='), *dot = strchr(arg, '.');
    if (eq == NULL || dot == NULL || dot > eq || dot == arg || dot + 1 == eq)
        return lf_fail(err, LF_EINVAL, "--set wants section.key=value, not \"%s\"", arg);
    char *name = lf_strndup(arg, (size_t)(eq - arg), err);
    const lf_conf_set over = {.name = name, .value = eq + 1, .layer = "--set", .path = "--set"};
    int rc = name == NULL ? LF_ENOMEM : apply_over(c, &over, err);
    free(name);
    return rc;
}

static int load_trusted(lf_conf *c, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "user", "trust");
    if (it == NULL)
        return 0;
    it->read = true;
    char *list = lf_arena_strdup(c->arena, it->raw, err), *save = NULL;
    c->trusted = lf_arena_alloc(c->arena, CONF_MAX_TRUSTED, sizeof *c->trusted, err);
    if (list == NULL || c->trusted == NULL)
        return LF_ENOMEM;
    for (char *p = strtok_r(list, ", \t\n", &save); p != NULL;
         p = strtok_r(NULL, ", \t\n", &save)) {
        if (c->n_trusted + 2 > CONF_MAX_TRUSTED)
            return lf_conf_fail(it, err, "more than %d trusted users", CONF_MAX_TRUSTED - 1);
        c->trusted[c->n_trusted++] = p;
    }
    return 0;
}

/* Copy what `it`'s section lacks from the section it inherits from; parents first, so a chain
 * works. */
static int inherit_into(lf_conf *c, const char *section, int depth, lf_err *err)
{
    lf_conf_item *inh = lf_conf_find(c, section, "inherit");
    if (inh == NULL || inh->phase == 2)
        return 0;
    if (inh->phase == 1 || depth > 64)
        return lf_conf_fail(inh, err, "[%s] inherits from itself (through \"%s\")", section,
                            inh->raw);
    inh->phase = 1;
    inh->read = true;
    const char *from = NULL;
    for (int i = 0; i < 2 && from == NULL; i++) {
        char *name = i == 0 ? lf_arena_printf(c->arena, err, "template %s", inh->raw)
                            : lf_arena_printf(c->arena, err, "stage %s", inh->raw);
        if (name == NULL)
            return LF_ENOMEM;
        if (lf_conf_find_section(c, name) != NULL && strcmp(name, section) != 0)
            from = name;
    }
    if (from == NULL)
        return lf_conf_fail(inh, err,
                            "inherit = %s: there is no [template %s] and no other [stage %s]",
                            inh->raw, inh->raw, inh->raw);
    int rc = inherit_into(c, from, depth + 1, err);
    for (size_t i = lf_conf_first(c, from); rc == 0 && i != LF_CONF_END; i = c->items[i].next) {
        lf_conf_item src = c->items[i];
        if (strcmp(src.key, "inherit") == 0 || strcmp(src.key, "after") == 0)
            continue;
        c->items[i].read = c->items[i].read || lf_str_has_prefix(from, "template ");
        if (lf_conf_find(c, section, src.key) != NULL)
            continue;
        src.section = section;
        src.via = from;
        src.read = false;
        src.phase = 0;
        rc = add_item(c, &src, err);
    }
    inh = lf_conf_find(c, section, "inherit"); /* items may have moved */
    if (rc == 0 && inh != NULL)
        inh->phase = 2;
    return rc;
}

static int apply_inherit(lf_conf *c, lf_err *err)
{
    for (size_t i = 0; i < c->n_sections; i++) {
        const char *name = c->sections[i].name;
        if (!lf_str_has_prefix(name, "stage ") && !lf_str_has_prefix(name, "template "))
            continue;
        int rc = inherit_into(c, name, 0, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_optional(lf_conf *c, const char *env, const char *fallback, const char *layer,
                         lf_err *err)
{
    const char *named = getenv(env);
    if (named != NULL && named[0] == '\0')
        return 0; /* set but empty: this layer is switched off */
    const char *path = named != NULL ? named : fallback;
    if (path == NULL || (named == NULL && !lf_io_exists(path)))
        return 0;
    path = lf_arena_strdup(c->arena, path, err);
    return path == NULL ? LF_ENOMEM : read_layer(c, path, layer, NULL, 0, err);
}

int lf_conf_load(lf_conf *out, const lf_conf_args *args, lf_err *err)
{
    lf_conf c;
    memset(&c, 0, sizeof c);
    c.arena = lf_arena_create(err);
    if (c.arena == NULL)
        return LF_ENOMEM;
    const char *home = getenv("HOME");
    char *user = NULL;
    if (home != NULL && home[0] == '/')
        user = lf_arena_printf(c.arena, err, "%s/.config/loong-flow/config.ini", home);
    int rc = read_optional(&c, "LF_USER_CONFIG", user, "user", err);
    if (rc == 0)
        rc = load_trusted(&c, err);
    /* The user file was read first because it says whom to trust; the site file goes below it, so
     * read it into a fresh table and lay the user file over it. */
    if (rc == 0) {
        lf_conf user_only = c;
        c.items = NULL;
        c.n_items = c.cap_items = 0;
        memset(&c.item_names, 0, sizeof c.item_names);
        for (size_t i = 0; i < c.n_sections; i++)
            c.sections[i].first = c.sections[i].last = LF_CONF_END;
        rc = read_optional(&c, "LF_SITE_CONFIG", "/etc/loong-flow/site.ini", "site", err);
        for (size_t i = 0; rc == 0 && i < user_only.n_items; i++) {
            const lf_conf_item *it = &user_only.items[i];
            lf_ini_entry e = {it->section, it->key, it->raw, it->path, it->line, it->column};
            rc = put_item(&c, "user", &e, err);
            if (rc == 0)
                lf_conf_find(&c, it->section, it->key)->read = it->read;
        }
        free(user_only.items);
        lf_names_fini(&user_only.item_names);
    }
    if (rc == 0 && args->pipeline_path != NULL)
        rc = read_layer(&c, args->pipeline_path, "pipeline", NULL, 0, err);
    for (size_t i = 0; rc == 0 && i < args->n_sets; i++)
        rc = apply_set(&c, args->sets[i], err);
    for (size_t i = 0; rc == 0 && i < args->n_over; i++)
        rc = apply_over(&c, &args->over[i], err);
    if (rc == 0)
        rc = apply_inherit(&c, err);
    if (rc < 0) {
        lf_conf_fini(&c);
        return rc;
    }
    *out = c;
    return 0;
}

void lf_conf_fini(lf_conf *c)
{
    free(c->items);
    free(c->sections);
    lf_names_fini(&c->item_names);
    lf_names_fini(&c->section_names);
    lf_arena_destroy(c->arena);
    memset(c, 0, sizeof *c);
}
