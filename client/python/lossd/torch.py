"""
lossd as a loss function of PyTorch.

    step = lossd.torch.RankingLoss(config)             # joins the group, by torchrun's environment
    for features, labels, lengths in batches:
        optimizer.zero_grad()
        loss = step(model(features), labels, lengths)
        loss.backward()                                # feeds the gradients that lossd has computed
        optimizer.step()
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from . import _config
from ._tensors import copy_in, type_of_logits
from ._torch_gradients import Answer, Loss, Ranks
from .batch import Batch
from .client import Client
from .errors import Error
from .result import Result

_F = TypeVar("_F", bound=Callable[..., Any])


def _not_compiled(function: _F) -> _F:
    """torch.compile runs it as it is. Where nobody compiles, the compiler, whose import takes long, is not loaded."""
    disabled: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        compiler = sys.modules.get("torch._dynamo")
        if compiler is None:
            return function(*args, **named)
        if not disabled:
            disabled.append(compiler.disable(function))
        return disabled[0](*args, **named)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]  # as the compiler marks it: it breaks its graph here
    return run  # type: ignore[return-value]


def is_nonfinite(error: Error) -> bool:
    """Whether a step was refused since this rank's logits, or those of another one, are NaN or infinite."""
    reason = error.reason
    if reason == "STEP_REJECTED_BY_PEER":
        reason = error.metadata.get("peer_reason", "")
    return reason == "NONFINITE_LOGITS"


class _Session:
    """What copies of a module share: the rank is one, however often a model is copied."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.next_step = 0
        self.refused = False
        self.result: Result | None = None
        self.answers: dict[int, weakref.ref[Answer]] = {}  # that may lie in a slot, by its address

    def __deepcopy__(self, memo: object) -> _Session:
        return self

    def begin(self, requests: int, candidates: int, dtype: str, layout: str, weighted: list[str]) -> Batch:
        """A batch. Answers that wait for their backward pass keep their gradients where it takes their memory."""
        form = self.client.form(dtype=dtype, layout=layout, weights=weighted)
        if not self.client.has_room(requests, candidates, form):
            self.keep(list(self.answers))
        batch = self.client.batch_of(form, requests, candidates)
        self.keep([batch.slot.address])
        return batch

    def keep(self, addresses: list[int]) -> None:
        for address in addresses:
            reference = self.answers.pop(address, None)
            answer = reference() if reference is not None else None
            if answer is not None:
                answer.keep()


class RankingLoss(torch.nn.Module):
    """
    The losses of a group as one loss function: `loss = step(logits, labels, lengths)`.

    config         a GroupConfig as a dict or as JSON; None: of a group that the daemon's file declares
    client         a lossd.Client that has not joined yet, as lossd.Client("unix:/run/lossd/lossd.sock", timeout=60) for
                   another address, transport or timeout; None: a new one, lossd.Client(), of LOSSD_ADDR
    on_refused     what a step does that is refused since logits are NaN or infinite, this rank's or another one's.
                   "raise": lossd.Error. "zero": loss 0 without gradients, and all ranks go on, since all see the step
                   refused. `refused` then says so, for a loop that leaves out optimizer.step(), or loss.backward(),
                   too: FSDP takes no backward pass without gradients, as DDP does. After an announcement, which is
                   not for use beside it with FSDP, it concerns the rank with such logits alone: the others' gradients
                   stand, and those of this rank are missing from the mean. Whatever else is wrong raises.
    process_group  of torch.distributed, whose ranks are the group's; None: the default one
    membership     what Client.join takes: group, rank, world_size, local_world_size, nnodes, node_rank, master_addr,
                   instance; by default what torchrun's environment says. Jobs that share a daemon need a group each:
                   group="job-17". Where RANK is not set and torch.distributed is initialized, rank and world_size
                   are its

    It joins the group when it is made. All ranks call it equally often, a rank without data with empty tensors.

    Gradients are for a trainer that averages them over ranks, as DDP and FSDP do: their mean is the gradient of the
    whole global batch. A config with GRAD_REDUCE_SUM is refused (ValueError). A scale of the loss, as GradScaler's,
    comes back by loss.backward(), so that gradient_scale of lossd.Client is not for use beside it.

    Learned temperatures are parameters, `log_scale[name]`: ln(1 / temperature) of each list-wise loss that learns it.
    Their gradients are averaged over process_group in the backward pass, so that this module need not be inside of
    DDP's; where it is, the mean of equal gradients is taken once more.

    Without gradients (torch.no_grad) only losses are computed; it is a step as any other.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | None = None,
        client: Client | None = None,
        *,
        on_refused: str = "raise",
        process_group: Any = None,
        **membership: Any,
    ) -> None:
        super().__init__()
        if on_refused not in ("raise", "zero"):
            raise ValueError(f'on_refused is {on_refused!r}, and neither "raise" nor "zero"')
        if "RANK" not in os.environ and dist.is_available() and dist.is_initialized():
            membership.setdefault("rank", dist.get_rank(process_group))
            membership.setdefault("world_size", dist.get_world_size(process_group))
        client = Client() if client is None else client
        client.join(config, **membership)
        try:
            facts = _read(client.config or {})  # which the library has checked
        except ValueError:
            client.leave()
            raise
        self._session = _Session(client)
        self._ranks = Ranks(client.world_size, process_group)
        self.on_refused = on_refused
        self._tasks = facts.tasks
        self._names = [task.name for task in facts.tasks]
        self._width = sum(task.num_class for task in facts.tasks)
        self._learned = {t.name: _parameter(t.name) for t in facts.tasks if t.log_scale is not None}
        for task in facts.tasks:
            if task.log_scale is not None:
                parameter = torch.nn.Parameter(torch.tensor([task.log_scale]))
                self.register_parameter(self._learned[task.name], parameter)

    @property
    def client(self) -> Client:
        return self._session.client

    @property
    def next_step(self) -> int:
        """The number of the step to come. Counts on; all ranks have the same."""
        return self._session.next_step

    @property
    def refused(self) -> bool:
        """Whether the last step was."""
        return self._session.refused

    @property
    def result(self) -> Result | None:
        """Of the last step, until the client's slots have gone round; None where it was refused."""
        return self._session.result

    @property
    def log_scale(self) -> dict[str, torch.nn.Parameter]:
        """ln(1 / temperature) by task, [1] each, of those that learn it."""
        return {name: self._parameters[key] for name, key in self._learned.items()}  # type: ignore[misc]

    @_not_compiled
    def forward(
        self,
        logits: Tensor | Mapping[str, Tensor],
        labels: Any = None,
        lengths: Any = (),
        *,
        label_bits: Any = None,
        weights: Any = None,
        sessions: Any = None,
        task_space: Any = None,
        step: int | None = None,
    ) -> Tensor:
        """
        The loss of this rank's batch, a scalar. Its mean over ranks is the loss of the global batch.

        logits      [C, sum of num_class] in the order of the config, [C] of a single task, or by name: [C] or [C, K]
        labels      [C, tasks], [C] of a single task, or by name; class indices where a task has several. Of a config
                    whose tasks all have a label_bitmask: the column of bits, [C]
        lengths     [B] candidates of each request
        label_bits  the column of bits, [C], where only some tasks have a label_bitmask
        weights, sessions, task_space
                    [C] by name of the task; one tensor of a single task, or of sessions that all tasks share
        step        its number, where that should not count on

        Whatever torch.as_tensor takes goes for all but logits. Waits for the other ranks. Fails as Client.compute;
        then the step is not spent, and the same call is the same step again.
        """
        needs_gradient = torch.is_grad_enabled()
        log_scales = self.log_scale
        with torch.no_grad():
            tensors = self._tensors(logits)
            inputs = (*log_scales.values(), *tensors)
            needs_gradient = needs_gradient and any(tensor.requires_grad for tensor in inputs)
            weights = self._by_name(weights, self._names, "weights")
            batch = self._session.begin(
                len(lengths), len(tensors[0]), type_of_logits(tensors), self._layout(logits), list(weights)
            )
            batch.skip_gradient = not needs_gradient
            copy_in(batch, "lengths", -1, "uint32", lengths, "lengths")
            fields = self._fill_logits(batch, logits, tensors)
            self._fill_labels(batch, labels, label_bits)
            with_sessions = [task.name for task in self._tasks if task.has_sessions]
            self._fill(batch, "weights", "float32", weights)
            self._fill(batch, "sessions", "int64", self._by_name(sessions, with_sessions, "sessions", shared=True))
            self._fill(batch, "task_space", "float32", self._by_name(task_space, self._names, "task_space"))
            for name, parameter in log_scales.items():
                batch.tasks[name].log_scale = parameter.item()
            answer = self._compute(batch, fields, self.next_step if step is None else step)
        return Loss.apply(answer, self._ranks, len(log_scales), *inputs)

    def announce(self, lengths: Any, *, step: int | None = None) -> None:
        """
        Promise the lengths of the step to come before the forward pass of the model, so that the all-reduce is over
        when the logits are there. For batches without weights and ignored rows.
        """
        total = int(torch.as_tensor(lengths).sum()) if len(lengths) else 0
        self.client.announce(self.next_step if step is None else step, len(lengths), total)

    def leave(self) -> None:
        """Leave the group for good, and let go of the daemon. Backward passes that are still to come have theirs."""
        self._session.keep(list(self._session.answers))
        self.client.leave()
        self.client.close()

    def get_extra_state(self) -> dict[str, int]:
        return {"next_step": self.next_step}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Steps of a group only rise: an earlier state does not take back those that were done since."""
        self._session.next_step = max(self._session.next_step, state["next_step"])

    # Inside.

    def _layout(self, logits: Tensor | Mapping[str, Tensor]) -> str:
        return "planes" if isinstance(logits, Mapping) else "rows"

    def _tensors(self, logits: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """One for each task, or the matrix of all of them."""
        if isinstance(logits, Mapping):
            given = self._by_name(logits, self._names, "logits")
            missing = [name for name in self._names if name not in given]
            if missing:
                raise ValueError(f"logits: those of task {missing[0]!r} are missing")
            return tuple(given[name] for name in self._names)
        columns = logits.shape[1] if logits.dim() == 2 else 1 if logits.dim() == 1 else None
        if columns != self._width:
            raise ValueError(f"logits has shape {list(logits.shape)}, and not [C, {self._width}]")
        return (logits,)

    def _fill_logits(self, batch: Batch, logits: Any, tensors: tuple[Tensor, ...]) -> list[tuple[str, int]]:
        kind = batch.slot.form.dtype
        if not isinstance(logits, Mapping):
            copy_in(batch, "matrix", -1, kind, tensors[0].view(-1, self._width), "logits")
            return [("matrix_gradient", -1)]
        for i, tensor in enumerate(tensors):
            copy_in(batch, "logits", i, kind, tensor, f"logits[{self._names[i]!r}]")
        return [("gradient", i) for i in range(len(tensors))]

    def _fill_labels(self, batch: Batch, labels: Any, label_bits: Any) -> None:
        labelled = [task.name for task in self._tasks if not task.has_bitmask]
        if not labelled and label_bits is None:
            labels, label_bits = None, labels
        if label_bits is not None:
            copy_in(batch, "label_bits", -1, "uint64", label_bits, "label_bits")
        if not isinstance(labels, Mapping) and labels is not None:
            columns = torch.as_tensor(labels)
            columns = columns.unsqueeze(1) if columns.dim() == 1 else columns
            if columns.dim() != 2 or columns.shape[1] != len(labelled):
                raise ValueError(f"labels has shape {list(columns.shape)}, and not [C, {len(labelled)}]")
            labels = {name: columns[:, i] for i, name in enumerate(labelled)}
        missing = [name for name in labelled if name not in (labels or {})]
        if missing and batch.candidates:
            raise ValueError(f"labels: those of task {missing[0]!r} are missing")
        self._fill(batch, "labels", "float32", labels or {})

    def _by_name(self, values: Any, names: list[str], what: str, shared: bool = False) -> dict[str, Any]:
        """Columns by name of the task. One tensor is that of a single task, or where they share it of each of names."""
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            if len(names) != 1 and not shared:
                raise ValueError(f"{what}: the config has {len(names)} tasks: say which by a dict")
            return dict.fromkeys(names, values)
        unknown = [name for name in values if name not in self._names]
        if unknown:
            raise ValueError(f"{what}: the config has no task {unknown[0]!r}: it has {', '.join(self._names)}")
        return dict(values)

    def _fill(self, batch: Batch, field: str, kind: str, columns: Mapping[str, Any]) -> None:
        for name, values in columns.items():
            copy_in(batch, field, batch.slot.indices[name], kind, values, f"{field}[{name!r}]")

    def _compute(self, batch: Batch, fields: list[tuple[str, int]], step: int) -> Answer:
        session = self._session
        try:
            result = session.client.compute(batch, step)
        except Error as why:
            if self.on_refused == "raise" or not is_nonfinite(why):
                raise
            result = None
        session.next_step, session.result, session.refused = step + 1, result, result is None
        answer = Answer(0.0 if result is None else result.loss, batch.slot, batch.candidates, fields)
        answer.refused = session.refused
        for name in self._learned:
            own = None if result is None else result.tasks[name].log_scale_gradient
            answer.log_scale_gradients.append(own or 0.0)
        session.answers[batch.slot.address] = weakref.ref(answer)
        return answer


def _read(config: Mapping[str, Any]) -> _config.Facts:
    facts = _config.read(config)
    if facts.sums_gradients:
        raise ValueError("grad_reduce is GRAD_REDUCE_SUM, and DDP and FSDP take the mean over ranks")
    return facts


def _parameter(task: str) -> str:
    """The name of a task's parameter; names of tasks may have dots, and those of parameters not."""
    return "log_scale/" + task.replace(".", "/")
