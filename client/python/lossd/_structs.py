"""The structs of lossd/lossd.h, field by field. Pointers to columns are plain addresses: views are made elsewhere."""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_size_t, c_uint32, c_uint64, c_void_p


class Failure(ctypes.Structure):
    _fields_ = [
        ("code", c_uint32),
        ("retry", c_uint32),
        ("reason", c_char * 64),
        ("field", c_char * 160),
        ("message", c_char * 512),
        ("metadata_bytes", c_uint32),
        ("metadata", c_char * 12288),
    ]


Interrupted = ctypes.CFUNCTYPE(c_uint32, c_void_p)


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("address", c_char_p),
        ("ca_file", c_char_p),
        ("transport", c_uint32),
        ("num_slots", c_uint32),
        ("timeout_ms", c_uint64),
        ("reconnect_ms", c_uint64),
        ("no_spin", c_uint32),
        ("max_requests", c_uint32),
        ("max_candidates", c_uint32),
        ("interrupted", Interrupted),
        ("interrupt_context", c_void_p),
    ]


class Membership(ctypes.Structure):
    _fields_ = [
        ("group", c_char * 64),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("local_world_size", c_uint32),
        ("nnodes", c_uint32),
        ("node_rank", c_uint32),
        ("master_addr", c_char * 256),
        ("instance", c_uint64),
        ("config", c_char_p),
    ]


class Shape(ctypes.Structure):
    _fields_ = [
        ("requests", c_uint32),
        ("candidates", c_uint32),
        ("logits_type", c_uint32),
        ("gradient_type", c_uint32),
        ("layout", c_uint32),
        ("weighted_tasks", c_uint64),
    ]


class Task(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("num_class", c_uint32),
        ("has_log_scale", c_uint32),
        ("log_scale", c_double),
        ("logits", c_void_p),
        ("gradient", c_void_p),
        ("stride", c_size_t),
        ("labels", c_void_p),
        ("weights", c_void_p),
        ("sessions", c_void_p),
        ("task_space", c_void_p),
    ]


class Batch(ctypes.Structure):
    _fields_ = [
        ("requests", c_uint32),
        ("candidates", c_uint32),
        ("lengths", c_void_p),
        ("label_bits", c_void_p),
        ("tasks", POINTER(Task)),
        ("num_tasks", c_size_t),
        ("gradient_scale", c_float),
        ("skip_gradient", c_uint32),
    ]


class Term(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_double),
        ("local_mean", c_double),
        ("sum", c_double),
        ("denominator", c_double),
        ("factor", c_double),
    ]


class TaskResult(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("loss", c_double),
        ("terms", POINTER(Term)),
        ("num_terms", c_size_t),
        ("nonfinite_units", c_uint32),
        ("has_log_scale_gradient", c_uint32),
        ("log_scale_gradient", c_double),
    ]


class Counts(ctypes.Structure):
    _fields_ = [
        ("requests", c_double),
        ("candidates", c_double),
        ("ranks", c_uint32),
    ]


class Result(ctypes.Structure):
    _fields_ = [
        ("step", c_uint64),
        ("loss", c_double),
        ("tasks", POINTER(TaskResult)),
        ("num_tasks", c_size_t),
        ("local", Counts),
        ("world", Counts),
        ("request_factor", c_double),
        ("candidate_factor", c_double),
        ("replayed", c_uint32),
    ]


# The names in the header, for the test that compares sizes and offsets.
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "lossd_failure": Failure,
    "lossd_options": Options,
    "lossd_membership": Membership,
    "lossd_shape": Shape,
    "lossd_task": Task,
    "lossd_batch": Batch,
    "lossd_term": Term,
    "lossd_task_result": TaskResult,
    "lossd_counts": Counts,
    "lossd_result": Result,
}
