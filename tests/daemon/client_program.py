"""Trainers that use liblossd: tests/support/client_shell.c as a process that is told what to do line by line."""

import json
import os
import subprocess
import threading

from harness import BUILD, fresh

AUTO, SHARED_MEMORY, PROTOBUF, JSON = range(4)
TRANSPORTS = [SHARED_MEMORY, PROTOBUF, JSON]
F32, F16, BF16 = range(3)
PLANES, ROWS = range(2)

BCE = {"tasks": [{"name": "a", "losses": [{"binaryCrossEntropy": {}}]}]}

PROGRAM = BUILD / "tests" / "client_shell"


class ClientFailure(Exception):
    """A failure of a call, with the members of struct lossd_failure."""

    def __init__(self, fields):
        self.__dict__.update(fields)
        super().__init__(f"{self.code} {self.reason} {self.field}: {self.message} {self.metadata}")


class Trainer:
    def __init__(self, address="-", transport=AUTO, slots=0, timeout_ms=0, reconnect_ms=0, no_spin=0, expected=(0, 0),
                 env=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOSSD_")}
        self.process = subprocess.Popen(
            [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**environment, **(env or {})}
        )
        self.options = (address, transport, slots, timeout_ms, reconnect_ms, no_spin, *expected)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self, *words):
        """A command whose answer is read later."""
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, f"the trainer ended with {self.process.wait()}"
        fields = json.loads(line)
        if fields["code"] != 0:
            raise ClientFailure(fields)
        return fields

    def tell(self, *words):
        self.start(*words)
        return self.answer()

    def refused(self, *words):
        """The failure of a command that has to fail."""
        try:
            answer = self.tell(*words)
        except ClientFailure as failure:
            return failure
        raise AssertionError(f"{words} succeeded: {answer}")

    def open(self):
        return self.tell("open", *self.options)

    def join(self, group, rank, world_size, config):
        self.open()
        return self.join_opened(group, rank, world_size, config)

    def join_opened(self, group, rank, world_size, config):
        return self.tell("join", group, rank, world_size, "-" if config is None else json.dumps(config))

    def begin(self, requests, candidates, logits=F32, gradient=F32, layout=PLANES, weighted=0, fill=None):
        self.tell("begin", requests, candidates, logits, gradient, layout, weighted)
        if fill is not None:
            self.tell("fill", fill)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """No more commands: the program closes its client and has to end well."""
        if self.process.poll() is None:
            self.process.stdin.close()
            code = self.process.wait(30)
            assert code == 0, f"the trainer ended with {code}"


def ranks_of(daemon, config, transport, count=2, **options):
    """Trainers that have joined a group of their own over this transport, one a rank."""
    group = fresh("client")
    trainers = [Trainer(daemon.unix, transport, **options) for _ in range(count)]
    for rank, trainer in enumerate(trainers):
        assert trainer.join(group, rank, count, config)["transport"] == transport
    return trainers


def end(trainers):
    """They leave their group, and end well."""
    for trainer in trainers:
        trainer.tell("leave")
        trainer.end()


def computed(trainers, step):
    """The answers of all of them to one step."""
    for trainer in trainers:
        trainer.start("compute", step)
    return [trainer.answer() for trainer in trainers]


class Lines(threading.Thread):
    """The answers of a long command, gathered beside."""

    def __init__(self, trainer, count):
        super().__init__(daemon=True)
        self.trainer, self.count, self.lines, self.failure = trainer, count, [], None
        self.start()

    def run(self):
        try:
            while len(self.lines) < self.count:
                self.lines.append(self.trainer.answer())
        except (ClientFailure, AssertionError) as failure:
            self.failure = failure
