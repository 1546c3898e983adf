#!/bin/sh
# Both programs, builds of print_bits.c, have to print the same.
set -eu
wide=$("$1")
plain=$("$2")
echo "wide vectors:  $wide"
echo "plain vectors: $plain"
[ "$wide" = "$plain" ]
