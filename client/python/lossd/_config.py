"""What lossd.torch has to know of a GroupConfig: ProtoJSON, so that keys may be in snake_case or camelCase."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class TaskFacts(NamedTuple):
    name: str
    num_class: int
    has_bitmask: bool
    has_sessions: bool
    log_scale: float | None  # at first, of a list-wise loss that learns its temperature


class Facts(NamedTuple):
    tasks: tuple[TaskFacts, ...]
    sums_gradients: bool  # GRAD_REDUCE_SUM


def read(config: Mapping[str, Any]) -> Facts:
    """Of a config that the library has checked."""
    tasks = tuple(_task(task) for task in _get(config, "tasks", []))
    return Facts(tasks, _get(config, "grad_reduce", None) in ("GRAD_REDUCE_SUM", 2))


def _get(message: Mapping[str, Any], name: str, default: Any) -> Any:
    """A field under either of its names; null is an absent one."""
    first, *others = name.split("_")
    for key in (name, first + "".join(word.capitalize() for word in others)):
        if message.get(key) is not None:
            return message[key]
    return default


def _task(task: Mapping[str, Any]) -> TaskFacts:
    log_scale = None
    for loss in _get(task, "losses", []):
        listwise = _get(loss, "listwise_rank_loss", None)
        if listwise is not None and _get(listwise, "learnable_temperature", True):
            log_scale = -math.log(float(_get(listwise, "temperature_init", 0.07)))
    return TaskFacts(
        name=_get(task, "name", ""),
        num_class=int(_get(task, "num_class", 1)),
        has_bitmask=_get(task, "label_bitmask", None) is not None,
        has_sessions=_get(task, "lists", None) in ("LISTS_SESSIONS", 2),
        log_scale=log_scale,
    )
