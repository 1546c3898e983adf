"""Tensors of PyTorch into the columns of a batch, and gradients out of them."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ._columns import FORMATS
from .batch import Batch, Slot

# Types of columns as PyTorch has them: what it has no unsigned integers for is bits.
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "uint32": torch.int32,
    "uint64": torch.int64,
    "int64": torch.int64,
}
_HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


def type_of_logits(tensors: tuple[Tensor, ...]) -> str:
    """Halves stay what they are where all are alike; everything else becomes float32."""
    kinds = {_HALVES.get(tensor.dtype, "float32") for tensor in tensors}
    return kinds.pop() if len(kinds) == 1 else "float32"


class Column(NamedTuple):
    """A column of a slot at full capacity."""

    tensor: Tensor  # [capacity], or [capacity, K]
    dtype: torch.dtype
    address: int
    row_shape: torch.Size  # [] or [K]
    row_bytes: int
    is_whole: bool  # rows are adjacent


def copy_in(batch: Batch, field: str, index: int, kind: str, values: Any, what: str) -> None:
    """
    Copy values, a tensor of any device and number type or whatever torch.as_tensor takes, into a column: once, without
    a tensor between. ValueError of another shape, and where the batch has no such column.
    """
    column = _column(batch.slot, field, index, kind)
    if column is None:
        raise ValueError(f"{what}: the group's config has no use for it")
    rows = batch.requests if field == "lengths" else batch.candidates
    source = values if isinstance(values, Tensor) else torch.as_tensor(values)
    shape = (rows, *column.row_shape)
    if source.shape != shape:
        if source.shape != (*shape, 1):
            raise ValueError(f"{what} has shape {list(source.shape)}, and not {list(shape)}")
        source = source.squeeze(-1)
    if source.dtype is column.dtype and source.device.type == "cpu" and column.is_whole and source.is_contiguous():
        # What copy_ does, without its preparations.
        ctypes.memmove(column.address, source.data_ptr(), rows * column.row_bytes)
        return
    if source.is_floating_point() and kind in ("uint32", "uint64", "int64") and rows:
        raise TypeError(f"{what} is {source.dtype}, and not whole numbers")
    column.tensor[:rows].copy_(source)


def gradient(slot: Slot, field: str, index: int, rows: int) -> Tensor:
    """The gradients of a task, or with "matrix_gradient" of all, in the slot's memory."""
    column = _column(slot, field, index, slot.form.gradient_dtype)
    assert column is not None
    return column.tensor[:rows]


def _column(slot: Slot, field: str, index: int, kind: str) -> Column | None:
    """None where the batch has no such column."""

    def make() -> Column | None:
        place = slot.place(field, index, kind)
        if place is None:
            return None
        flat = torch.frombuffer(place.memory, dtype=DTYPES[kind])
        tensor = flat.as_strided(place.shape, (place.stride, 1)[: len(place.shape)])
        row_bytes = place.stride * FORMATS[kind][0]
        return Column(tensor, tensor.dtype, tensor.data_ptr(), tensor.shape[1:], row_bytes, tensor.is_contiguous())

    return cast("Column | None", slot.once(("tensor", field, index), make))
