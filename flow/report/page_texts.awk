# SPDX-License-Identifier: Apache-2.0
# Turns flow/report/page.css and page.js into arrays of lines named lf_page_css and lf_page_js.
# Blank lines and the blanks at the beginning of lines are left out.
BEGIN { print "/* Made from page.css and page.js by page_texts.awk. */\n#include \"flow/report/page_texts.h\"\n#include <stddef.h>" }
FNR == 1 {
    if (open) print "    NULL,\n};"
    name = FILENAME
    sub(/.*\//, "", name)
    sub(/\./, "_", name)
    print "const char *const lf_" name "[] = {"
    open = 1
}
{
    sub(/^[ \t]+/, "")
    if ($0 == "") next
    gsub(/\\/, "&&")
    gsub(/"/, "\\\"")
    print "    \"" $0 "\","
}
END { if (open) print "    NULL,\n};" }
