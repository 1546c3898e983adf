"""A lossd of the build under test, as a process."""

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
DATA = pathlib.Path(os.environ.get("LOSSD_DATA", ROOT.parent / "shared" / "data"))


class Daemon:
    """On a free port, `tcp`, and a Unix socket, `unix`; with shared memory beside the latter."""

    def __init__(self, config=None):
        self.folder = tempfile.TemporaryDirectory(prefix="lossd-")
        self.unix = f"unix:{self.folder.name}/lossd.sock"
        file = pathlib.Path(self.folder.name, "config.json")
        file.write_text(json.dumps({"listen": ["127.0.0.1:0", self.unix], **(config or {})}))
        self.command = [str(BUILD / "daemon" / "lossd"), "--config", str(file)]
        self.start()

    def start(self):
        """Again, where it was killed: the Unix socket is at the same place."""
        self.log = []
        self.ready = threading.Event()
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(20):
            self.process.kill()
            raise AssertionError("lossd did not come up: " + "".join(self.log))
        self.tcp = self._addresses()[0]

    def _addresses(self):
        found = [re.search(r"listening on\W*(?:addr\w*=)?\"?((?:unix:)?[^\s\"]+)", line) for line in self.log]
        return [match.group(1) for match in found if match]

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            if len(self._addresses()) >= 2:
                self.ready.set()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.process.stderr.close()

    def stop(self):
        """SIGTERM; the exit code has to be 0."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("lossd did not stop: " + "".join(self.log[-20:]))
        self.reader.join(10)
        self.process.stderr.close()
        assert code == 0, f"exit code {code}: " + "".join(self.log[-20:])
        self.folder.cleanup()
