"""Tensors of PyTorch into the columns of a batch, and gradients out of them."""

from __future__ import annotations

import ctypes
from typing import Any

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


def copy_in(batch: Batch, field: str, index: int, kind: str, values: Any, what: str) -> None:
    """
    Copy values, a tensor of any device and number type or whatever torch.as_tensor takes, into a column: once, without
    a tensor between. ValueError of another shape, and where the batch has no such column.
    """
    source = values if isinstance(values, Tensor) else torch.as_tensor(values)
    full = _column(batch.slot, field, index, kind)
    if full is None:
        raise ValueError(f"{what}: the group's config has no use for it")
    rows = batch.requests if field == "lengths" else batch.candidates
    if source.dim() == full.dim() + 1 and source.shape[-1] == 1:
        source = source.squeeze(-1)
    if source.shape[:1] != (rows,) or source.shape[1:] != full.shape[1:]:
        raise ValueError(f"{what} has shape {list(source.shape)}, and not {[rows, *full.shape[1:]]}")
    if kind in ("uint32", "uint64", "int64") and source.dtype.is_floating_point and source.numel():
        raise TypeError(f"{what} is {source.dtype}, and not whole numbers")
    if source.dtype is full.dtype and source.device.type == "cpu" and source.is_contiguous() and full.is_contiguous():
        # What copy_ does, without its preparations.
        ctypes.memmove(full.data_ptr(), source.data_ptr(), source.numel() * FORMATS[kind][0])
    else:
        full[:rows].copy_(source)


def gradient(slot: Slot, field: str, index: int, rows: int) -> Tensor:
    """The gradients of a task, or with "matrix_gradient" of all, in the slot's memory."""
    return _column(slot, field, index, slot.form.gradient_dtype)[:rows]


def _column(slot: Slot, field: str, index: int, kind: str) -> Any:
    """The column at full capacity, or None where there is none."""

    def make() -> Tensor | None:
        place = slot.place(field, index, kind)
        if place is None:
            return None
        flat = torch.frombuffer(place.memory, dtype=DTYPES[kind])
        return flat.as_strided(place.shape, (place.stride, 1)[: len(place.shape)])

    return slot.once(("tensor", field, index), make)
