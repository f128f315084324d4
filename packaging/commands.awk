# SPDX-License-Identifier: Apache-2.0
# The dry run of packaging/commands.mk on standard input, compile_commands.json on standard output.
# -v dir=DIRECTORY: where the commands run.
function json(s) {
    gsub(/\\/, "\\\\", s)
    gsub(/"/, "\\\"", s)
    return "\"" s "\""
}
BEGIN { print "["; directory = json(dir) }
/ -c -o [^ ]+\.o / {
    command = $0
    sub(/ *&& *\\$/, "", command)
    sub(/^[ \t]+/, "", command)
    gsub(/ -MT [^ ]+ -MD -MP -MF [^ ]+/, "", command)
    gsub(/[ \t]+/, " ", command) # what is quoted has no runs of blanks
    # `test -f 'a.c' || echo '../'`a.c
    if (match(command, /`test -f '[^']*' \|\| echo '[^']*'`/)) {
        ask = substr(command, RSTART + 1, RLENGTH - 2)
        split(ask, part, "'")
        where = (system("test -f '" dir "/" part[2] "'") == 0) ? "" : part[4]
        command = substr(command, 1, RSTART - 1) where substr(command, RSTART + RLENGTH)
    }
    n = split(command, word, " ")
    file = word[n]
    for (i = 1; i < n; i++)
        if (word[i] == "-o")
            output = word[i + 1]
    printf "%s{\"directory\": %s,\n \"file\": %s,\n \"output\": %s,\n \"command\": %s}", \
        count++ ? ",\n" : "", directory, json(file), json(output), json(command)
}
END {
    print "\n]"
    if (!count) {
        print "commands.awk: no compiler command was seen" >"/dev/stderr"
        exit 1
    }
}
