# SPDX-License-Identifier: Apache-2.0
# Turns templates/init/USE.ini into arrays of lines, one per file, named lf_init_USE.
BEGIN { print "/* Made from templates/init by flow/cmd/init_texts.awk. */\n#include \"flow/cmd/init_texts.h\"\n#include <stddef.h>" }
FNR == 1 {
    if (open) print "    NULL,\n};"
    name = FILENAME
    sub(/.*\//, "", name)
    sub(/\.ini$/, "", name)
    print "const char *const lf_init_" name "[] = {"
    open = 1
}
{
    gsub(/\\/, "&&")
    gsub(/"/, "\\\"")
    print "    \"" $0 "\","
}
END { if (open) print "    NULL,\n};" }
