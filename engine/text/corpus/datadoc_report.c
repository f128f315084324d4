/* SPDX-License-Identifier: Apache-2.0
 *
 * The report for people.
 */
#include <stdio.h>
#include <string.h>

#include "engine/text/corpus/datadoc_priv.h"
#include "engine/text/corpus/datadoc_turns.h"

/* ---- for people ---- */

static long long num(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Each row's place and one more member. */
static void list_text(const json_t *list, const char *key, const char *join, lf_buf *out)
{
    const json_t *e;
    size_t i;
    json_array_foreach(list, i, e)
    {
        const json_t *v = json_object_get(e, key);
        if (json_is_string(e))
            lf_buf_addf(out, "    %s\n", json_string_value(e));
        else if (json_is_integer(v))
            lf_buf_addf(out, "    %s%s%lld\n", str(e, "at"), join,
                        (long long)json_integer_value(v));
        else
            lf_buf_addf(out, "    %s%s%s\n", str(e, "at"), join, str(e, key));
    }
}

static void found_after(const json_t *o, const char *what, const char *key, const char *join,
                        lf_buf *out)
{
    lf_buf_addf(out, "%s: %lld rows%s\n", what, num(o, "rows"),
                json_is_true(json_object_get(o, "estimated")) ? " (estimated from a sample)" : "");
    list_text(json_object_get(o, "first"), key, join, out);
}

static void found(const json_t *o, const char *what, const char *key, const char *join, lf_buf *out)
{
    if (num(o, "rows") == 0)
        return;
    lf_buf_adds(out, "  ");
    found_after(o, what, key, join, out);
}

static void samples_text(const json_t *list, const char *unit, lf_buf *out)
{
    const json_t *s;
    size_t i;
    json_array_foreach(list, i, s)
    {
        lf_buf_addf(out, "\n--- %s, %s, %lld %s\n", str(s, "kind"), str(s, "at"), num(s, "length"),
                    unit);
        lf_buf_add_visible(out, str(s, "text"), json_string_length(json_object_get(s, "text")));
        lf_buf_addc(out, '\n');
    }
}

/* What tokenizing would make of it. */
static void encoded_text(const json_t *e, lf_buf *out)
{
    const char *name;
    json_t *v;
    lf_buf_addf(out,
                "\ntokenized as told: %lld rows, %lld documents, %lld tokens, %lld of them trained "
                "(%.1f %%)\n",
                num(e, "rows"), num(e, "documents"), num(e, "tokens"), num(e, "trained"),
                100 * json_real_value(json_object_get(e, "trained_share")));
    if (num(e, "no_template"))
        lf_buf_addf(out, "  %lld rows have turns, and there is no chat template for them\n",
                    num(e, "no_template"));
    json_object_foreach(json_object_get(e, "left_out"), name, v)
    {
        lf_buf_adds(out, "  left out, ");
        found_after(v, name, "why", ": ", out);
    }
    json_object_foreach(json_object_get(e, "found"), name, v) found(v, name, "", "", out);
}

static void cut_text(const json_t *c, lf_buf *out)
{
    lf_buf_addf(out,
                "  longer than seq_length = %lld: %lld rows (%.1f %%); %lld tokens (%.1f %%) lie "
                "behind it\n",
                num(c, "seq_length"), num(c, "rows"),
                100 * json_real_value(json_object_get(c, "rows_share")), num(c, "tokens"),
                100 * json_real_value(json_object_get(c, "tokens_share")));
}

static void range_text(const json_t *o, const char *what, lf_buf *out)
{
    lf_buf_addf(out, "  %s %lld to %lld", what, num(o, "min"), num(o, "max"));
    if (json_object_get(o, "mean"))
        lf_buf_addf(out, ", %.1f in the mean", json_real_value(json_object_get(o, "mean")));
    lf_buf_addc(out, '\n');
}

static void pictures_text(const json_t *p, lf_buf *out)
{
    char bytes[32];
    json_t *side;
    size_t i;
    lf_buf_addf(out, "\n%lld pictures in %lld rows, %s; %lld of them came before\n",
                num(p, "pictures"), num(p, "rows"),
                lf_fmt_bytes(bytes, sizeof bytes, (double)num(p, "bytes")), num(p, "repeated"));
    if (num(p, "broken"))
        lf_buf_addf(out, "  %lld rows have a picture that is not there or cannot be read\n",
                    num(p, "broken"));
    if (num(p, "mismatched"))
        lf_buf_addf(out, "  %lld rows have other numbers of marks than of pictures\n",
                    num(p, "mismatched"));
    if (num(p, "pictures") == 0)
        return;
    range_text(json_object_get(p, "width"), "width", out);
    range_text(json_object_get(p, "height"), "height", out);
    range_text(json_object_get(p, "placeholders"), "placeholders of one", out);
    json_array_foreach(json_object_get(p, "sides"), i, side)
    {
        lf_buf_addf(out, "    longer side %lld to %lld: %lld\n", num(side, "from"), num(side, "to"),
                    num(side, "pictures"));
    }
}

/* What is told of rows that can be used; there is one at least. */
static void usable_text(const json_t *r, lf_buf *out)
{
    lf_buf_adds(out, "\n");
    lf_lengths_text(json_object_get(r, "lengths"), out);
    if (json_object_get(r, "cut"))
        cut_text(json_object_get(r, "cut"), out);
    if (json_object_get(r, "pictures"))
        pictures_text(json_object_get(r, "pictures"), out);
    if (json_object_get(r, "conversations"))
        lf_docturns_text(json_object_get(r, "conversations"), out);
    lf_buf_adds(out, "\nlongest rows\n");
    list_text(json_object_get(r, "longest"), "length", ": ", out);
}

/* Everything that is odd. */
static void odd_text(const json_t *r, lf_buf *out)
{
    const char *name;
    json_t *v, *bad = json_object_get(r, "unreadable");
    if (json_array_size(bad)) {
        lf_buf_addf(out, "  unreadable: %zu files\n", json_array_size(bad));
        list_text(bad, "why", ": ", out);
    }
    found(json_object_get(r, "broken"), "broken", "why", ": ", out);
    found(json_object_get(r, "duplicates"), "duplicates", "same_as", " is ", out);
    found(json_object_get(r, "near_duplicates"), "near duplicates", "like", " is like ", out);
    json_object_foreach(json_object_get(r, "oddities"), name, v) found(v, name, "", "", out);
    json_object_foreach(json_object_get(json_object_get(r, "conversations"), "found"), name, v)
        found(v, name, "same_as", " is that of ", out);
}

/* Is there anything to tell of data without a row that can be used? */
static bool found_something(const json_t *r)
{
    return num(json_object_get(r, "broken"), "rows") > 0 ||
           json_array_size(json_object_get(r, "unreadable")) > 0 ||
           json_object_size(json_object_get(r, "oddities")) > 0;
}

void lf_datadoc_text(const json_t *r, lf_buf *out)
{
    char bytes[32];
    const char *name;
    json_t *v;
    const bool usable = num(r, "rows") > num(json_object_get(r, "broken"), "rows");
    lf_buf_addf(out, "%lld rows, %s\n", num(r, "rows"),
                lf_fmt_bytes(bytes, sizeof bytes, (double)num(r, "bytes")));
    json_object_foreach(json_object_get(r, "shapes"), name, v)
        lf_buf_addf(out, "  %lld of shape %s\n", (long long)json_integer_value(v), name);
    if (usable)
        usable_text(r, out);
    if (usable || found_something(r))
        lf_buf_adds(out, json_is_true(json_object_get(r, "clean")) ? "\nnothing odd was found\n"
                                                                   : "\nfound\n");
    odd_text(r, out);
    if (usable && json_object_get(r, "encoded")) {
        encoded_text(json_object_get(r, "encoded"), out);
        lf_buf_adds(out, "\nsamples, trained parts between {+ and +}\n");
    }
    samples_text(json_object_get(r, "samples"), str(json_object_get(r, "lengths"), "unit"), out);
}
