#!/usr/bin/python3
"""The table of errors in proto/README.md is that of the program, row by row. errors.py PRINT_ERRORS. TAP."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[2] / "proto" / "README.md"


def documented():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\w+) \| (\d+) \| (\w+) \|", README.read_text(encoding="utf-8"), re.M)
    return [" ".join(row) for row in rows]


def main(print_errors):
    program = subprocess.run([print_errors], check=True, capture_output=True, text=True).stdout.splitlines()
    document = documented()
    wrong = [f"in {README.name} and not in the program: {row}" for row in document if row not in program]
    wrong += [f"in the program and not in {README.name}: {row}" for row in program if row not in document]
    wrong += [f"twice in {README.name}: {row}" for row in set(document) if document.count(row) > 1]
    if len(program) < 10:
        wrong.append(f"the program has {len(program)} errors only")
    print("1..1")
    for line in wrong:
        print("#", line)
    print("not ok 1 - the documented errors are those of the program" if wrong else
          f"ok 1 - the documented errors are those of the program, {len(program)} of them")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1]))
