#!/usr/bin/env bash
# Every test, from nothing: installs what they need (root, Debian 12 or 13), builds, runs, and ends with one line,
# `N passed, N failed`. Exits non-zero where one failed.
#
#   tests/run.sh [--fast]    --fast: the plain build and its tests only
#
# Real ranking data is looked for in LOSSD_DATA (default: ../shared/data); without it those tests are skipped.
[ -n "${BASH_VERSION-}" ] || exec bash "$0" "$@" # `sh tests/run.sh` works, too
set -uo pipefail

# Programs with a sanitizer want the address space laid out as they expect it.
if [[ -z ${LOSSD_FIXED_LAYOUT-} ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
    LOSSD_FIXED_LAYOUT=1 exec setarch "$(uname -m)" -R bash "${BASH_SOURCE[0]}" "$@"
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
top=$PWD
fast=false
case "${1-}" in
"") ;;
--fast) fast=true ;;
*)
    echo "usage: tests/run.sh [--fast]" >&2
    exit 64
    ;;
esac

out=$top/build-test
export LOSSD_DATA=${LOSSD_DATA:-$top/../shared/data}
export PYTHONDONTWRITEBYTECODE=1
mkdir -p "$out/log" "$out/count"
rm -f "$out"/log/* "$out"/count/*

packages=(
    build-essential clang libclang-rt-dev meson ninja-build pkg-config git ca-certificates valgrind check
    libmicrohttpd-dev libjson-c-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libgnutls28-dev
    libcurl4-gnutls-dev python3 python3-pytest python3-protobuf python3-numpy python3-torch python3-setuptools
    python3-pip curl nodejs npm systemd man-db strace
)

install_packages() {
    local missing=() name
    for name in "${packages[@]}"; do
        # npm and the compilers also come by other ways than Debian's packages.
        [[ $name == npm && -n $(command -v npm) ]] && continue
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# A registry that is away should be found out in seconds.
npm_install() {
    npm install --no-package-lock --no-audit --no-fund --fetch-retries=1 --fetch-retry-mintimeout=1000 \
        --fetch-retry-maxtimeout=5000 --fetch-timeout=60000 "$@"
}

# The generated clients want Node 20; where Debian's is older, npm has the program itself.
install_clients() {
    (cd tests/clients && npm_install --ignore-scripts) || return
    [[ $(node -p 'parseInt(process.versions.node)') -ge 20 ]] && return
    local arch
    arch=$(node -p process.arch)
    (cd "$out" && npm_install --prefix "$out/node" "node-linux-$arch@20.20.2")
}

node_program() {
    local own
    own=$(echo "$out"/node/node_modules/node-linux-*/bin/node)
    if [[ -x $own ]]; then echo "$own"; else command -v node; fi
}

build() { # NAME [SETUP OPTION]…
    local folder=$out/$1
    [[ -f $folder/build.ninja ]] || meson setup "$folder" "${@:2}" || return
    ninja -C "$folder" all meson-test-prereq proto/lossd.binpb
}

# Run one part in the background or the foreground; it ends with `N passed, N failed` and may say N skipped, or it
# is one test by its exit status.
part() { # NAME COMMAND…
    local name=$1 begin=$SECONDS rc passed=0 failed=0 skipped=0 line
    shift
    "$@" >"$out/log/$name" 2>&1 </dev/null
    rc=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$out/log/$name" | tail -n 1)
    if [[ -n $line ]]; then
        read -r passed _ failed _ skipped _ <<<"${line//,/} 0"
    elif [[ $rc -eq 0 ]]; then
        passed=1
    fi
    [[ $rc -ne 0 && $failed -eq 0 ]] && failed=1
    echo "$passed $failed $skipped" >"$out/count/$name"
    printf '%-22s %5d passed, %d failed, %d skipped   %d s\n' "$name" "$passed" "$failed" "$skipped" $((SECONDS - begin))
    grep -E '^(failed|skipped): ' "$out/log/$name"
    if [[ $failed -ne 0 ]]; then
        echo "---- the end of $out/log/$name"
        tail -n 60 "$out/log/$name"
        echo "----"
    fi
    return 0
}

# What failed inside of tests that meson counts as a whole, with the reasons.
failed_lines() { # LOG
    awk '/^test: / {name = $2} /^not ok/ {print "failed: " name ": " $0; said = 1; next}
        said && /^#/ {print "failed: " name ": " $0; next} {said = 0}' "$1"
}

unit() { # BUILD SETUP: what meson knows; with setup `all` the slow ones too
    local rc
    rm -f "$out/$1"/meson-logs/testlog*.junit.xml
    meson test -C "$out/$1" --setup "$2" --no-rebuild --print-errorlogs --timeout-multiplier 4 --num-processes 2
    rc=$?
    [[ $rc -eq 0 ]] || failed_lines "$out/$1/meson-logs/testlog-$2.txt"
    tests/support/counts.py "$out/$1/meson-logs/testlog-$2.junit.xml" && return $rc
}

pytest() { # FOLDER BUILD [PYTEST OPTION]…
    local rc file=$out/count/$2-$1.xml
    LOSSD_BUILD=$out/$2 /usr/bin/python3 -m pytest -q -p no:cacheprovider --durations=10 --junitxml "$file" "${@:3}" \
        "tests/$1"
    rc=$?
    tests/support/counts.py "$file" && rm -f "$file" && return $rc
}

# What Python loads has no sanitizer, whatever the daemon has.
python_client() { # BUILD [PYTEST OPTION]…
    LOSSD_LIBRARY=$out/plain/client/liblossd.so pytest python "$@"
}

clients() { # BUILD
    local rc log
    log=$(PATH=$(dirname "$(node_program)"):$PATH LOSSD_BUILD=$out/$1 node --test --test-reporter=tap \
        tests/clients/clients.test.mjs 2>&1)
    rc=$?
    echo "$log"
    echo "$log" | awk '/^# pass /{p=$3} /^# fail /{f=$3} /^# skipped /{s=$3} END{printf "%d passed, %d failed, %d skipped\n", p, f, s}'
    return $rc
}

quickstart() { # in a copy, as somebody finds it
    local copy rc
    copy=$(mktemp -d)
    git archive HEAD | tar -x -C "$copy" && "$copy/deploy/quickstart.sh" && "$copy/deploy/quickstart.sh" --stop
    rc=$?
    rm -rf "$copy"
    return $rc
}

# The part `npm` has failed where their packages are not there: one failure, and everything else runs.
part_clients() { # NAME BUILD
    if [[ $(<"$out/count/npm") == "1 0 0" ]]; then part "$1" clients "$2"; fi
}

sanitized() { # NAME SETUP: the whole suite on a build with a sanitizer
    part "$1-unit" unit "$1" "$2"
    part "$1-daemon" pytest daemon "$1" -m 'not plain'
    part "$1-python" python_client "$1" -m 'not plain'
    part_clients "$1-clients" "$1"
}

must() { # WHAT COMMAND…: nothing else makes sense without it
    local begin=$SECONDS
    if ! "${@:2}" >"$out/log/$1" 2>&1 </dev/null; then
        tail -n 60 "$out/log/$1"
        echo "$1 failed"
        echo "0 passed, 1 failed"
        exit 1
    fi
    printf '%-22s %d s\n' "$1" $((SECONDS - begin))
}

must install-packages install_packages
part npm install_clients
must build-plain build plain
if ! $fast; then
    must build-asan build asan -Db_sanitize=address,undefined
    must build-tsan build tsan -Db_sanitize=thread
fi

part unit unit plain all
part daemon pytest daemon plain
part python python_client plain
part_clients clients plain
if ! $fast; then
    part readme env LOSSD_BUILD="$out/plain" tests/daemon/readme.sh
    part quickstart quickstart
    part systemd env LOSSD_BUILD="$out/plain" tests/systemd/verify.sh
    part conformance env BUILD="$out/plain" CACHE="$out/conformance" tests/conformance/run.sh
    part mutations tests/mutations/run.sh "$out/mutations"
    export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
    # Both at once: they wait more than they compute. What is slow has one thread: nothing for ThreadSanitizer.
    sanitized asan all &
    asan=$!
    sanitized tsan quick &
    tsan=$!
    for pid in $asan $tsan; do
        wait "$pid" || echo "0 1 0" >"$out/count/$pid" # killed, and with it what had not been counted
    done
fi

read -r passed failed skipped <<<"$(cat "$out"/count/* | awk '{p += $1; f += $2; s += $3} END {print p, f, s}')"
echo
if [[ $skipped -gt 0 ]]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[[ $failed -eq 0 && $passed -gt 0 ]]
