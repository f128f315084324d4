# SPDX-License-Identifier: Apache-2.0
# Turns schema.sql into a C array of texts, one per "-- @version N" step. Comments are dropped.
BEGIN {
    print "/* Made from db/schema.sql by db/embed.awk. */"
    print "#include \"db/ledger_priv.h\""
    print "static const char *const steps[] = {"
    n = 0
}
/^-- @version / {
    if ($3 != n + 1) { print "#error schema.sql: version " $3 " follows " n; exit 1 }
    if (n++) print ","
    next
}
/^ *--/ || /^ *$/ { next }
{
    if (n == 0) { print "#error schema.sql: text before the first version"; exit 1 }
    # Escapes differ between awks in gsub, and the schema needs none.
    if (/["\\]/) { print "#error schema.sql line " NR ": a quote or backslash"; exit 1 }
    print "\"" $0 "\\n\""
}
END {
    print "};"
    print "const struct lf_schema lf_ledger_schema = {steps, sizeof steps / sizeof steps[0]};"
}
