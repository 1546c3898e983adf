#!/bin/sh
# After an installation into the system itself: have ld.so find liblossd. Others, in a DESTDIR or without the right to do
# so, are whoever's who packs or runs them.
[ -z "${DESTDIR:-}" ] || exit 0
PATH=$PATH:/usr/sbin:/sbin
if [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then
    ldconfig 2>/dev/null || :
fi
