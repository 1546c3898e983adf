"""Finds liblossd and declares its functions. Nothing is loaded before the first use."""

import ctypes
import functools
import os
import sys
import sysconfig
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_uint32, c_uint64, c_void_p
from pathlib import Path

from . import _structs

VERSION = "0.1.0"
SONAME = "liblossd.so.0"
STEP_COUNTS_ON = 2**64 - 1

# The batch and the result go in and out as addresses: their structs are made once for each slot, not for each call.
_FUNCTIONS = {
    "lossd_version": (c_char_p, []),
    "lossd_client_open": (c_uint32, [POINTER(_structs.Options), POINTER(c_void_p), c_void_p]),
    "lossd_client_close": (None, [c_void_p]),
    "lossd_client_transport": (c_uint32, [c_void_p]),
    "lossd_membership_from_environment": (c_uint32, [POINTER(_structs.Membership), c_void_p]),
    "lossd_join": (c_uint32, [c_void_p, POINTER(_structs.Membership), c_void_p]),
    "lossd_leave": (c_uint32, [c_void_p, c_void_p]),
    "lossd_config": (c_char_p, [c_void_p]),
    "lossd_generation": (c_uint64, [c_void_p]),
    "lossd_batch_begin": (c_uint32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "lossd_announce": (c_uint32, [c_void_p, c_uint64, c_uint32, c_uint32, c_void_p]),
    "lossd_submit": (c_uint32, [c_void_p, c_void_p, c_uint64, c_void_p]),
    "lossd_wait": (c_uint32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "lossd_compute": (c_uint32, [c_void_p, c_void_p, c_uint64, c_void_p, c_void_p]),
}


def _candidates() -> Iterator[str]:
    """Where the library may be. LOSSD_LIBRARY is taken at its word: nothing else is tried beside it."""
    named = os.environ.get("LOSSD_LIBRARY")
    if named:
        yield named
        return
    yield SONAME  # as the dynamic linker finds it
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for prefix in dict.fromkeys([sys.prefix, "/usr/local", "/usr"]):
        for folder in dict.fromkeys([f"lib/{multiarch}", "lib", "lib64"]):
            path = Path(prefix, folder, SONAME)
            if path.exists():
                yield str(path)


@functools.cache
def load() -> ctypes.CDLL:
    """
    liblossd with its functions declared. CDLL lets other threads run while a function waits.

    OSError where it is not found, or where its version is one that this package does not know.
    """
    tried = []
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as why:
            tried.append(str(why))
    else:
        raise OSError(f"liblossd is not found ({'; '.join(tried)}): install it, or set LOSSD_LIBRARY to its path")
    for function, (result, arguments) in _FUNCTIONS.items():
        declared = getattr(library, function)
        declared.restype, declared.argtypes = result, arguments
    version = library.lossd_version().decode()
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise OSError(f"{name} is version {version}, and this package is for {VERSION}")
    return library
