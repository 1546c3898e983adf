"""One rank of a group: joins it, makes batches, and has them computed."""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from . import _interrupt, _library, _structs
from ._handle import Handle, Turn
from ._numbers import TRANSPORTS, milliseconds, one_of, round_up
from ._watch import JOIN, Watch
from .batch import LAYOUTS, TYPES, Batch, Form, Slot
from .errors import Error, from_failure
from .result import Result


class Client:
    """
    A trainer process as one rank of a group.

    address      "unix:/path", "http://host:port", "https://host:port" or "host:port"; None: LOSSD_ADDR, else
                 127.0.0.1:7430
    transport    "auto": shared memory where address is a Unix socket and the daemon offers it, else "http_protobuf".
                 Or "shared_memory", "http_protobuf", "http_json": that or nothing
    timeout      of each call that waits, in seconds; None: LOSSD_TIMEOUT_MS, else none but the group's, which is 120 s
                 (step_timeout_ms), and 600 s in its first step
    reconnect    how long to try to reach a daemon that is away, in seconds; None: 30
    num_slots    batches that may be in use at once, 1 to 15
    no_spin      sleep at once where there is no answer yet, for fewer cores than processes
    ca_file      PEM, for https; None: LOSSD_CA_FILE, else the system's
    max_requests, max_candidates
                 buffers are made for batches of this size at first; larger ones make new buffers

    One thread at a time uses a client and its batches (RuntimeError), other threads run while it waits. What the
    handler of a signal raises, as KeyboardInterrupt, comes out of the call within a moment; a batch stays submitted,
    and wait may be called again. Behind a fork only the process that made it may use it (RuntimeError), and the arrays
    that show its memory, which may not be there in the child.
    Where it waits long it says so, as a warning of the logger "lossd": joining for 2 s, or in a step for 10 s.
    As a context manager it leaves the group and closes at the end; at an exception it closes only, so that the others
    see this rank dead at once.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        transport: str = "auto",
        timeout: float | None = None,
        reconnect: float | None = None,
        num_slots: int = 2,
        no_spin: bool = False,
        ca_file: str | None = None,
        max_requests: int = 0,
        max_candidates: int = 0,
    ) -> None:
        self._library = _library.load()
        self._failure = _structs.Failure()
        self._failure_at = ctypes.addressof(self._failure)
        self._raised: list[BaseException] = []  # by handlers of signals, in calls
        self._options = _structs.Options(
            struct_bytes=ctypes.sizeof(_structs.Options),
            address=address.encode() if address is not None else None,
            ca_file=ca_file.encode() if ca_file is not None else None,
            transport=one_of(TRANSPORTS, transport, "transport"),
            num_slots=num_slots,
            timeout_ms=milliseconds(timeout),
            reconnect_ms=milliseconds(reconnect),
            no_spin=no_spin,
            max_requests=max_requests,
            max_candidates=max_candidates,
        )
        self._watch = Watch(address, timeout, reconnect)
        self._turn = Turn(self._open())
        self._num_slots = num_slots
        self._out = ctypes.c_void_p()  # of functions that give a pointer
        self._out_at = ctypes.addressof(self._out)
        self._shape = _structs.Shape()
        self._shape_at = ctypes.addressof(self._shape)
        self.group, self.rank, self.world_size = "", 0, 0  # as joined
        self._joined, self._uses = False, transport
        self._names: tuple[str, ...] | None = None
        self._serial = 0
        self._results: dict[int, _structs.Result] = {}
        self._slots: dict[int, Slot] = {}
        self._blocks: list[weakref.ref[Any]] = []
        self._forms: list[Form] = []  # for which buffers have been made at the capacity
        self._requests, self._candidates = max_requests or 16, max_candidates or 64  # the capacity

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: object, trace: TracebackType | None) -> None:
        if kind is None and self._joined:
            self.leave()
        self.close()

    def __repr__(self) -> str:
        joined = f"group={self.group!r}, rank={self.rank}, world_size={self.world_size}, " if self._joined else ""
        state = "closed" if self.closed else f"{joined}transport={self._uses!r}"
        return f"Client(address={self._watch.address!r}, {state})"

    def __reduce__(self) -> Any:
        raise TypeError("a lossd.Client is one rank of one process: it can't be pickled or copied")

    # Membership.

    def join(
        self,
        config: Mapping[str, Any] | str | None = None,
        *,
        group: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        local_world_size: int | None = None,
        nnodes: int | None = None,
        node_rank: int | None = None,
        master_addr: str | None = None,
        instance: int = 0,
    ) -> int:
        """
        Join the group; the generation that this rank is a member of. Does not wait for other ranks.

        config  a GroupConfig as a dict or as JSON; None: of a group that the daemon's file declares
        What is None comes from the environment that torchrun sets: RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
        GROUP_WORLD_SIZE, MASTER_ADDR, and TORCHELASTIC_RUN_ID for the group ("default" where it is absent). With
        world_size given, all of its ranks are on this node where nothing else is said.
        """
        member = _structs.Membership()
        if world_size is None or rank is None or group is None:
            self._check(self._library.lossd_membership_from_environment(member, self._failure_at))
        if world_size is not None:
            member.local_world_size, member.nnodes, member.node_rank = world_size, 1, 0
        given = {
            "group": group.encode() if group is not None else None,
            "rank": rank,
            "world_size": world_size,
            "local_world_size": local_world_size,
            "nnodes": nnodes,
            "node_rank": node_rank,
            "master_addr": master_addr.encode() if master_addr is not None else None,
        }
        for name, value in given.items():
            if value is not None:
                setattr(member, name, value)
        member.instance = instance
        if config is not None:
            member.config = (config if isinstance(config, str) else json.dumps(config)).encode()
        if not self._joined:
            self._renew()
        self._watch.rank = member.rank
        with self._turn as pointer:
            self._watch.begin(JOIN)
            self._check(self._library.lossd_join(pointer, member, self._failure_at))
        self._forms.clear()
        self._names, self._joined, self._uses = None, True, self.transport
        self.group, self.rank, self.world_size = member.group.decode(), member.rank, member.world_size
        return self.generation

    def leave(self) -> None:
        """
        Leave the group for good: the next step of the others ends with RANK_LEFT. Then join may be called again.
        Batches and results stay to be read until then, or until close; arrays for as long as they are held.
        """
        with self._turn as pointer:
            self._watch.begin(None)
            self._check(self._library.lossd_leave(pointer, self._failure_at))
        self._joined = False

    def close(self) -> None:
        """
        Let go of the daemon. Does not leave the group: the others then see this rank dead. Arrays that show memory of
        the client keep it, and with it the connection, until they are gone. May be called twice.
        """
        self._retire()
        self._turn.handle, self._joined = None, False

    @property
    def closed(self) -> bool:
        return self._turn.handle is None

    @property
    def config(self) -> dict[str, Any] | None:
        """The GroupConfig of the group, in ProtoJSON with all defaults filled in; None before joining."""
        with self._turn as pointer:
            config = self._library.lossd_config(pointer)
        return None if config is None else json.loads(config)

    @property
    def generation(self) -> int:
        """Of the group, as joined; 0 before."""
        with self._turn as pointer:
            return self._library.lossd_generation(pointer)

    @property
    def transport(self) -> str:
        """What is in use, once joined; before that, what was asked for."""
        with self._turn as pointer:
            return TRANSPORTS[self._library.lossd_client_transport(pointer)]

    # Batches.

    def batch(
        self,
        requests: int,
        candidates: int,
        *,
        dtype: str = "float32",
        gradient_dtype: str = "float32",
        layout: str = "planes",
        weights: Iterable[str] = (),
    ) -> Batch:
        """
        Buffers for B requests with C candidates together. They stay as they are until num_slots more have been begun.

        dtype           of logits: "float32", "float16", "bfloat16"
        gradient_dtype  "float32", or dtype
        layout          "planes": logits of each task by themselves. "rows": one matrix [C, sum of num_class]
        weights         names of the tasks that have sample weights

        BufferError where a larger batch than any before needs new buffers while arrays that show the old ones are in
        use: delete or copy those, or open the client with max_requests and max_candidates.
        """
        form = self.form(dtype=dtype, gradient_dtype=gradient_dtype, layout=layout, weights=weights)
        return self.batch_of(form, requests, candidates)

    def form(
        self,
        *,
        dtype: str = "float32",
        gradient_dtype: str = "float32",
        layout: str = "planes",
        weights: Iterable[str] = (),
    ) -> Form:
        """What batches of a kind have in common: the keywords of batch."""
        return Form(dtype, gradient_dtype, layout, self._weighted_tasks(weights))

    def batch_of(self, form: Form, requests: int, candidates: int) -> Batch:
        """batch, with its keywords looked up before."""
        if requests < 0 or candidates < 0:
            raise ValueError(f"a batch of {requests} requests and {candidates} candidates")
        has_room = self.has_room(requests, candidates, form)
        slot = self._begin(form) if has_room else self._enlarge(form, requests, candidates)
        self._serial += 1
        return Batch(slot, requests, candidates, self._serial)

    # Calls.

    def announce(self, step: int, requests: int, candidates: int) -> None:
        """
        Promise the counts of the batch of a step before it is there, so that the all-reduce is over when it comes.
        Does not wait for other ranks.
        """
        with self._turn as pointer:
            self._watch.begin(None)
            self._check(self._library.lossd_announce(pointer, step, requests, candidates, self._failure_at))

    def compute(self, batch: Batch, step: int | None = None) -> Result:
        """
        Hand over a batch that was filled, and wait for its answer. step may be None in a group of one rank: it then
        counts on. lossd.Error says what went wrong; where another rank did, it is a lossd.PeerError.
        """
        batch.check_alive()
        number = _library.STEP_COUNTS_ON if step is None else step
        with self._turn as pointer:
            batch.slot.step = number
            self._watch.begin(number)
            code = self._library.lossd_compute(pointer, batch.slot.address, number, self._out_at, self._failure_at)
        return self._answer(code, batch)

    def submit(self, batch: Batch, step: int | None = None) -> None:
        """Hand over a batch that was filled, and do not wait. Its buffers must not be written until wait."""
        batch.check_alive()
        number = _library.STEP_COUNTS_ON if step is None else step
        with self._turn as pointer:
            batch.slot.step = number
            self._check(self._library.lossd_submit(pointer, batch.slot.address, number, self._failure_at))

    def wait(self, batch: Batch) -> Result:
        """Wait for the answer of a submitted batch. Over HTTP this makes the call."""
        batch.check_alive()
        with self._turn as pointer:
            self._watch.begin(batch.slot.step)
            code = self._library.lossd_wait(pointer, batch.slot.address, self._out_at, self._failure_at)
        return self._answer(code, batch)

    # Inside.

    def _open(self) -> Handle:
        pointer = ctypes.c_void_p()
        self._options.interrupted = callback = _interrupt.callback(self._raised, self._watch.look)
        self._check(self._library.lossd_client_open(self._options, ctypes.byref(pointer), self._failure_at))
        assert pointer.value is not None
        return Handle(self._library, pointer.value, callback)

    def _renew(self) -> None:
        """What joining does to the batches of a group that was left is not for arrays that are in use."""
        with self._turn:
            self._retire()
            if self._are_shown():
                self._turn.handle = self._open()
                self._blocks = []  # no longer of this client's

    def _check(self, code: int) -> None:
        if code:
            if self._raised:
                raise self._raised.pop()
            raise from_failure(self._failure)

    def _answer(self, code: int, batch: Batch) -> Result:
        self._check(code)
        address = self._out.value
        assert address is not None
        struct = self._results.get(address)
        if struct is None:
            struct = self._results[address] = _structs.Result.from_address(address)
        return Result(batch, struct)

    def _weighted_tasks(self, weights: Iterable[str]) -> int:
        names = [weights] if isinstance(weights, str) else list(weights)
        if not names:
            return 0
        if self._names is None:  # a batch tells them
            self.batch(0, 0)
        assert self._names is not None
        unknown = [name for name in names if name not in self._names]
        if unknown:
            raise ValueError(f"weights: the group has no task {unknown[0]!r}: it has {', '.join(self._names)}")
        return sum(1 << self._names.index(name) for name in dict.fromkeys(names))

    def has_room(self, requests: int, candidates: int, form: Form) -> bool:
        """Whether such a batch goes into the buffers that there are."""
        if requests > self._requests or candidates > self._candidates:
            return False
        return form in self._forms or any(made.has_room_for(form) for made in self._forms)

    def _enlarge(self, form: Form, requests: int, candidates: int) -> Slot:
        """
        Raise the capacity in steps, so that batches of growing sizes make new buffers now and then only. All batches
        are begun at the capacity: their columns then lie where they lay, and views are made once.
        """
        self._retire()
        if self._are_shown():
            raise BufferError(
                f"a batch of {requests} requests and {candidates} candidates needs new buffers, and arrays that show "
                "the old ones are in use: delete or copy them before, or open the client with max_requests and "
                "max_candidates"
            )
        exact = max(self._requests, requests), max(self._candidates, candidates)
        if exact != (self._requests, self._candidates):
            self._forms.clear()
        self._requests = round_up(requests) if requests > self._requests else self._requests
        self._candidates = round_up(candidates) if candidates > self._candidates else self._candidates
        try:
            slot = self._begin(form)
        except Error as why:
            if why.reason != "LIMIT_EXCEEDED":
                raise
            self._requests, self._candidates = exact
            slot = self._begin(form)
        self._forms.append(form)
        return slot

    def _begin(self, form: Form) -> Slot:
        shape = self._shape
        shape.requests, shape.candidates = self._requests, self._candidates
        shape.logits_type = one_of(TYPES, form.dtype, "dtype")
        shape.gradient_type = one_of(TYPES, form.gradient_dtype, "gradient_dtype")
        shape.layout = one_of(LAYOUTS, form.layout, "layout")
        shape.weighted_tasks = form.weighted_tasks
        with self._turn as pointer:
            self._watch.begin(None)
            self._check(self._library.lossd_batch_begin(pointer, self._shape_at, self._out_at, self._failure_at))
        address = self._out.value
        assert address is not None
        slot = self._slots.get(address)
        if slot is None or slot.form != form:
            if slot is not None:
                slot.retire()
            slot = Slot(address, form, self._requests, self._candidates, self._turn.handle, self._blocks)
            self._slots[address] = slot
            self._names = slot.names
        return slot

    def _are_shown(self) -> bool:
        """Whether arrays that others hold show the memory of batches, which are retired."""
        self._blocks = [block for block in self._blocks if block() is not None]
        return bool(self._blocks)

    def _retire(self) -> None:
        """All batches are gone."""
        for slot in self._slots.values():
            slot.retire()
        self._slots.clear()
        self._results.clear()
