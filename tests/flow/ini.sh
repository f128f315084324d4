#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Strict pipeline files: each mistake is one message with its place, exit 2, and nothing is made.
. "$LF_SRCDIR/tests/flow/lib.sh"
echo data >in.txt

# bad NAME PATTERN: pipeline.ini from stdin must be refused with a message like PATTERN
bad() {
    cat >pipeline.ini
    "$LF" validate >out 2>err
    code=$?
    [ $code -ne 0 ] && [ "$(wc -l <err)" -eq 1 ] && grep -Eq -e "$2" err
    ok $? "$1" "exit $code, said: $(cat err), wanted: $2"
}
good() {
    cat >pipeline.ini
    "$LF" validate >out 2>err
    ok $? "$1" "$(cat err)"
}

bad "unknown key" 'pipeline.ini:3:1: unknown key "stepz".*did you mean "steps"' <<'E'
[stage a]
kind = work
stepz = 5
E
bad "unknown section" 'pipeline.ini:1:1: unknown section \[stages a\].*stage NAME' <<'E'
[stages a]
kind = work
E
bad "unknown kind" 'pipeline.ini:2:8: unknown stage kind "wrok"; did you mean "work"' <<'E'
[stage a]
kind = wrok
E
bad "no kind" 'pipeline.ini:1:1: \[stage a\] has no kind' <<'E'
[stage a]
steps = 5
E
bad "wrong unit" 'pipeline.ini:3:9.*every.*5 parsecs' <<'E'
[stage a]
kind = work
every = 5 parsecs
E
bad "wrong number" 'pipeline.ini:3:9.*steps' <<'E'
[stage a]
kind = work
steps = many
E
bad "out of range" 'pipeline.ini:3:10.*factor' <<'E'
[stage a]
kind = work
factor = 11
E
bad "wrong choice" 'pipeline.ini:3:8.*mode' <<'E'
[stage a]
kind = work
mode = slow
E
bad "duplicate key" 'pipeline.ini:4:1: steps is set twice in .stage a.: lines 3 and 4$' <<'E'
[stage a]
kind = work
steps = 5
steps = 6
E
bad "duplicate section" 'pipeline.ini:3:.*stage a' <<'E'
[stage a]
kind = work
[stage a]
kind = work
E
bad "key outside a section" 'pipeline.ini:1:' <<'E'
kind = work
E
bad "a key that loong-flow gives itself" 'pipeline.ini:3:1: "out" is given by loong-flow' <<'E'
[stage a]
kind = work
out = /tmp/x
E
bad "missing required input" 'pipeline.ini:1:1: \[stage a\].*parts' <<'E'
[stage a]
kind = join
E
bad "missing file" 'pipeline.ini:3:9: input = nothere.txt: there is no such file' <<'E'
[stage a]
kind = work
input = nothere.txt
E
bad "cycle of stages" 'cycle: a -> b -> a' <<'E'
[stage a]
kind = work
input = ${stage:b}
[stage b]
kind = work
input = ${stage:a}
E
bad "a stage after itself" 'cycle: a -> a' <<'E'
[stage a]
kind = work
after = a
E
bad "unknown stage in a reference" 'pipeline.ini:5:9: .*no \[stage frist\]; did you mean first' <<'E'
[stage first]
kind = work
[stage b]
kind = work
input = ${stage:frist}
E
bad "unknown output" 'pipeline.ini:5:9: .*no such output; did you mean result' <<'E'
[stage a]
kind = work
[stage b]
kind = work
input = ${stage:a.resutl}
E
bad "an output given to an option that is no input" 'pipeline.ini:5:8: .*options that are inputs' <<'E'
[stage a]
kind = work
[stage b]
kind = work
note = x${stage:a}
E
bad "cycle of references" 'form a cycle: vars.x -> vars.y -> vars.x' <<'E'
[vars]
x = ${vars.y}
y = ${vars.x}
[stage a]
kind = work
E
bad "unknown reference" 'pipeline.ini:3:9: .*did you mean \$\{vars.count\}' <<'E'
[stage a]
kind = work
steps = ${vars.cuont}
[vars]
count = 5
E
bad "unset environment" 'pipeline.ini:3:9: .*no such variable' <<'E'
[stage a]
kind = work
steps = ${env.LF_TEST_NOT_SET}
E
LF_TEST_TOKEN=abc
export LF_TEST_TOKEN
bad "a secret from the environment" 'looks like a secret' <<'E'
[stage a]
kind = work
model = ${env.LF_TEST_TOKEN}
E
bad "a secret in the file" 'pipeline.ini:2:15: "my_password" looks like a secret' <<'E'
[vars]
my_password = abc
[stage a]
kind = work
E
bad "a variable nobody uses" 'pipeline.ini:2:1: "x" in \[vars\] is used by nothing' <<'E'
[vars]
x = 1
[stage a]
kind = work
E
bad "inherit from nothing" 'pipeline.ini:3:11: inherit = base' <<'E'
[stage a]
kind = work
inherit = base
E
bad "inherit in a circle" 'inherits from itself' <<'E'
[stage a]
inherit = b
[stage b]
inherit = a
E
bad "include that is not there" 'pipeline.ini:2:11: included file .*other.ini does not exist' <<'E'
[pipeline]
include = other.ini
[stage a]
kind = work
E
printf '[pipeline]\ninclude = b.ini\n' >b.ini
bad "include in a circle" 'includes itself' <<'E'
[pipeline]
include = b.ini
[stage a]
kind = work
E
bad "no stages" 'no \[stage NAME\]' <<'E'
[pipeline]
name = x
E
bad "model that is not there" 'pipeline.ini:3:9: there is no model "tyni"; did you mean \[model tiny\]' <<'E'
[stage a]
kind = work
model = tyni
[model tiny]
layers = 2
E
bad "model nobody uses" '\[model tiny\] is used by no stage' <<'E'
[stage a]
kind = work
[model tiny]
layers = 2
E
bad "bad stage name" "a name is 1 to 64 letters" <<'E'
[stage a/b]
kind = work
E
printf '[stage a]\nkind = work\n' >pipeline.ini
chmod o+w pipeline.ini
runs 2 "$LF" validate
like err 'writable by everybody' "a file that anybody can write is refused"
chmod o-w pipeline.ini
[ ! -e .loong ]; ok $? "validate makes nothing"

printf '[vars]\nn = 3\n[model small]\nlayers = 1\nwidth = 64\n' >common.ini
good "everything at once" <<'E'
[pipeline]
name = all
data_dir = data
include = common.ini
[resources]
time_limit = 2h30m
memory = 80G
[model tiny]
preset = small
layers = 2
[kind work]
step_time = 7
[template base]
kind = work
steps = 4k
[stage a]
inherit = base
model = tiny
every = 1h30m
[stage b]
inherit = a
input = ${stage:a.result}
    in.txt
steps = ${vars.n}
[stage c]
kind = join
parts = ${stage:b}
after = a
E
"$LF" validate --json >out 2>err
ok $? "includes, inherit, templates, kinds, models, units" "$(cat err)"
like out '"layers": "2"' "a model laid over its base"
like out '"width": "64"' "keeps the rest of it"
like out '"time_limit_s": 9000' "durations have units"
like out '"memory_bytes": 85899345920' "bytes have units"
"$LF" config --origin >out
like out '# .*pipeline.ini:[0-9]+:[0-9]+ \(pipeline, through template base\)' "config --origin: inherited values"
like out '# .*common.ini:2:5' "config --origin: included values"
printf '[kind work]\nstep_time = 9\n' >site.ini
printf '[kind work]\nstep_time = 8\n' >user.ini
sed '/kind work/,+1d' pipeline.ini >p && cp p pipeline.ini
LF_SITE_CONFIG=$T/site.ini LF_USER_CONFIG=$T/user.ini "$LF" config --origin >out
like out 'user.ini:2:13 \(user\)' "the user file wins over the site file"
LF_SITE_CONFIG=$T/site.ini "$LF" config --set a.steps=9 --origin >out
like out 'site.ini:2:13 \(site\)' "the site file counts"
like out '^# --set' "--set is shown as such"
finish 47
