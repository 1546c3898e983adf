#!/bin/sh
# What the documents say: README.md is run, manual pages are made without a warning. LOSSD_BUILD names the build folder.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=${LOSSD_BUILD:-$here/build}

python3 "$here/tests/docs/readme.py"
failed=$?
for page in "$build"/deploy/lossctl.1 "$build"/deploy/lossd.8; do
    if ! said=$(man --warnings -l "$page" 2>&1 >/dev/null) || [ -n "$said" ]; then
        echo "failed: $page: $said"
        failed=1
    fi
done
exit $failed
