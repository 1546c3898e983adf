"""The structs of the package are those of the header, as the C compiler lays them out."""

import ctypes
import re
import shutil
import subprocess

import pytest
from lossd_process import ROOT

from lossd import _library, _structs, errors

HEADER = ROOT / "client" / "lossd.h"


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """{struct: {field or "sizeof": offset or size}} by a C program."""
    folder = tmp_path_factory.mktemp("structs")
    lines = []
    for name, struct in _structs.STRUCTS.items():
        lines.append(f'printf("{name} sizeof %zu\\n", sizeof(struct {name}));')
        lines += [f'printf("{name} {f} %zu\\n", offsetof(struct {name}, {f}));' for f, *_ in struct._fields_]
    body = "\n    ".join(lines)
    source = folder / "layout.c"
    source.write_text(f'#include <stdio.h>\n#include "lossd.h"\nint main(void)\n{{\n    {body}\n}}\n')
    compiler = shutil.which("cc")
    assert compiler, "a C compiler is needed"
    subprocess.run([compiler, "-I", HEADER.parent, source, "-o", folder / "layout"], check=True)
    printed = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in printed.splitlines():
        name, field, value = line.split()
        found.setdefault(name, {})[field] = int(value)
    return found


@pytest.mark.parametrize("name", _structs.STRUCTS)
def test_a_struct_lies_as_in_the_header(layout, name):
    struct = _structs.STRUCTS[name]
    mine = {field: getattr(struct, field).offset for field, *_ in struct._fields_}
    assert layout[name] == {"sizeof": ctypes.sizeof(struct), **mine}


def words(pattern):
    return re.findall(pattern, HEADER.read_text(), re.M)


def test_every_struct_and_field_of_the_header_is_there():
    """Sizes could agree by padding where the header has a field more."""
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", HEADER.read_text(), re.M | re.S):
        plain = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        plain = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", plain)  # functions
        fields = [re.sub(r"\[.*", "", line.split()[-1].lstrip("*")) for line in plain.split(";") if line.strip()]
        assert fields == [field for field, *_ in _structs.STRUCTS[name]._fields_], name


def test_every_function_of_the_header_is_declared():
    names = set(words(r"\b(lossd_\w+)\(")) - {"lossd_failure_metadata"}  # read in Python
    assert set(_library._FUNCTIONS) == names


def test_codes_and_retries_are_the_headers():
    codes = {int(n): word.lower() for word, n in words(r"LOSSD_CODE_(\w+) = (\d+)")}
    assert dict(enumerate(errors.CODES)) == codes
    retries = {int(n): word.lower() for word, n in words(r"LOSSD_RETRY_(\w+) = (\d+)")}
    assert dict(enumerate(errors.RETRIES)) == retries


def test_the_version_is_the_projects():
    said = {
        "meson.build": re.search(r"version: '([^']*)'", (ROOT / "meson.build").read_text()),
        "pyproject.toml": re.search(r'^version = "([^"]*)"', (ROOT / "client/python/pyproject.toml").read_text(), re.M),
    }
    assert {match.group(1) for match in said.values()} == {_library.VERSION, _library.load().lossd_version().decode()}
