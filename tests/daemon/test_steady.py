"""
A step through shared memory in its steady state costs no page fault, no allocation and hardly a system call.

The ranks are programs of C (tests/support/stepper.c) that make as many steps as they are told. They and the daemon first
make so many that every thread has run and every page that a step needs has been touched, and stay quiet for longer than
the daemon's clock ticks, so that its code has run, too. What is compared then is the state before and after 1,000 more.
"""

import mmap
import os
import pathlib
import re
import struct
import subprocess
import time

import pytest

from harness import BUILD, fresh, page_faults

pytestmark = [
    pytest.mark.plain,
    pytest.mark.skipif(not (BUILD / "client" / "liblossd.so").exists(), reason="built without client"),
]

STEPPER = BUILD / "tests" / "support" / "stepper"
COUNTER = BUILD / "tests" / "support" / "libcount_calls.so"
ALLOCATIONS = ["malloc", "calloc", "realloc", "aligned", "free"]
KINDS = ALLOCATIONS + ["system"]
STEPS = 1000
WARM_STEPS = 3000
PATIENCE_SECONDS = 30
COUNTED = {"read", "write", "sendto", "sendmsg", "recvfrom", "recvmsg", "poll", "ppoll", "epoll_wait"}
QUIET_SECONDS = 1.2  # the daemon's clock ticks twice a second


class Stepper:
    """One rank."""

    def __init__(self, address, group, rank, world, candidates, wrapper=(), env=None):
        self.process = subprocess.Popen(
            [*wrapper, STEPPER, address, group, str(rank), str(world), str(candidates)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=env)

    def begin(self, steps):
        self.process.stdin.write(f"{steps}\n")

    def end(self):
        assert self.process.stdout.readline() == "done\n"

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(20) == 0


class Counts:
    """Counts of a process that has the counter loaded: LD_PRELOAD and the variable that says where."""

    def __init__(self, path):
        path.write_bytes(bytes(8 * len(KINDS)))
        with open(path, "rb") as file:
            self.shared = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.env = {"LD_PRELOAD": str(COUNTER), "LOSSD_COUNT_CALLS": str(path)}

    def read(self):
        return dict(zip(KINDS, struct.unpack(f"{len(KINDS)}Q", self.shared[:])))


def make(steppers, steps):
    for stepper in steppers:
        stepper.begin(steps)
    for stepper in steppers:
        stepper.end()


def warm_up(steppers):
    make(steppers, WARM_STEPS)
    time.sleep(QUIET_SECONDS)
    make(steppers, STEPS)


def difference(after, before):
    return {name: after[name] - before[name] for name in after}


# Computed on the thread that completes the step; by the pool.
@pytest.mark.parametrize("candidates", [1000, 50000])
def test_a_thousand_steps_cost_no_page_fault_and_no_allocation(start, tmp_path, candidates):
    counted = [Counts(tmp_path / name) for name in ("daemon", "rank0", "rank1")]
    daemon = start(env=counted[0].env)
    group = fresh()
    steppers = [Stepper(daemon.unix, group, rank, 2, candidates, env=counted[rank + 1].env) for rank in range(2)]
    pids = [daemon.process.pid] + [stepper.process.pid for stepper in steppers]
    warm_up(steppers)
    assert all(sum(one.read().values()) > 0 for one in counted), "nothing was counted"

    before = [(page_faults(pid), one.read()) for pid, one in zip(pids, counted)]
    make(steppers, STEPS)
    after = [(page_faults(pid), one.read()) for pid, one in zip(pids, counted)]
    for who, (faults0, counts0), (faults1, counts1) in zip(["lossd", "rank 0", "rank 1"], before, after):
        assert difference(faults1, faults0) == {"minor": 0, "major": 0}, who
        made = difference(counts1, counts0)
        assert {name: made[name] for name in ALLOCATIONS} == dict.fromkeys(ALLOCATIONS, 0), who
    for stepper in steppers:
        stepper.stop()


def test_a_step_that_both_sides_spin_for_makes_two_system_calls_at_most(start, tmp_path):
    """
    One rank, and a batch that is computed within a spin; each side has a core of its own. Where something else wants
    one, a side finds nothing in its 20 us and both sleep for a while: then it is not what is meant here, and other 1,000
    steps are looked at.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("there is one core: nobody spins for a process that waits for the same core")
    counted = [Counts(tmp_path / name) for name in ("daemon", "rank")]
    daemon = start(env=counted[0].env, wrapper=["taskset", "-c", str(cores[0])])
    wrapper = ["taskset", "-c", str(cores[1])]
    stepper = Stepper(daemon.unix, fresh(), 0, 1, 100, wrapper=wrapper, env=counted[1].env)
    warm_up([stepper])
    seen = []
    end = time.monotonic() + PATIENCE_SECONDS
    while not seen or min(seen) > 2 * STEPS and time.monotonic() < end:
        before = [one.read()["system"] for one in counted]
        make([stepper], STEPS)
        seen.append(sum(one.read()["system"] - was for one, was in zip(counted, before)))
        time.sleep(0.01)
    print(f"calls in {STEPS} steps: {seen}")
    assert min(seen) <= 2 * STEPS
    stepper.stop()


def child_of(pid):
    [child] = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def calls_of(trace):
    """Times and names of the system calls of a trace: one line each, two where another thread came between."""
    found = re.findall(r"^\d+ +(\d+\.\d+) (\w+)\(", trace.read_text(errors="replace"), re.M)
    return [(float(when), name) for when, name in found]


def test_a_step_makes_no_system_call_that_is_not_counted_here(start, tmp_path):
    """
    All calls, as strace has them, so that those above can be relied on: it makes each of them so slow that nobody finds
    anything within a spin, and both sides sleep for each step. The window lies between the rank's orders.
    """
    probe = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    assert probe.returncode == 0, f"strace can't trace here: {probe.stderr}"
    traces = [tmp_path / "daemon", tmp_path / "rank"]
    wrappers = [["strace", "-f", "-qq", "-ttt", "-s", "8", "-o", str(trace)] for trace in traces]
    daemon = start(wrapper=wrappers[0])
    stepper = Stepper(daemon.unix, fresh(), 0, 1, 100, wrapper=wrappers[1])
    warm_up([stepper])
    make([stepper], STEPS)
    stepper.stop()
    # strace lets no signal end it before what it traces
    subprocess.run(["kill", str(child_of(daemon.process.pid))], check=True)
    daemon.process.wait(20)

    rank_calls = calls_of(traces[1])
    orders = [i for i, (_, name) in enumerate(rank_calls) if name == "read"]
    first, last = orders[-2], orders[-1]  # the last order, and the end of the input
    begin, end = rank_calls[first][0], rank_calls[last][0]
    names = [name for _, name in rank_calls[first:last]]
    names += [name for when, name in calls_of(traces[0]) if begin <= when <= end]
    report = {name: names.count(name) for name in sorted(set(names))}
    print(f"in {STEPS} steps: {report}")
    assert set(report) <= COUNTED, report
    assert len(names) <= 10 * STEPS, report
