"""Who may use a struct lossd_client, and how long it lives."""

from __future__ import annotations

import ctypes
import os
import threading


class Handle:
    """
    A struct lossd_client. It is closed when neither the client nor an array that shows its memory needs it.

    callback  what the library may call while it waits
    """

    def __init__(self, library: ctypes.CDLL, pointer: int, callback: object) -> None:
        self.pointer, self.callback = pointer, callback
        self._library, self._process = library, os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self._process:  # behind a fork it is the parent's
            self._library.lossd_client_close(self.pointer)


class Turn:
    """The time in which a thread has a client for itself; gives the struct lossd_client."""

    __slots__ = ("_busy", "_process", "handle")

    def __init__(self, handle: Handle) -> None:
        self.handle: Handle | None = handle  # None: closed
        self._busy, self._process = threading.Lock(), os.getpid()

    def __enter__(self) -> int:
        if self.handle is None:
            raise RuntimeError("the client is closed")
        if os.getpid() != self._process:
            raise RuntimeError("a client may not be used behind a fork: make one in this process")
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("another thread uses this client")
        return self.handle.pointer

    def __exit__(self, *_: object) -> None:
        self._busy.release()
