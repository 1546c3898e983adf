#!/usr/bin/env bash
# Measure, and write the tables of README.md beside this file.
#
#   tests/bench/table.sh BUILD     BUILD: a plain build folder; takes about two minutes, on a machine that is else quiet
set -euo pipefail

[[ $# -eq 1 && -d $1 ]] || {
    echo "usage: tests/bench/table.sh BUILD" >&2
    exit 64
}
build=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")"
ninja -C "$build" daemon/lossd tests/bench/bench_{shm,http,client,codec} >/dev/null

flags() { # those that the kernels of the losses and the codec are compiled for
    grep -m 1 '^flags' /proc/cpuinfo | grep -ow 'sse4_2\|avx\|fma\|avx2\|avx512f\|avx512bw' | sort -u | paste -sd ' '
}

machine() {
    echo "Measured on $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" \
        "($(flags)), Linux $(uname -r | cut -d . -f 1,2), $(cc --version | head -n 1), load $(cut -d ' ' -f 1 /proc/loadavg) at the start."
}

table() { # TITLE PROGRAM ARGUMENT…
    printf '\n### %s\n\n' "$1"
    "$build/tests/bench/$2" "${@:3}" --markdown
}

measured=$(
    machine
    table "Shared memory beside the bare kernel" bench_shm "$build/daemon/lossd"
    table "HTTP beside the bare kernel, bodies made before" bench_http "$build/daemon/lossd"
    table "What a C program waits for" bench_client "$build/daemon/lossd"
    table "Text and bytes to numbers and back" bench_codec
)
awk -v measured="$measured" '
    /^<!-- measured -->$/ {print; print ""; print measured; print ""; skip = 1; next}
    /^<!-- end -->$/ {skip = 0}
    !skip' README.md >README.md.new
mv README.md.new README.md
