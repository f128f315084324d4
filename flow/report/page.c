/* SPDX-License-Identifier: Apache-2.0
 *
 * What every page of the report has: head and style, escaped text, the data, the script.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "flow/report/page_texts.h"
#include "flow/report/report.h"

#define POLICY LF_HTML_POLICY "; script-src 'unsafe-inline'"

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
