/* SPDX-License-Identifier: Apache-2.0
 *
 * Every model_type of transformers 5.23.0 that writes texts or tells classes of pictures
 * (classes.txt, by make_classes.py) has an entry of engine/convert, or is refused by one line that
 * says what it needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/hf.h"
#include "tests/tap/tap.h"

#define MAX_CLASSES 400

static struct {
    char map[8], type[64], state[8];
} classes[MAX_CLASSES];
static int n_classes;

static void read_classes(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf text;
    char path[4096], *save = NULL;
    const char *src = getenv("LF_SRCDIR");
    lf_buf_init(&text);
    snprintf(path, sizeof path, "%s/tests/golden/families/classes.txt", src ? src : ".");
    if (lf_io_read_file(path, 1 << 20, &text, &err))
        tap_bail("%s", err.text);
    for (char *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '#')
            continue;
        if (n_classes == MAX_CLASSES ||
            sscanf(line, "%7s %63s %7s", classes[n_classes].map, classes[n_classes].type,
                   classes[n_classes].state) != 3)
            tap_bail("%s: %s", path, line);
        n_classes++;
    }
    lf_buf_fini(&text);
}

/* A config.json that says no more than its model_type. */
static const struct lf_hf_family *family_of(const char *type, lf_err *err)
{
    json_t *o = json_pack("{s:s}", "model_type", type);
    const struct lf_hf_family *f = lf_hf_family_of(o, "config.json", err);
    json_decref(o);
    return f;
}

/* Listed among the classes that see, though it is a decoder of texts alone. */
static bool of_texts(const char *type)
{
    return strcmp(type, "mistral4") == 0;
}

/* A model that tells classes of pictures, by a known encoder. */
static void test_told(const char *type, bool known)
{
    static const struct {
        const char *type, *class;
    } names[] = {{"vit", "ViT"},       {"deit", "DeiT"},       {"clip", "CLIP"},
                 {"siglip", "Siglip"}, {"siglip2", "Siglip2"}, {"dinov2", "Dinov2"},
                 {"swin", "Swin"},     {"swinv2", "Swinv2"},   {"convnext", "ConvNext"}};
    lf_err err = LF_ERR_INIT;
    char class[64] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].type, type) == 0)
            snprintf(class, sizeof class, "%sForImageClassification", names[i].class);
    json_t *o = json_pack("{s:s, s:[s]}", "model_type", type, "architectures", class);
    const struct lf_hf_family *f = lf_hf_family_of(o, "config.json", &err);
    tap_ok(class[0] &&
               (known ? f && strcmp(f->architecture, class) == 0
                      : !f && strstr(err.text, class) && strstr(err.text, "not known here")),
           "told %s %s: %s", type, class, err.text);
    json_decref(o);
}

static void test_class(int i)
{
    lf_err err = LF_ERR_INIT;
    char want[256];
    const char *type = classes[i].type, *map = classes[i].map, *needs = lf_hf_later_needs(type);
    const struct lf_hf_family *f = family_of(type, &err);
    if (strcmp(map, "told") == 0 && strcmp(classes[i].state, "later") != 0) {
        test_told(type, strcmp(classes[i].state, "known") == 0);
        return;
    }
    if (strcmp(classes[i].state, "known") == 0) {
        tap_ok(f && !needs && (strcmp(map, "image") != 0 || f->sight || of_texts(type)),
               "%s %s has an entry%s%s: %s", map, type, needs ? ", but is refused for " : "",
               needs ? needs : "", err.text);
        return;
    }
    snprintf(want, sizeof want, "config.json: model_type = %s is not read yet: it needs %s", type,
             needs ? needs : "?");
    tap_ok(!f && needs && *needs && strcmp(err.text, want) == 0 && !strchr(want, '\n'), "%s %s: %s",
           map, type, f ? f->name : err.text);
}

static bool is_later(const char *type)
{
    for (int i = 0; i < n_classes; i++)
        if (strcmp(classes[i].type, type) == 0 && strcmp(classes[i].state, "later") == 0)
            return true;
    return false;
}

/* The table has no model_type twice, and none that is not one of transformers. */
static void test_table(void)
{
    static char seen[MAX_CLASSES][64];
    int n = 0, wrong = 0;
    for (const struct lf_hf_later *l = lf_hf_laters; l->types; l++)
        for (const char *p = l->types; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
            if (n == MAX_CLASSES)
                tap_bail("more than %d model_types in later.c", n);
            snprintf(seen[n], sizeof seen[n], "%.*s", (int)strcspn(p, " "), p);
            bool twice = false;
            for (int i = 0; i < n; i++)
                twice |= strcmp(seen[i], seen[n]) == 0;
            if (twice || !is_later(seen[n])) {
                tap_diag("%s", seen[n]);
                wrong++;
            }
            n++;
        }
    tap_ok(n > 0 && wrong == 0, "each of %d model_types that come later is in classes.txt, once",
           n);
}

/* Of what nobody knows the known ones are listed. */
static void test_unknown(void)
{
    lf_err err = LF_ERR_INIT;
    tap_ok(!family_of("walrus", &err) && strstr(err.text, "'walrus' is not known; known: gpt2"),
           "an unknown model_type: %.80s", err.text);
}

int main(void)
{
    read_classes();
    TAP(1, tap_ok(n_classes == 189 + 97 + 37 + 41, "%d classes", n_classes));
    for (int i = 0; i < n_classes; i++)
        TAP(1, test_class(i));
    TAP(1, test_table());
    TAP(1, test_unknown());
    return tap_done();
}
