/* SPDX-License-Identifier: Apache-2.0
 *
 * What every page of the report has: head and style, escaped text, the data, the script.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "flow/report/page_texts.h"
#include "flow/report/report.h"

/* Nothing may be loaded, whatever a text on the page says. */
#define POLICY "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

static const char *entity_of(unsigned char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* Bytes that are not UTF-8 have become U+FFFD, or '?', before they come here. */
void lf_html_text(lf_buf *out, const char *text)
{
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        const char *entity = entity_of(c);
        if (entity != NULL)
            lf_buf_adds(out, entity);
        else if ((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t')
            lf_buf_addc(out, *p);
        else
            lf_buf_addf(out, "&#x24%02x;", c == 0x7f ? 0x21 : c);
    }
}

void lf_html_in(lf_buf *out, const char *tag, const char *cls, const char *text)
{
    lf_buf_addf(out, "<%s%s%s%s>", tag, cls[0] != '\0' ? " class=\"" : "", cls,
                cls[0] != '\0' ? "\"" : "");
    lf_html_text(out, text);
    lf_buf_addf(out, "</%s>", tag);
}

void lf_html_state(lf_buf *out, const char *state)
{
    lf_buf_addf(out, "<span class=\"tag s-%s\">%s %s</span>", state, lf_state_sign(state), state);
}

const char *lf_state_sign(const char *state)
{
    static const char *const signs[][2] = {
        {"done", "\u2713"},    {"failed", "\u2717"},  {"running", "\u25b6"},
        {"waiting", "\u2026"}, {"pending", "\u25cb"}, {"cancelled", "\u2298"},
        {"purged", "\u2205"},  {"stopped", "\u2016"}, {"unknown", "?"}};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (strcmp(state, signs[i][0]) == 0)
            return signs[i][1];
    return "?";
}

static void add_lines(lf_buf *out, const char *const *lines)
{
    for (; *lines != NULL; lines++) {
        lf_buf_adds(out, *lines);
        lf_buf_addc(out, '\n');
    }
}

void lf_page_begin(lf_buf *out, const char *title, int refresh_s)
{
    lf_buf_adds(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                     "<meta name=\"viewport\" content=\"width=device-width\">"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"" POLICY "\">");
    if (refresh_s > 0)
        lf_buf_addf(out, "<meta http-equiv=\"refresh\" content=\"%d\">", refresh_s);
    lf_buf_adds(out, "<title>");
    lf_html_text(out, title);
    lf_buf_adds(out, " - loong-flow</title><style>\n");
    add_lines(out, lf_page_css);
    lf_buf_adds(out, "</style></head><body>\n");
}

int lf_page_end(lf_buf *out, const lf_facts *const *runs, size_t n, lf_err *err)
{
    lf_report_data(out, runs, n);
    lf_buf_adds(out, "<script>\n");
    add_lines(out, lf_page_js);
    lf_buf_adds(out, "</script></body></html>\n");
    return lf_buf_check(out, err);
}
