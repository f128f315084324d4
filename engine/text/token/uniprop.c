/* SPDX-License-Identifier: Apache-2.0
 *
 * See uniprop.h.
 */
#include "config.h"

#include "engine/text/token/uniprop.h"

#include <string.h>

#include "engine/text/token/uniprop_data.h"
#include "engine/text/token/uniprop_sets.h"

#define YOUNG    0x80u
#define LAST     0x10FFFFu
#define NAME_MAX 64

/* In the order of the generated table. */
static const struct {
    const char *name, *full;
} categories[] = {
    {"lu", "uppercaseletter"},    {"ll", "lowercaseletter"},  {"lt", "titlecaseletter"},
    {"lm", "modifierletter"},     {"lo", "otherletter"},      {"mn", "nonspacingmark"},
    {"mc", "spacingmark"},        {"me", "enclosingmark"},    {"nd", "decimalnumber"},
    {"nl", "letternumber"},       {"no", "othernumber"},      {"pc", "connectorpunctuation"},
    {"pd", "dashpunctuation"},    {"ps", "openpunctuation"},  {"pe", "closepunctuation"},
    {"pi", "initialpunctuation"}, {"pf", "finalpunctuation"}, {"po", "otherpunctuation"},
    {"sm", "mathsymbol"},         {"sc", "currencysymbol"},   {"sk", "modifiersymbol"},
    {"so", "othersymbol"},        {"zs", "spaceseparator"},   {"zl", "lineseparator"},
    {"zp", "paragraphseparator"}, {"cc", "control"},          {"cf", "format"},
    {"co", "privateuse"},         {"cn", "unassigned"}};
#define N_CATEGORIES (sizeof(categories) / sizeof(categories[0]))
#define N_SETS       (sizeof(lf_uniprop_sets) / sizeof(lf_uniprop_sets[0]))

/* Names of several categories: those whose short name begins so. */
static const struct {
    const char *name, *full;
    char first;
} groups[] = {{"l", "letter", 'l'},      {"m", "mark", 'm'},   {"n", "number", 'n'},
              {"p", "punctuation", 'p'}, {"s", "symbol", 's'}, {"z", "separator", 'z'},
              {"c", "other", 'c'},       {"any", "any", 0},    {"punct", "punct", 'p'}};

static uint32_t bits_of(const char *name)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < N_CATEGORIES; i++) {
        if (strcmp(name, categories[i].name) == 0 || strcmp(name, categories[i].full) == 0)
            return 1u << i;
        for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
            if ((strcmp(name, groups[g].name) == 0 || strcmp(name, groups[g].full) == 0) &&
                (!groups[g].first || groups[g].first == categories[i].name[0]))
                bits |= 1u << i;
    }
    if (strcmp(name, "lc") == 0 || strcmp(name, "casedletter") == 0)
        return bits_of("lu") | bits_of("ll") | bits_of("lt");
    if (strcmp(name, "assigned") == 0)
        return bits_of("any") & ~bits_of("cn");
    return strcmp(name, "digit") == 0 ? bits_of("nd") : bits;
}

bool lf_uniprop_find(lf_uniprop *p, const char *name, size_t n)
{
    char key[NAME_MAX];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] == ' ' || name[i] == '-' || name[i] == '_')
            continue;
        if (k + 1 == sizeof(key))
            return false;
        key[k++] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32) : name[i];
    }
    key[k] = 0;
    *p = (lf_uniprop){.categories = bits_of(key)};
    p->stable = p->categories && !(p->categories & (bits_of("mn") | bits_of("mc") | bits_of("c")));
    p->stable = p->stable || p->categories == bits_of("m");
    p->cased = !p->categories ||
               (p->categories & (bits_of("l") | bits_of("m") | bits_of("nl") | bits_of("so")));
    if (strcmp(key, "alpha") == 0)
        memcpy(key, "alphabetic", sizeof("alphabetic"));
    for (size_t i = 0; !p->categories && i < N_SETS; i++) {
        if (strcmp(lf_uniprop_sets[i].name, key) != 0)
            continue;
        p->range = lf_uniprop_ranges + lf_uniprop_sets[i].first;
        p->n = lf_uniprop_sets[i].n;
    }
    return p->categories || p->n;
}

/* PCRE2 takes no surrogate as an end of a range. */
static void put_range(lf_buf *out, uint32_t first, uint32_t last)
{
    first = first >= 0xD800 && first <= 0xDFFF ? 0xE000 : first;
    last = last >= 0xD800 && last <= 0xDFFF ? 0xD7FF : last;
    if (first < last)
        lf_buf_addf(out, "\\x{%x}-\\x{%x}", first, last);
    else if (first == last)
        lf_buf_addf(out, "\\x{%x}", first);
}

static void write_categories(lf_buf *out, const lf_uniprop *p, enum lf_uniprop_part part)
{
    size_t n = sizeof(lf_uniprop_runs) / sizeof(lf_uniprop_runs[0]);
    uint32_t from = 0;
    bool in = false;
    for (size_t i = 0; i <= n; i++) {
        uint32_t row = i < n ? lf_uniprop_runs[i] : 0, at = i < n ? row >> 8 : LAST + 1;
        bool hit = i < n && (p->categories >> (row & 0x1F) & 1) != (part == LF_UNIPROP_REST) &&
                   (part != LF_UNIPROP_YOUNG || (row & YOUNG));
        if (hit && !in)
            from = at;
        if (!hit && in)
            put_range(out, from, at - 1);
        in = hit;
    }
}

void lf_uniprop_write(lf_buf *out, const lf_uniprop *p, enum lf_uniprop_part part)
{
    uint32_t next = 0;
    if (p->categories) {
        write_categories(out, p, part);
        return;
    }
    for (size_t i = 0; i < p->n; i++) {
        if (part == LF_UNIPROP_ALL)
            put_range(out, p->range[i][0], p->range[i][1]);
        else if (part == LF_UNIPROP_REST && p->range[i][0] > next)
            put_range(out, next, p->range[i][0] - 1);
        next = p->range[i][1] + 1;
    }
    if (part == LF_UNIPROP_REST && next <= LAST)
        put_range(out, next, LAST);
}
