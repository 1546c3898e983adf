"""Says that a call waits long: a trainer that hangs without a word looks broken."""

from __future__ import annotations

import logging
import os
import time

from . import _library

JOIN = -1
JOIN_SECONDS = 2.0
STEP_SECONDS = 10.0
DEFAULT_ADDRESS = "127.0.0.1:7430"  # of the library
DEFAULT_RECONNECT = 30.0

_logger = logging.getLogger("lossd")


class Watch:
    """
    What a client waits for. Calls say what they are, which is all that they cost where they are answered; the library
    asks look while it waits, about every 100 ms. Warns once a step, and once whenever a client joins.

    address    as given; None: of the environment
    timeout, reconnect
               in seconds, as given; None: of the environment, or the library's
    rank       set when joining
    """

    __slots__ = ("_call", "_given", "_since", "_told", "address", "limit", "rank")

    def __init__(self, address: str | None, timeout: float | None, reconnect: float | None) -> None:
        self._given = bool(address)
        self.address = address or os.environ.get("LOSSD_ADDR") or DEFAULT_ADDRESS
        own = os.environ.get("LOSSD_TIMEOUT_MS") or "0"
        if timeout is None and own.isdecimal() and int(own) > 0:
            timeout = int(own) / 1000
        limits = (DEFAULT_RECONNECT if reconnect is None else reconnect, timeout)
        self.limit = min(limit for limit in limits if limit is not None)  # of joining, in seconds
        self.rank = 0
        self._call: int | None = None
        self._since: float | None = None  # when look was first asked in this call
        self._told: int | None = None  # the last step that was

    def begin(self, call: int | None) -> None:
        """A call: JOIN, the number of a step, or None for one of which nothing is said."""
        self._call, self._since = call, None

    def look(self) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        call = self._call
        if call is None or now - self._since < (JOIN_SECONDS if call == JOIN else STEP_SECONDS):
            return
        self._call = None
        if call == JOIN:
            hint = "" if self._given else " LOSSD_ADDR names it"
            text = "nobody answers at %s yet, trying for %g s: is lossd running?%s"
            _logger.warning(text, self.address, self.limit, hint)
        elif call == _library.STEP_COUNTS_ON:
            _logger.warning("rank %d waits in its step: %s says why", self.rank, self._status())
        elif call != self._told:
            self._told = call
            _logger.warning("rank %d waits in step %d: %s shows for whom", self.rank, call, self._status())

    def _status(self) -> str:
        return f"`lossctl --addr {self.address} status`" if self._given else "`lossctl status`"
