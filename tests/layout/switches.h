/* SPDX-License-Identifier: Apache-2.0
 *
 * The switches of the matrix: how ranks divide the work, what families of models differ in, options
 * of training, and modes of the test. A new one is a row of switches.c; what the engine refuses is
 * another.
 */
#ifndef LF_TESTS_LAYOUT_SWITCHES_H
#define LF_TESTS_LAYOUT_SWITCHES_H

#include "tests/layout/cover.h"
#include "tests/layout/rig.h"

struct sw_value {
    const char *name; /* NULL: no more */
    const char *keys; /* of [model], for rig_model; NULL: none */
    void (*set)(struct rig_case *k, int value);
    int value;
};
struct sw {
    const char *name;
    struct sw_value v[COVER_VALUES]; /* the first is the usual one */
};
enum { SW_LAYOUT = 7 }; /* so many of the table, its first, say how ranks divide the work */
extern const struct sw sw_table[];
extern const int sw_n;

/* Two values that cannot stand together. */
struct sw_refusal {
    const char *a, *b; /* "zero=3" */
    const char *says;  /* the engine, in its message; NULL: they are too many ranks for the test */
    const char *with;  /* another switch without which it would say something else; NULL: none */
};
extern const struct sw_refusal sw_refusals[];
extern const size_t sw_n_refusals;

/* What cover_make needs. pairs has room for sw_n_refusals. */
struct cover sw_cover(struct cover_pair *pairs);
/* Leaves the first n values of a switch. */
void sw_first(struct cover *c, struct cover_pair *pairs, const char *name, int n);
/* Sets value text ("zero=3") in a row. */
void sw_put(uint8_t *row, const char *text);
/* "ranks=2 zero=3": the switches of a row that do not have their usual value. */
const char *sw_text(const uint8_t *row, char *text, size_t cap);
/* The case of a row. LF_EINVAL: the model refuses it. */
int sw_case(const uint8_t *row, struct rig_case *k, lf_err *err);

#endif
