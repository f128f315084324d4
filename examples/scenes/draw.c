/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the scenes of this example, and writes what is said and asked about them.
 *
 *     draw FONT DIR [SEED [SCENES]]
 *     draw --classes FONT DIR [SEED [PICTURES]]
 *     draw --large FONT DIR [SEED [PICTURES]]
 *     draw --captions FONT DIR [SEED [PICTURES]]
 *
 * A scene is a picture of 32 x 32 pixels with one to three things, each in a quarter of its own.
 * A thing is a circle, a square, a triangle, a letter or a digit of FONT, in one of six colours.
 * Size, colour, place within the quarter and background vary a little.
 *
 * A combination is what a scene holds: things, colours, places. For each thing at each place one
 * colour of the six is never trained: thing, colour and place whose numbers sum to a multiple of
 * six. Each of the HELD scenes that are evaluated has at least one such, no two have the same
 * combination, and the question is about the thing that was never seen so. All answers to a kind
 * of question are asked for equally often, so a model that does not see gains nothing by knowing
 * the questions.
 *
 * DIR gets pictures/, and JSON lines: captions that begin with places (captions) and with things
 * (things), and questions, to train on; all of them without pictures (blind); questions about the
 * scenes that are held out with their pictures (held), with those of other scenes (shuffled) and
 * without (held-blind), some of them as prompts for the report (show); and all the text that is
 * trained on (text.txt). The same arguments give the same bytes wherever FreeType renders the same
 * outlines.
 *
 * With --classes (examples/classes) a picture has one thing, any of them, and which of the 21 it is
 * is its label. DIR gets pictures/, rows with all of them to look at (all.jsonl), with the first
 * LABELLED of them, every thing equally often, to learn from (few.jsonl) and with HELD others
 * (held.jsonl). With --large the thing is larger, of more sizes and anywhere in the picture, and
 * FEW pictures are in few.jsonl.
 *
 * With --captions (examples/captions) a picture has one thing too, and a caption says which it is
 * and its colour ("a red circle"), half of the time where it is as well. A thing and a colour whose
 * numbers sum to a multiple of six are in no caption. DIR gets pictures/, rows with captions
 * (pairs.jsonl), HELD pictures of the combinations that no caption has, each with its number
 * (held.jsonl), and the names of all combinations by their numbers (names.txt).
 */
#include <errno.h>
#include <ft2build.h>
#include FT_FREETYPE_H
#include <inttypes.h>
#include <math.h>
#include <png.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    SIDE = 32,    /* pixels of a picture */
    QUARTER = 16, /* and of the room of a thing */
    FINE = 4,     /* samples of a pixel, each way */
    MOST = 3,     /* things in a scene */
    SHAPES = 3,
    LETTERS = 12,
    DIGITS = 6,
    THINGS = SHAPES + LETTERS + DIGITS,
    KINDS = 5,
    COLOURS = 6,
    PLACES = 4,
    HELD = 2000,
    LABELLED = 1050, /* 50 of each thing */
    FEW = 210,       /* 10 of each, of the large ones */
    SHOWN = 24
};

static const char *const kind_names[KINDS] = {"circle", "square", "triangle", "letter", "digit"};
static const char characters[] = "ACEFHKLPTUXY234579";
static const char *const colour_names[COLOURS] = {"red",    "green",  "blue",
                                                  "yellow", "purple", "black"};
static const double colours[COLOURS][3] = {{220, 30, 30},  {30, 150, 40},  {40, 70, 220},
                                           {235, 190, 10}, {150, 40, 170}, {20, 20, 20}};
static const char *const place_names[PLACES] = {"top left", "top right", "bottom left",
                                                "bottom right"};
static const char *const count_names[MOST] = {"one", "two", "three"};

struct thing {
    int what, colour, place;
};
struct scene {
    int n;
    struct thing thing[MOST]; /* by place */
};
enum question { COUNT, COLOUR, KIND, CHARACTER, PLACE, QUESTIONS };

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("draw: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ---- random numbers: SplitMix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t state;

static uint64_t draw(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static int below(int n)
{
    return (int)(draw() % (uint64_t)n);
}
static double between(double a, double b)
{
    return a + (b - a) * (double)(draw() >> 11) / 0x1p53;
}

/* ---- things ---- */

static int kind_of(int what)
{
    return what < SHAPES ? what : what < SHAPES + LETTERS ? SHAPES : SHAPES + 1;
}
static bool is_held(const struct thing *t)
{
    return (t->what + t->colour + t->place) % COLOURS == 0;
}

/* A kind is drawn first, so that letters are no more frequent than circles. */
static int some_thing(int kind)
{
    return kind < SHAPES    ? kind
           : kind == SHAPES ? SHAPES + below(LETTERS)
                            : SHAPES + LETTERS + below(DIGITS);
}

/* The name by which a question speaks of a thing: a letter by itself or as "letter". */
static const char *name_of(int what, bool itself, char room[2])
{
    if (what < SHAPES || !itself)
        return kind_names[kind_of(what)];
    room[0] = characters[what - SHAPES];
    room[1] = '\0';
    return room;
}

/* Fills a scene up to n things at places that are free. */
static void fill(struct scene *s, int n)
{
    while (s->n < n) {
        struct thing t = {some_thing(below(KINDS)), below(COLOURS), below(PLACES)};
        int at = 0;
        while (at < s->n && s->thing[at].place < t.place)
            at++;
        if (at < s->n && s->thing[at].place == t.place)
            continue;
        memmove(s->thing + at + 1, s->thing + at, (size_t)(s->n++ - at) * sizeof t);
        s->thing[at] = t;
    }
}

static uint64_t combination(const struct scene *s)
{
    uint64_t key = 0;
    for (int i = 0; i < s->n; i++) {
        const struct thing *t = &s->thing[i];
        key = key * (THINGS * COLOURS * PLACES + 1) + 1 +
              (uint64_t)((t->what * COLOURS + t->colour) * PLACES + t->place);
    }
    return key;
}

/* ---- pictures ---- */

static uint8_t pixels[SIDE][SIDE][3];

static void blend(int x, int y, double share, const double *rgb)
{
    if (x >= 0 && x < SIDE && y >= 0 && y < SIDE)
        for (int c = 0; c < 3; c++)
            pixels[y][x][c] = (uint8_t)lround(pixels[y][x][c] * (1 - share) + rgb[c] * share);
}

/* Is the point in the shape, whose box is [-1, 1] each way? */
static bool inside(int shape, double x, double y)
{
    if (fabs(x) > 1 || fabs(y) > 1)
        return false;
    return shape == 0 ? x * x + y * y <= 1 : shape == 1 || fabs(x) <= (y + 1) / 2;
}

static void draw_shape(int shape, double cx, double cy, double radius, const double *rgb)
{
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int n = 0;
            for (int i = 0; i < FINE * FINE; i++)
                n += inside(shape, (x + (i % FINE + 0.5) / FINE - cx) / radius,
                            (y + ((double)(i / FINE) + 0.5) / FINE - cy) / radius);
            blend(x, y, (double)n / (FINE * FINE), rgb);
        }
}

static void draw_character(FT_Face font, char c, double cx, double cy, double radius,
                           const double *rgb)
{
    if (FT_Set_Char_Size(font, 0, (FT_F26Dot6)lround(radius * 2.6 * 64), 72, 72) ||
        FT_Load_Char(font, (FT_ULong)c, FT_LOAD_RENDER | FT_LOAD_NO_HINTING))
        die("the font has no %c", c);
    const FT_Bitmap *b = &font->glyph->bitmap;
    const int left = (int)lround(cx - b->width / 2.0), top = (int)lround(cy - b->rows / 2.0);
    for (int y = 0; y < (int)b->rows; y++)
        for (int x = 0; x < (int)b->width; x++)
            blend(left + x, top + y, b->buffer[y * b->pitch + x] / 255.0, rgb);
}

static void draw_thing(FT_Face font, const struct thing *t, double cx, double cy, double radius)
{
    double rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = fmin(255, fmax(0, colours[t->colour][c] + between(-15, 15)));
    if (t->what < SHAPES)
        draw_shape(t->what, cx, cy, radius, rgb);
    else
        draw_character(font, characters[t->what - SHAPES], cx, cy, radius, rgb);
}

static void draw_scene(FT_Face font, const struct scene *s)
{
    memset(pixels, 225 + below(31), sizeof pixels);
    for (int i = 0; i < s->n; i++) {
        const struct thing *t = &s->thing[i];
        const double radius = between(5, 6.5), slack = QUARTER / 2.0 - radius - 0.5;
        const double cx = QUARTER * (t->place % 2 + 0.5) + between(-slack, slack);
        const double cy = QUARTER * ((double)(t->place / 2) + 0.5) + between(-slack, slack);
        draw_thing(font, t, cx, cy, radius);
    }
}

/* One thing wherever it fits. */
static void draw_large(FT_Face font, const struct thing *t)
{
    memset(pixels, 225 + below(31), sizeof pixels);
    const double radius = between(8, 13), slack = SIDE / 2.0 - radius - 0.5;
    const double cx = SIDE / 2.0 + between(-slack, slack), cy = SIDE / 2.0 + between(-slack, slack);
    draw_thing(font, t, cx, cy, radius);
}

static void save(const char *dir, const char *name)
{
    char path[4096];
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_RGB};
    if (snprintf(path, sizeof path, "%s/pictures/%s", dir, name) >= (int)sizeof path)
        die("%s: the name is too long", dir);
    if (!png_image_write_to_file(&image, path, 0, pixels, 0, NULL))
        die("%s: %s", path, image.message);
}

/* ---- what is said and asked ---- */

struct asked {
    enum question q;
    char by; /* how the thing is named */
    char question[96], answer[192];
};

/* How many things of the scene are of this kind, this character, this colour? */
static int count_of(const struct scene *s, const struct thing *t, char by)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const struct thing *o = &s->thing[i];
        n += by == 'k'   ? kind_of(o->what) == kind_of(t->what)
             : by == 't' ? o->what == t->what
                         : o->colour == t->colour;
    }
    return n;
}

/* By what a sentence may name a thing of which it asks q so that it is the only one: its kind,
 * itself, its colour, its place. '\0': by nothing. */
static char some_name(const struct scene *s, const struct thing *t, enum question q)
{
    char can[4];
    int n = 0;
    if (q != KIND && q != CHARACTER && count_of(s, t, 'k') == 1)
        can[n++] = 'k';
    if (q != KIND && q != CHARACTER && t->what >= SHAPES && count_of(s, t, 't') == 1)
        can[n++] = 't';
    if (q != COLOUR && count_of(s, t, 'c') == 1)
        can[n++] = 'c';
    if (q != PLACE)
        can[n++] = 'p';
    return n > 0 ? can[below(n)] : '\0';
}

/* How a sentence speaks of a thing: by its kind, itself, its colour or its place. */
static void subject(char *out, size_t size, const struct thing *t, char by)
{
    char room[2];
    if (by == 'p')
        snprintf(out, size, "the thing at the %s", place_names[t->place]);
    else if (by == 'c')
        snprintf(out, size, "the %s thing", colour_names[t->colour]);
    else
        snprintf(out, size, "the %s", name_of(t->what, by == 't', room));
}

/* The words that say which kind of thing answers, by its character if it has one. */
static const char *itself(const struct thing *t, char room[2])
{
    return name_of(t->what, true, room);
}

/* All that is there, by place: what follows a place is then an answer to it. */
static void describe(struct asked *a, const struct scene *s)
{
    char room[2];
    size_t at = 0;
    snprintf(a->question, sizeof a->question, "What is there?");
    for (int i = 0; i < s->n; i++) {
        const struct thing *t = &s->thing[i];
        at += (size_t)snprintf(a->answer + at, sizeof a->answer - at, "%sat the %s a %s %s",
                               i > 0 ? ", " : "", place_names[t->place], colour_names[t->colour],
                               itself(t, room));
    }
}

/* The same from the other side: a thing is named as questions name it, and where it is and what
 * else it is follow as they do in answers. */
static void tell(struct asked *a, const struct scene *s)
{
    char room[2], name[48], rest[48], where[32];
    size_t at = 0;
    const int from = below(s->n);
    snprintf(a->question, sizeof a->question, "What is where?");
    for (int i = 0; i < s->n; i++) {
        const struct thing *t = &s->thing[(from + i) % s->n];
        char by = some_name(s, t, PLACE);
        if (by == '\0')
            by = 'p';
        const bool shown = by == 't' || (by == 'k' && t->what < SHAPES);
        subject(name, sizeof name, t, by);
        snprintf(rest, sizeof rest, "%s%s%s%s", shown ? "" : "a ",
                 by == 'c' ? "" : colour_names[t->colour], shown || by == 'c' ? "" : " ",
                 shown ? "" : itself(t, room));
        snprintf(where, sizeof where, "at the %s", place_names[t->place]);
        const bool first = by != 'p' && below(2) == 0;
        at += (size_t)snprintf(a->answer + at, sizeof a->answer - at, "%s%s is %s%s%s",
                               i > 0 ? ", " : "", name, first ? where : rest, by == 'p' ? "" : " ",
                               by == 'p' ? ""
                               : first   ? rest
                                         : where);
    }
}

/* A question of kind q about a thing; false: there is none that only this thing answers. The answer
 * is a sentence as captions have them. */
static bool ask(struct asked *a, const struct scene *s, const struct thing *t, enum question q)
{
    static const char *const begin[QUESTIONS] = {"", "What colour is", "What kind of thing is",
                                                 "Which character is", "Where is"};
    char name[48], room[2];
    a->q = q;
    if (q == COUNT) {
        snprintf(a->question, sizeof a->question, "How many things are there?");
        snprintf(a->answer, sizeof a->answer,
                 s->n == 1 ? "there is %s thing" : "there are %s things", count_names[s->n - 1]);
        return true;
    }
    const char by = some_name(s, t, q);
    if (by == '\0' || (q == CHARACTER && t->what < SHAPES))
        return false;
    a->by = by;
    subject(name, sizeof name, t, by);
    snprintf(a->question, sizeof a->question, "%s %s?", begin[q], name);
    snprintf(a->answer, sizeof a->answer, "%s is %s%s", name,
             q == PLACE    ? "at the "
             : q == COLOUR ? ""
                           : "a ",
             q == COLOUR      ? colour_names[t->colour]
             : q == KIND      ? kind_names[kind_of(t->what)]
             : q == CHARACTER ? itself(t, room)
                              : place_names[t->place]);
    return true;
}

/* ---- files ---- */

struct files {
    const char *dir;
    FILE *text, *captions, *things, *questions, *blind, *held, *shuffled, *held_blind, *show;
};

static FILE *create(const char *dir, const char *name)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        die("%s: the name is too long", dir);
    FILE *f = fopen(path, "w");
    if (f == NULL)
        die("%s: %s", path, strerror(errno));
    return f;
}

static void finish(FILE *f, const char *what)
{
    if (ferror(f) || fclose(f) != 0)
        die("%s: it could not be written whole", what);
}

/* A conversation: questions, their answers, and the picture where there is one. */
static void row(FILE *f, const char *picture, const struct asked *a, int n)
{
    fputc('{', f);
    if (picture != NULL)
        fprintf(f, "\"images\":[\"%s\"],", picture);
    fputs("\"messages\":[", f);
    for (int i = 0; i < n; i++)
        fprintf(f,
                "%s{\"role\":\"user\",\"content\":\"%s%s\"},"
                "{\"role\":\"assistant\",\"content\":\"%s\"}",
                i > 0 ? "," : "", i == 0 && picture != NULL ? "<image>" : "", a[i].question,
                a[i].answer);
    fputs("]}\n", f);
}

/* ---- scenes to train on ---- */

/* What an answer tells of a thing: two of what it is, its colour and its place. */
static int told(const struct asked *a)
{
    const int by = a->by == 'c' ? 2 : a->by == 'p' ? 4 : 1;
    return by | (a->q == COLOUR ? 2 : a->q == PLACE ? 4 : 1);
}

/* A question of each kind that the scene allows and where a second thing is, in random order. None
 * asks what another one tells: it would be answered without looking. */
static int ask_all(const struct scene *s, struct asked *a)
{
    int n = 0, known[MOST][8] = {{0}};
    for (int q = 0; q <= QUESTIONS; q++) {
        const int from = below(s->n);
        bool done = false;
        for (int i = 0; i < s->n && !done; i++) {
            const int at = (from + i) % s->n;
            done = ask(&a[n], s, &s->thing[at], q < QUESTIONS ? (enum question)q : PLACE);
            if (done && q != COUNT)
                done = known[at][told(&a[n])]++ == 0;
        }
        n += done;
    }
    for (int i = n - 1; i > 0; i--) {
        const int j = below(i + 1);
        const struct asked t = a[i];
        a[i] = a[j];
        a[j] = t;
    }
    return n;
}

static void train_scene(struct files *f, FT_Face font, int number)
{
    struct scene s;
    struct asked said, found, a[QUESTIONS + 1];
    char name[32];
    const int things = 1 + below(MOST);
    bool held;
    do {
        s.n = 0;
        fill(&s, things);
        held = false;
        for (int i = 0; i < s.n; i++)
            held = held || is_held(&s.thing[i]);
    } while (held);
    snprintf(name, sizeof name, "%05d.png", number);
    draw_scene(font, &s);
    save(f->dir, name);
    describe(&said, &s);
    tell(&found, &s);
    const int n = ask_all(&s, a);
    row(f->captions, name, &said, 1);
    row(f->things, name, &found, 1);
    row(f->questions, name, a, n);
    row(f->blind, NULL, &said, 1);
    row(f->blind, NULL, &found, 1);
    row(f->blind, NULL, a, n);
    fprintf(f->text, "%s\n%s\n%s\n%s\n", said.question, said.answer, found.question, found.answer);
    for (int i = 0; i < n; i++)
        fprintf(f->text, "%s\n%s\n", a[i].question, a[i].answer);
}

/* ---- scenes that are held out ---- */

struct held {
    struct scene scene;
    struct asked asked;
    uint64_t key;
};

/* A thing that is never trained so, which answers question q with the answer of this number. */
static struct thing held_thing(enum question q, int number)
{
    for (;;) {
        const int what = q == KIND        ? some_thing(number % KINDS)
                         : q == CHARACTER ? SHAPES + number % (LETTERS + DIGITS)
                                          : some_thing(below(KINDS));
        const struct thing t = {what, q == COLOUR ? number % COLOURS : below(COLOURS),
                                q == PLACE ? number % PLACES : below(PLACES)};
        if (is_held(&t))
            return t;
    }
}

static bool is_new(const struct held *all, int n)
{
    for (int i = 0; i < n; i++)
        if (all[i].key == all[n].key)
            return false;
    return true;
}

/* Scenes of one thing are few: all of them are asked how many things there are, as are as many of
 * two and of three; other questions are about two or three. */
static void hold(struct held *all, int n, enum question q, int number)
{
    struct held *h = &all[n];
    do {
        const struct thing t = held_thing(q, number);
        h->scene.n = 1;
        h->scene.thing[0] = t;
        fill(&h->scene, q == COUNT ? number % MOST + 1 : 2 + below(MOST - 1));
        const struct thing *at = h->scene.thing;
        while (at->place != t.place)
            at++;
        h->key = ask(&h->asked, &h->scene, at, q) ? combination(&h->scene) : 0;
    } while (h->key == 0 || !is_new(all, n));
}

static void ask_held(FILE *f, const char *picture, const struct asked *a, bool target)
{
    fputs("{\"messages\":[{\"role\":\"user\",\"content\":[", f);
    if (picture != NULL)
        fputs("{\"type\":\"image\"},", f);
    fprintf(f, "{\"type\":\"text\",\"text\":\"%s\"}]}]", a->question);
    if (picture != NULL)
        fprintf(f, ",\"images\":[\"%s\"]", picture);
    if (target)
        fprintf(f, ",\"target\":\"%s\"", a->answer);
    fputs("}\n", f);
}

static void held_scenes(struct files *f, FT_Face font)
{
    const int singles = THINGS * PLACES;
    struct held *all = calloc(HELD, sizeof *all);
    char name[32], other[32];
    int n = 0;
    if (all == NULL)
        die("there is no memory");
    for (int i = 0; i < MOST * singles; i++)
        hold(all, n++, COUNT, i);
    for (int i = 0; n < HELD; i++)
        hold(all, n++, (enum question)(1 + i % (QUESTIONS - 1)), i / (QUESTIONS - 1));
    for (int i = 0; i < HELD; i++) {
        snprintf(name, sizeof name, "held-%04d.png", i);
        /* Another scene, as 6 i + 1003 is odd; each once, as 7 and HELD have no common factor. */
        snprintf(other, sizeof other, "held-%04d.png", (i * 7 + 1003) % HELD);
        draw_scene(font, &all[i].scene);
        save(f->dir, name);
        ask_held(f->held, name, &all[i].asked, true);
        ask_held(f->shuffled, other, &all[i].asked, true);
        ask_held(f->held_blind, NULL, &all[i].asked, true);
        if (i % (HELD / SHOWN) == 0)
            ask_held(f->show, name, &all[i].asked, false);
    }
    free(all);
}

static void open_all(struct files *f, const char *dir)
{
    *f = (struct files){dir,
                        create(dir, "text.txt"),
                        create(dir, "captions.jsonl"),
                        create(dir, "things.jsonl"),
                        create(dir, "questions.jsonl"),
                        create(dir, "blind.jsonl"),
                        create(dir, "held.jsonl"),
                        create(dir, "shuffled.jsonl"),
                        create(dir, "held-blind.jsonl"),
                        create(dir, "show.jsonl")};
}

/* ---- one thing, and which it is ---- */

static void labelled(FILE *f, const char *picture, int what)
{
    fprintf(f, "{\"images\":[\"%s\"],\"prompt\":\"<IMG_CONTEXT>\",\"label\":%d}\n", picture, what);
}

static void classes(const char *dir, FT_Face font, int pictures, bool large)
{
    FILE *all = create(dir, "all.jsonl"), *few = create(dir, "few.jsonl"),
         *held = create(dir, "held.jsonl");
    for (int i = 0; i < pictures + HELD; i++) {
        const struct scene s = {.n = 1, .thing = {{i % THINGS, below(COLOURS), below(PLACES)}}};
        char name[32];
        snprintf(name, sizeof name, i < pictures ? "%05d.png" : "held-%05d.png", i);
        if (large)
            draw_large(font, &s.thing[0]);
        else
            draw_scene(font, &s);
        save(dir, name);
        labelled(i < pictures ? all : held, name, s.thing[0].what);
        if (i < (large ? FEW : LABELLED) && i < pictures)
            labelled(few, name, s.thing[0].what);
    }
    finish(all, "all.jsonl");
    finish(few, "few.jsonl");
    finish(held, "held.jsonl");
}

/* ---- one thing, and its caption ---- */

static bool is_untold(int what, int colour)
{
    return (what + colour) % COLOURS == 0;
}

static void captions(const char *dir, FT_Face font, int pictures)
{
    FILE *pairs = create(dir, "pairs.jsonl"), *held = create(dir, "held.jsonl"),
         *names = create(dir, "names.txt");
    char name[32], room[2];
    for (int i = 0; i < pictures + HELD; i++) {
        const bool told = i < pictures;
        struct thing t;
        do
            t = (struct thing){i % THINGS, below(COLOURS), below(PLACES)};
        while (is_untold(t.what, t.colour) == told);
        const struct scene s = {.n = 1, .thing = {t}};
        snprintf(name, sizeof name, told ? "%05d.png" : "held-%05d.png", i);
        draw_scene(font, &s);
        save(dir, name);
        if (!told)
            fprintf(held, "{\"images\":[\"%s\"],\"prompt\":\"<image>\",\"label\":%d}\n", name,
                    t.what * COLOURS + t.colour);
        const bool where = told && below(2) == 0;
        if (told)
            fprintf(pairs, "{\"image\":\"%s\",\"text\":\"a %s %s%s%s\"}\n", name,
                    colour_names[t.colour], itself(&t, room), where ? " at the " : "",
                    where ? place_names[t.place] : "");
    }
    for (int i = 0; i < THINGS * COLOURS; i++) {
        const struct thing t = {i / COLOURS, i % COLOURS, 0};
        fprintf(names, "%s %s\n", colour_names[t.colour], itself(&t, room));
    }
    finish(pairs, "pairs.jsonl");
    finish(held, "held.jsonl");
    finish(names, "names.txt");
}

static void make_folders(const char *dir)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/pictures", dir) >= (int)sizeof path)
        die("%s: the name is too long", dir);
    if ((mkdir(dir, 0777) != 0 && errno != EEXIST) || (mkdir(path, 0777) != 0 && errno != EEXIST))
        die("%s: %s", path, strerror(errno));
}

int main(int argc, char **argv)
{
    FT_Library library;
    FT_Face font;
    struct files f;
    const bool large = argc > 1 && strcmp(argv[1], "--large") == 0,
               alone = large || (argc > 1 && strcmp(argv[1], "--classes") == 0),
               paired = argc > 1 && strcmp(argv[1], "--captions") == 0;
    argc -= alone || paired;
    argv += alone || paired;
    if (argc < 3 || argc > 5) {
        fputs("usage: draw [--classes | --large | --captions] FONT DIR [SEED [SCENES]]\n", stderr);
        return 2;
    }
    const int scenes = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 20000;
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (scenes < 1 || scenes > 99999)
        die("SCENES is 1 to 99999");
    if (FT_Init_FreeType(&library) || FT_New_Face(library, argv[1], 0, &font))
        die("%s: FreeType cannot read it as a font", argv[1]);
    make_folders(argv[2]);
    if (alone || paired) {
        if (alone)
            classes(argv[2], font, scenes, large);
        else
            captions(argv[2], font, scenes);
        FT_Done_Face(font);
        FT_Done_FreeType(library);
        return 0;
    }
    open_all(&f, argv[2]);
    for (int i = 0; i < scenes; i++)
        train_scene(&f, font, i);
    held_scenes(&f, font);
    finish(f.text, "text.txt");
    finish(f.captions, "captions.jsonl");
    finish(f.things, "things.jsonl");
    finish(f.questions, "questions.jsonl");
    finish(f.blind, "blind.jsonl");
    finish(f.held, "held.jsonl");
    finish(f.shuffled, "shuffled.jsonl");
    finish(f.held_blind, "held-blind.jsonl");
    finish(f.show, "show.jsonl");
    FT_Done_Face(font);
    FT_Done_FreeType(library);
    return 0;
}
