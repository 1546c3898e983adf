"""What users say as the library has it."""

from __future__ import annotations

from collections.abc import Iterable

TRANSPORTS = ("auto", "shared_memory", "http_protobuf", "http_json")


def one_of(names: Iterable[str], name: str, what: str) -> int:
    """The number of a name."""
    known = list(names)
    if name not in known:
        raise ValueError(f"{what} is {name!r}, and not one of {', '.join(known)}")
    return known.index(name)


def milliseconds(seconds: float | None) -> int:
    """0 for None; a time that is too short to be one becomes 1."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise ValueError(f"a time of {seconds} seconds")
    return max(1, round(seconds * 1000))


def round_up(count: int) -> int:
    """To the next multiple of an eighth of the power of two at or above it: at most a quarter more."""
    step = max(16, 1 << max(0, count.bit_length() - 3))
    return -(-count // step) * step
