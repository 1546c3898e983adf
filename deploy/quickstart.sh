#!/bin/sh
# From a checkout to a first step: install what is missing, build, start the daemon, send one step of two ranks.
set -eu

usage() {
    cat <<'USAGE'
Usage: deploy/quickstart.sh [--data DIR]
       deploy/quickstart.sh --stop

Works on Debian 12 and 13, from a checkout with nothing installed. May be run again.

  1. installs the packages that are missing (needs root or sudo, only if there are any)
  2. builds build/daemon/lossd and build/client/lossctl
  3. starts the daemon on 127.0.0.1:7430, or on a free port if another program has that one
  4. joins two ranks and sends one step whose ranks are very uneven, from deploy/example/
     or, with --data, from a ranking data set: DIR/NAME and DIR/NAME.query, LibSVM lines
  5. checks that the mean of the ranks' gradients is the gradient of the whole batch
  6. leaves the daemon running and says how to go on and how to stop it

What the package manager and the compiler say goes to build/quickstart/install.log and build.log.

--stop stops the daemon that an earlier run has left running.
USAGE
}

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build
state=$build/quickstart # what belongs to the daemon that this script started, and the logs
lossd=$build/daemon/lossd
lossctl=$build/client/lossctl
data=
stop=false

while [ $# -gt 0 ]; do
    case $1 in
    --data)
        [ $# -ge 2 ] || die "--data needs a folder"
        data=$2
        shift 2
        ;;
    --stop)
        stop=true
        shift
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 1
        ;;
    esac
done

# Run $2... with all that it says in the log $1 of the state, whose end is shown where it fails.
logged() {
    log=$state/$1.log
    shift
    mkdir -p "$state"
    "$@" >"$log" 2>&1 && return
    tail -n 40 "$log" >&2
    die "$1 failed, all it said is in $log"
}

# ---- packages -------------------------------------------------------------------------------------------------------

# Asks for what the build needs, not for packages: any of several may bring libcurl.
missing_packages() {
    command -v cc >/dev/null || echo gcc
    [ -e /usr/include/stdlib.h ] || echo libc6-dev
    command -v meson >/dev/null || echo meson
    command -v ninja >/dev/null || echo ninja-build
    command -v protoc >/dev/null || echo protobuf-compiler
    command -v protoc-gen-c >/dev/null || echo protobuf-c-compiler
    command -v curl >/dev/null || echo curl # for you, to go on with
    if ! command -v pkg-config >/dev/null; then
        echo pkg-config libmicrohttpd-dev libjson-c-dev libprotobuf-c-dev libgnutls28-dev libcurl4-gnutls-dev
        return
    fi
    pkg-config --exists libmicrohttpd || echo libmicrohttpd-dev
    pkg-config --exists json-c || echo libjson-c-dev
    pkg-config --exists libprotobuf-c || echo libprotobuf-c-dev
    pkg-config --exists gnutls || echo libgnutls28-dev
    pkg-config --exists libcurl || echo libcurl4-gnutls-dev
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

# $* are packages. The lists are renewed only where they are absent or too old to install from.
install_packages() {
    if apt-cache show "$@" >/dev/null 2>&1 && as_root apt-get install -y -q --no-install-recommends "$@"; then
        return
    fi
    as_root apt-get update -q && as_root apt-get install -y -q --no-install-recommends "$@"
}

install_missing() {
    # One word each.
    # shellcheck disable=SC2046
    set -- $(missing_packages)
    if [ $# = 0 ]; then
        echo "nothing is missing"
        return
    fi
    command -v apt-get >/dev/null || die "no apt-get here; install what Debian calls: $*"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        die "packages are missing, and this is neither root nor is there sudo; as root: apt-get install $*"
    echo "installing $*"
    echo "log: $state/install.log"
    logged install install_packages "$@"
    # shellcheck disable=SC2046
    set -- $(missing_packages)
    [ $# = 0 ] || die "still missing after the installation: $*"
}

# ---- build ----------------------------------------------------------------------------------------------------------

build_programs() {
    if [ ! -e "$build/build.ninja" ]; then
        meson setup "$build" "$root" -Dclient=enabled || return
    elif ! ninja -C "$build" -t query client/lossctl >/dev/null 2>&1; then
        # Configured when libcurl was not there.
        meson configure "$build" -Dclient=enabled || return
    fi
    ninja -C "$build" daemon/lossd client/lossctl
}

# ---- daemon ---------------------------------------------------------------------------------------------------------

# The daemon that an earlier run started: its pid, if it lives and is of this build.
own_pid() {
    pid=$(cat "$state/lossd.pid" 2>/dev/null) || return 1
    case $(readlink "/proc/$pid/exe" 2>/dev/null) in
    "$lossd" | "$lossd (deleted)") echo "$pid" ;;
    *) return 1 ;;
    esac
}

# From the line that the daemon writes when it is ready. The log is that of all of them, one behind the other.
address_from_log() {
    tail -n +"$1" "$state/lossd.log" | sed -n 's/.*listening on \([^ ]*\).*/\1/p' | head -n 1
}

# Until it has no program any more: in a container whose first process never waits, its pid stays for ever.
stop_own() {
    kill "$1" 2>/dev/null || return 0
    tries=150
    while readlink "/proc/$1/exe" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || die "the daemon with pid $1 does not stop"
        sleep 0.1
    done
}

# Start it with options $*; false where it ended at once.
start() {
    touch "$state/lossd.log"
    first_line=$(($(wc -l <"$state/lossd.log") + 1))
    nohup "$lossd" "$@" >>"$state/lossd.log" 2>&1 </dev/null &
    pid=$!
    tries=100
    while address=$(address_from_log "$first_line") && [ -z "$address" ]; do
        tries=$((tries - 1))
        if ! kill -0 $pid 2>/dev/null || [ $tries -le 0 ]; then
            return 1
        fi
        sleep 0.1
    done
    echo $pid >"$state/lossd.pid"
    echo "$address" >"$state/lossd.address"
}

run_daemon() {
    mkdir -p "$state"
    if pid=$(own_pid); then
        address=$(cat "$state/lossd.address" 2>/dev/null) || address=
        if [ "$(readlink "/proc/$pid/exe")" = "$lossd" ] && [ -n "$address" ] &&
            "$lossctl" --addr "$address" health >/dev/null 2>&1; then
            echo "reusing the daemon of an earlier run, pid $pid"
            return
        fi
        echo "restarting the daemon of an earlier run, pid $pid: the program is newer, or it does not answer"
        stop_own "$pid"
    fi
    if ! start; then
        echo "127.0.0.1:7430 can't be had, taking a free port: $(tail -n 1 "$state/lossd.log")"
        start --listen 127.0.0.1:0 || die "the daemon does not start: $(tail -n 1 "$state/lossd.log")"
    fi
    echo "started, pid $(cat "$state/lossd.pid")"
}

# ---- a step ---------------------------------------------------------------------------------------------------------

# Sets rows to the file of the data set, whose lines are candidates; before anything is installed or started.
find_data() {
    [ -d "$data" ] || die "--data $data: there is no such folder"
    for query in "$data"/*.train.query "$data"/*.query; do
        rows=${query%.query}
        if [ -r "$query" ] && [ -r "$rows" ]; then
            return
        fi
    done
    die "--data $data: expected a readable NAME beside a NAME.query, found none"
}

# Sets batch to a folder with rank0.json and rank1.json.
choose_batch() {
    batch=$root/deploy/example
    [ -n "$data" ] || return 0
    batch=$state/batch
    mkdir -p "$batch"
    awk -v out="$batch" -f "$root/deploy/libsvm_to_ranks.awk" "$rows.query" "$rows" || die "$rows is not understood"
    echo "two ranks from $rows, logits from a fixed linear score"
}

stop_daemon() {
    pid=$(own_pid) || die "no daemon of $state is running"
    stop_own "$pid"
    rm -f "$state/lossd.pid" "$state/lossd.address"
    echo "stopped, pid $pid"
}

if $stop; then
    stop_daemon
    exit 0
fi

[ -z "$data" ] || find_data
say "packages"
install_missing
say "build"
echo "log: $state/build.log"
logged build build_programs
say "daemon"
run_daemon
echo "it listens on $address"
say "one step of two ranks"
choose_batch
"$lossctl" --addr "$address" --timeout 30 compute --check --join "$root/deploy/example/config.json" \
    "$batch/rank0.json" "$batch/rank1.json"

say "result"
cat <<EOT
ok: the mean of the two ranks' gradients is the gradient of the whole batch, for each candidate, and so with the losses.
Without lossd a trainer would have had PLAIN MEAN, the mean of the ranks' means, where GLOBAL MEAN is right.
EOT

say "go on"
cat <<EOT
The daemon keeps running.
  its pid    $state/lossd.pid
  its log    $state/lossd.log
  stop it    deploy/quickstart.sh --stop, or kill \$(cat $state/lossd.pid)

Who is in the group, and what each rank does:
  $lossctl --addr $address status quickstart
  curl -H 'Content-Type: application/json' -d '{"group": "quickstart"}' http://$address/lossd.v1.GroupService/GetGroup
EOT
