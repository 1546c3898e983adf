#!/usr/bin/python3
"""What README.md shows is what happens: its commands are run against a daemon of their own, in order.

A block of shell after `<!-- run -->` is run, and the block behind it is what it prints: white space aside, and with `...`
for anything. JSON after `<!-- check -->` is a configuration that the daemon accepts. The limits are those of the schema.

LOSSD_BUILD names the build folder (default: build), LOSSD_PORT the port (default: a free one).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOSSD_BUILD", ROOT / "build")).resolve()
LOSSD = BUILD / "daemon" / "lossd"
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTED_ADDRESS = "127.0.0.1:7430"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def start(folder):
    """The daemon and its address."""
    daemon = subprocess.Popen([LOSSD, "--listen", "127.0.0.1:" + os.environ.get("LOSSD_PORT", "0")], cwd=folder,
                              stderr=subprocess.PIPE, text=True)
    for line in daemon.stderr:
        found = re.search(r"listening on (\S+)", line)
        if found:
            return daemon, found[1]
    raise SystemExit(f"{LOSSD} does not start")


def matches(expected, printed):
    parts = re.sub(r"\s", "", expected).replace("…", "...").split("...")
    return re.fullmatch(".*?".join(map(re.escape, parts)), re.sub(r"\s", "", printed), re.DOTALL)


def run_blocks(folder, address):
    blocks = re.findall(r"<!-- run -->\n```sh\n(.*?)```\n```\w+\n(.*?)```\n", README, re.DOTALL)
    for commands, expected in blocks:
        shell = subprocess.run(["sh", "-eu"], input=commands.replace(DOCUMENTED_ADDRESS, address), cwd=folder,
                               capture_output=True, text=True, timeout=60, check=False)
        name = commands.splitlines()[0]
        if shell.returncode == 0 and matches(expected, shell.stdout):
            yield name, None
        else:
            yield name, f"exit {shell.returncode}\nexpected\n{expected}\nprinted\n{shell.stdout}{shell.stderr}"
    if len(blocks) != README.count("<!-- run -->") or not blocks:
        yield "blocks", f"{README.count('<!-- run -->')} marks, but {len(blocks)} blocks with what they print"


def check_configurations(folder):
    for text in re.findall(r"<!-- check -->\n```json\n(.*?)```\n", README, re.DOTALL):
        path = pathlib.Path(folder, "lossd.json")
        path.write_text(text, encoding="utf-8")
        check = subprocess.run([LOSSD, "--check", "--config", path], capture_output=True, text=True, timeout=60, check=False)
        yield "configuration", None if check.returncode == 0 and check.stdout == "ok\n" else check.stdout + check.stderr


def check_limits():
    schema = (ROOT / "proto" / "lossd" / "v1" / "config.proto").read_text(encoding="utf-8")
    limits = re.search(r"message Limits \{(.*?)\n\}", schema, re.DOTALL)[1]
    wanted = {key: int(value) for key, value in re.findall(r"(\w+) = \d+ \[default = (\d+)\]", limits)}
    table = re.findall(r"^\| `(\w+)` \| ([\d,]+)(?: (\w+))? \|", README, re.M)
    found = {key: int(number.replace(",", "")) * UNITS.get(unit, 1) for key, number, unit in table}
    yield "limits", None if found == wanted and wanted else f"README.md {found}\nconfig.proto {wanted}"


def main():
    with tempfile.TemporaryDirectory(prefix="lossd-readme-") as folder:
        daemon, address = start(folder)
        try:
            results = [*run_blocks(folder, address), *check_configurations(folder), *check_limits()]
        finally:
            daemon.terminate()
            daemon.communicate()
    results.append(("the daemon stops cleanly", None if daemon.returncode == 0 else f"exit {daemon.returncode}"))
    failed = [(name, why) for name, why in results if why is not None]
    for name, why in failed:
        print(f"failed: {name}\n{why}")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


sys.exit(main())
