"""A trainer on shared memory, from nothing but a socket and a mapping: proto/lossd_shm.h once more, as ctypes."""

import array
import ctypes
import mmap
import os
import select
import socket
import struct
import time
from ctypes import c_char, c_double, c_float, c_uint8, c_uint16, c_uint32, c_uint64

MAGIC, VERSION = 0x6D68736C, 1
ATTACH, ATTACHED, REFUSED, BELL = 1, 2, 3, 4
COMPUTE, ANNOUNCE = 1, 2
F32, F16, BF16 = 0, 1, 2
HAS_STEP, SKIP_GRADIENT, HAS_GENERATION, REPLAYED = 1, 2, 4, 8
ALIGNMENT = 64
SIZES = {F32: 4, F16: 2, BF16: 2}
RETRY = ["never", "same", "higher", "fix"]


def structure(name, *fields):
    return type(name, (ctypes.LittleEndianStructure,), {"_fields_": fields})


Header = structure("header", ("magic", c_uint32), ("version", c_uint16), ("type", c_uint16), ("size_bytes", c_uint32),
                   ("reserved", c_uint32))
Attach = structure("attach", ("header", Header), ("group", c_char * 64), ("generation", c_uint64), ("rank", c_uint32),
                   ("num_slots", c_uint32), ("data_bytes", c_uint64))
Attached = structure("attached", ("header", Header), ("region_bytes", c_uint64), ("data_offset", c_uint64),
                     ("slots_offset", c_uint64), ("slot_bytes", c_uint64), ("answer_offset", c_uint64),
                     ("num_slots", c_uint32), ("num_tasks", c_uint32), ("num_terms", c_uint32), ("reserved", c_uint32),
                     ("config_digest", c_char * 72))
Error = structure("error", ("reason", c_char * 64), ("code", c_char * 32), ("field", c_char * 160),
                  ("message", c_char * 320), ("retry", c_uint32), ("metadata_bytes", c_uint32),
                  ("metadata", c_uint8 * 12288))
Refused = structure("refused", ("header", Header), ("error", Error))
Control = structure("control", ("bell", c_uint32), ("client_sleeps", c_uint32), ("reserved0", c_uint32 * 14),
                    ("daemon_sleeps", c_uint32), ("reserved1", c_uint32 * 15))
Task = structure("task", ("logits", c_uint64), ("gradient", c_uint64), ("labels", c_uint64), ("weights", c_uint64),
                 ("sessions", c_uint64), ("task_space", c_uint64), ("log_scale", c_double), ("logits_stride", c_uint32),
                 ("gradient_stride", c_uint32), ("logits_type", c_uint8), ("gradient_type", c_uint8),
                 ("has_log_scale", c_uint8), ("reserved", c_uint8 * 5))
Submission = structure("submission", ("sequence", c_uint64), ("call", c_uint32), ("flags", c_uint32), ("step", c_uint64),
                       ("generation", c_uint64), ("timeout_ns", c_uint64), ("lengths", c_uint64),
                       ("label_bits", c_uint64), ("num_requests", c_uint32), ("num_candidates", c_uint32),
                       ("gradient_scale", c_float), ("num_tasks", c_uint32))
Term = structure("term", ("value", c_double), ("local_mean", c_double), ("sum", c_double), ("denominator", c_double),
                 ("factor", c_double))
TaskAnswer = structure("task_answer", ("loss", c_double), ("log_scale_gradient", c_double),
                       ("nonfinite_units", c_uint32), ("has_log_scale_gradient", c_uint32))
Answer = structure("answer", ("sequence", c_uint64), ("failed", c_uint32), ("flags", c_uint32), ("step", c_uint64),
                   ("loss", c_double), ("local_requests", c_double), ("local_candidates", c_double),
                   ("world_requests", c_double), ("world_candidates", c_double), ("request_factor", c_double),
                   ("candidate_factor", c_double), ("world_ranks", c_uint32), ("reserved", c_uint32), ("error", Error))
MIRRORS = [Header, Attach, Attached, Error, Refused, Control, Task, Submission, Term, TaskAnswer, Answer]


def halves(values, kind):
    """Floats as binary16, or as the upper halves of binary32."""
    if kind == F16:
        return struct.pack(f"<{len(values)}e", *values)
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def wide(raw, kind):
    """The floats that these bytes stand for."""
    if kind == F32:
        return list(struct.unpack(f"<{len(raw) // 4}f", raw))
    if kind == F16:
        return list(struct.unpack(f"<{len(raw) // 2}e", raw))
    return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]


class ShmError(Exception):
    """An answer or a record that says what was wrong."""

    def __init__(self, error):
        self.reason, self.code = error.reason.decode(), error.code.decode()
        self.field, self.message, self.retry = error.field.decode(), error.message.decode(), RETRY[error.retry]
        words = bytes(error.metadata)[:error.metadata_bytes].split(b"\0")[:-1]
        self.metadata = {words[i].decode(): words[i + 1].decode() for i in range(0, len(words), 2)}
        super().__init__(f"{self.code} {self.reason} {self.field}: {self.message} {self.metadata}")


def header(kind, size, magic=MAGIC, version=VERSION, reserved=0):
    return Header(magic, version, kind, size, reserved)


class Socket:
    """The connection alone."""

    def __init__(self, daemon, timeout=30):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout)
        self.sock.connect(daemon.unix[5:] + ".shm")

    def close(self):
        self.sock.close()

    def send(self, record, descriptors=()):
        self.sock.sendmsg([bytes(record)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
                          if descriptors else [])

    def receive(self):
        """(record, [descriptor]); (b"", []) at the end."""
        data, ancillary, _, _ = self.sock.recvmsg(65536, socket.CMSG_SPACE(64))
        fds = array.array("i")
        for _, kind, raw in ancillary:
            assert kind == socket.SCM_RIGHTS
            fds.frombytes(raw)
        return data, list(fds)

    def is_closed(self):
        """Whether nothing more will come; waits for that."""
        while True:
            try:
                if self.receive()[0] == b"":
                    return True
            except ConnectionResetError:
                return True

    def ring(self):
        self.send(header(BELL, ctypes.sizeof(Header)))

    def ask(self, group, rank, generation, slots=1, data_bytes=65536, **more):
        """Send an ATTACH; more: other fields of its header."""
        size = ctypes.sizeof(Attach)
        self.send(Attach(header(ATTACH, more.pop("size", size), **more), group.encode(), generation, rank, slots,
                         data_bytes))

    def answered(self):
        """(Attached, descriptor), or ShmError. BELLs before it are passed over."""
        while True:
            data, fds = self.receive()
            assert data, "closed without a word"
            head = Header.from_buffer_copy(data)
            assert (head.magic, head.version, head.size_bytes) == (MAGIC, VERSION, len(data))
            if head.type == BELL:
                continue
            if head.type == REFUSED:
                assert not fds
                raise ShmError(Refused.from_buffer_copy(data).error)
            assert head.type == ATTACHED and len(fds) == 1
            return Attached.from_buffer_copy(data), fds[0]


class Peer(Socket):
    """A rank with its region."""

    def __init__(self, daemon, group, rank, generation, config, slots=1, data_bytes=1 << 20, timeout=30):
        super().__init__(daemon, timeout)
        self.group, self.rank, self.generation, self.config = group, rank, generation, config
        self.map = None
        self.rings = 0  # times that the daemon slept
        self.attach(slots, data_bytes)

    def attach(self, slots=1, data_bytes=1 << 20):
        self.ask(self.group, self.rank, self.generation, slots, data_bytes)
        layout, self.fd = self.answered()
        self.layout = layout
        self.map = mmap.mmap(self.fd, layout.region_bytes)
        self.control = Control.from_buffer(self.map)
        self.sequences = [0] * slots

    def close(self):
        super().close()
        if self.map is not None:
            self.control = None
            os.close(self.fd)
            self.map = None

    def slot_offset(self, slot):
        return self.layout.slots_offset + slot * self.layout.slot_bytes

    def submission(self, slot=0):
        return Submission.from_buffer(self.map, self.slot_offset(slot))

    def task(self, index, slot=0):
        offset = self.slot_offset(slot) + ctypes.sizeof(Submission) + index * ctypes.sizeof(Task)
        return Task.from_buffer(self.map, offset)

    def answer(self, slot=0):
        return Answer.from_buffer(self.map, self.slot_offset(slot) + self.layout.answer_offset)

    # Columns.

    def write(self, offset, raw):
        self.map[offset:offset + len(raw)] = raw

    def columns(self, request, slot=0, logits_type=F32, gradient_type=None, row_major=False, slack=0):
        """Lay out a ComputeLossRequest (a dict) in the slot. row_major: the logits of all tasks are one matrix, and so
        are the gradients. slack: elements between rows beside that."""
        tasks = self.config["tasks"]
        by_name = {t["name"]: t for t in request["tasks"]}
        count = max([len(t["logits"]) // c.get("num_class", 1) for t, c in ((by_name[c["name"]], c) for c in tasks)])
        gradient_type = logits_type if gradient_type is None else gradient_type
        cursor = self.layout.data_offset + slot * ((self.layout.region_bytes - self.layout.data_offset)
                                                   // self.layout.num_slots // ALIGNMENT * ALIGNMENT)

        def place(raw):
            nonlocal cursor
            start = cursor
            self.write(start, raw)
            cursor += -(-len(raw) // ALIGNMENT) * ALIGNMENT
            return start

        sub = self.submission(slot)
        sub.call, sub.step = COMPUTE, request.get("step", 0)
        sub.flags = ("step" in request) * HAS_STEP + bool(request.get("skip_gradient")) * SKIP_GRADIENT
        sub.flags += ("generation" in request) * HAS_GENERATION
        sub.generation, sub.timeout_ns = request.get("generation", 0), request.get("timeout_ns", 0)
        lengths = request["lengths"]
        sub.lengths = place(struct.pack(f"<{len(lengths)}I", *lengths)) if lengths else 0
        bits = request.get("label_bits")
        sub.label_bits = place(struct.pack(f"<{len(bits)}Q", *bits)) if bits else 0
        sub.num_requests, sub.num_candidates = len(lengths), count
        sub.gradient_scale, sub.num_tasks = float(request.get("gradient_scale", 1)), len(tasks)
        widths = [c.get("num_class", 1) for c in tasks]
        stride = (sum(widths) if row_major else 0) + slack
        logits = place(bytes((stride or 0) * count * 4)) if row_major else None
        gradients = place(bytes((stride or 0) * count * 4)) if row_major else None
        for i, config in enumerate(tasks):
            self.lay_task(self.task(i, slot), by_name[config["name"]], count, widths[i], logits_type, gradient_type,
                          stride if row_major else widths[i] + slack, sum(widths[:i]), logits, gradients, place)

    def lay_task(self, to, task, count, width, logits_type, gradient_type, stride, before, logits, gradients, place):
        ctypes.memset(ctypes.addressof(to), 0, ctypes.sizeof(to))
        size, gradient_size = SIZES[logits_type], SIZES[gradient_type]
        to.logits_type, to.gradient_type, to.logits_stride, to.gradient_stride = logits_type, gradient_type, stride, stride
        if count:
            to.logits = place(bytes(stride * count * size)) if logits is None else logits + before * size
            to.gradient = place(bytes(stride * count * gradient_size)) if gradients is None \
                else gradients + before * gradient_size
        values = [float(v) for v in task["logits"]]
        for row in range(count):
            part = values[row * width:(row + 1) * width]
            raw = struct.pack(f"<{len(part)}f", *part) if logits_type == F32 else halves(part, logits_type)
            self.write(to.logits + row * stride * size, raw)
        for name, letter in (("labels", "f"), ("weights", "f"), ("task_space", "f"), ("sessions", "q")):
            column = [float(v) if letter == "f" else v for v in task.get(name, [])]
            setattr(to, name, place(struct.pack(f"<{len(column)}{letter}", *column)) if column else 0)
        to.has_log_scale, to.log_scale = "log_scale" in task, task.get("log_scale", 0.0)

    def gradient(self, index, slot=0):
        """[C * K] floats."""
        to, width = self.task(index, slot), self.config["tasks"][index].get("num_class", 1)
        size, found = SIZES[to.gradient_type], []
        for row in range(self.submission(slot).num_candidates):
            start = to.gradient + row * to.gradient_stride * size
            found += wide(self.map[start:start + width * size], to.gradient_type)
        return found

    # Calls.

    def submit(self, slot=0):
        """Hand the slot over, and wake the daemon where it sleeps."""
        self.sequences[slot] += 1
        self.submission(slot).sequence = self.sequences[slot]
        self.control.bell += 1
        if self.control.daemon_sleeps:
            self.rings += 1
            self.ring()

    def is_answered(self, slot=0):
        return self.answer(slot).sequence == self.sequences[slot]

    def wait(self, slot=0, seconds=30, sleep=True):
        """Until the slot is answered: the answer, or ShmError. sleep: on the socket."""
        begin = again = time.monotonic()
        self.control.client_sleeps = int(sleep)
        while not self.is_answered(slot):
            now = time.monotonic()
            assert now < begin + seconds, "no answer"
            if now > again + 0.05:  # Python has no fence: the daemon may have fallen asleep just when we looked
                self.ring()
                again = now
            if sleep and select.select([self.sock], [], [], 0.05)[0]:
                self.pass_bell()
        self.control.client_sleeps = 0
        answer = self.answer(slot)
        if answer.failed:
            raise ShmError(answer.error)
        return answer

    def pass_bell(self):
        data, _ = self.receive()
        if not data:
            raise ConnectionResetError("the daemon has closed the connection")
        if Header.from_buffer_copy(data).type == REFUSED:
            raise ShmError(Refused.from_buffer_copy(data).error)

    def compute(self, request, slot=0, **layout):
        self.columns(request, slot, **layout)
        self.submit(slot)
        self.wait(slot)
        return self.result(slot, not request.get("skip_gradient"))

    def announce(self, step, requests, candidates, slot=0, flags=HAS_STEP):
        sub = self.submission(slot)
        sub.call, sub.flags, sub.step, sub.num_requests, sub.num_candidates = ANNOUNCE, flags, step, requests, candidates
        self.submit(slot)
        return self.wait(slot)

    def result(self, slot=0, has_gradient=True):
        """The answer as a dict in the schema's names, but for the names of tasks and terms."""
        a, base = self.answer(slot), self.slot_offset(slot) + self.layout.answer_offset + ctypes.sizeof(Answer)
        terms = base + self.layout.num_tasks * ctypes.sizeof(TaskAnswer)
        result = {
            "step": a.step, "loss": a.loss, "replayed": bool(a.flags & REPLAYED),
            "local": (a.local_requests, a.local_candidates),
            "world": (a.world_requests, a.world_candidates, a.world_ranks),
            "factors": (a.request_factor, a.candidate_factor), "tasks": [],
        }
        for i, config in enumerate(self.config["tasks"]):
            task = TaskAnswer.from_buffer(self.map, base + i * ctypes.sizeof(TaskAnswer))
            found = []
            for _ in config["losses"]:
                term = Term.from_buffer(self.map, terms)
                terms += ctypes.sizeof(Term)
                found.append((term.value, term.local_mean, term.sum, term.denominator, term.factor))
            result["tasks"].append({
                "loss": task.loss, "terms": found, "nonfinite_units": task.nonfinite_units,
                "log_scale_gradient": task.log_scale_gradient if task.has_log_scale_gradient else None,
                "gradient": self.gradient(i, slot) if has_gradient else [],
            })
        return result


def of_message(message):
    """A ComputeLossResponse as Peer.result has it."""
    return {
        "step": message.step, "loss": message.loss, "replayed": message.replayed,
        "local": (message.local.requests, message.local.candidates),
        "world": (message.world.requests, message.world.candidates, message.world.ranks),
        "factors": (message.request_factor, message.candidate_factor),
        "tasks": [{
            "loss": task.loss, "nonfinite_units": task.nonfinite_units,
            "terms": [(t.value, t.local_mean, t.sum, t.denominator, t.factor) for t in task.terms],
            "log_scale_gradient": task.log_scale_gradient if task.HasField("log_scale_gradient") else None,
            "gradient": list(task.gradient),
        } for task in message.tasks],
    }
