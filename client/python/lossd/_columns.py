"""
Columns of a batch: views of the memory that the library has made, and one copy from the caller's into it.

With NumPy a view is an array. Without it a view is a memoryview, which takes buffers of the same type, and sequences.
"""

from __future__ import annotations

import array
import ctypes
from typing import Any

try:
    import numpy as np
except ImportError:  # all but conversions and strides works without it
    np = None  # type: ignore[assignment]

if np is not None:
    from . import _dlpack

HAS_NUMPY = np is not None

# Types of elements: bytes, format of memoryview and array, type of NumPy. bfloat16 is bits in both.
FORMATS = {
    "float32": (4, "f"),
    "float16": (2, "e"),
    "bfloat16": (2, "H"),
    "uint32": (4, "I"),
    "uint64": (8, "Q"),
    "int64": (8, "q"),
}
_WHOLE = {"uint32", "uint64", "int64"}


def block(address: int, size_bytes: int, owner: object) -> ctypes.Array[ctypes.c_ubyte]:
    """Memory at an address as an object with the buffer protocol. Whatever is made of it keeps owner alive."""
    memory = (ctypes.c_ubyte * size_bytes).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return memory


def view(
    memory: ctypes.Array[ctypes.c_ubyte], shape: tuple[int, ...], stride: int, *, kind: str, writable: bool
) -> Any:
    """
    memory as a column [C] or [C, K]; row c begins stride elements behind row c - 1.

    Without NumPy a column whose rows are not adjacent can't be shown: NotImplementedError.
    """
    size, letter = FORMATS[kind]
    width = shape[1] if len(shape) > 1 else 1
    if np is None:
        if stride != width:
            raise NotImplementedError("logits in rows that several tasks share need NumPy")
        flat = memoryview(memory).cast("B").cast(letter)
        return flat if writable else flat.toreadonly()
    dtype = np.dtype(np.uint16 if kind == "bfloat16" else kind)
    numbers: Any = np.ndarray(shape, dtype, memory, strides=(stride * size, size)[: len(shape)])  # type: ignore[arg-type]
    numbers.flags.writeable = writable
    return numbers


def fill(column: Any, kind: str, values: Any, what: str) -> None:
    """
    Copy values into a column, once, converting on the way.

    values   an array, a tensor of the CPU, whatever has `__dlpack__`, the buffer protocol or is a sequence; of the
             column's shape, or [C, 1] for [C]
    what     what it is called in errors

    ValueError of another shape, or of values that the column's type can't hold; TypeError of memory of another
    device, and where bits and numbers of bfloat16 would be confused.
    """
    if np is None:
        _fill_plain(column, kind, values, what)
        return
    source, bfloat = _array(values, what)
    if bfloat and kind == "float32":  # its upper half
        source = (source.astype(np.uint32) << 16).view(np.float32)
    elif bfloat != (kind == "bfloat16") and not (kind == "bfloat16" and source.dtype == np.uint16):
        raise TypeError(f"{what} is {'bfloat16' if bfloat else source.dtype}, and the column is {kind}")
    if source.ndim == column.ndim + 1 and source.shape[-1] == 1:
        source = source[..., 0]
    if source.shape != column.shape:
        raise ValueError(f"{what} has shape {list(source.shape)}, and not {list(column.shape)}")
    _check_values(source, kind, what)
    np.copyto(column, source, casting="unsafe")


def _array(values: Any, what: str) -> tuple[Any, bool]:
    """values as an array that shares memory where that can be, and whether it has the bits of bfloat16."""
    if isinstance(values, np.ndarray):
        return values, False
    if hasattr(values, "__dlpack__"):
        try:
            return _dlpack.read(values, what)
        except (BufferError, RuntimeError):  # of a type that it does not export, as bool of some versions of torch
            if not hasattr(values, "__array__"):
                raise
    return np.asarray(values), False


def _check_values(source: Any, kind: str, what: str) -> None:
    if source.dtype.kind not in "biuf":
        raise TypeError(f"{what} is {source.dtype}, and not numbers")
    if kind not in _WHOLE:
        return
    if source.dtype.kind == "f" and source.size:
        raise TypeError(f"{what} is {source.dtype}, and not whole numbers")
    if kind == "uint32" and source.size and not (0 <= int(source.min()) and int(source.max()) < 2**32):
        raise ValueError(f"{what} has values outside of 0 to 2^32 - 1")


def _fill_plain(column: memoryview, kind: str, values: Any, what: str) -> None:
    letter = FORMATS[kind][1]
    try:
        source = memoryview(values)
    except TypeError:
        source = memoryview(array.array(letter, values))
    if source.ndim > 1:
        source = source.cast("B").cast(source.format)  # type: ignore[call-overload]
    if len(source) != len(column):
        raise ValueError(f"{what} has {len(source)} values, and not {len(column)}")
    if source.format != column.format:
        raise TypeError(f"{what} has the type {source.format!r} of Python's struct, and not {column.format!r}")
    column[:] = source
