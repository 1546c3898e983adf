"""
lossd for training processes: join a group, fill the buffers of a batch, get its losses and gradients.

    with lossd.Client() as client:          # LOSSD_ADDR
        client.join(config)                 # torchrun's RANK, WORLD_SIZE, ...
        for step, (lengths, logits, labels) in enumerate(batches):
            batch = client.batch(len(lengths), len(logits))
            batch.lengths = lengths
            batch.tasks["click"].logits = logits
            batch.tasks["click"].labels = labels
            result = client.compute(batch, step)
            result.loss, result.tasks["click"].gradient

A step may wait for the other ranks of the group; the GIL is free meanwhile. `lossd.torch` makes a loss function for
PyTorch of it. The package is ctypes over liblossd: LOSSD_LIBRARY names that where it is not installed.
"""

import pkgutil

from ._library import VERSION as __version__
from .batch import Batch, TaskColumns
from .client import Client
from .errors import Error, PeerError
from .result import Counts, Result, TaskResult, Term

__all__ = [
    "Batch",
    "Client",
    "Counts",
    "Error",
    "PeerError",
    "Result",
    "TaskColumns",
    "TaskResult",
    "Term",
    "__version__",
]

# What protoc makes of the schema is a package lossd.v1: it may lie in another folder of sys.path, and be used beside.
__path__ = pkgutil.extend_path(__path__, __name__)
