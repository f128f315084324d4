#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Debian package: built from `make dist`, lintian without errors, installed in a clean root with
# nothing but what it depends on, a stage run there, removed without a trace.
# LF_DEBIAN_MIRROR: where the clean root comes from. LF_DEB: a package built before (a folder).
. "$LF_SRCDIR/tests/pack/lib.sh"
needs dpkg-buildpackage dh dpkg-deb xz
[ -n "${LF_DEB:-}" ] || dpkg-checkbuilddeps "$LF_SRCDIR/packaging/deb/control" 2>err ||
    skip_all "packages to build with are missing"

if [ -n "${LF_DEB:-}" ]; then
    cp -R "$LF_DEB" out
else
    dist
    sh "$LF_SRCDIR/packaging/deb/build.sh" "$NAME.tar.xz" out >log 2>&1
    ok $? "the package is built" "$(last log)"
fi
deb=$(ls "$T"/out/loong-flow_*.deb 2>/dev/null)
[ -f "$deb" ] || bail "no package"

dpkg-deb -c "$deb" | awk '{print $6}' >list
for f in usr/bin/loong-flow usr/libexec/loong-flow/lf-pretrain usr/share/man/man1/loong-flow.1.gz \
    usr/share/man/man1/lf-pretrain.1.gz usr/share/loong-flow/models/llama2-7b.ini \
    usr/share/bash-completion/completions/loong-flow usr/share/zsh/site-functions/_loong-flow \
    usr/share/fish/vendor_completions.d/loong-flow.fish usr/share/doc/loong-flow/copyright; do
    grep -qx "./$f" list; ok $? "it has $f"
done
is "$(grep -Ev '^\./(usr/(bin|libexec/loong-flow|share)/.*)?$|^\./usr/(bin/|libexec/)?$' list)" "" \
    "and nothing elsewhere"
is "$(dpkg-deb -f "$deb" Version)" "$(version)-1" "its version is that of configure.ac"
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error out/*.changes >lint 2>&1
    ok $? "lintian has no error" "$(grep '^E:' lint)"
    sed 's/^/# /' lint
else
    skip "lintian has no error" "no lintian"
fi

# --- a clean root ---
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
why=
[ "$(id -u)" -eq 0 ] || why="a clean root wants root"
command -v debootstrap >/dev/null || why="no debootstrap"
if [ -z "$why" ]; then
    # Names of packages that it depends on; the first of alternatives.
    depends=$(dpkg-deb -f "$deb" Depends | sed 's/|[^,]*//g; s/([^)]*)//g; s/[ :]*//g')
    # shellcheck disable=SC2086
    debootstrap --variant=minbase --include="$depends" "$codename" root ${LF_DEBIAN_MIRROR:-} \
        >log 2>&1 || why="debootstrap: $(last log 1)"
fi
if [ -n "$why" ]; then
    skip "installed, run and removed in a clean root" "$why"
    finish_min 13 # one more when the package is built here
fi
# Processes in the root see a /proc of their own, which goes with them.
within() { unshare -mpf --propagation private sh -c 'mount -t proc proc root/proc && exec chroot root "$@"' sh "$@"; }
files() { (cd root && find . -xdev ! -path './tmp/*' ! -path './var/lib/dpkg/*' ! -path './var/log/*' \
    ! -path './var/cache/*' | LC_ALL=C sort); }
files >before
cp "$deb" root/tmp/loong-flow.deb
within dpkg -i /tmp/loong-flow.deb >log 2>&1; ok $? "installed, with nothing but its dependencies" "$(last log)"
i=0
while [ $i -lt 400 ]; do
    echo "The $i quick brown foxes jump over lazy dog number $((i * 7919 % 1000))."
    i=$((i + 1))
done >root/tmp/text.txt
cat >root/tmp/pipeline.ini <<'INI'
[pipeline]
name = packed
[stage tokenize]
kind = tokenize
inputs = text.txt
doc_split = line
vocab_size = 300
INI
mkdir -m 777 root/tmp/user && mv root/tmp/text.txt root/tmp/pipeline.ini root/tmp/user
user() { within setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp/user sh -c "cd /tmp/user && $*"; }
user loong-flow --version >log 2>&1; ok $? "loong-flow --version" "$(last log)"
is "$(sed -n 1p log)" "loong-flow $(version)" "says the version"
user /usr/libexec/loong-flow/lf-pretrain --version >log 2>&1; ok $? "a stage starts" "$(last log)"
user loong-flow run pipeline.ini >log 2>&1; ok $? "a pipeline of one stage runs" "$(last log)"
is "$(user loong-flow status --columns state 2>&1 | tail -n 1)" "done" "and is done"
within dpkg --purge loong-flow >log 2>&1; ok $? "removed" "$(last log)"
files >after
is "$(diff before after)" "" "nothing is left"
finish_min 20 # one more when the package is built here
