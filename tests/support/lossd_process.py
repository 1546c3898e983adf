"""For the tests in Python: a lossd of the build under test, as a process."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOSSD_BUILD", ROOT / "build")).resolve()


class LossdProcess:
    """
    On a free port, `tcp`, and a Unix socket, `unix`, with shared memory beside it. `log` has the lines of its standard
    error up to now.

    config   keys of the configuration
    args     of the command line, behind --config
    wrapper  a program that runs it, with its arguments
    env      more variables
    """

    def __init__(self, config=None, args=(), wrapper=(), env=None):
        self.folder = tempfile.TemporaryDirectory(prefix="lossd-")
        self.unix = f"unix:{self.folder.name}/lossd.sock"
        self.patience = 60 if wrapper else 20
        file = pathlib.Path(self.folder.name, "config.json")
        file.write_text(json.dumps({"listen": ["127.0.0.1:0", self.unix], **(config or {})}))
        self.command = [*wrapper, str(BUILD / "daemon" / "lossd"), "--config", str(file), *args]
        options = f"log_path={self.folder.name}/sanitizer:print_stacktrace=1"
        self.environment = {
            **os.environ,
            "ASAN_OPTIONS": options + ":detect_leaks=1",
            "UBSAN_OPTIONS": options,
            "TSAN_OPTIONS": options,
            **(env or {}),
        }
        self.start()

    def start(self):
        """Again, where it was killed: the Unix socket is at the same place."""
        self.log = []
        self.ready = threading.Event()
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, env=self.environment, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(self.patience) or len(self._addresses()) < 2:
            self.process.kill()
            raise AssertionError("lossd did not come up: " + "".join(self.log))
        self.tcp = self._addresses()[0]

    def _addresses(self):
        found = [re.search(r"listening on (\S+)", line) for line in self.log]
        return [match.group(1) for match in found if match]

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            if len(self._addresses()) >= 2:
                self.ready.set()
        self.ready.set()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._end_log()

    def _end_log(self):
        self.reader.join(10)
        self.process.stderr.close()

    def stop(self, timeout=40):
        """SIGTERM; the exit code has to be 0 and the sanitizers silent."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("lossd did not stop: " + "".join(self.log[-20:])) from None
        self._end_log()
        reports = [p.read_text() for p in pathlib.Path(self.folder.name).glob("sanitizer*")]
        assert not reports, "\n".join(reports)
        assert code == 0, f"exit code {code}: " + "".join(self.log[-20:])
        self.folder.cleanup()
