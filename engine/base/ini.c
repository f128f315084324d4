/* SPDX-License-Identifier: Apache-2.0
 *
 * The INI reader. One pass over the text; strings live in an arena, names are found through one
 * hash set so that a file of a million keys costs linear time. A UTF-8 byte-order mark at the start
 * is skipped (Windows editors write it); a UTF-16 file is refused by name. Lines end in "\n" or
 * "\r\n". A blank line ends a value.
 */
#include "engine/base/ini.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"

enum { MAX_BYTES = 16 << 20 };
#define NO_SECTION SIZE_MAX

struct reader {
    lf_ini *ini;
    lf_arena *arena;
    const char *path;
    size_t cap_entries, cap_sections;
    /* Open addressing over 2^bits slots: 0 empty, otherwise 1 + index of an entry, or of a section
     * with the top bit. */
    size_t *slots, n_slots, n_used;
    int line;
    bool can_continue; /* the line above belongs to the last entry's value */
    lf_buf value;      /* the last entry's value while it grows */
    lf_err *err;
};
#define SECTION_BIT ((size_t)1 << 63)

static uint64_t hash_name(size_t section, const char *s)
{
    uint64_t h = 1469598103934665603ull ^ (section * 0x9E3779B97F4A7C15ull);
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211ull;
    return h ^ h >> 29;
}

static const char *slot_name(const struct reader *r, size_t slot, size_t *section)
{
    size_t i = (slot & ~SECTION_BIT) - 1;
    if (slot & SECTION_BIT) {
        *section = NO_SECTION;
        return r->ini->sections[i].name;
    }
    /* Only entries of the open section can repeat its keys, and sections are contiguous: the
     * entry's section is found from the pointer, which is shared by all its entries. */
    *section = 0;
    for (size_t lo = 0, hi = r->ini->n_sections; lo < hi;) {
        size_t mid = (lo + hi) / 2;
        if (r->ini->sections[mid].first <= i) {
            *section = mid;
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return r->ini->entries[i].key;
}

static size_t *find_slot(const struct reader *r, size_t section, const char *name)
{
    size_t at = (size_t)hash_name(section, name) & (r->n_slots - 1), other;
    for (;; at = (at + 1) & (r->n_slots - 1)) {
        if (r->slots[at] == 0)
            return &r->slots[at];
        const char *s = slot_name(r, r->slots[at], &other);
        if (other == section && strcmp(s, name) == 0)
            return &r->slots[at];
    }
}

static int grow_slots(struct reader *r)
{
    size_t old_n = r->n_slots, *old = r->slots, section;
    if (r->slots && r->n_used * 2 < r->n_slots)
        return 0;
    r->n_slots = old_n ? old_n * 2 : 64;
    r->slots = lf_calloc(r->n_slots, sizeof *r->slots, r->err);
    if (!r->slots) {
        r->slots = old;
        r->n_slots = old_n;
        return LF_ENOMEM;
    }
    for (size_t i = 0; i < old_n; i++) {
        if (old[i]) {
            const char *s = slot_name(r, old[i], &section);
            *find_slot(r, section, s) = old[i];
        }
    }
    free(old);
    return 0;
}

/* Characters, not bytes: what an editor shows. */
static int column_of(const char *line, const char *at)
{
    int col = 1;
    for (const char *p = line; p < at; p++)
        col += ((unsigned char)*p & 0xC0) != 0x80;
    return col;
}

#define bad(r, line_start, at, ...) bad_at((r), column_of((line_start), (at)), __VA_ARGS__)
static int bad_at(struct reader *r, int column, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int bad_at(struct reader *r, int column, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return lf_fail(r->err, LF_EFORMAT, "%s:%d:%d: %s", r->path, r->line, column, text);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_key_char(char c)
{
    return is_alpha(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

static int finish_value(struct reader *r)
{
    lf_ini *ini = r->ini;
    if (!r->can_continue)
        return 0;
    r->can_continue = false;
    int rc = lf_buf_check(&r->value, r->err);
    if (rc < 0)
        return rc;
    ini->entries[ini->n_entries - 1].value = lf_arena_strdup(r->arena, r->value.data, r->err);
    return ini->entries[ini->n_entries - 1].value ? 0 : LF_ENOMEM;
}

static int read_section(struct reader *r, const char *line, const char *p, const char *end)
{
    lf_ini *ini = r->ini;
    const char *close = memchr(p, ']', (size_t)(end - p)),
               *nested = memchr(p + 1, '[', (size_t)(end - p - 1));
    int rc;
    if (!close)
        return bad(r, line, end, "section without its closing ]");
    if (nested && nested < close)
        return bad(r, line, nested, "[ inside a section name");
    if (close + 1 != end)
        return bad(r, line, close + 1, "text after ] (comments stand on lines of their own)");
    char *name = lf_arena_alloc(r->arena, (size_t)(close - p), 1, r->err), *w = name;
    if (!name)
        return LF_ENOMEM;
    for (const char *s = p + 1; s < close; s++)
        if (!is_blank(*s))
            *w++ = *s;
        else if (w > name && w[-1] != ' ')
            *w++ = ' ';
    if (w > name && w[-1] == ' ')
        w--;
    *w = '\0';
    if (w == name)
        return bad(r, line, p, "empty section name");
    if ((rc = grow_slots(r)) < 0)
        return rc;
    size_t *slot = find_slot(r, NO_SECTION, name);
    if (*slot)
        return bad(r, line, p, "section [%s] again; it began at line %d", name,
                   ini->sections[(*slot & ~SECTION_BIT) - 1].line);
    if ((rc = lf_grow(&ini->sections, &r->cap_sections, ini->n_sections, sizeof *ini->sections,
                      r->err)) < 0)
        return rc;
    ini->sections[ini->n_sections++] =
        (lf_ini_section){.name = name, .path = r->path, .line = r->line, .first = ini->n_entries};
    *slot = SECTION_BIT | ini->n_sections;
    r->n_used++;
    return 0;
}

static int read_entry(struct reader *r, const char *line, const char *end)
{
    lf_ini *ini = r->ini;
    const char *eq = memchr(line, '=', (size_t)(end - line)), *key_end = line;
    int rc;
    if (!eq)
        return bad(r, line, line,
                   "no = in this line; expected [section], key = value or a # comment");
    if (!is_alpha(*line))
        return bad(r, line, line, "a key begins with a letter or _");
    while (key_end < eq && is_key_char(*key_end))
        key_end++;
    for (const char *s = key_end; s < eq; s++)
        if (!is_blank(*s))
            return bad(r, line, s, "a key holds letters, digits, _ . and - only");
    if (ini->n_sections == 0)
        return bad(r, line, line, "key before the first [section]");
    char *key = lf_arena_alloc(r->arena, (size_t)(key_end - line) + 1, 1, r->err);
    if (!key)
        return LF_ENOMEM;
    memcpy(key, line, (size_t)(key_end - line));
    if ((rc = grow_slots(r)) < 0)
        return rc;
    lf_ini_section *sec = &ini->sections[ini->n_sections - 1];
    size_t *slot = find_slot(r, ini->n_sections - 1, key);
    if (*slot)
        return bad(r, line, line, "%s is set twice in [%s]: lines %d and %d", key, sec->name,
                   ini->entries[*slot - 1].line, r->line);
    if ((rc = lf_grow(&ini->entries, &r->cap_entries, ini->n_entries, sizeof *ini->entries,
                      r->err)) < 0)
        return rc;
    const char *v = eq + 1;
    while (v < end && is_blank(*v))
        v++;
    ini->entries[ini->n_entries++] = (lf_ini_entry){.section = sec->name,
                                                    .key = key,
                                                    .value = "",
                                                    .path = r->path,
                                                    .line = r->line,
                                                    .column = column_of(line, v)};
    *slot = ini->n_entries;
    r->n_used++;
    sec->n++;
    lf_buf_clear(&r->value);
    lf_buf_add(&r->value, v, (size_t)(end - v));
    r->can_continue = true;
    return 0;
}

static int read_continuation(struct reader *r, const char *line, const char *p, const char *end)
{
    if (!r->can_continue)
        return bad(r, line, p,
                   "this line begins with a blank but there is no value above it to continue; keys "
                   "begin in the first column");
    if (r->value.len == 0) {
        lf_ini_entry *e = &r->ini->entries[r->ini->n_entries - 1];
        e->line = r->line;
        e->column = column_of(line, p);
    } else {
        lf_buf_addc(&r->value, '\n');
    }
    lf_buf_add(&r->value, p, (size_t)(end - p));
    return 0;
}

static int read_line(struct reader *r, const char *line, const char *end)
{
    int rc;
    if (end > line && end[-1] == '\r')
        end--;
    for (const char *s = line; s < end; s++)
        if (*s == '\0')
            return bad(r, line, s, "NUL byte");
        else if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7f)
            return bad(r, line, s, "control character 0x%02x", (unsigned)(unsigned char)*s);
    size_t ok = lf_utf8_check(line, (size_t)(end - line));
    if (line + ok < end)
        return bad(r, line, line + ok, "byte 0x%02x is not UTF-8; save the file as UTF-8",
                   (unsigned)(unsigned char)line[ok]);
    const char *p = line;
    while (p < end && is_blank(*p))
        p++;
    while (end > p && is_blank(end[-1]))
        end--;
    if (p == end)
        return finish_value(r);
    if (*p == '#' || *p == ';')
        return 0;
    if (p > line)
        return read_continuation(r, line, p, end);
    if ((rc = finish_value(r)) < 0)
        return rc;
    return *p == '[' ? read_section(r, line, p, end) : read_entry(r, line, end);
}

int lf_ini_parse_text(lf_ini *out, const char *text, size_t len, const char *path_for_messages,
                      lf_err *err)
{
    lf_ini ini = {0};
    struct reader r = {.ini = &ini, .err = err};
    int rc = LF_ENOMEM;
    lf_buf_init(&r.value);
    ini.priv = r.arena = lf_arena_create(err);
    if (!r.arena || !(r.path = lf_arena_strdup(r.arena, path_for_messages, err)))
        goto out;
    rc = 0;
    if (len > MAX_BYTES)
        rc = lf_fail(err, LF_EFORMAT, "%s is larger than %d bytes", r.path, MAX_BYTES);
    const char *p = text, *end = rc == 0 ? text + len : text;
    if (len >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
        rc = lf_fail(err, LF_EFORMAT, "%s:1:1: this is UTF-16; save the file as UTF-8", r.path);
    p += lf_utf8_bom(text, len);
    while (rc == 0 && p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        r.line++;
        rc = read_line(&r, p, stop);
        p = nl ? nl + 1 : end;
    }
    if (rc == 0)
        rc = finish_value(&r);
out:
    lf_buf_fini(&r.value);
    free(r.slots);
    if (rc == 0)
        *out = ini;
    else
        lf_ini_fini(&ini);
    return rc;
}

int lf_ini_parse_file(lf_ini *out, const char *path, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_io_read_file(path, MAX_BYTES, &b, err);
    if (rc == 0)
        rc = lf_ini_parse_text(out, b.data, b.len, path, err);
    lf_buf_fini(&b);
    return rc;
}

void lf_ini_fini(lf_ini *ini)
{
    if (!ini)
        return;
    free(ini->entries);
    free(ini->sections);
    lf_arena_destroy(ini->priv);
    *ini = (lf_ini){0};
}

const lf_ini_section *lf_ini_find_section(const lf_ini *ini, const char *name)
{
    for (size_t i = 0; i < ini->n_sections; i++)
        if (strcmp(ini->sections[i].name, name) == 0)
            return &ini->sections[i];
    return NULL;
}

const lf_ini_entry *lf_ini_find(const lf_ini *ini, const char *section, const char *key)
{
    const lf_ini_section *s = lf_ini_find_section(ini, section);
    for (size_t i = 0; s && i < s->n; i++)
        if (strcmp(ini->entries[s->first + i].key, key) == 0)
            return &ini->entries[s->first + i];
    return NULL;
}
