#!/usr/bin/python3
"""
What Python adds to the C client, one rank over shared memory: `LOSSD_BUILD=build tests/python/bench_overhead.py`,
with `--json` for programs.

Contenders take turns round by round. What is compared is the least of the rounds: whatever else runs on the machine
only adds. A batch without candidates has nothing to compute, so that a call is all overhead.

  call   Client.compute on a batch that is filled, and lossd_compute by the barest ctypes call with the same arguments;
         the C client itself is that less what a bare ctypes call costs, which is shown, too
  step   RankingLoss on 10^5 candidates of 3 tasks: the loss, with logits and labels in tensors of the trainer, and with
         its backward pass. Beside it the C client's call with the same columns copied in by memmove, and without
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from lossd_process import BUILD, ROOT, LossdProcess  # noqa: E402

os.environ.setdefault("LOSSD_LIBRARY", str(BUILD / "client" / "liblossd.so"))
sys.path.insert(0, str(ROOT / "client" / "python"))

import torch  # noqa: E402

import lossd  # noqa: E402
from lossd.torch import RankingLoss  # noqa: E402

CONFIG = {
    "tasks": [
        {"name": "click", "losses": [{"binary_cross_entropy": {}}]},
        {"name": "buy", "losses": [{"binary_cross_entropy": {}}]},
        {"name": "rank", "losses": [{"binary_cross_entropy": {}}, {"listwise_rank_loss": {}}]},
    ]
}
CANDIDATES, LENGTH = 100_000, 32


def measure(contenders, rounds, repeats):
    """Microseconds of one call of each contender over rounds: least, median, quartiles."""
    times = {name: [] for name in contenders}
    for name, call in contenders.items():
        for _ in range(repeats):
            call()
    for _ in range(rounds):
        for name, call in contenders.items():
            begin = time.perf_counter_ns()
            for _ in range(repeats):
                call()
            times[name].append((time.perf_counter_ns() - begin) / repeats / 1000)
    return {
        name: dict(zip(("least", "lower", "median", "upper"), (min(t), *statistics.quantiles(t, n=4))))
        for name, t in times.items()
    }


class OneRank:
    """A client of one rank, its calls, and the same by bare ctypes."""

    def __init__(self, address, group):
        self.client = lossd.Client(address, transport="shared_memory")
        self.client.join(CONFIG, group=group, rank=0, world_size=1)
        self.step = 0

    def fill(self, candidates):
        lengths = [LENGTH] * (candidates // LENGTH)
        batch = self.client.batch(len(lengths), sum(lengths))
        if lengths:
            batch.lengths = lengths
            for task in batch.tasks.values():
                task.logits, task.labels = torch.randn(sum(lengths)), torch.randint(0, 2, (sum(lengths),))
        batch.tasks["rank"].log_scale = 2.66  # as RankingLoss, whose temperature learns
        return batch

    def bare(self, batch):
        """lossd_compute with arguments that are made once."""
        function, out, failure = (
            self.client._library.lossd_compute,
            ctypes.c_void_p(),
            ctypes.create_string_buffer(16384),
        )
        handle = self.client._turn.handle.pointer
        address, out_at, failure_at = batch.slot.address, ctypes.addressof(out), ctypes.addressof(failure)

        def call():
            self.step += 1
            assert function(handle, address, self.step, out_at, failure_at) == 0

        call.keep = out, failure
        return call

    def compute(self, batch):
        def call():
            self.step += 1
            return self.client.compute(batch, self.step).loss

        return call


def overhead_of_a_call(daemon, rounds=31, repeats=300):
    rank = OneRank(daemon.unix, "call")
    batch = rank.fill(0)
    contenders = {
        "a bare ctypes call": rank.client._library.lossd_version,
        "lossd_compute": rank.bare(batch),
        "Client.compute": rank.compute(batch),
    }
    return measure(contenders, rounds, repeats)


def step_of_a_loop(daemon, rounds=31, repeats=10):
    rank = OneRank(daemon.unix, "c")
    batch = rank.fill(CANDIDATES)
    lossd_compute = rank.bare(batch)
    step = RankingLoss(CONFIG, lossd.Client(daemon.unix), group="torch", rank=0, world_size=1)
    count = batch.candidates
    lengths = torch.full((count // LENGTH,), LENGTH)
    logits = {name: torch.randn(count, requires_grad=True) for name in ("click", "buy", "rank")}
    labels = {name: torch.randint(0, 2, (count,)).float() for name in logits}
    moves = [
        (column.ctypes.data, tensor.data_ptr(), tensor.numel() * 4)
        for name, task in batch.tasks.items()
        for column, tensor in ((task.logits, logits[name]), (task.labels, labels[name]))
    ]

    def filled():
        for move in moves:
            ctypes.memmove(*move)
        lossd_compute()

    def backward():
        for tensor in logits.values():
            tensor.grad = None
        step(logits, labels, lengths).backward()

    contenders = {
        "lossd_compute": lossd_compute,
        "copy in, lossd_compute": filled,
        "step": lambda: step(logits, labels, lengths),
        "step and backward": backward,
    }
    return measure(contenders, rounds, repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    daemon = LossdProcess()
    try:
        call, step = overhead_of_a_call(daemon), step_of_a_loop(daemon)
    finally:
        daemon.stop()
    figures = figures_of(call, step)
    if arguments.json:
        print(json.dumps({"call_us": call, "step_us": step, **figures}, indent=2))
        return
    for title, rows in (("a call, no candidates", call), (f"{CANDIDATES} candidates of 3 tasks", step)):
        print(f"{title:32} {'least':>10} {'median':>10} {'quartiles':>20}  us")
        for name, t in rows.items():
            print(f"  {name:30} {t['least']:10.2f} {t['median']:10.2f} {t['lower']:10.2f}{t['upper']:10.2f}")
    print(f"Python over the C client, a call: {figures['call_overhead_us']:.2f} us")
    print(f"step / (copy in, lossd_compute): {figures['step_ratio']:.3f}")
    print(f"step / lossd_compute alone:      {figures['step_ratio_without_copy']:.3f}")


def figures_of(call, step):
    """What the bars are for."""

    def least(rows, name):
        return rows[name]["least"]

    bare = least(call, "lossd_compute") - least(call, "a bare ctypes call")
    return {
        "call_overhead_us": least(call, "Client.compute") - bare,
        "step_ratio": least(step, "step") / least(step, "copy in, lossd_compute"),
        "step_ratio_without_copy": least(step, "step") / least(step, "lossd_compute"),
    }


if __name__ == "__main__":
    main()
