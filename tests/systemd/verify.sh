#!/bin/sh
# The units are sound, tight, and what they create can be created. LOSSD_BUILD names the build folder.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
units=$root/systemd
lossd=${LOSSD_BUILD:-$root/build}/daemon/lossd
max_exposure=20

if ! command -v systemd-analyze >/dev/null; then
    echo "skipped: systemd-analyze is not there"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "failed: $*"
    failed=1
}

# As installed, with a program that is there: verify looks for it.
bindir=$(CDPATH='' cd -- "$(dirname -- "$lossd")" && pwd)
[ -x "$lossd" ] || { echo "$lossd is not there to be named in the unit"; exit 1; }
sed "s|@bindir@|$bindir|g" "$units/lossd.service.in" >"$work/lossd.service"
cp "$units/lossd.socket" "$work/lossd.socket"

# verify warns about a misspelt directive and still exits with 0: not one word is allowed.
for unit in lossd.service lossd.socket; do
    said=$(systemd-analyze verify --man=no "$work/$unit" 2>&1) || fail "verify $unit exits with $?"
    [ -z "$said" ] || fail "verify $unit says: $said"
done

# The gate has to be one that a looser unit does not pass.
systemd-analyze security --offline=true --threshold="$max_exposure" "$work/lossd.service" >"$work/security" 2>&1 ||
    fail "exposure is above $max_exposure: $(tail -n 1 "$work/security")"
mkdir "$work/loose"
grep -v -e '^SystemCallFilter=' -e '^Private' -e '^Capability' "$work/lossd.service" >"$work/loose/lossd.service"
if systemd-analyze security --offline=true --threshold="$max_exposure" "$work/loose/lossd.service" >/dev/null 2>&1; then
    fail "a unit without its system call filter passes too"
fi

systemd-sysusers --dry-run "$units/lossd.sysusers" >"$work/sysusers" 2>&1 ||
    fail "sysusers: $(cat "$work/sysusers")"
id lossd >/dev/null 2>&1 || grep -q "'lossd'" "$work/sysusers" || fail "sysusers would make no user lossd"

# tmpfiles needs the user: give it one in a root of its own.
mkdir -p "$work/root/etc"
echo 'lossd:x:990:' >"$work/root/etc/group"
echo 'lossd:x:990:990::/nonexistent:/usr/sbin/nologin' >"$work/root/etc/passwd"
if [ "$(id -u)" = 0 ]; then
    systemd-tmpfiles --create --root="$work/root" "$units/lossd.tmpfiles" >"$work/tmpfiles" 2>&1 ||
        fail "tmpfiles: $(cat "$work/tmpfiles")"
    [ "$(stat -c '%a %u' "$work/root/run/lossd" 2>&1)" = "750 990" ] || fail "tmpfiles made no /run/lossd of mode 0750"
fi

tail -n 1 "$work/security"
echo "$((1 - failed)) passed, $failed failed"
exit "$failed"
