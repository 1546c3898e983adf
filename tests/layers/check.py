#!/usr/bin/python3
"""Keeps the include rules honest: layers only downwards, one home for each foreign library. Prints TAP."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
DAEMON = ROOT / "daemon"
LAYER = {"base": 0, "batch": 1, "loss": 2, "metric": 2, "collective": 2, "codec": 2, "group": 3, "transport": 4, "": 5}
HOMES = {  # foreign header: where it may be included
    r"microhttpd\.h": r"daemon/transport/.*",
    r"json-c/|json\.h": r"daemon/codec/protojson\w*\.c|tests/(bench|support)/.*",
    r"protobuf-c/|.*\.pb-c\.h": r"daemon/(codec|transport)/.*|daemon/(config|server)\.[ch]|client/lossctl/.*|client/rpc\w*\.[ch]|tests/.*",
    r"gnutls/": r"daemon/base/digest\.c",
    r"curl/": r"client/http_client\.c",
    r"check\.h": r"tests/.*",
}
CALLS = {"memfd_create": r"daemon/transport/shm_region\.c|tests/support/.*"}  # the same for functions
CLIENTS_TAKE = {"base", "batch", "codec"}  # of the daemon
SOURCES = sorted(p for top in ("daemon", "client", "tests") for p in (ROOT / top).rglob("*.[ch]"))


def included(path):
    return re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', path.read_text(), re.M)


def folder(name):
    return name.split("/")[0] if "/" in name else ""


def upward(path):
    """Includes of a daemon source that do not go down."""
    own = folder(str(path.relative_to(DAEMON)))
    for name in included(path):
        if ".." in name:
            yield name
        elif (DAEMON / name).exists() or folder(name) in LAYER and "/" in name:
            there = folder(name)
            if there != own and LAYER[there] >= LAYER[own]:
                yield name


def homeless(path):
    """Foreign headers and functions that are not at home here."""
    where = str(path.relative_to(ROOT))
    for name in included(path):
        for pattern, home in HOMES.items():
            if re.match(pattern, name) and not re.fullmatch(home, where):
                yield name
    for name, home in CALLS.items():
        if re.search(rf"\b{name}\(", path.read_text()) and not re.fullmatch(home, where):
            yield name


def beyond(path):
    """Includes of a client that are of the daemon and not for it."""
    for name in included(path):
        if (DAEMON / name).exists() and folder(name) not in CLIENTS_TAKE:
            yield name


def conditions(path):
    """Conditional compilation beyond include guards, the mark for host and device, and C++ in the public header."""
    found = re.findall(r"^\s*#\s*((?:if|ifdef|ifndef|elif)\b.*)", path.read_text(), re.M)
    guard = re.compile(r"ifndef (\w+_)?" + re.sub(r"\W", "_", path.name).upper()) if path.suffix == ".h" else None
    public = {"ifdef __cplusplus"} if path == ROOT / "client" / "lossd.h" else set()
    return [c for c in found if not (guard and guard.fullmatch(c)) and "__CUDACC__" not in c and c not in public]


def lines(path):
    count = len(path.read_text().splitlines())
    return [f"{count} lines"] if count > 400 else []


CHECKS = [
    ("includes go down the layers", upward, [p for p in SOURCES if DAEMON in p.parents]),
    ("clients include of the daemon what they may", beyond, [p for p in SOURCES if ROOT / "client" in p.parents]),
    ("foreign headers and functions have their one home", homeless, SOURCES),
    ("there is no conditional compilation but include guards", conditions, SOURCES),
    ("no file is longer than 400 lines", lines, SOURCES + sorted(p for top in ("client", "tests") for p in (ROOT / top).rglob("*.py"))),
]
assert len(SOURCES) > 10
print(f"1..{len(CHECKS)}")
for number, (name, check, paths) in enumerate(CHECKS, 1):
    faults = [f"{p.relative_to(ROOT)}: {fault}" for p in paths if "node_modules" not in p.parts for fault in check(p)]
    print(f"{'not ok' if faults else 'ok'} {number} - {name}")
    for fault in faults:
        print("# " + fault)
