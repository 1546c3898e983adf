"""Buffers of one batch: with shared memory, the daemon's own."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from . import _columns, _structs

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
LAYOUTS = {"planes": 0, "rows": 1}


class Form(NamedTuple):
    """What decides where the columns of a slot lie, beside the capacity."""

    dtype: str
    gradient_dtype: str
    layout: str
    weighted_tasks: int

    def has_room_for(self, other: Form) -> bool:
        """Whether buffers of this form are large enough for those of another one."""
        sizes = (_columns.FORMATS[kind][0] for kind in (self.dtype, self.gradient_dtype))
        others = (_columns.FORMATS[kind][0] for kind in (other.dtype, other.gradient_dtype))
        larger = any(a < b for a, b in zip(sizes, others)) or other.weighted_tasks & ~self.weighted_tasks
        return self.layout == other.layout and not larger


class Place(NamedTuple):
    """A column [C] or [C, K] in memory; row c begins stride elements behind row c - 1."""

    memory: ctypes.Array[ctypes.c_ubyte]
    shape: tuple[int, ...]
    stride: int


class Slot:
    """
    The struct lossd_batch of a slot, and the views of its columns at their full capacity. They are made once: a batch
    takes the first rows of them.
    """

    def __init__(
        self, address: int, form: Form, requests: int, candidates: int, owner: object, blocks: list[weakref.ref[Any]]
    ) -> None:
        self.address, self.form = address, form
        self.owner: object = owner  # of the memory
        self.requests, self.candidates = requests, candidates
        self.struct = _structs.Batch.from_address(address)
        self.tasks = [self.struct.tasks[i] for i in range(self.struct.num_tasks)]
        self.names = tuple(task.name.decode() for task in self.tasks)
        self.indices = {name: i for i, name in enumerate(self.names)}
        self.serial = 0  # of the batch that has the slot now; -1: none will have it again
        self.step: int | None = None  # that was submitted last
        self._views: dict[Hashable, Any] = {}
        self._blocks = blocks

    def column(self, field: str, index: int, kind: str) -> Any:
        """The view of a column of task index (-1: of the batch), or None where the batch has no such column."""

        def make() -> Any:
            place = self.place(field, index, kind)
            return None if place is None else _columns.view(*place, kind=kind, writable=field != "gradient")

        return self.once((field, index), make)

    def place(self, field: str, index: int, kind: str) -> Place | None:
        """
        Where a column lies, at full capacity, for libraries that make views of their own. The field "matrix" is the
        one of layout "rows", "matrix_gradient" that of its gradients.
        """
        rows = self.requests if field == "lengths" else self.candidates
        shape: tuple[int, ...] = (rows,)
        stride = 1
        if field in ("logits", "gradient"):
            task = self.tasks[index]
            stride = task.stride
            if task.num_class > 1:
                shape = (rows, task.num_class)
            address = getattr(task, field)
        elif field in ("matrix", "matrix_gradient"):
            stride = self.tasks[0].stride
            shape = (rows, stride)
            address = self.tasks[0].logits if field == "matrix" else self.tasks[0].gradient
        else:
            address = getattr(self.struct if index < 0 else self.tasks[index], field)
        if not address:
            return None
        elements = (rows - 1) * stride + (shape[1] if len(shape) > 1 else 1)
        memory = _columns.block(address, elements * _columns.FORMATS[kind][0], self.owner)
        self._blocks.append(weakref.ref(memory))
        return Place(memory, shape, stride)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What make gives, kept until the views are dropped."""
        if key not in self._views:
            self._views[key] = make()
        return self._views[key]

    def retire(self) -> None:
        """Drop all views; batches of this slot are gone."""
        self.serial, self.owner = -1, None
        self._views.clear()


class _Column:
    """A column as an attribute: reading gives the buffer, assigning copies into it."""

    def __init__(self, kind: str | None, of_batch: bool = False) -> None:
        self.kind, self.of_batch = kind, of_batch

    def __set_name__(self, owner: type, name: str) -> None:
        self.field = name

    def __get__(self, holder: Any, owner: type | None = None) -> Any:
        return self if holder is None else self._column(holder)[0]

    def __set__(self, holder: Any, values: Any) -> None:
        column, kind, path = self._column(holder)
        if column is None:
            raise ValueError(f"{path}: this batch has no such column")
        _columns.fill(column, kind, values, path)

    def _column(self, holder: Any) -> tuple[Any, str, str]:
        batch: Batch = holder if self.of_batch else holder.batch
        batch.check_alive()
        slot = batch.slot
        kind = self.kind or slot.form.dtype
        index = -1 if self.of_batch else holder.index
        path = self.field if self.of_batch else f"tasks[{index}].{self.field}"
        full = slot.column(self.field, index, kind)
        if full is None:
            return None, kind, path
        if not _columns.HAS_NUMPY and self.field == "logits":  # flat
            return full[: batch.candidates * slot.tasks[index].num_class], kind, path
        return full[: batch.requests if self.field == "lengths" else batch.candidates], kind, path


class TaskColumns:
    """
    The columns of one task, C candidates and K classes. A column that the config or the batch does not have is None.

    logits      [C], or [C, K] where K > 1; bfloat16 as its bits in uint16
    labels      [C] float32; None where the task has a label_bitmask
    weights     [C] float32, where the batch has sample weights for this task
    sessions    [C] int64, where the task has LISTS_SESSIONS
    task_space  [C] float32, where the task has weights in or out of a task space
    """

    __slots__ = ("batch", "index")

    logits = _Column(None)
    labels = _Column("float32")
    weights = _Column("float32")
    sessions = _Column("int64")
    task_space = _Column("float32")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch, self.index = batch, index

    @property
    def name(self) -> str:
        return self.batch.names[self.index]

    @property
    def num_class(self) -> int:
        self.batch.check_alive()
        return self.batch.slot.tasks[self.index].num_class

    @property
    def log_scale(self) -> float | None:
        """ln(1 / temperature) of a listwise_rank_loss that learns it. None: not sent, and no gradient comes back."""
        self.batch.check_alive()
        task = self.batch.slot.tasks[self.index]
        return task.log_scale if task.has_log_scale else None

    @log_scale.setter
    def log_scale(self, value: float | None) -> None:
        self.batch.check_alive()
        task = self.batch.slot.tasks[self.index]
        task.has_log_scale = value is not None
        task.log_scale = 0.0 if value is None else value


class Batch:
    """
    The buffers of one batch, made by Client.batch. Columns are NumPy arrays that *are* the buffers; assigning to one
    copies into it: `batch.lengths = lengths`, `batch.tasks["click"].logits = logits`. What was not written is
    undefined.

    It is gone when as many batches as the client has slots have been begun after it; touching it then raises
    RuntimeError. Arrays that were taken from it then show the newer batch.

    lengths     [B] uint32, candidates of each request
    label_bits  [C] uint64, where a task has a label_bitmask; else None
    """

    __slots__ = ("_serial", "_tasks", "candidates", "requests", "slot")

    lengths = _Column("uint32", of_batch=True)
    label_bits = _Column("uint64", of_batch=True)

    def __init__(self, slot: Slot, requests: int, candidates: int, serial: int) -> None:
        self.slot, self.requests, self.candidates, self._serial = slot, requests, candidates, serial
        self._tasks: dict[str, TaskColumns] | None = None
        slot.serial = serial
        slot.struct.requests, slot.struct.candidates = requests, candidates

    def __repr__(self) -> str:
        return f"Batch(requests={self.requests}, candidates={self.candidates}, tasks={list(self.names)})"

    @property
    def is_alive(self) -> bool:
        """Whether its slot has not been begun anew, and is there."""
        return self.slot.serial == self._serial

    def check_alive(self) -> None:
        """RuntimeError where it is not alive."""
        if self.slot.serial != self._serial:
            raise RuntimeError("this batch is gone: its buffers have been begun anew")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tasks, in the order of the config."""
        return self.slot.names

    @property
    def tasks(self) -> Mapping[str, TaskColumns]:
        """By name, in the order of the config."""
        if self._tasks is None:
            self._tasks = {name: TaskColumns(self, i) for i, name in enumerate(self.names)}
        return self._tasks

    @property
    def logits(self) -> Any:
        """The matrix [C, sum of K] of layout "rows"; None of "planes". Needs NumPy."""
        self.check_alive()
        if self.slot.form.layout != "rows":
            return None
        full = self.slot.column("matrix", -1, self.slot.form.dtype)
        return None if full is None else full[: self.candidates]

    @logits.setter
    def logits(self, values: Any) -> None:
        column = self.logits
        if column is None:
            raise ValueError('logits: this batch has no matrix: begin it with layout="rows"')
        _columns.fill(column, self.slot.form.dtype, values, "logits")

    @property
    def gradient_scale(self) -> float:
        """Multiplies gradients, not losses; 1 at first."""
        self.check_alive()
        return self.slot.struct.gradient_scale

    @gradient_scale.setter
    def gradient_scale(self, value: float) -> None:
        self.check_alive()
        self.slot.struct.gradient_scale = value

    @property
    def skip_gradient(self) -> bool:
        """Losses alone; False at first."""
        self.check_alive()
        return self.slot.struct.skip_gradient != 0

    @skip_gradient.setter
    def skip_gradient(self, value: bool) -> None:
        self.check_alive()
        self.slot.struct.skip_gradient = value

    def gradient(self, index: int) -> Any:
        """Of the logits of a task, once the call has been answered; read-only."""
        self.check_alive()
        full = self.slot.column("gradient", index, self.slot.form.gradient_dtype)
        if full is None:
            return None
        rows = self.candidates * (self.slot.tasks[index].num_class if not _columns.HAS_NUMPY else 1)
        return full[:rows]
