/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of PTX: module variables, and entries, which are read when they are asked for.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/parse.h"

/* .param .align 8 .b8 name[n], ... ) and the limits before the body */
static void head(struct ptx_parser *p)
{
    struct lf_ptx_kernel *k = p->k;
    char w[96];
    lf_ptx_need(p, '(');
    while (!lf_ptx_take(p, ')')) {
        char name[96];
        size_t align, bytes;
        unsigned element;
        lf_ptx_word(p, w, sizeof w);
        if (strcmp(w, ".param") != 0)
            lf_ptx_refuse(p, "an argument that begins with %s", w);
        lf_ptx_declare_array(p, name, sizeof name, &align, &bytes, &element);
        struct ptx_symbol *s = lf_ptx_add_symbol(&p->symbol, &p->n_symbols, name);
        k->args = lf_ptx_round_up(k->args, align);
        *s = (struct ptx_symbol){s->name, PTX_PARAM, PTX_BASE + k->args, bytes};
        k->args += bytes;
        lf_ptx_take(p, ',');
    }
    for (lf_ptx_skip(p); *p->at == '.'; lf_ptx_skip(p)) {
        lf_ptx_word(p, w, sizeof w);
        const bool maximum = strcmp(w, ".maxntid") == 0, exact = strcmp(w, ".reqntid") == 0;
        if (!maximum && !exact && strcmp(w, ".minnctapersm") != 0 && strcmp(w, ".maxnreg") != 0)
            lf_ptx_refuse(p, "the interpreter does not know %s", w);
        unsigned n = 1;
        do
            n *= (unsigned)lf_ptx_integer(p);
        while (lf_ptx_take(p, ','));
        if (maximum || exact)
            k->max_threads = n;
    }
}

static uint64_t value_of(struct ptx_parser *p, unsigned element)
{
    struct ptx_operand o;
    memset(&o, 0, sizeof o);
    lf_ptx_atom(p, &o);
    if (o.is != OP_IMM || (o.floating && o.bytes != element))
        lf_ptx_refuse(p, "the interpreter knows numbers alone as initial values");
    return o.bits;
}

/* .global or .const array, with its values. */
static void module_variable(struct ptx_parser *p, enum ptx_space space)
{
    char name[96];
    size_t align, bytes;
    unsigned element;
    lf_ptx_declare_array(p, name, sizeof name, &align, &bytes, &element);
    struct ptx_symbol *s = lf_ptx_add_symbol(&p->m->symbol, &p->m->n_symbols, name);
    void *host = NULL;
    if (!bytes || posix_memalign(&host, align < 16 ? 16 : align, bytes))
        lf_ptx_refuse(p, "no memory for %s", name);
    memset(host, 0, bytes);
    *s = (struct ptx_symbol){s->name, space, (uint64_t)(uintptr_t)host, bytes};
    if (lf_ptx_take(p, '=')) {
        const bool list = lf_ptx_take(p, '{');
        size_t at = 0;
        do {
            const uint64_t v = value_of(p, element);
            if (at + element > bytes)
                lf_ptx_refuse(p, "more values than %s holds", name);
            memcpy((char *)host + at, &v, element); /* little endian, as the device */
            at += element;
        } while (list && lf_ptx_take(p, ','));
        if (list)
            lf_ptx_need(p, '}');
    }
    lf_ptx_need(p, ';');
}

/* The dynamic shared array: after the static ones. */
static void extern_shared(struct ptx_parser *p)
{
    char name[96];
    size_t align, bytes;
    unsigned element;
    lf_ptx_declare_array(p, name, sizeof name, &align, &bytes, &element);
    lf_ptx_need(p, ';');
    struct ptx_symbol *s = lf_ptx_add_symbol(&p->m->symbol, &p->m->n_symbols, name);
    s->space = PTX_SHARED;
    s->bytes = align; /* until a kernel places it */
    s->address = 0;
}

static void skip_body(struct ptx_parser *p)
{
    int depth = 0;
    bool inside = false;
    do {
        lf_ptx_skip(p);
        if (!*p->at)
            lf_ptx_refuse(p, "the text ends within a function");
        depth += (*p->at == '{') - (*p->at == '}');
        inside = inside || depth;
        p->at++;
    } while (depth || !inside);
}

static void add_kernel(struct ptx_parser *p)
{
    char name[96];
    lf_ptx_word(p, name, sizeof name);
    struct lf_ptx_kernel *k = calloc(1, sizeof *k);
    if (!k || !(k->name = strdup(name)))
        abort();
    k->module = p->m;
    k->next = p->m->kernel;
    p->m->kernel = k;
    k->max_threads = 1024;
    k->file_bytes = 64; /* 0 is no operand */
    for (int i = 0; i < S_COUNT; i++)
        k->special[i] = lf_ptx_new_slot(k, 4);
    p->k = k;
}

/* Dynamic shared memory begins where the kernel's static arrays end. They stand in the body, which
 * is read once more when it uses it. */
static void place_dynamic(struct ptx_parser *p)
{
    for (size_t i = 0; i < p->m->n_symbols; i++) {
        struct ptx_symbol *s = &p->m->symbol[i];
        if (s->space != PTX_SHARED || s->address >= PTX_BASE)
            continue;
        /* The least alignment that was asked for and no more. */
        p->k->dynamic_at = lf_ptx_round_up(p->k->shared, s->bytes);
        if ((PTX_BASE + p->k->dynamic_at) % (2 * s->bytes) == 0)
            p->k->dynamic_at += s->bytes;
        p->k->dynamic = true;
    }
}

static void read_kernel(struct ptx_parser *p)
{
    add_kernel(p);
    head(p);
    const char *at = p->at;
    const uint32_t here = p->here;
    /* Static shared arrays first, so that the dynamic one has its place. */
    for (const char *s = p->at; *s && strncmp(s, ".entry", 6) != 0; s++)
        if (strncmp(s, "\t.shared", 8) == 0) {
            char name[96];
            size_t align, bytes;
            unsigned element;
            p->at = s + 8;
            lf_ptx_declare_array(p, name, sizeof name, &align, &bytes, &element);
            p->k->shared = lf_ptx_round_up(p->k->shared, align) + bytes;
        }
    place_dynamic(p);
    p->k->shared = 0;
    p->at = at;
    p->here = here;
    for (size_t i = 0; i < p->m->n_symbols; i++)
        if (p->m->symbol[i].space == PTX_SHARED)
            p->m->symbol[i].address = PTX_BASE + p->k->dynamic_at;
    lf_ptx_body(p);
    for (size_t i = 0; i < p->m->n_symbols; i++)
        if (p->m->symbol[i].space == PTX_SHARED)
            p->m->symbol[i].address = 0;
}

/* Reads the module up to entry `name`, which alone is decoded. */
static void read_module(struct ptx_parser *p, const char *name, bool variables)
{
    char w[96], next[96];
    for (lf_ptx_skip(p); *p->at; lf_ptx_skip(p)) {
        p->line = p->here;
        lf_ptx_word(p, w, sizeof w);
        if (strcmp(w, ".version") == 0 || strcmp(w, ".target") == 0 ||
            strcmp(w, ".address_size") == 0 || strcmp(w, ".file") == 0) {
            p->at += strcspn(p->at, "\n");
        } else if (strcmp(w, ".visible") == 0 || strcmp(w, ".extern") == 0 ||
                   strcmp(w, ".weak") == 0) {
            continue; /* what follows says the rest */
        } else if (strcmp(w, ".shared") == 0 || strcmp(w, ".global") == 0 ||
                   strcmp(w, ".const") == 0) {
            if (!variables)
                p->at = strchr(p->at, ';') + 1;
            else if (w[1] == 's')
                extern_shared(p);
            else
                module_variable(p, w[1] == 'g' ? PTX_GLOBAL : PTX_CONST);
        } else if (strcmp(w, ".entry") == 0) {
            const char *at = p->at;
            lf_ptx_word(p, next, sizeof next);
            if (name && strcmp(name, next) == 0) {
                p->at = at;
                read_kernel(p);
                return;
            }
            skip_body(p);
        } else {
            lf_ptx_refuse(p, "the interpreter does not know %s", w);
        }
    }
}

static void parser_free(struct ptx_parser *p)
{
    for (size_t i = 0; i < p->n_symbols; i++)
        free(p->symbol[i].name);
    for (size_t i = 0; i < p->n_tables; i++)
        free(p->table[i].label);
    free(p->reg);
    free(p->symbol);
    free(p->label);
    free(p->table);
    free(p->wanted);
    free(p);
}

static struct ptx_parser *parser_new(struct ptx_module *m)
{
    struct ptx_parser *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    p->m = m;
    p->at = m->text;
    p->line = p->here = 1;
    return p;
}

static struct ptx_module *modules;

static struct ptx_module *load(const char *path)
{
    for (struct ptx_module *m = modules; m; m = m->next)
        if (strcmp(m->path, path) == 0)
            return m;
    struct ptx_module *m = calloc(1, sizeof *m);
    FILE *f = fopen(path, "r");
    long bytes;
    if (!f || fseek(f, 0, SEEK_END) || (bytes = ftell(f)) < 0 || fseek(f, 0, SEEK_SET)) {
        fprintf(stderr, "ptx: %s: cannot be read\n", path);
        abort();
    }
    if (!m || !(m->text = malloc((size_t)bytes + 1)) || !(m->path = strdup(path)))
        abort();
    m->bytes = fread(m->text, 1, (size_t)bytes, f);
    m->text[m->bytes] = '\0';
    fclose(f);
    struct ptx_parser *p = parser_new(m);
    read_module(p, NULL, true);
    parser_free(p);
    m->next = modules;
    return modules = m;
}

struct lf_ptx_kernel *lf_ptx_kernel(const char *file, const char *name, size_t bytes)
{
    struct ptx_module *m = load(file);
    struct lf_ptx_kernel *k = m->kernel;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    if (!k) {
        struct ptx_parser *p = parser_new(m);
        read_module(p, name, false);
        k = p->k;
        parser_free(p);
    }
    if (!k) {
        fprintf(stderr, "ptx: %s: no entry %s\n", file, name);
        abort();
    }
    if (k->args != bytes) {
        fprintf(stderr, "ptx: %s: %s takes %zu bytes of arguments, the host gives %zu\n", file,
                name, k->args, bytes);
        abort();
    }
    return k;
}

static void kernel_free(struct lf_ptx_kernel *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->code[i].o);
        free((void *)(uintptr_t)k->code[i].targets);
    }
    free(k->code);
    free(k->constant);
    free(k->unwritten);
    free(k->name);
    free(k);
}

void lf_ptx_close(void)
{
    while (modules) {
        struct ptx_module *m = modules;
        modules = m->next;
        while (m->kernel) {
            struct lf_ptx_kernel *k = m->kernel;
            m->kernel = k->next;
            kernel_free(k);
        }
        for (size_t i = 0; i < m->n_symbols; i++) {
            if (m->symbol[i].space != PTX_SHARED)
                free((void *)(uintptr_t)m->symbol[i].address);
            free(m->symbol[i].name);
        }
        free(m->symbol);
        free(m->path);
        free(m->text);
        free(m);
    }
}
