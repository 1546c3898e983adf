"""What can be copied into a column: NumPy, DLPack, buffers, sequences; each once, and whatever its strides."""

import array
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from lossd_process import ROOT
from ranks import BCE, Ranks

import lossd
from lossd import _columns

ONE_TO_SIX = np.arange(1, 7)


@pytest.fixture(scope="module")
def client(daemon):
    with Ranks(1, BCE, address=daemon.unix) as group:
        yield group[0]


@pytest.mark.parametrize(
    "source",
    [
        ONE_TO_SIX,
        ONE_TO_SIX.astype(np.float64),
        ONE_TO_SIX.astype(np.float16)[:, None],
        np.repeat(ONE_TO_SIX, 2)[::2],
        ONE_TO_SIX[::-1][::-1],
        ONE_TO_SIX.tolist(),
        tuple(ONE_TO_SIX.tolist()),
        array.array("f", ONE_TO_SIX.tolist()),
        memoryview(ONE_TO_SIX.astype(np.float32)),
        memoryview(bytes(range(1, 7))),
        torch.arange(1, 7),
        torch.arange(1.0, 7.0, dtype=torch.bfloat16),
        torch.arange(1.0, 7.0, dtype=torch.float16),
        torch.arange(1.0, 13.0).reshape(6, 2).div(2).ceil()[:, 1],
        torch.arange(1.0, 7.0, requires_grad=True).detach(),
    ],
    ids=lambda s: f"{type(s).__name__}-{getattr(s, 'dtype', '')}",
)
def test_sources(client, source):
    batch = client.batch(1, 6)
    batch.tasks["t"].logits = source
    assert batch.tasks["t"].logits.tolist() == [1, 2, 3, 4, 5, 6]


def test_truth_values_are_labels(client):
    for source in (torch.tensor([True, False]), np.array([True, False]), [True, False]):
        batch = client.batch(1, 2)
        batch.tasks["t"].labels = source
        assert batch.tasks["t"].labels.tolist() == [1, 0]


def test_bfloat16_by_dlpack_stays_what_it_is(client):
    batch = client.batch(1, 3, dtype="bfloat16")
    batch.tasks["t"].logits = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16)
    again = torch.from_numpy(batch.tasks["t"].logits.view(np.int16)).view(torch.bfloat16)
    assert again.tolist() == torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16).tolist()


def test_columns_go_to_torch_without_a_copy(client):
    batch = client.batch(1, 2)
    for tensor in (
        torch.from_numpy(batch.tasks["t"].logits),
        torch.frombuffer(batch.tasks["t"].logits, dtype=torch.float32),
        torch.from_dlpack(batch.tasks["t"].logits),
    ):
        tensor += 1
        assert tensor.data_ptr() == batch.tasks["t"].logits.ctypes.data


class OnAGpu:
    """What a tensor of CUDA says of itself."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self):
        raise AssertionError("asked for memory that can't be read")


def test_memory_of_a_gpu_is_refused(client):
    batch = client.batch(1, 2)
    with pytest.raises(TypeError, match=r"tasks\[0\].logits is in the memory of CUDA 0.*lossd.torch"):
        batch.tasks["t"].logits = OnAGpu()


def test_a_tensor_that_asks_for_its_gradient_is_refused(client):
    with pytest.raises((BufferError, RuntimeError), match="require.? grad"):
        client.batch(1, 2).tasks["t"].logits = torch.zeros(2, requires_grad=True)


@pytest.mark.parametrize("source", ["numpy", "torch", "double"])
def test_a_copy_needs_no_other_memory(client, source):
    """A temporary would be seen: 400 kB a column."""
    values = np.zeros(100000, np.float64 if source == "double" else np.float32)
    values = torch.from_numpy(values) if source == "torch" else values
    column = client.batch(1, 100000).tasks["t"].logits
    _columns.fill(column, "float32", values, "logits")
    tracemalloc.start()
    _columns.fill(column, "float32", values, "logits")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150000  # NumPy converts in blocks of some thousand


WITHOUT_NUMPY = """
import array, sys
sys.modules["numpy"] = None
import lossd
with lossd.Client(sys.argv[1]) as client:
    client.join({"tasks": [{"name": "t", "losses": [{"l2_loss": {}}]}]}, group="plain", rank=0, world_size=1)
    batch = client.batch(1, 3)
    batch.lengths = [3]
    batch.tasks["t"].logits = array.array("f", [1, 2, 3])
    batch.tasks["t"].labels = [1, 0, 0]
    result = client.compute(batch)
    gradient = result.tasks["t"].gradient
    assert [round(3 * g, 5) for g in gradient] == [0, 4, 6] and gradient.readonly, list(gradient)
    assert round(3 * result.loss, 5) == 13
    for wrong, kind in (([1], ValueError), (array.array("d", [1, 2, 3]), TypeError)):
        try:
            batch.tasks["t"].logits = wrong
        except kind:
            continue
        raise AssertionError(wrong)
"""


def test_it_works_without_numpy(daemon):
    subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_NUMPY, daemon.unix],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "client" / "python")},
    )


def test_import_is_quiet_and_loads_neither_torch_nor_the_library():
    code = "import sys, lossd; assert 'torch' not in sys.modules and not lossd._library.load.cache_info().currsize"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python"), "LOSSD_LIBRARY": "/nowhere"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment)
    client = "import lossd; lossd.Client()"
    failed = subprocess.run([sys.executable, "-c", client], env=environment, capture_output=True, text=True)
    assert failed.returncode == 1 and "OSError: liblossd is not found" in failed.stderr and "/nowhere" in failed.stderr


def test_names_of_the_package_are_there():
    assert all(getattr(lossd, name) for name in lossd.__all__)


def test_code_made_of_the_schema_can_be_imported_beside_it(tmp_path):
    (tmp_path / "lossd" / "v1").mkdir(parents=True)
    (tmp_path / "lossd" / "v1" / "loss_pb2.py").write_text("MADE = True")
    paths = os.pathsep.join([str(ROOT / "client" / "python"), str(tmp_path)])
    code = "import lossd; from lossd.v1 import loss_pb2; assert loss_pb2.MADE and lossd.Client"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env={**os.environ, "PYTHONPATH": paths})
