/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-tokenize --doctor: a contact sheet. Samples with their pictures, what these became, and which
 * tokens are trained.
 */
#include "config.h"

#include <jansson.h>
#include <string.h>

#include "engine/base/html.h"
#include "stages/tokenize_media.h"

static const char head[] =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"" LF_HTML_POLICY "\">"
    "<title>samples</title><style>\n"
    "body { font: 1rem/1.45 sans-serif; margin: 1rem auto; max-width: 60rem; padding: 0 1rem }\n"
    "figure { margin: 1.4rem 0 }\n"
    "figcaption { color: #555 }\n"
    ".seen { max-width: 18rem; max-height: 14rem; margin: .3rem .5rem .3rem 0 }\n"
    "pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0 }\n"
    "mark { background: #cfe8cf }\n"
    "</style></head><body>\n"
    "<p>Samples of the data as they are trained on: marked text is what the loss is of.</p>\n";

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

static long long num(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static void pictures(lf_buf *out, json_t *list)
{
    json_t *p;
    size_t i;
    json_array_foreach(list, i, p)
    {
        lf_buf_adds(out, "<div>");
        lf_buf_adds(out, str(p, "html")); /* of lf_html_picture */
        lf_buf_addf(out, "<span>%lld x %lld pixels, %lld placeholders%s</span></div>\n",
                    num(p, "width"), num(p, "height"), num(p, "placeholders"),
                    *str(p, "html") ? "" : " (too large to be shown)");
        json_object_del(p, "html");
    }
}

static void add_part(lf_buf *out, const char *text, size_t n)
{
    lf_buf part;
    lf_buf_init(&part);
    lf_buf_add(&part, text, n);
    lf_html_text(out, part.data);
    lf_buf_fini(&part);
}

/* The text of a sample, in which what is trained stands between {+ and +}. */
static void text_of(lf_buf *out, const char *text, const json_t *trained)
{
    const size_t n = strlen(text);
    size_t at = 0, i;
    json_t *range;
    json_array_foreach(trained, i, range)
    {
        const size_t begin = (size_t)json_integer_value(json_array_get(range, 0)),
                     end = (size_t)json_integer_value(json_array_get(range, 1));
        if (begin < at + 2 || end < begin || end + 2 > n)
            break;
        add_part(out, text + at, begin - 2 - at);
        lf_buf_adds(out, "<mark>");
        add_part(out, text + begin, end - begin);
        lf_buf_adds(out, "</mark>");
        at = end + 2;
    }
    add_part(out, text + at, n - at);
}

static void add_sample(lf_buf *out, json_t *s, const char *unit)
{
    lf_buf_adds(out, "<figure><figcaption>");
    lf_html_text(out, str(s, "kind"));
    lf_buf_adds(out, ", ");
    lf_html_text(out, str(s, "at"));
    lf_buf_addf(out, ", %lld ", num(s, "length"));
    lf_html_text(out, unit);
    lf_buf_adds(out, "</figcaption>\n");
    pictures(out, json_object_get(s, "pictures"));
    lf_buf_adds(out, "<pre>");
    text_of(out, str(s, "text"), json_object_get(s, "trained"));
    lf_buf_adds(out, "</pre></figure>\n");
}

void lf_tokenize_doctor_page(lf_buf *out, json_t *report)
{
    json_t *list = json_object_get(report, "samples"), *s;
    const char *unit = str(json_object_get(report, "lengths"), "unit");
    bool any = false;
    size_t i;
    json_array_foreach(list, i, s) any = any || json_object_get(s, "pictures") != NULL;
    if (!any)
        return;
    lf_buf_add(out, head, sizeof head - 1);
    json_array_foreach(list, i, s) add_sample(out, s, unit);
    lf_buf_adds(out, "</body></html>\n");
}
