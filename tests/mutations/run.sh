#!/bin/sh
# Tests of the tests: each fault of mutations.txt is put into a private copy of the tree and has to fail a test there;
# the copy without a fault has to pass all of them.
#
# usage: tests/mutations/run.sh [BUILD]
# BUILD is the build directory of the copy (default: a temporary one, removed in the end). Needs meson and ninja.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
default_tests='unit/test_rescale unit/test_prepare loss/test_golden_ranks loss/test_golden_tasks loss/test_golden loss/test_edges loss/test_split loss/test_losses'

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
copy=$scratch/tree
build=${1:-$scratch/build}
passed=0
failed=0

report() { # ok|not ok, name, remark
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    echo "$1 - $2${3:+: $3}"
}

build_tests() { # tests
    targets=
    for t in $1; do targets="$targets tests/$t"; done
    # shellcheck disable=SC2086 # a list of targets
    ninja -C "$build" $targets >"$scratch/ninja.log" 2>&1
}

# Run the tests in turn; the name of the first that fails.
first_failure() { # tests
    for t in $1; do
        # A fault may also make a test hang: that is noticed, too.
        if ! GOLDEN_DIR="$copy/tests/golden" timeout 60 "$build/tests/$t" >"$scratch/test.log" 2>&1; then
            echo "$t"
            return
        fi
    done
}

apply_edit() { # file, sed expression
    cp -p "$copy/$1" "$scratch/before"
    sed -i "$2" "$copy/$1"
    ! cmp -s "$copy/$1" "$scratch/before"
}

restore() { # files; touched, so that ninja sees them change back
    for f in $1; do
        cp "$root/$f" "$copy/$f"
    done
}

run_mutation() { # name, file of edits, tests
    files=
    problem=
    while IFS=' ' read -r file expression; do
        apply_edit "$file" "$expression" || problem="an edit of $file does not apply"
        files="$files $file"
    done <"$2"
    if [ -z "$files" ]; then
        problem='it has no edits'
    fi
    if [ -z "$problem" ] && ! build_tests "$3"; then
        problem='it does not build'
    fi
    if [ -n "$problem" ]; then
        report 'not ok' "$1" "$problem"
    else
        seen=$(first_failure "$3")
        if [ -n "$seen" ]; then report ok "$1" "seen by $seen"; else report 'not ok' "$1" 'no test fails'; fi
    fi
    restore "$files"
}

flush() { # what has been read so far
    if [ -n "$name" ]; then run_mutation "$name" "$scratch/edits" "$tests"; fi
    name=
    tests=$default_tests
    : >"$scratch/edits"
}

mkdir "$copy" || exit 1
(cd "$root" && tar -cf - --exclude=./.git --exclude='./build*' .) | (cd "$copy" && tar -xf -) || exit 1
if ! meson setup "$build" "$copy" --wipe -Dwerror=false >"$scratch/meson.log" 2>&1 &&
    ! meson setup "$build" "$copy" -Dwerror=false >"$scratch/meson.log" 2>&1; then
    tail -n 20 "$scratch/meson.log"
    exit 1
fi

if ! build_tests "$default_tests"; then
    tail -n 20 "$scratch/ninja.log"
    exit 1
fi
seen=$(first_failure "$default_tests")
if [ -z "$seen" ]; then report ok 'no fault'; else report 'not ok' 'no fault' "$seen fails"; fi

name=
flush
while IFS= read -r line; do
    case $line in
    '' | '#'*) ;;
    'tests: '*) tests=${line#tests: } ;;
    ' '*) printf '%s\n' "${line#  }" >>"$scratch/edits" ;;
    *)
        flush
        name=$line
        ;;
    esac
done <"$here/mutations.txt"
flush

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
