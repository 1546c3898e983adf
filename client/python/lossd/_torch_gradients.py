"""From the answer of a step to the gradients of its inputs, in the backward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ._tensors import gradient
from .batch import Slot


class Ranks(NamedTuple):
    """Over whom gradients of temperatures are averaged."""

    world_size: int
    process_group: Any  # None: the default one

    def mean(self, values: list[float]) -> list[float]:
        """
        The mean over ranks where torch.distributed is in use. All of them come here, in the same order.

        RuntimeError where the process group is not of the ranks of the lossd group.
        """
        if self.world_size == 1 or not (dist.is_available() and dist.is_initialized()):
            return values
        size = dist.get_world_size(self.process_group)
        if size != self.world_size:
            raise RuntimeError(
                f"the process group has {size} ranks, and the lossd group {self.world_size}: name the one whose ranks "
                "average their gradients with process_group"
            )
        on_gpu = dist.get_backend(self.process_group) == "nccl"
        total = torch.tensor(values, dtype=torch.float64, device="cuda" if on_gpu else "cpu")
        dist.all_reduce(total, group=self.process_group)
        return [value / size for value in total.tolist()]


class Answer:
    """
    What a step was answered with. Gradients stay in the slot's memory until the backward pass, or until the slot is
    needed for another batch: then they are copied.

    fields  of Slot.place, with their task, one for each tensor of logits
    """

    def __init__(self, loss: float, slot: Slot, rows: int, fields: list[tuple[str, int]]) -> None:
        self.loss, self.refused = loss, False
        self.log_scale_gradients: list[float] = []
        self._slot, self._rows, self._fields = slot, rows, fields
        self._kept: list[Tensor] | None = None

    def gradients(self) -> list[Tensor]:
        if self._kept is not None:
            return self._kept
        return [gradient(self._slot, field, index, self._rows) for field, index in self._fields]

    def keep(self) -> None:
        """Have gradients that outlive the slot."""
        if self._kept is None:
            self._kept = [] if self.refused else [tensor.clone() for tensor in self.gradients()]


class Loss(torch.autograd.Function):
    """
    apply(answer, ranks, number of log scales, *log scales, *logits): the loss, whose gradients lossd has computed.

    A refused step has no gradients: they are left undefined on the way back, which counts as zero everywhere, while
    zeros would become NaN where the batch itself has NaN.
    """

    @staticmethod
    def forward(ctx: Any, answer: Answer, ranks: Ranks, num_log_scales: int, *inputs: Tensor) -> Tensor:
        ctx.answer, ctx.ranks, ctx.num_log_scales = answer, ranks, num_log_scales
        ctx.inputs = [(tensor.shape, tensor.dtype, tensor.device) for tensor in inputs]
        logits = inputs[num_log_scales:]
        dtype = torch.float64 if any(tensor.dtype is torch.float64 for tensor in logits) else torch.float32
        return torch.full((), answer.loss, dtype=dtype, device=logits[0].device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        answer, count, needed = ctx.answer, ctx.num_log_scales, ctx.needs_input_grad[3:]
        backs: list[Tensor | None] = [None] * len(needed)
        if any(needed[:count]):
            means = ctx.ranks.mean(answer.log_scale_gradients)
            for i, (mean, (shape, dtype, device)) in enumerate(zip(means, ctx.inputs)):
                backs[i] = (mean * grad_output.to(device, torch.float64)).to(dtype).expand(shape) if needed[i] else None
        if not answer.refused:
            for i, own in enumerate(answer.gradients(), start=count):
                if needed[i]:
                    backs[i] = _scaled(own, grad_output, *ctx.inputs[i])
        return (None, None, None, *backs)


def _scaled(own: Tensor, by: Tensor, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """
    own * by as the gradient of an input. The product is rounded to the input's type once, last: a loss scale is there
    to keep small gradients from vanishing in halves.
    """
    own = own.to(device).view(shape)
    if dtype is torch.float64:
        return own.to(dtype) * by
    out = torch.empty(shape, dtype=dtype, device=device)
    return torch.mul(own, by, out=out)
