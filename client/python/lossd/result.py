"""What a call is answered with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _structs

if TYPE_CHECKING:
    from .batch import Batch


class Term(NamedTuple):
    """One loss of a task: value = task weight * loss weight * factor * local_mean, local_mean = sum / denominator."""

    name: str
    value: float
    local_mean: float
    sum: float
    denominator: float
    factor: float


class Counts(NamedTuple):
    """What batches held: of this rank, or of all together."""

    requests: float
    candidates: float
    ranks: int


class TaskResult:
    """The answer for one task. It is read from the batch's slot when asked for, so it lives as long as the batch."""

    __slots__ = ("_batch", "_index", "_struct")

    def __init__(self, batch: Batch, index: int, struct: _structs.TaskResult) -> None:
        self._batch, self._index, self._struct = batch, index, struct

    def __repr__(self) -> str:
        if not self._batch.is_alive:
            return "TaskResult(of a batch that is gone)"
        terms = ", ".join(f"{t.name} {t.value:.6g} (factor {t.factor:.6g})" for t in self.terms)
        return f"TaskResult(loss={self.loss:.6g}, terms: {terms})"

    def _alive(self) -> _structs.TaskResult:
        self._batch.check_alive()
        return self._struct

    @property
    def name(self) -> str:
        return self._batch.names[self._index]

    @property
    def loss(self) -> float:
        """The sum of its terms."""
        return self._alive().loss

    @property
    def terms(self) -> tuple[Term, ...]:
        """In the order of the config."""
        struct = self._alive()
        terms = (struct.terms[i] for i in range(struct.num_terms))
        return tuple(Term(t.name.decode(), t.value, t.local_mean, t.sum, t.denominator, t.factor) for t in terms)

    @property
    def gradient(self) -> Any:
        """d(loss * gradient_scale)/d(logits), [C] or [C, K]: read-only, the memory that the daemon has written."""
        return self._batch.gradient(self._index)

    @property
    def log_scale_gradient(self) -> float | None:
        """d(loss * gradient_scale)/d(log_scale), where log_scale was sent; else None."""
        struct = self._alive()
        return struct.log_scale_gradient if struct.has_log_scale_gradient else None

    @property
    def nonfinite_units(self) -> int:
        """Rows and lists that ON_NONFINITE_ZERO has left out."""
        return self._alive().nonfinite_units


class Result:
    """
    The answer to a batch. `step`, `loss` and `replayed` are its own; everything else is read from the batch's slot
    when asked for, as long as that has not been begun anew.
    """

    __slots__ = ("_batch", "_struct", "_tasks", "loss", "replayed", "step")

    def __init__(self, batch: Batch, struct: _structs.Result) -> None:
        self._batch, self._struct = batch, struct
        self._tasks: dict[str, TaskResult] | None = None
        self.step: int = struct.step
        self.loss: float = struct.loss  # back-propagate this: its mean over ranks is the loss of the global batch
        self.replayed: bool = struct.replayed != 0  # the daemon had answered this step before

    def __repr__(self) -> str:
        return f"Result(step={self.step}, loss={self.loss!r})"

    def __str__(self) -> str:
        """In lines: the counts, and the terms of each task. Short where the batch is gone."""
        if not self._batch.is_alive:
            return repr(self)
        own, world = self.local, self.world
        requests = f"{own.requests:g} of {world.requests:g} requests"
        candidates = f"{own.candidates:g} of {world.candidates:g} candidates"
        lines = [f"step {self.step}: loss {self.loss:.6g}, {requests}, {candidates}, {world.ranks} ranks"]
        for name, task in self.tasks.items():
            lines.append(f"  {name}: loss {task.loss:.6g}")
            lines.extend(f"    {term.name}: {term.value:.6g}, factor {term.factor:.6g}" for term in task.terms)
        return "\n".join(lines)

    def _alive(self) -> _structs.Result:
        self._batch.check_alive()
        return self._struct

    @property
    def tasks(self) -> Mapping[str, TaskResult]:
        """By name, in the order of the config."""
        if self._tasks is None:
            struct, names = self._alive(), self._batch.names
            self._tasks = {name: TaskResult(self._batch, i, struct.tasks[i]) for i, name in enumerate(names)}
        return self._tasks

    @property
    def local(self) -> Counts:
        """Of this batch."""
        return _counts(self._alive().local)

    @property
    def world(self) -> Counts:
        """Summed over ranks."""
        return _counts(self._alive().world)

    @property
    def request_factor(self) -> float:
        """Requests of this rank / their mean over ranks."""
        return self._alive().request_factor

    @property
    def candidate_factor(self) -> float:
        """Candidates of this rank / their mean over ranks."""
        return self._alive().candidate_factor


def _counts(struct: _structs.Counts) -> Counts:
    return Counts(struct.requests, struct.candidates, struct.ranks)
