"""liblossd as it is installed: what can be seen of it, and the example compiled against it, shared and static."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from harness import BUILD, ROOT

pytestmark = pytest.mark.plain

EXAMPLE = ROOT / "client" / "example_step.c"
HEADER = ROOT / "client" / "lossd.h"


def run(*words, **options):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
    return result.stdout


def declared():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    return sorted(re.findall(r"LOSSD_API[^;(]*?\b(lossd_\w+)\(", text))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix of an installation of the library."""
    folder = tmp_path_factory.mktemp("installed")
    environment = {**os.environ, "DESTDIR": str(folder)}
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--tags", "devel,runtime", env=environment)
    return next(folder.rglob("include")).parent


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The prefix of an installation of everything, and what its scripts printed."""
    folder = tmp_path_factory.mktemp("whole")
    environment = {**os.environ, "DESTDIR": str(folder)}
    printed = run("meson", "install", "-C", BUILD, "--no-rebuild", env=environment)
    return next(folder.rglob("include")).parent, printed


def flags(installed, *options):
    package = next(installed.rglob("lossd.pc"))
    environment = {**os.environ, "PKG_CONFIG_PATH": str(package.parent)}
    return run("pkg-config", f"--define-variable=prefix={installed}", *options, "lossd", env=environment).split()


def run_example(daemon, program, installed, group):
    """Two ranks; what they print."""
    library = next(installed.rglob("liblossd.a")).parent
    processes = []
    for rank in range(2):
        environment = {**os.environ, "LOSSD_ADDR": daemon.unix, "RANK": str(rank), "WORLD_SIZE": "2",
                       "TORCHELASTIC_RUN_ID": group, "LD_LIBRARY_PATH": str(library)}
        processes.append(subprocess.Popen([program], stdout=subprocess.PIPE, text=True, env=environment))
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return outputs


def check_example(outputs):
    """Twice the same batch: by hand, softplus(z) - z y over 6 rows, and one list of two kinds of labels in three."""
    for rank, output in enumerate(outputs):
        head = re.match(r"rank (\d): loss (\S+) over 12 candidates of 2 ranks, by shared memory\n", output)
        assert head and int(head.group(1)) == rank, output
        click, order = (float(x) for x in re.findall(r"loss (\S+), first", output))
        assert abs(click - 0.7138173) < 1e-6 and abs(float(head.group(2)) - click - order) < 1e-9


def test_the_shared_library_shows_what_the_header_declares(installed):
    library = next(installed.rglob("liblossd.so"))
    names = [line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()]
    assert sorted(set(names) - {"LOSSD_0"}) == declared()
    dynamic = run("readelf", "-d", library)
    assert "[liblossd.so.0]" in dynamic and "microhttpd" not in dynamic


def test_the_static_library_shows_what_the_header_declares(installed):
    lines = run("nm", "--defined-only", next(installed.rglob("liblossd.a"))).splitlines()
    names = [line.split()[2] for line in lines if len(line.split()) == 3 and line.split()[1].isupper()]
    assert sorted(names) == declared()


def test_the_library_lies_where_a_bare_debian_looks(installed):
    """In lib where nothing else is said, not in lib64."""
    options = json.loads(run("meson", "introspect", "--buildoptions", ROOT / "meson.build"))
    assert [o["value"] for o in options if o["name"] == "libdir"] == ["lib"]
    assert next(installed.rglob("lossd.pc")).parent.parent == next(installed.rglob("liblossd.so")).parent


def test_what_is_installed_runs_without_an_installed_library(whole, daemon):
    prefix, printed = whole
    assert "ldconfig" not in printed.replace("ldconfig.sh", ""), printed
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    for program in ("bin/lossctl", "bin/lossd"):
        dynamic = run("readelf", "-d", prefix / program)
        assert "liblossd" not in dynamic and "RUNPATH" not in dynamic, dynamic
        assert run(prefix / program, "--version", env=environment)
    assert run(prefix / "bin/lossctl", "--addr", daemon.unix, "health", env=environment)
    run(prefix / "bin/lossctl", "--addr", daemon.unix, "bench", "--candidates", "10", "--steps", "5",
        env=environment)


@pytest.mark.parametrize("destination, calls", [("", 1), ("/somewhere", 0)])
def test_ld_so_is_told_of_an_installation_into_the_system_alone(tmp_path, destination, calls):
    """ldconfig, id: stand-ins that write down what they were asked."""
    for name, does in (("ldconfig", f"echo ldconfig >> {tmp_path}/calls"), ("id", "echo 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "calls"
    log.touch()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "DESTDIR": destination}
    assert run("sh", ROOT / "client" / "ldconfig.sh", env=environment) == ""
    assert log.read_text().count("ldconfig") == calls
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    run("sh", ROOT / "client" / "ldconfig.sh", env=environment)
    assert log.read_text().count("ldconfig") == calls


def test_the_header_is_c_and_cxx(installed, tmp_path):
    for compiler, standard, suffix in [("cc", "c11", "c"), ("c++", "c++17", "cc")]:
        source = tmp_path / f"include.{suffix}"
        source.write_text("#include <lossd/lossd.h>\nint main() { return lossd_version() == 0; }\n")
        run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", source, "-o",
            tmp_path / "include.o", *flags(installed, "--cflags"))


def test_the_example_with_the_shared_library(daemon, installed, tmp_path):
    program = tmp_path / "example"
    run("cc", EXAMPLE, "-o", program, *flags(installed, "--cflags", "--libs"))
    assert "liblossd.so.0" in run("readelf", "-d", program)
    check_example(run_example(daemon, program, installed, "shared"))


def test_the_example_says_what_went_wrong():
    """With the field where there is one, and no gap where there is none."""
    for variables, begin in [({"LOSSD_ADDR": "ftp://x"}, "BAD_ADDRESS address: "), ({"RANK": "x", "WORLD_SIZE": "2"},
                             "BAD_ENVIRONMENT RANK: "), ({"LOSSD_TIMEOUT_MS": "1"}, "CANNOT_CONNECT: ")]:
        environment = {**os.environ, "LOSSD_ADDR": "127.0.0.1:1", **variables}
        ended = subprocess.run([BUILD / "client" / "example_step"], env=environment, capture_output=True, text=True)
        assert ended.returncode == 1 and ended.stderr.startswith(begin), ended.stderr


def test_the_example_with_the_static_library(daemon, installed, tmp_path):
    """Beside a program's own functions that are called like the library's inner ones."""
    archive = tmp_path / "lib" / "liblossd.a"
    archive.parent.mkdir()
    archive.write_bytes(next(installed.rglob("liblossd.a")).read_bytes())
    own = tmp_path / "own.c"
    own.write_text("int arena_alloc(void);\nint arena_alloc(void) { return 1; }\n"
                   "int failure_set(void);\nint failure_set(void) { return 2; }\n"
                   "int lossd__v1__group_config__init(void);\nint lossd__v1__group_config__init(void) { return 3; }\n")
    program = tmp_path / "example"
    run("cc", EXAMPLE, own, "-o", program, f"-L{archive.parent}", *flags(installed, "--cflags", "--libs", "--static"))
    assert "liblossd" not in run("readelf", "-d", program)
    check_example(run_example(daemon, program, installed, "static"))


def test_the_example_fits_a_screen():
    lines = pathlib.Path(EXAMPLE).read_text().splitlines()
    body = lines[next(i for i, line in enumerate(lines) if line.startswith("static int run")):]
    assert len(body) <= 55, len(body)
