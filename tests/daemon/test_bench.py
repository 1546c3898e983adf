"""lossctl bench: what it measures, what it says, and that it leaves nothing behind."""

import http.server
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from lossctl_program import DEADLINE, LOSSCTL, NOT_LOSSD, UNAVAILABLE, USAGE, call, needed

pytestmark = needed

COLUMNS = ["TRANSPORT", "CANDIDATES", "STEPS", "P50", "P90", "P99", "P99.9", "MAX", "STEPS/s", "CANDIDATES/s", "MB/s"]
ALL = ["shared-memory", "protobuf", "json"]
INTERRUPTED, RESOURCE_EXHAUSTED = 130, 64


def rows_of(done):
    return json.loads(done.stdout)["results"]


def groups(daemon):
    return [group.name for group in daemon.client.call("ListGroups", {}).groups]


def bench(address, *arguments):
    return call("--addr", address, "bench", *arguments)


def test_every_transport_and_size_has_a_row_of_the_table(daemon):
    done = bench(daemon.unix, "--candidates", "10,200", "--steps", "20")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [word for word in lines[0].split() if word != "us"] == COLUMNS
    cells = [line.split() for line in lines[1:]]
    assert [(row[0], row[1], row[2]) for row in cells] == [(t, c, "20") for t in ALL for c in ("10", "200")]
    for row in cells:
        p50, p90, p99, p999, largest = map(float, row[3:8])
        assert 0 < p50 <= p90 <= p99 <= p999 <= largest
    assert done.stderr == ""
    assert groups(daemon) == []


def test_over_tcp_there_is_no_shared_memory(daemon):
    done = bench(daemon.tcp, "--candidates", "10", "--steps", "5", "--json")
    assert [row["transport"] for row in rows_of(done)] == ["protobuf", "json"]


def test_numbers_of_the_json_fit_together(daemon):
    arguments = ["--candidates", "1000", "--tasks", "2", "--requests", "25", "--ranks", "2", "--steps", "50", "--json"]
    done = bench(daemon.unix, *arguments)
    assert done.returncode == 0, done.stderr
    assert [row["transport"] for row in rows_of(done)] == ALL
    for row in rows_of(done):
        assert set(row) == {"transport", "candidates", "requests", "tasks", "ranks", "dtype", "steps", "seconds",
                            "interrupted", "latency_us", "steps_per_second", "candidates_per_second",
                            "bytes_per_second"}
        assert (row["candidates"], row["requests"], row["tasks"], row["ranks"]) == (1000, 25, 2, 2)
        assert (row["dtype"], row["steps"], row["interrupted"]) == ("f32", 50, False)
        rate = 50 / row["seconds"]
        assert row["steps_per_second"] == pytest.approx(rate, rel=1e-3)
        assert row["candidates_per_second"] == pytest.approx(rate * 2000, rel=1e-3)
        # two ranks: 25 lengths; 2 tasks with logits, labels and gradients of 1000 candidates; 4 bytes each
        assert row["bytes_per_second"] == pytest.approx(rate * 2 * 4 * (25 + 2 * 3 * 1000), rel=1e-3)
        times = row["latency_us"]
        assert times["min"] <= times["p50"] <= times["p90"] <= times["p99"] <= times["p99_9"] <= times["max"]
        assert times["min"] <= times["mean"] <= times["max"]
        # all steps of a rank lie in the time that was measured
        assert times["mean"] * 50 <= row["seconds"] * 1e6 * 1.5


@pytest.mark.parametrize("dtype, bytes_per_candidate", [("f32", 12), ("f16", 8), ("bf16", 8)])
def test_logits_and_gradients_have_the_type_that_is_asked_for(daemon, dtype, bytes_per_candidate):
    done = bench(daemon.unix, "--candidates", "320", "--tasks", "1", "--steps", "5", "--dtype", dtype, "--json")
    for row in rows_of(done):
        assert row["dtype"] == dtype
        moved = 320 * bytes_per_candidate + 10 * 4
        assert row["bytes_per_second"] / row["steps_per_second"] == pytest.approx(moved, rel=1e-3)


def test_named_transports_are_measured_once_each_and_auto_is_the_best(daemon):
    arguments = ["--candidates", "10", "--steps", "5", "--json"]
    done = bench(daemon.unix, "--transport", "json", "--transport", "protobuf", "--transport", "json", *arguments)
    assert [row["transport"] for row in rows_of(done)] == ["json", "protobuf"]
    assert [row["transport"] for row in rows_of(bench(daemon.unix, "--transport", "auto", *arguments))] == ALL[:1]
    assert [row["transport"] for row in rows_of(bench(daemon.tcp, "--transport", "auto", *arguments))] == ["protobuf"]


def test_seconds_end_a_row_by_time(daemon):
    begin = time.monotonic()
    done = bench(daemon.unix, "--transport", "protobuf", "--candidates", "10", "--seconds", "0.5", "--json")
    [row] = rows_of(done)
    assert 0.5 <= row["seconds"] <= time.monotonic() - begin and row["steps"] > 10


def test_a_row_that_is_refused_leaves_the_others_and_gives_the_exit_code(start):
    daemon = start({"limits": {"json_body_bytes": 4096}})
    done = bench(daemon.unix, "--candidates", "10,1000", "--steps", "5", "--json")
    assert done.returncode == RESOURCE_EXHAUSTED
    expected = [("shared-memory", 10), ("shared-memory", 1000), ("protobuf", 10), ("protobuf", 1000), ("json", 10)]
    assert [(row["transport"], row["candidates"]) for row in rows_of(done)] == expected
    assert json.loads(done.stderr)["code"] == "resource_exhausted"
    done = bench(daemon.unix, "--transport", "json", "--candidates", "1000", "--steps", "5")
    assert done.stdout == "" and "json, 1000 candidates" in done.stderr and "json_body_bytes" in done.stderr
    assert groups(daemon) == []


def test_shared_memory_over_tcp_and_nobody_there_are_said(daemon):
    assert bench(daemon.tcp, "--transport", "shared-memory", "--steps", "1").returncode != 0
    done = bench("unix:/nowhere/lossd.sock", "--steps", "1")
    assert done.returncode == UNAVAILABLE and "--addr" in done.stderr


@pytest.mark.parametrize("transport", ["auto", "protobuf", "json"])
def test_what_is_wrong_on_this_side_or_with_who_answers_has_the_codes_of_other_commands(daemon, transport):
    arguments = ["bench", "--steps", "1", "--candidates", "10", "--transport", transport]
    for variables, name in [({"LOSSD_TIMEOUT_MS": "soon"}, "LOSSD_TIMEOUT_MS"), ({"LOSSD_CA_FILE": "x" * 600}, "ca_file")]:
        done = call("--addr", daemon.unix, *arguments, env={**os.environ, **variables})
        assert done.returncode == USAGE and name in done.stderr and "invalid_argument" not in done.stderr, done.stderr
    silent = socket.create_server(("127.0.0.1", 0))
    other = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    places = {
        "nowhere": USAGE,
        f"127.0.0.1:{silent.getsockname()[1]}": DEADLINE,
        f"127.0.0.1:{other.server_address[1]}": NOT_LOSSD,
    }
    for address, code in places.items():
        environment = {**os.environ, "LOSSD_TIMEOUT_MS": "200"}
        status = call("--addr", address, "--timeout", "0.2", "status")
        done = call("--addr", address, *arguments, env=environment)
        assert (status.returncode, done.returncode) == (code, code), (address, status.stderr, done.stderr)
    other.shutdown()
    other.server_close()
    silent.close()


@pytest.mark.parametrize("arguments", [
    ["more"], ["--candidates", "0"], ["--candidates", "10,"], ["--candidates", "16777217"], ["--candidates", ",".join(["1"] * 17)],
    ["--transport", "pigeon"], ["--tasks", "0"], ["--tasks", "65"], ["--ranks", "65"], ["--steps", "0"], ["--seconds", "0"],
    ["--seconds", "soon"], ["--steps", "1", "--seconds", "1"], ["--requests", "11", "--candidates", "10"], ["--warmup", "-1"],
    ["--requests", "1", "--list-length", "1"], ["--dtype", "f64"],
])
def test_a_wrong_option_exits_with_1(arguments):
    done = call("bench", *arguments)
    assert done.returncode == USAGE
    assert done.stdout == "" and 1 <= done.stderr.count("\n") <= 3


def running(daemon, *arguments, stderr=subprocess.PIPE):
    """A bench that would go on for minutes, and has begun."""
    command = [LOSSCTL, "--addr", daemon.unix, "bench", "--candidates", "100", "--seconds", "600", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    end = time.monotonic() + 20
    while not any(name.startswith("bench-") for name in groups(daemon)) and time.monotonic() < end:
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("transport", ALL)
def test_ctrl_c_shows_what_was_measured_and_leaves_the_group(daemon, transport):
    process = running(daemon, "--transport", transport, "--ranks", "2", "--json")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == INTERRUPTED, err
    [row] = json.loads(out)["results"]
    assert row["interrupted"] and row["steps"] > 0 and err == ""
    assert groups(daemon) == []


def test_ctrl_c_counts_also_where_it_comes_before_the_first_row(daemon):
    def interrupt():  # pending from the start: taken at the first look at signals
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.kill(os.getpid(), signal.SIGINT)

    command = [LOSSCTL, "--addr", daemon.unix, "bench", "--seconds", "600", "--json"]
    done = subprocess.run(command, preexec_fn=interrupt, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")
    assert groups(daemon) == []


def test_progress_is_a_line_a_second_or_one_that_changes_on_a_terminal(daemon):
    process = running(daemon, "--transport", "protobuf", "--progress")
    lines = [process.stderr.readline() for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert re.fullmatch(r"protobuf, 100 candidates: 1 s, \d+ steps\n", lines[0])
    assert re.fullmatch(r"protobuf, 100 candidates: 2 s, \d+ steps\n", lines[1])

    master, slave = pty.openpty()
    process = running(daemon, "--transport", "protobuf", stderr=slave)
    os.close(slave)
    shown = os.read(master, 1000).decode()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    os.close(master)
    assert re.fullmatch(r"\rprotobuf, 100 candidates: 1 s, \d+ steps  ", shown)


def test_a_daemon_that_goes_away_ends_it_with_an_error(start):
    daemon = start()
    process = running(daemon, "--transport", "protobuf", "--timeout", "5")
    daemon.stop()
    _, err = process.communicate(timeout=30)
    assert process.returncode == UNAVAILABLE, err
