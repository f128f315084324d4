/* SPDX-License-Identifier: Apache-2.0
 *
 * Every pair of switches (switches.c) at least once: ranks in lock step against one rank.
 *
 *     matrix                 the rows of a covering array over all switches of ranks that have all
 *                            layers, and of one over those of ranks that have different ones: there
 *                            each value of a layout beside each value of another switch
 *     matrix all             for each layout (of a mesh: of 8 ranks at most) the rows of one over
 *                            the other switches, each row in every mode
 *     matrix all STEP [FROM] of these each STEPth one, from number FROM on
 *     matrix only WORDS...   one row: "ranks=2" "zero=3"
 *
 * A row in another mode than the plain one has the bits of the plain one, too. Where the state is
 * divided otherwise without another order of sums (zero = 1 and 0, 3 and 2), bits are the same. So
 * they are with the layers on other ranks up to the first gradients, but for those of a tied
 * embedding; the norm adds up other parts, so clipped weights may be apart by a bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "tests/layout/switches.h"
#include "tests/tap/tap.h"

/* ---- one row ---- */

enum { MODES = 5 };
/* Larger meshes are among the rows of make check alone. */
enum { MESH_MOST = 8 };
/* In make check: the second step rests on all that the first one left. A third one is in step_test
 * and in the tests of faults, and in the rows of `all`. */
enum { FEW_STEPS = 2 };

static void set_mode(struct rig_case *k, int mode)
{
    k->poison = mode == 1 || mode == 4;
    k->no_reuse = mode == 2;
    k->late = mode >= 3;
    k->turns = mode == 4 ? 17 : 0;
}

static bool plain(const struct rig_case *k)
{
    return !k->poison && !k->no_reuse && !k->late && !k->turns;
}

/* Has the case k the bits s without its mode, and with the modes from `mode` on? */
static bool same_bits(const struct rig_case *k, const struct rig_seen *s, int mode, char *text,
                      size_t cap)
{
    bool good = true;
    for (const int end = mode ? MODES : 1; mode < end && good; mode++) {
        struct rig_case other = *k;
        struct rig_seen o = {0};
        lf_err err = LF_ERR_INIT;
        char where[200];
        set_mode(&other, mode);
        good = rig_run(&other, &o, &err) == 0 && rig_equal(s, &o, where, sizeof where);
        if (!good)
            snprintf(text, cap, "mode %d has other bits: %s", mode, err.rc ? err.text : where);
        rig_fini(&o);
    }
    return good;
}

/* Has the stage below the same bits? Stages 2 and 3 add up micro-batches in an order of their own,
 * and groups of ranks have one. Of large meshes one run is enough. */
static bool same_below(const struct rig_case *k, const struct rig_seen *s, char *text, size_t cap)
{
    struct rig_case below = *k;
    struct rig_seen o = {0};
    lf_err err = LF_ERR_INIT;
    char where[200];
    if (rig_sharers(&k->layout) == 1 || k->layout.zero % 2 == 0 ||
        (k->layout.zero == 1 && k->layout.zero_inner) || rig_all_ranks(&k->layout) > 2 * MESH_MOST)
        return true;
    below.layout.zero--;
    const bool good = rig_run(&below, &o, &err) == 0 && rig_equal(s, &o, where, sizeof where);
    if (!good)
        snprintf(text, cap, "zero = %d has other bits: %s", below.layout.zero,
                 err.rc ? err.text : where);
    rig_fini(&o);
    return good;
}

/* Where ranks divide the head, the gradient of its input is a sum in f32. A cut between the last
 * layer and the head of a model without a norm between them rounds it; ranks with all layers do
 * not. So only what comes before that, the loss, has the same bits. */
static bool rounds_before_head(const struct rig_case *k)
{
    const lf_model_config *m = &k->c.model;
    const char *last = k->layout.stages ? strrchr(k->layout.stages, ',') : NULL;
    return last && strcmp(last, ",0") == 0 && rig_tensor_ranks(&k->layout) > 1 &&
           k->c.compute != LF_F32 && !m->final_norm && m->embed_dim == 0;
}

/* Ranks that divide matrices sum the gradient of what an encoder gave once, for all layers of the
 * decoder that they have. Where these are cut, each part is summed before it joins the others. */
static bool sums_sources_apart(const struct rig_case *k)
{
    return k->c.model.encoder_layers > 0 && rig_tensor_ranks(&k->layout) > 1;
}

/* Are loss and gradients of step 1 those of ranks that have all layers? one: those of one rank. */
static bool same_uncut(const struct rig_case *k, const struct rig_seen *s,
                       const struct rig_seen *one, char *text, size_t cap)
{
    struct rig_case uncut = *k;
    struct rig_seen o = {0};
    lf_err err = LF_ERR_INIT;
    char where[200] = "";
    int rc = 0;
    const bool alone = rig_sharers(&k->layout) * rig_tensor_ranks(&k->layout) == 1;
    if (k->layout.pipeline <= 1)
        return true;
    uncut.layout.pipeline = uncut.layout.chunks = uncut.layout.schedule = 0;
    uncut.layout.stages = NULL;
    if (!alone)
        rc = rig_run(&uncut, &o, &err);
    if (!alone)
        one = &o;
    const bool good = rc == 0 && (rounds_before_head(k) || sums_sources_apart(k)
                                      ? rig_loss_alike(one, s, where, sizeof where)
                                      : rig_steps_alike(one, s, rig_tied(k) ? "embed.weight" : NULL,
                                                        where, sizeof where));
    if (!good)
        snprintf(text, cap, "ranks with all layers have other bits: %s", rc ? err.text : where);
    rig_fini(&o);
    return good;
}

/* Is a gradient clipped? The first one of an adapter may be too small: B begins with zeros. */
static bool clips(const struct rig_case *k, const struct rig_seen *one)
{
    bool any = one->norm[0] > k->c.clip;
    for (int i = 1; k->adapted && i < k->c.steps; i++)
        any = any || one->norm[i] > k->c.clip;
    return any;
}

static bool run_case(const struct rig_case *k, bool every_mode, char *text, size_t cap)
{
    struct rig_seen one = {0}, exact = {0}, s = {0};
    lf_err err = LF_ERR_INIT;
    struct rig_bounds b = rig_bounds(k);
    int rc = rig_alone(k, &one, &err);
    if (rc == 0 && rig_needs_exact(k)) {
        rc = rig_exact(k, &exact, &err);
        b.exact = &exact;
    }
    if (rc == 0)
        rc = rig_run(k, &s, &err);
    snprintf(text, cap, "%s", err.text);
    bool good = rc == 0 && rig_compare(&one, &s, &b, text, cap) == 0;
    if (good && !clips(k, &one)) {
        snprintf(text, cap, "nothing is clipped: the norm is %.3g, then %.3g", one.norm[0],
                 one.norm[1]);
        good = false;
    }
    if (good && !plain(k))
        good = same_bits(k, &s, 0, text, cap);
    if (good && every_mode)
        good = same_bits(k, &s, 1, text, cap);
    good = good && same_below(k, &s, text, cap) && same_uncut(k, &s, &one, text, cap);
    rig_fini(&one);
    rig_fini(&exact);
    rig_fini(&s);
    return good;
}

static void test_row(const uint8_t *row, bool every_mode)
{
    struct rig_case k;
    lf_err err = LF_ERR_INIT;
    char text[1100], name[600];
    snprintf(text, sizeof text, "%s", "");
    const bool made = sw_case(row, &k, &err) == 0;
    if (!every_mode)
        k.c.steps = FEW_STEPS;
    const bool good = made && run_case(&k, every_mode, text, sizeof text);
    tap_ok(good, "%s", sw_text(row, name, sizeof name));
    if (!good)
        tap_diag("%s", made ? text : err.text);
}

/* ---- what is refused ---- */

/* A pair that is left out would not fit beside the most ranks of the data axis. */
static void test_room(const struct sw_refusal *f)
{
    uint8_t row[COVER_SWITCHES] = {0};
    struct rig_case k;
    lf_err err = LF_ERR_INIT;
    sw_put(row, "ranks=8");
    sw_put(row, f->a);
    sw_put(row, f->b);
    tap_ok(sw_case(row, &k, &err) == 0 && rig_all_ranks(&k.layout) > LOCAL_RANKS,
           "%s %s is left out, as there may be %d ranks", f->a, f->b, rig_all_ranks(&k.layout));
}

static void test_refused(void)
{
    for (size_t i = 0; i < sw_n_refusals; i++) {
        const struct sw_refusal *f = &sw_refusals[i];
        if (!f->says) {
            test_room(f);
            continue;
        }
        uint8_t row[COVER_SWITCHES] = {0};
        struct rig_case k;
        struct rig_seen s = {0};
        lf_err err = LF_ERR_INIT;
        sw_put(row, "ranks=2");
        if (f->with)
            sw_put(row, f->with);
        sw_put(row, f->a);
        sw_put(row, f->b);
        int rc = sw_case(row, &k, &err);
        rc = rc != 0 ? rc : rig_run(&k, &s, &err);
        tap_ok(rc != 0 && strstr(err.text, f->says), "%s %s is refused: %s", f->a, f->b, f->says);
        if (rc == 0 || !strstr(err.text, f->says))
            tap_diag("%s", rc ? err.text : "it runs");
        rig_fini(&s);
    }
}

/* ---- the array ---- */

static bool has(const struct cover_rows *r, int a, int va, int b, int vb)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i][a] == va && r->v[i][b] == vb)
            return true;
    return false;
}

/* How many pairs stand in a row, counted anew. */
static size_t count_pairs(const struct cover *c, const struct cover_rows *r)
{
    size_t n = 0;
    for (int a = 0; a < c->n && cover_wants(c, a); a++)
        for (int b = a + 1; b < c->n; b++)
            for (int v = 0; v < c->values[a] * c->values[b]; v++)
                n += has(r, a, v / c->values[b], b, v % c->values[b]);
    return n;
}

/* Every pair is covered or refused, and what is refused stands in no row. */
static bool is_whole(const struct cover *c, const struct cover_rows *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (cover_is_refused(c, r->v[i]))
            return false;
    return count_pairs(c, r) == r->covered && r->covered + r->refused == r->total;
}

static void test_pairs(const struct cover *c, const struct cover_rows *r)
{
    const struct cover_pair *l = &r->left;
    tap_diag("%zu pairs: %zu covered by %zu rows, %zu refused", r->total, r->covered, r->n,
             r->refused);
    if (!tap_ok(is_whole(c, r), "every pair is covered or refused"))
        tap_diag("such as %s=%s with %s=%s", sw_table[l->a].name, sw_table[l->a].v[l->va].name,
                 sw_table[l->b].name, sw_table[l->b].v[l->vb].name);
}

/* That a pair which is left out is seen. */
static void test_cover(void)
{
    const struct cover_pair never[] = {{0, 0, 1, 0}, {0, 0, 1, 1}};
    struct cover c = {.n = 3, .values = {2, 2, 3}};
    struct cover_rows r;
    if (!cover_make(&c, &r))
        tap_bail("out of memory");
    tap_ok(is_whole(&c, &r) && r.total == 16 && r.n == 6, "16 pairs of three switches in %zu rows",
           r.n);
    r.n--;
    tap_ok(!is_whole(&c, &r), "without a row a pair is missing");
    cover_fini(&r);
    c.with = 1;
    if (!cover_make(&c, &r))
        tap_bail("out of memory");
    tap_ok(is_whole(&c, &r) && r.total == 10, "10 of them with the first, in %zu rows", r.n);
    r.n--;
    tap_ok(!is_whole(&c, &r), "without a row one of these is missing");
    cover_fini(&r);
    c.with = 0;
    c.refused = never;
    c.n_refused = 2;
    if (!cover_make(&c, &r))
        tap_bail("out of memory");
    tap_ok(!is_whole(&c, &r) && r.total - r.covered - r.refused == 3 && r.left.a == 0 &&
               r.left.va == 0,
           "a value that no row may hold is missing in three pairs");
    cover_fini(&r);
}

/* ---- the matrices ---- */

/* Which rows of `all` run: every one of them, or each `step`th from number `from` on. */
static struct {
    size_t from, step, at;
} sample = {.step = 1};

static bool is_sampled(void)
{
    const size_t i = sample.at++;
    return i >= sample.from && (i - sample.from) % sample.step == 0;
}

static void test_rows(const struct cover_rows *r, bool every_mode)
{
    for (size_t i = 0; i < r->n; i++)
        if (is_sampled())
            test_row(r->v[i], every_mode);
}

static size_t count_sampled(size_t n)
{
    const size_t was = sample.at;
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += is_sampled();
    sample.at = was;
    return found;
}

static void test_array(const struct cover *c, bool every_mode)
{
    struct cover_rows r;
    if (!cover_make(c, &r))
        tap_bail("out of memory");
    const size_t n = count_sampled(r.n); /* TAP looks at it behind the rows */
    TAP(1, test_pairs(c, &r));
    TAP(n, test_rows(&r, every_mode));
    cover_fini(&r);
}

/* Is the layout left to make check: a large mesh, or one that divides nothing on the data axis? */
static bool left_out(const uint8_t *fixed)
{
    uint8_t row[COVER_SWITCHES] = {0};
    struct rig_case k;
    lf_err err = LF_ERR_INIT;
    memcpy(row, fixed, SW_LAYOUT);
    if (sw_case(row, &k, &err) != 0 ||
        (k.layout.tensor <= 1 && k.layout.context <= 1 && k.layout.pipeline <= 1))
        return false;
    return rig_all_ranks(&k.layout) > MESH_MOST || (rig_sharers(&k.layout) == 1 && k.layout.zero);
}

/* With every combination of values of the layout's switches from s on. */
static void test_layouts(struct cover *c, uint8_t *fixed, int s)
{
    if (s == SW_LAYOUT) {
        if (!cover_is_refused(c, fixed) && !left_out(fixed))
            test_array(c, true);
        return;
    }
    for (int v = 0; v < c->values[s]; v++) {
        fixed[s] = (uint8_t)v;
        test_layouts(c, fixed, s + 1);
    }
    fixed[s] = COVER_ANY;
}

/* The modes are made of each row, so the switches for them are fixed. */
static void test_all(struct cover c)
{
    uint8_t fixed[COVER_SWITCHES];
    memset(fixed, COVER_ANY, sizeof fixed);
    sw_put(fixed, "mode=plain");
    sw_put(fixed, "turns=fixed");
    c.fixed = fixed;
    test_layouts(&c, fixed, 0);
}

/* Ranks that have different layers, on small meshes: pairs with a switch of the layout. The others
 * stand among the rows without such ranks, and among those of `all` with them. */
static void test_parts(struct cover c, struct cover_pair *pairs)
{
    struct cover_pair never[300];
    memcpy(never, pairs, c.n_refused * sizeof *pairs);
    c.refused = never;
    c.with = SW_LAYOUT;
    sw_first(&c, never, "ranks", 2);
    sw_first(&c, never, "zero", 2);
    sw_first(&c, never, "zero_inner", 1);
    sw_first(&c, never, "tensor", 3);
    sw_first(&c, never, "expert", 2);
    sw_first(&c, never, "pipeline", 5);
    test_array(&c, false);
}

static void test_only(char **words, int n)
{
    uint8_t row[COVER_SWITCHES] = {0};
    for (int i = 0; i < n; i++)
        sw_put(row, words[i]);
    test_row(row, true);
}

/* all [STEP [FROM]] */
static void take_sample(char **words, int n)
{
    int64_t v[2] = {1, 0};
    for (int i = 0; i < n && i < 2; i++)
        if (lf_parse_i64(&v[i], words[i], NULL) != 0 || v[i] < (i == 0))
            tap_bail("matrix all [STEP [FROM]]: each STEPth row from number FROM on");
    sample.step = (size_t)v[0];
    sample.from = (size_t)v[1];
}

int main(int argc, char **argv)
{
    struct cover_pair pairs[300], never[300];
    if (sw_n_refusals > sizeof pairs / sizeof pairs[0] || sw_n > COVER_SWITCHES)
        tap_bail("too many switches or refusals");
    const struct cover c = sw_cover(pairs);
    struct cover whole = sw_cover(never);
    uint8_t fixed[COVER_SWITCHES];
    memset(fixed, COVER_ANY, sizeof fixed);
    sw_put(fixed, "pipeline=1");
    whole.fixed = fixed;
    sw_first(&whole, never, "expert", 2); /* a single round is what expert_test looks at */
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "only") == 0) {
        test_only(argv + 2, argc - 2);
    } else if (strcmp(what, "all") == 0) {
        take_sample(argv + 2, argc - 2);
        test_all(c);
    } else {
        TAP(5, test_cover());
        TAP(sw_n_refusals, test_refused());
        test_array(&whole, false);
        test_parts(c, pairs);
    }
    return tap_done();
}
