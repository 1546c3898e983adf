"""lossctl: what it sends, prints and exits with."""

import json
import os
import pty
import socket
import subprocess
import threading

import pytest

from harness import BUILD, ROOT, Client, background, fresh, together
from lossctl_program import INVALID_ARGUMENT, LOSSCTL, NOT_FOUND, NOT_LOSSD, OUTPUT, UNAVAILABLE, USAGE, call, needed
from small import Ranks

pytestmark = needed


@pytest.fixture
def free_port():
    """A port that is taken and where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def stranger():
    """A server that is no lossd: its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nnope")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_short_and_full_names_call_the_same_method(lossctl, daemon):
    group = fresh()
    Ranks(daemon.client, group, 1)
    for name in ["GroupService/ListGroups", "lossd.v1.GroupService/ListGroups"]:
        done = lossctl("call", name)
        assert done.returncode == 0
        assert group in {g["name"] for g in json.loads(done.stdout)["groups"]}


def test_data_comes_from_the_line_from_a_file_and_from_standard_input(lossctl, daemon, tmp_path):
    name = fresh()
    Ranks(daemon.client, name, 1)
    text = json.dumps({"group": name})
    file = tmp_path / "get.json"
    file.write_text(text)
    answers = [
        lossctl("call", "GroupService/GetGroup", "-d", text),
        lossctl("call", "GroupService/GetGroup", "--data", f"@{file}"),
        lossctl("call", "GroupService/GetGroup", "-d", "@-", input=text),
    ]
    assert {json.loads(a.stdout)["group"]["name"] for a in answers} == {name}


def test_answers_are_indented_on_a_terminal_only(daemon):
    Ranks(daemon.client, fresh(), 1)
    command = [LOSSCTL, "--addr", daemon.tcp, "call", "GroupService/ListGroups"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=slave) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                more = os.read(master, 65536)
            except OSError:
                break
            if not more:
                break
            shown += more
    os.close(master)
    assert process.returncode == 0
    assert piped.count("\n") == 1
    assert shown.count(b"\n") > 10

    def without_times(answer):
        for group in answer["groups"]:
            for rank in group["ranks"]:
                del rank["sinceMs"]
        return answer

    assert without_times(json.loads(piped)) == without_times(json.loads(shown))


def test_an_error_is_a_line_with_code_reason_field_and_metadata_and_a_hint(lossctl, daemon):
    name = fresh()
    Ranks(daemon.client, name, 1)
    bad = {"group": name, "lengths": [3], "tasks": [{"name": "t", "logits": [0, 0, 0], "labels": [1, 0]}]}
    done = lossctl("call", "LossService/ComputeLoss", "-d", json.dumps(bad))
    assert done.returncode == INVALID_ARGUMENT
    assert done.stdout == ""
    line, hint = done.stderr.splitlines()
    assert line.startswith("lossctl: invalid_argument LABEL_COUNT_MISMATCH: tasks[0].labels")
    assert "labels=2" in line and "candidates=3" in line
    assert hint.startswith("hint: ")


def test_with_json_an_error_is_the_daemons_own(lossctl):
    done = lossctl("--json", "call", "GroupService/GetGroup", "-d", '{"group": "nobody"}')
    assert done.returncode == NOT_FOUND
    error = json.loads(done.stderr)
    assert error["code"] == "not_found" and error["details"][0]["type"] == "google.rpc.ErrorInfo"


def test_the_address_comes_from_the_environment_where_no_option_says_it(daemon):
    for address in [daemon.tcp, f"http://{daemon.tcp}", daemon.unix]:
        assert call("health", env={**os.environ, "LOSSD_ADDR": address}).returncode == 0
    assert call("--addr", daemon.tcp, "health", env={**os.environ, "LOSSD_ADDR": "127.0.0.1:1"}).returncode == 0


@pytest.mark.parametrize("arguments", [
    [], ["nothing"], ["--nonsense", "health"], ["health", "more"], ["status", "a", "b"], ["call"], ["compute"],
    ["call", "NoService/NoMethod"], ["--timeout", "0", "health"], ["--timeout", "soon", "health"],
    ["--addr", "nowhere", "health"], ["--addr", "nowhere", "status"], ["--addr", "http://", "status"], ["health", "--check"], ["compute", "-d", "{}", "x"],
    ["schema", "--join", "x"],
])
def test_a_wrong_command_line_exits_with_1_and_one_or_two_lines(arguments):
    done = call(*arguments)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert 1 <= done.stderr.count("\n") <= 3


@pytest.mark.parametrize("command, option", [("health", "--check"), ("compute", "--data=x"), ("schema", "--join=x"), ("call", "--text")])
def test_an_option_of_another_command_is_refused_by_its_name(command, option):
    name = option.split("=")[0]
    assert call(command, option).stderr.startswith(f"lossctl: {command} takes no {name}\n")


def test_nobody_there_is_unavailable_and_says_where_to_look(free_port):
    done = call("--addr", f"127.0.0.1:{free_port}", "status")
    assert done.returncode == UNAVAILABLE
    assert "unavailable" in done.stderr and "--addr" in done.stderr
    assert call("--addr", "unix:/nowhere/lossd.sock", "status").returncode == UNAVAILABLE


def test_another_server_is_told_from_a_lossd(stranger):
    done = call("--addr", stranger, "status")
    assert done.returncode == NOT_LOSSD
    assert "404" in done.stderr and "text/html" in done.stderr


def test_health_has_the_exit_codes_of_a_probe(lossctl, free_port, stranger, start):
    assert lossctl("health").stdout == "serving\n"
    assert json.loads(lossctl("health", "--json").stdout) == {"status": "SERVING"}
    assert call("--addr", f"127.0.0.1:{free_port}", "health").returncode == 2
    assert call("--addr", stranger, "health").returncode == 3
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert call("--addr", address, "--timeout", "0.1", "health").returncode == 3

    draining = start({"drain_timeout_ms": 3000})
    ranks = Ranks(draining.client, "g", 2)
    waiting = background(lambda: ranks.compute(0, 0))
    ranks.wait_for(0, "WAITING")
    draining.process.terminate()
    while Client(draining.tcp).http("GET", "/readyz")[0] == 200:
        pass
    done = call("--addr", draining.tcp, "health")
    assert (done.returncode, done.stdout) == (4, "not serving\n")
    waiting.result(10)


def test_the_schema_is_the_descriptor_set_of_all_services(lossctl):
    from google.protobuf import descriptor_pb2

    done = subprocess.run([LOSSCTL, "schema"], capture_output=True, check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(done.stdout).file
    services = {f"{file.package}.{service.name}" for file in files for service in file.service}
    assert services == {"lossd.v1.LossService", "lossd.v1.GroupService", "grpc.health.v1.Health"}
    assert done.stdout == (BUILD / "proto" / "lossd.binpb").read_bytes()
    listed = {m["method"] for m in json.loads(lossctl("schema", "--json").stdout)["methods"]}
    assert listed == {f"{f.package}.{s.name}/{m.name}" for f in files for s in f.service for m in s.method}
    assert "lossd.v1.LossService/ComputeLoss" in lossctl("schema", "--text").stdout


def test_the_schema_is_not_poured_onto_a_terminal():
    master, slave = pty.openpty()
    done = subprocess.run([LOSSCTL, "schema"], stdout=slave, stderr=subprocess.PIPE, check=False)
    os.close(slave)
    os.close(master)
    assert done.returncode == USAGE


def test_status_shows_who_waits_for_whom(lossctl, daemon):
    name = fresh()
    ranks = Ranks(daemon.client, name, 3)
    together(*(lambda r=r: ranks.compute(r, 0) for r in range(3)))
    waiting = background(lambda: ranks.compute(1, 1))
    ranks.wait_for(1, "WAITING")
    one = lossctl("status", name).stdout
    assert f"{name} step 1: rank 1 waits for 0,2 (idle), since " in one
    assert "waiting" in one and "RANK" in one
    overview = lossctl("status").stdout
    assert f"{name} step 1: rank 1 waits for 0,2 (idle), since " in overview
    assert json.loads(lossctl("status", "--json", name).stdout)["group"]["name"] == name
    assert name in {g["name"] for g in json.loads(lossctl("--json", "status").stdout)["groups"]}
    together(*(lambda r=r: ranks.compute(r, 1) for r in (0, 2)))
    assert waiting.result(10).step == 1
    assert lossctl("status", "nobody").returncode == NOT_FOUND


def test_status_of_a_fresh_daemon_says_that_there_are_no_groups(start):
    assert call("--addr", start().tcp, "status").stdout == "no groups\n"


def test_output_that_cannot_be_written_is_noticed(daemon):
    with open("/dev/full", "w", encoding="ascii") as full:
        for command in [["status"], ["--help"], ["schema"], ["health"]]:
            done = subprocess.run([LOSSCTL, "--addr", daemon.tcp, *command], stdout=full, stderr=subprocess.PIPE,
                                  check=False)
            assert done.returncode == OUTPUT, command


def test_help_and_version_are_for_standard_output():
    assert call("--help").stdout == (ROOT / "client" / "lossctl" / "help.txt").read_text()
    assert call("--version").stdout.startswith("lossctl ")
