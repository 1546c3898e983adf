#!/bin/sh
# Fuzz every target, or those named, for SECONDS_EACH seconds (default 60) in BUILD (default build-fuzz), under the address
# and undefined-behaviour sanitizers. Stops at the first finding and leaves its input in the current folder.
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$source/build-fuzz}
seconds=${SECONDS_EACH:-60}

[ -d "$build" ] || CC=clang meson setup "$build" "$source" -Dfuzz=true -Db_sanitize=address,undefined \
    -Dc_args=-fsanitize=fuzzer-no-link
[ $# -gt 0 ] || set -- $(sed -n "s/^  \['\([a-z_]*\)',.*/\1/p" "$source/tests/fuzz/meson.build")
for name; do
    ninja -C "$build" "tests/fuzz/fuzz_$name"
    mkdir -p "$build/corpus/$name"
    UBSAN_OPTIONS=halt_on_error=1 "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -max_len=65536 \
        -rss_limit_mb=4096 "$build/corpus/$name" "$source/tests/fuzz/seeds/$name"
done
