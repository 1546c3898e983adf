"""What is done while a function of the library waits: signals are handled, and the user is told."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from typing import Any

from . import _structs

# Runs the handlers of signals that have come, and raises what they raise; in other threads than the main one, nothing.
_check_signals = ctypes.pythonapi.PyErr_CheckSignals
_check_signals.restype, _check_signals.argtypes = ctypes.c_int, []


def callback(raised: list[BaseException], look: Callable[[], None]) -> Any:
    """
    For struct lossd_options: ends a wait where a handler raises, and leaves in raised what that was. Calls look too.
    """
    asked = _asked(raised, look)
    next(asked)
    return _structs.Interrupted(asked.send)


def _asked(raised: list[BaseException], look: Callable[[], None]) -> Generator[int, object, None]:
    """
    A generator, not a function: the interpreter may run handlers at the first instruction of either, and that of a
    function that was called is outside of any try, so that ctypes would drop the exception.
    """
    while True:
        try:
            while True:
                yield len(raised)
                _check_signals()
                look()
        except GeneratorExit:
            return
        except BaseException as why:  # whatever it is, the call that waits raises it
            raised.append(why)
