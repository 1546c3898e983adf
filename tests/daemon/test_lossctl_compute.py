"""lossctl compute: several ranks from files."""

import json
import subprocess

import pytest

from harness import ROOT, background, fresh, together
from lossctl_program import DEADLINE, DIFFERS, INPUT, INVALID_ARGUMENT, LOSSCTL, call, needed, write_rank
from small import BCE, LN2, Ranks, batch

EXAMPLE = ROOT / "deploy" / "example"
pytestmark = needed


def test_compute_plays_one_rank_from_a_file(lossctl, daemon, tmp_path):
    name = fresh()
    Ranks(daemon.client, name, 1)
    done = lossctl("compute", write_rank(tmp_path, name, 0, batch(2)))
    assert done.returncode == 0
    assert f"loss {LN2:.9g}" in done.stdout
    assert "binary_cross_entropy" in done.stdout
    assert "gradient of t, 2 values: -0.25 -0.25" in done.stdout


def test_compute_sends_several_ranks_at_the_same_time_and_joins_them_first(lossctl, daemon, tmp_path):
    name = fresh()
    config = tmp_path / "config.json"
    config.write_text(json.dumps(BCE))
    files = [write_rank(tmp_path, name, 0, batch(6)), write_rank(tmp_path, name, 1, batch(2))]
    for again in range(2):  # joining anew makes step 0 possible again
        done = lossctl("compute", "--json", "--join", str(config), *files)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert [a["candidateFactor"] for a in answers] == [1.5, 0.5]
        assert answers[0]["loss"] == pytest.approx(1.5 * LN2)
        assert daemon.client.group(name).generation == again + 1


def test_compute_check_finds_that_the_mean_over_ranks_is_the_whole_batch(lossctl, daemon):
    before = {g.name for g in daemon.client.call("ListGroups", {}).groups}
    done = lossctl("compute", "--check", "--join", str(EXAMPLE / "config.json"),
                   *(str(EXAMPLE / f"rank{rank}.json") for rank in (0, 1)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": ok\n") == 3
    after = {g.name for g in daemon.client.call("ListGroups", {}).groups}
    assert after - before <= {"quickstart"}


@pytest.mark.parametrize("config, expected", [
    ({"grad_reduce": "GRAD_REDUCE_SUM"}, 0),
    ({"grad_reduce": "GRAD_REDUCE_MEAN"}, 0),
    ({"global_average": False}, DIFFERS),  # local means are what this is about
])
def test_compute_check_fails_where_local_means_are_taken(lossctl, tmp_path, config, expected):
    name = fresh()
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**BCE, **config}))
    files = [write_rank(tmp_path, name, 0, batch(6)), write_rank(tmp_path, name, 1, batch(2))]
    done = lossctl("compute", "--check", "--join", str(file), *files)
    assert done.returncode == expected, done.stdout + done.stderr
    assert ("DIFFERENT" in done.stdout) == (expected == DIFFERS)


def test_compute_exits_with_the_code_of_the_culprit(lossctl, daemon, tmp_path):
    name = fresh()
    Ranks(daemon.client, name, 2)
    bad = {"lengths": [2], "tasks": [{"name": "t", "logits": [0, "NaN"], "labels": [0, 1]}]}
    files = [write_rank(tmp_path, name, 0, batch(2)), write_rank(tmp_path, name, 1, bad)]
    done = lossctl("compute", *files)
    assert done.returncode == INVALID_ARGUMENT
    assert "rank 0: aborted STEP_REJECTED_BY_PEER" in done.stderr
    assert "rank 1: invalid_argument NONFINITE_LOGITS" in done.stderr


def test_compute_prints_the_error_of_a_rank_while_the_others_wait(daemon, tmp_path):
    name = fresh()
    ranks = Ranks(daemon.client, name, 3)
    bad = {"lengths": [2], "tasks": [{"name": "t", "logits": [0, "NaN"], "labels": [0, 1]}]}
    files = [write_rank(tmp_path, name, 0, batch(2)), write_rank(tmp_path, name, 1, bad)]
    with subprocess.Popen([LOSSCTL, "--addr", daemon.tcp, "compute", *files], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().endswith("waits for other ranks too: 2\n")
        assert process.stderr.readline().startswith("lossctl: rank 1: invalid_argument NONFINITE_LOGITS")
        assert process.poll() is None, "rank 0 still waits for rank 2"
        ranks.wait_for(0, "WAITING")
        assert "; rank 1 refused, may send another\n" in call("--addr", daemon.tcp, "status", name).stdout
        assert ranks.client.refused("ComputeLoss", {"group": name, "rank": 2, "step": 0, **batch(2)}).code == "aborted"
        out, err = process.communicate(timeout=60)
    assert process.returncode == INVALID_ARGUMENT
    assert out == "" and err.count("lossctl: rank 0: aborted STEP_REJECTED_BY_PEER") == 1 and "rank 1: inv" not in err


def rows_of(text, header):
    """The rows below a line of column names: {(task, term): {column: number}}, a dict for each table."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.split() != header:
            continue
        rows = {}
        for row in lines[at + 1:]:
            cells = row.split()
            if len(cells) != len(header) or cells[1] not in ("binary_cross_entropy", "listwise_rank_loss"):
                break
            rows[cells[0], cells[1]] = dict(zip(header[2:], map(float, cells[2:])))
        yield rows


def test_terms_multiply_out_and_the_plain_mean_of_the_ranks_is_shown_beside_the_right_one(lossctl, tmp_path):
    name = fresh()
    config = tmp_path / "config.json"
    loss = {"weight": 0.5, "binary_cross_entropy": {}}
    config.write_text(json.dumps({"tasks": [{"name": "t", "weight": 3, "losses": [loss]}]}))
    other = {"lengths": [2], "tasks": [{"name": "t", "logits": [2, 2], "labels": [0, 0]}]}
    files = [write_rank(tmp_path, name, 0, batch(6)), write_rank(tmp_path, name, 1, other)]
    done = lossctl("compute", "--join", str(config), *files)
    assert done.returncode == 0, done.stderr
    # "LOCAL MEAN" is two words
    shown = done.stdout.replace("LOCAL MEAN", "MEAN").replace("GLOBAL MEAN", "GLOBAL").replace("PLAIN MEAN", "PLAIN")
    terms = list(rows_of(shown, ["TASK", "TERM", "SUM", "DENOMINATOR", "MEAN", "FACTOR", "WEIGHT", "VALUE"]))
    assert [len(rows) for rows in terms] == [1, 1]
    for rows, factor in zip(terms, (1.5, 0.5)):
        row = rows["t", "binary_cross_entropy"]
        assert (row["FACTOR"], row["WEIGHT"]) == (factor, 1.5)
        assert row["SUM"] / row["DENOMINATOR"] == pytest.approx(row["MEAN"], rel=1e-6)
        assert row["MEAN"] * row["FACTOR"] * row["WEIGHT"] == pytest.approx(row["VALUE"], rel=1e-6)
    softplus_2 = 2.1269280110429727  # ln(1 + e^2)
    (means,) = rows_of(shown, ["TASK", "TERM", "GLOBAL", "PLAIN"])
    assert means["t", "binary_cross_entropy"] == {
        "GLOBAL": pytest.approx((6 * LN2 + 2 * softplus_2) / 8, rel=1e-6),
        "PLAIN": pytest.approx((LN2 + softplus_2) / 2, rel=1e-6),
    }
    alone = lossctl("compute", "--join", str(config), write_rank(tmp_path, fresh(), 0, batch(2)))
    assert "WEIGHT" in alone.stdout and "GLOBAL MEAN" not in alone.stdout


def test_compute_says_what_is_wrong_with_a_file(lossctl, tmp_path):
    file = tmp_path / "bad.json"
    file.write_text('{"group": "g", "lenghts": [1]}')
    done = lossctl("compute", str(file))
    assert done.returncode == INPUT
    assert "lenghts" in done.stderr and "ComputeLossRequest" in done.stderr
    assert lossctl("compute", str(tmp_path / "absent.json")).returncode == INPUT


def test_compute_refuses_files_that_would_wait_for_each_other_in_vain(lossctl, daemon, tmp_path):
    name = fresh()
    Ranks(daemon.client, name, 2)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(BCE))
    files = [write_rank(tmp_path, name, 0, batch(2)), str(tmp_path / "again.json")]
    (tmp_path / "again.json").write_text((tmp_path / "rank0.json").read_text())
    stranger = write_rank(tmp_path, fresh(), 1, batch(2))
    beyond = tmp_path / "beyond.json"
    beyond.write_text(json.dumps({"group": name, "rank": 2, "step": 0, **batch(2)}))
    absent = tmp_path / "absent.json"
    absent.write_text(json.dumps({"group": name, "step": 0, **batch(2)}))
    before = daemon.client.group(name).generation
    for arguments, words in [
        (files, ["rank0.json", "again.json", "both rank 0"]),
        (["--join", str(config), *files], ["rank0.json", "again.json", "both rank 0"]),
        (["--join", str(config), files[0], stranger], ["rank1.json", "one group"]),
        (["--join", str(config), files[0], str(beyond)], ["beyond.json is rank 2", "2, from 0 on"]),
        (["--join", str(config), str(absent), str(beyond)], ["absent.json has no rank"]),
    ]:
        done = lossctl("compute", *arguments)
        assert (done.returncode, done.stdout) == (INPUT, "")
        assert all(word in done.stderr for word in words), done.stderr
    assert daemon.client.group(name).generation == before, "nobody joined anew"


def test_compute_says_whom_it_waits_for_before_it_does(lossctl, daemon, tmp_path):
    name = fresh()
    ranks = Ranks(daemon.client, name, 6)
    waiting = background(lambda: ranks.compute(4, 0))
    ranks.wait_for(4, "WAITING")
    files = [write_rank(tmp_path, name, rank, batch(2)) for rank in (1, 0)]
    done = lossctl("--timeout", "0.2", "compute", *files)
    assert done.returncode == DEADLINE
    assert done.stderr.startswith(f"lossctl: {name} has 6 ranks; step 0 waits for other ranks too: 2-3,5\n")
    together(*(lambda r=r: ranks.compute(r, 0) for r in (0, 1, 2, 3, 5)))
    assert waiting.result(10).step == 0
    assert lossctl("compute", *files).stderr == "", "the step is done: nobody is waited for"


def test_a_timeout_is_told_to_the_daemon_which_names_the_missing(lossctl, daemon, tmp_path):
    name = fresh()
    Ranks(daemon.client, name, 2)
    done = lossctl("--timeout", "0.2", "compute", write_rank(tmp_path, name, 0, batch(2)))
    assert done.returncode == DEADLINE
    assert "PEER_WAIT_DEADLINE" in done.stderr and "missing_ranks=1" in done.stderr
