#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Texts that want to be commands, links that want to be followed, secrets that want to be kept, modes, escaping: through jobs that
# really run. What is not refused must arrive as it is, and nothing else may happen.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
pwned() { [ -z "$(find "$T" -name 'pwned*' 2>/dev/null)" ] && [ ! -e "$HOME/pwned" ]; ok $? "$1: nothing was executed" "$(find "$T" -name 'pwned*')"; }
evil='$(touch pwned1)`touch pwned2`;touch pwned3;"'"'"'&|x'

# --- a directory with everything in its name ---
mkdir "we ird \$(touch pwned4) 'q' \"d\" ;touch pwned5; %j %x -x" && cd "we ird"* || exit 99
batch_pipeline slurm
printf 'text\n' >"-in \$(touch pwned6) '.txt"
sed "s/^input = in.txt/input = -in \$(touch pwned6) '.txt/" pipeline.ini >p && mv p pipeline.ini
"$LF" submit --set "pipeline.name=$evil" --set "first.note=$evil" >out 2>err
code=$?
case $code in
0)
    ok 0 "submit in such a directory, with such names"
    fakeslurm wait 40
    is "$(states)" "done done done" "and the stages run there" "$("$LF" status | tr '\n' '~')"
    is "$("$LF" status --json | grep -c -F 'touch pwned1')" 1 "the name is shown as it is"
    ;;
2) like err 'name|path|character' "such names are refused by name" ;;
*) ok 1 "submit in such a directory" "exit $code: $(cat err)" ;;
esac
pwned "names, paths, values"
"$LF" report -o report.html >out 2>err || "$LF" report >report.html 2>err
runs 0 "$LF" logs first
runs 0 "$LF" lineage "$(ls -d loong-data/*/runs/*/last/1.1)/out/joined"
pwned "report, logs, lineage"
cd "$T" || exit 99
fakeslurm clear

# --- names that are refused ---
batch_pipeline slurm
for name in '../up' '-x' 'a/b' 'a b' '$(id)' 'a;b' '.hidden' "$(printf 'a\tb')"; do
    sed "s|^\[stage second\]|[stage $name]|" pipeline.ini >bad.ini
    runs 2 "$LF" plan bad.ini
done
nl='x
touch pwned7'
for set in "first.partition=$nl" "first.account=a;touch pwned8" "first.qos=-q" "first.reservation=\$(id)" "first.mail=a@b -c" \
    "first.modules=a;b \$(id)" "first.extra=rm -rf /" "pipeline.data_dir=$nl"; do
    runs 2 "$LF" submit --set "$set"
done
[ ! -e .loong ]; ok $? "nothing was made of them"
pwned "refused"

# --- the environment of whoever submits ---
env "EVIL=$evil" "BASH_ENV=$T/evil.sh" "ENV=$T/evil.sh" MY_TOKEN=s3cr3t-value HF_API_KEY=s3cr3t-value DB_PASSWORD=s3cr3t-value \
    "$LF" submit >out 2>err
is $? 0 "submit with secrets and worse in the environment" "$(cat err)"
fakeslurm wait 40
is "$(states)" "done done done" "runs"
"$LF" report -o report.html >out 2>err || "$LF" report >report.html 2>err
! grep -rlF s3cr3t-value .loong loong-data cache slurm/state.json report.html >found 2>/dev/null
ok $? "no value of a secret is kept anywhere" "$(cat found)"
pwned "environment"

# --- secrets in settings ---
for set in 'first.prologue=export HF_TOKEN=hf_abcdefgh' 'first.prologue=MY_PASSWORD="abc" ; export MY_PASSWORD' \
    'first.prologue=export HF_TOKEN=${pipeline.name}' 'first.rank_prefix=env WANDB_API_KEY=abcdef' 'first.extra=--export=HF_TOKEN=abc'; do
    runs 2 "$LF" plan --set "$set"
    like err 'looks like a secret' "$set"
done
runs 0 "$LF" plan --set 'first.prologue=export HF_TOKEN=$(cat "$HOME/.token")'
runs 0 "$LF" plan --set 'first.prologue=export TOKENIZERS_PARALLELISM=false'

# --- modes ---
modes() { find loong-data/*/ -mindepth 1 "$@" | head -3; }
is "$(modes -perm /077 ! -type l)" "" "share = none: nobody else has anything"
rm -rf .loong loong-data
fakeslurm clear
if group=$(id -gn 2>/dev/null); then
    runs 0 "$LF" submit --set "pipeline.share=$group"
    fakeslurm wait 40
    is "$(states)" "done done done" "a shared run"
    is "$(modes -perm /027 ! -type l)" "" "share = GROUP: the group writes nothing, others have nothing"
    is "$(modes -type d ! -perm -2750)" "" "directories are 2750" "$(modes -type d ! -perm -2750 | xargs ls -ld | head -3)"
    is "$(modes -type f ! -perm -0440)" "" "files can be read by the group"
else
    "$LF" submit >o 2>&1
    fakeslurm wait 40
    skip_some 5 "group $group has no name"
fi
runs 2 "$LF" submit --new --set pipeline.share=no-such-group
like err 'no such group' "a group that is not there"

# --- links in the way ---
d=$(stage_dir first)
run=$(dirname "$(dirname "$d")")
echo precious >victim
ln -s "$T/victim" "$run/first/boot.2.log"
ln -s "$T/victim" "$run/first/script.2"
ln -s "$T/victim" "$run/first/attempt.2.json"
"$LF" resume --set first.factor=3 >out 2>err
fakeslurm wait 20
is "$(cat victim)" precious "a link in the place of a record or log is not written through" "$(cat out err)"
rm -rf .loong loong-data
fakeslurm clear
"$LF" submit >o 2>e
fakeslurm wait 40
d=$(stage_dir first)
ev=$(ls "$d"/spool/*-end.json)
cp "$ev" elsewhere.json
rm "$ev"
ln -s "$T/elsewhere.json" "$ev"
"$LF" ledger rebuild >out 2>err
is "$("$LF" ledger sql "select count(*) from problem" | tail -1 | tr -d ' ')" 1 "an event that is a link is refused and noted"
rm "$ev"
cp elsewhere.json "$ev"
runs 0 "$LF" ledger rebuild
mv .loong real.loong
ln -s real.loong .loong
runs 2 "$LF" submit --set first.factor=4
like err 'symbolic link' "a .loong that is a link"
rm .loong
mv real.loong .loong
run=$(dirname "$(dirname "$d")")
mv "$run" "$run.real"
ln -s "$run.real" "$run"
before=$(submits first-)
"$LF" resume --set first.factor=4 >out 2>err
is "$? $(submits first-)" "2 $before" "a run that is a link starts nothing" "$(cat err)"
rm "$run"
mv "$run.real" "$run"
if [ "$(id -u)" = 0 ]; then
    chown 12345 "$ev"
    "$LF" ledger rebuild >out 2>err
    is "$("$LF" ledger sql "select count(*) from problem" | tail -1 | tr -d ' ')" 1 "an event of somebody else is refused and noted"
    chown 0 "$ev"
    chown 12345 pipeline.ini
    runs 2 "$LF" submit
    like err 'another user' "a pipeline of somebody else"
    chown 0 pipeline.ini
fi
chmod o+w pipeline.ini
runs 2 "$LF" submit
like err 'writable by everybody' "a pipeline that everybody may write"
chmod o-w pipeline.ini

# --- control bytes and markup ---
rm -rf .loong loong-data
fakeslurm clear
"$LF" submit --set 'pipeline.name=<img src=x onerror=alert(1)>' --set first.fail_at=2 >o 2>e
fakeslurm wait 20
"$LF" report -o report.html >out 2>err || "$LF" report >report.html 2>err
like report.html '&lt;img src=x' "the report escapes names"
! grep -qF '<img src=x' report.html
ok $? "everywhere"
! grep -qF '<b>failed</b>' report.html
ok $? "and text of logs"
if command -v script >/dev/null 2>&1; then
    for c in status "logs first" show; do
        script -qec "$LF $c" typescript >/dev/null 2>&1 </dev/null
        ! grep -q "$(printf '\033\\[31mred')" typescript
        ok $? "$c on a terminal: a log's control bytes do not reach it"
    done
fi
pwned "all of it"
finish_min 61 # three fewer when not root, and without script(1)
