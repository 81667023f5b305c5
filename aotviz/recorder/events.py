"""The wire format of a recording: what is kept of a compilation, and nothing that can run.

One schema serves the live recording, the saved file, the widget and the HTML page, so that a reader needs to
learn one thing. It is columnar where there are many of a kind (graph nodes), and a plain record where there are
few (stages, inputs, outputs). Strings that repeat are kept once, in `RecordingData.strings`, and referred to by
index; the columns that hold such indices say so (`# string`). An index of -1 means "none".

This module must stay importable without torch. A change that an older reader can't understand raises `VERSION`.
"""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = "aotviz"
VERSION = 1
NONE = -1


class Frozen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every record."""


class ValueRecord(Frozen, array_like=True, frozen=True):
    """What is known of one traced value. Two nodes (of any stages) with the same record index hold the same value."""

    kind: str  # "tensor" | "symint" | "symfloat" | "symbool" | "tuple" | "other"
    dtype: int  # string, e.g. "torch.float32"
    shape: list[int | str]  # elements; symbolic sizes as text, e.g. "s0"
    stride: list[int | str]  # elements; empty for a layout that has none
    offset: int | str  # elements
    device: int  # string
    storage: int  # storage group: values with the same number share memory; -1 if unknown
    requires_grad: bool
    parts: list[int]  # value indices, for a tuple
    text: int  # string: the repr, for a kind without tensor facts


class GraphSnapshot(Frozen, frozen=True):
    """An FX graph in columns, each of length `len(op)`, in topological order.

    An argument is None, bool, int, float or str as it is; `[d]` is the result of the node d places before;
    `["L", ...]` a list or tuple; `{"d": {...}}` a dict; `{"s": [start, stop, step]}` a slice; `{"r": i}` anything
    else, by its text in `strings`.
    """

    op: str  # one letter a node: p placeholder, f call_function, m call_module, c call_method, a get_attr, o output
    name: list[int]  # string
    target: list[int]  # string
    args: list[Any]  # per node, a list of arguments
    kwargs: dict[int, Any]  # node index -> {name: argument}; only nodes that have some
    value: list[int]  # index into CompilationData.values
    stack: list[int]  # string: the user's frames as a traceback prints them, innermost last
    module: list[int]  # string: "path|Class" lines, outermost first
    sequence: list[int]  # autograd sequence number, -1 if none; a forward op and its backward share it
    backward: str  # "1" where the node belongs to the backward, else "0"
    descriptor: dict[int, int]  # placeholder's node index -> string
    output_descriptors: list[int]  # string, one per graph output


class InputRecord(Frozen, frozen=True):
    """One flat input as the user passed it (SYSTEM.md A3)."""

    name: str  # the user's own name for it, e.g. "model.wte.weight" or "x"
    kind: str  # "parameter" | "buffer" | "input" | "constant"
    dtype: str
    shape: list[int | str]
    device: str
    requires_grad: bool
    is_leaf: bool
    mutates_data: bool
    mutates_metadata: bool
    mutation: str  # MutationType's name
    hidden_from_autograd: bool
    under_no_grad: bool
    storage_resized: bool
    storage_replaced: bool  # `set_`
    static: bool
    storage: int  # storage group among the inputs: equal numbers share memory
    duplicate_of: str  # name of the earlier input that is the same tensor, or ""
    synthetic_base: str  # name of the base that this input becomes a view of, or ""
    reason: str  # one sentence: why it is treated so; "" where nothing is special


class OutputRecord(Frozen, frozen=True):
    """One flat output as the user receives it (SYSTEM.md A1, A2)."""

    name: str
    output_type: str  # OutputType's name
    dtype: str
    shape: list[int | str]
    device: str
    requires_grad: bool
    base: str  # the input, output or intermediate base it is rebuilt from, or ""
    view_chain: list[str]  # e.g. ["view([4, 2])", "select(0, 1)"]
    has_tangent: bool
    reason: str


class SavedTensorRecord(Frozen, frozen=True):
    """One value kept from forward to backward (SYSTEM.md G5)."""

    name: str  # node name in the forward graph
    kind: str  # "tensor" | "symint"
    dtype: str
    shape: list[int | str]
    nbytes: int | None  # None where a size is symbolic
    producer: str  # target of the node that makes it, or the input's name
    source: str  # user's source line, or ""
    module: str  # module path, or ""
    why: str  # one sentence: why it is saved rather than recomputed
    version_checked: bool
    donated: bool
    why_donated: str  # why it is, or is not, donated


class WrapperNote(Frozen, frozen=True):
    """Lines first..last (1-based, inclusive) of a generated source stand there because of `fact`."""

    first: int
    last: int
    fact: str
    subject: str  # the input or output that it is about, or ""


class WrapperRecord(Frozen, frozen=True):
    """The generated Python that runs on every call (SYSTEM.md G4)."""

    filename: str
    source: str
    notes: list[WrapperNote]


class Evidence(Frozen, frozen=True):
    """Why a stage decided as it did."""

    subject: str
    reason: str


class StageRecord(Frozen, frozen=True):
    """One run of one stage."""

    name: str
    form: str  # the class of the form that it returned
    summary: str  # one sentence: what changed
    changed: bool
    late: bool  # ran after the compilation had returned, e.g. the lazy backward
    started_ns: int  # since the compilation began
    elapsed_ns: int
    graphs: dict[str, int]  # role ("joint", "forward", "backward", "inference") -> index into CompilationData.graphs
    evidence: list[Evidence]
    code: dict[str, str]  # other texts that it made, by name, e.g. "wrapper"


class ErrorRecord(Frozen, frozen=True):
    stage: str
    type: str
    message: str


class CompilationData(Frozen, frozen=True):
    id: str  # unique within the recording, in order: "0", "1", ...
    name: str  # the function's or module's name
    kind: str  # "training" | "inference"
    started_unix_ns: int
    options: dict[str, str]
    stages: list[StageRecord]
    graphs: list[GraphSnapshot]
    values: list[ValueRecord]
    inputs: list[InputRecord]
    outputs: list[OutputRecord]
    saved_tensors: list[SavedTensorRecord]
    wrapper: WrapperRecord | None
    error: ErrorRecord | None


class RecordingData(Frozen, frozen=True):
    """A whole recording, as in a file."""

    format: str
    version: int
    producer: dict[str, str]  # versions of "aotviz", "torch", "python"
    strings: list[str]
    compilations: list[CompilationData]
    dropped: int  # compilations left out because the recording was full
