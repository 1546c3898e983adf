#!/bin/sh
# A static library with nothing to be seen but what is marked as visible: all of its parts as one object, whose other
# names are made local, so that they can't collide with a program's own.
#
#   static_library.sh OBJCOPY AR OUTPUT ARCHIVE… -- COMPILER…    of the first archive everything, of the others what it needs
set -eu

objcopy=$1 ar=$2 output=$3 first=$4
shift 4
others=
while [ "$1" != -- ]; do
    others="$others $1"
    shift
done
shift
# Words of the paths of a build folder: no spaces in them.
# shellcheck disable=SC2086
"$@" -r -nostdlib -o "$output.o" -Wl,--whole-archive "$first" -Wl,--no-whole-archive \
    -Wl,--start-group $others -Wl,--end-group
"$objcopy" --localize-hidden "$output.o"
rm -f "$output"
"$ar" rcs "$output" "$output.o"
rm -f "$output.o"
