"""Reads what `__dlpack__` gives: memory of the CPU that another library owns, bfloat16 included, without a copy."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

CPU, CUDA_HOST = 1, 3  # memory that the CPU reads in place
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA managed", 14: "oneAPI"}


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

_BFLOAT = 4
_KINDS = {0: "i", 1: "u", 2: "f", _BFLOAT: "u", 6: "b"}  # code of dlpack.h: kind of NumPy


class _Borrowed:
    """What NumPy makes an array of. It keeps the capsule, and with that the memory, as long as the array lives."""

    def __init__(self, interface: dict[str, Any], capsule: object) -> None:
        self.__array_interface__ = interface
        self._capsule = capsule


def _refuse_other_devices(source: Any, what: str) -> None:
    """TypeError where the memory of source is not of the CPU."""
    device, index = source.__dlpack_device__()
    if device not in (CPU, CUDA_HOST):
        name = _DEVICES.get(int(device), f"device type {int(device)}")
        raise TypeError(
            f"{what} is in the memory of {name} {index}, and lossd.Client takes memory of the CPU: "
            "copy it there first (tensor.cpu()), or use lossd.torch, which does"
        )


def read(source: Any, what: str) -> tuple[np.ndarray[Any, Any], bool]:
    """
    source, which has `__dlpack__`, as an array that shares its memory, and whether it is bfloat16: then the array
    holds the bits, as uint16.

    TypeError where the memory is another device's, or the type of its elements is none that NumPy has.
    """
    _refuse_other_devices(source, what)
    capsule = source.__dlpack__()
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    bits = tensor.dtype_bits
    bfloat = tensor.dtype_code == _BFLOAT
    if tensor.dtype_code not in _KINDS or tensor.dtype_lanes != 1 or (bfloat and bits != 16):
        raise TypeError(f"{what} has elements of a type that lossd does not take (DLPack code {tensor.dtype_code})")
    kind, size = _KINDS[tensor.dtype_code], bits // 8
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if math.prod(shape) == 0:
        return np.empty(shape, np.dtype(f"{kind}{size}")), bfloat
    interface: dict[str, Any] = {
        "version": 3,
        "typestr": f"|{kind}{size}" if size == 1 else f"<{kind}{size}",
        "shape": shape,
        "data": (tensor.data + tensor.byte_offset, True),
    }
    if tensor.strides:
        interface["strides"] = tuple(tensor.strides[i] * size for i in range(tensor.ndim))
    return np.asarray(_Borrowed(interface, capsule)), bfloat
