#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The RPM package: built from `make dist` (without asking for RPM's build dependencies, which another
# distribution does not have), rpmlint without errors, installed in a root of its own, a stage run
# from there, removed without a trace. LF_RPM: a package built before (a folder).
. "$LF_SRCDIR/tests/pack/lib.sh"
needs rpmbuild rpm xz
top=$T/rpm
if [ -n "${LF_RPM:-}" ]; then
    cp -R "$LF_RPM" "$top"
else
    dist
    rpmbuild --nodeps -ta --define "_topdir $top" --define "_tmppath $T" "$NAME.tar.xz" >log 2>&1
    ok $? "rpmbuild -ta, the source package too" "$(last log)"
fi
rpm=$(find "$top/RPMS" -name 'loong-flow-[0-9]*.rpm' | head -n 1)
[ -f "$rpm" ] || bail "no package"
is "$(rpm -qp --qf '%{VERSION} %{LICENSE}' "$rpm")" "$(version) Apache-2.0" "its version and licence"
rpm -qpl "$rpm" >list
for f in bin/loong-flow libexec/loong-flow/lf-pretrain share/man/man1/loong-flow.1 \
    share/loong-flow/models/llama2-7b.ini share/bash-completion/completions/loong-flow; do
    grep -Eqx "/usr/$f(\.[gx]z|\.bz2|\.zst)?" list; ok $? "it has $f"
done
is "$(grep -Ev '^/usr/(bin|libexec/loong-flow|share)(/|$)|^/usr/lib/.build-id' list)" "" \
    "and nothing elsewhere"
if command -v rpmlint >/dev/null; then
    rc=$LF_SRCDIR/packaging/rpm/loong-flow.rpmlintrc
    rpmlint --rpmlintrc "$rc" "$LF_SRCDIR/packaging/rpm/loong-flow.spec" "$rpm" >lint 2>&1
    is "$(grep -E '(: E:|^E:)' lint)" "" "rpmlint has no error"
    sed 's/^/# /' lint
else
    skip "rpmlint has no error" "no rpmlint"
fi
if [ "$(id -u)" -ne 0 ]; then
    skip "installed, run and removed in a root of its own" "rpm --root wants root"
    finish_min 9 # one more when the package is built here
fi
mkdir root && must rpm --root "$T/root" --initdb
# Folders such as /usr/bin are another package's; those that are ours alone have our name.
files() {
    (cd root && find . ! -path './var/lib/rpm*' ! -path './usr/lib/sysimage*' \
        \( ! -type d -o -name '*loong*' -o -name .build-id \) | LC_ALL=C sort)
}
must rpm --root "$T/root" -qa
files >before
rpm --root "$T/root" --nodeps -i "$rpm" >log 2>&1; ok $? "installed in a root of its own" "$(last log)"
is "$(rpm --root "$T/root" -V --nodeps loong-flow)" "" "rpm -V has no complaint"
i=0
while [ $i -lt 400 ]; do
    echo "The $i quick brown foxes jump over lazy dog number $((i * 7919 % 1000))."
    i=$((i + 1))
done >text.txt
LF_LIBEXEC=$T/root/usr/libexec/loong-flow LF_MODELS_DIR=$T/root/usr/share/loong-flow/models
export LF_LIBEXEC LF_MODELS_DIR
is "$(root/usr/bin/loong-flow --version | sed -n 1p)" "loong-flow $(version)" "loong-flow --version"
"$LF_LIBEXEC/lf-tokenize" --doc-split=line --vocab-size=300 --out o text.txt >log 2>&1
ok $? "a stage runs" "$(last log)"
rpm --root "$T/root" -e loong-flow >log 2>&1; ok $? "removed" "$(last log)"
files >after
is "$(diff before after)" "" "nothing is left"
finish_min 14 # one more when the package is built here
