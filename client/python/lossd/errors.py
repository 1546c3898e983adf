"""What a call can fail with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _structs

CODES = (
    "ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
    "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented",
    "internal", "unavailable", "data_loss", "unauthenticated",
)  # fmt: skip
RETRIES = ("never", "same", "higher", "fix")
_PEERS = {"STEP_REJECTED_BY_PEER", "STEP_TIMEOUT", "PEER_WAIT_DEADLINE", "STEP_DESYNC", "RANK_LEFT"}


class Error(Exception):
    """
    A call that failed.

    code     as gRPC and Connect name it: "deadline_exceeded"
    reason   what a program decides on: "STEP_TIMEOUT". The daemon's are listed in its proto/README.md, those of the
             library in lossd/lossd.h.
    message  one sentence: what was found, what was expected
    field    the path of what is to blame, "tasks[0].labels[3]", or ""
    metadata further data of the reason, all strings
    retry    "same": the same call can succeed. "higher": join again, or go on to another step. "fix": something
             outside of the call has to change first. "never": the same call fails again.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        code: str = "unknown",
        field: str = "",
        metadata: Mapping[str, str] | None = None,
        retry: str = "never",
    ) -> None:
        super().__init__(reason, message)
        self.reason, self.message = reason, message
        self.code, self.field, self.retry = code, field, retry
        self.metadata: dict[str, str] = dict(metadata or {})

    def __str__(self) -> str:
        at = f"{self.field}: " if self.field and not self.message.startswith(self.field) else ""
        return f"{self.reason} ({self.code}): {at}{self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        rest = {"code": self.code, "field": self.field, "metadata": self.metadata, "retry": self.retry}
        return _rebuild, (type(self), self.reason, self.message, rest)

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The ranks that a step has waited for in vain; () where the error is about something else."""
        return _ranks(self.metadata.get("missing_ranks", ""))


class PeerError(Error):
    """Not this rank's batch is to blame but another rank, which is missing, has left or has sent a bad one."""


def _rebuild(kind: type[Error], reason: str, message: str, rest: dict[str, Any]) -> Error:
    return kind(reason, message, **rest)


def _ranks(text: str) -> tuple[int, ...]:
    """The ranks of a text as "0,2-4"."""
    ranks: list[int] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        first, _, last = part.partition("-")
        ranks.extend(range(int(first), int(last or first) + 1))
    return tuple(ranks)


def from_failure(failure: _structs.Failure) -> Error:
    """The exception that says what a struct lossd_failure says."""

    def text(value: bytes) -> str:
        return value.decode(errors="replace")

    start = type(failure).metadata.offset
    raw = bytes(memoryview(failure).cast("B")[start : start + failure.metadata_bytes])
    words = [text(word) for word in raw.split(b"\0")[:-1]]
    reason = text(failure.reason)
    kind = PeerError if reason in _PEERS else Error
    return kind(
        reason,
        text(failure.message),
        code=CODES[failure.code] if failure.code < len(CODES) else "unknown",
        field=text(failure.field),
        metadata=dict(zip(words[::2], words[1::2])),
        retry=RETRIES[failure.retry] if failure.retry < len(RETRIES) else "never",
    )
