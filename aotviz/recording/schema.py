"""The wire format of a recording: what is kept of a compilation, and nothing that can run.

One schema serves the live recording, the saved file, the widget and the HTML page, so that a reader needs to
learn one thing. It is columnar where there are many of a kind (graph nodes), and a plain record where there are
few (stages, inputs, outputs). Strings that repeat are kept once, in `RecordingData.strings`, and referred to by
index; such an index is a `Text`, or says so (`# string`). An index of -1 means "none".

A recording holds compilations of our own pipeline, compilations of stock `torch.compile` (watched live, or read from
TORCH_TRACE logs of any number of ranks), or both. Of a log everything is kept that a question may be asked about
later: each record of it is a row of one of the lists of `RecordingData`, with an `Origin` that says which line of
which log it comes from and which compilation it is about; what has no list of its own is an artifact.

This module must stay importable without torch. A change that an older reader can't understand raises `VERSION`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from aotviz.recording import findings
from aotviz.recording.frozen import Frozen

FORMAT = "aotviz"
VERSION = 5
NONE = -1

Text = Annotated[int, msgspec.Meta(ge=NONE, title="string")]  # the number of a text in RecordingData.strings


class ValueRecord(Frozen, array_like=True, frozen=True):
    """What is known of one traced value. Two nodes (of any stages) with the same record index hold the same value."""

    kind: str  # "tensor" | "symint" | "symfloat" | "symbool" | "tuple" | "other"
    dtype: Text  # string, e.g. "torch.float32"
    shape: list[int | str]  # elements; symbolic sizes as text, e.g. "s0"
    stride: list[int | str]  # elements; empty for a layout without strides
    offset: int | str  # elements
    device: Text  # string
    storage: int  # storage group: values with the same number share memory; -1 if unknown
    requires_grad: bool
    parts: list[int]  # value indices, for a tuple
    text: Text  # string: the repr, for a kind without tensor facts


class GraphSnapshot(Frozen, frozen=True):
    """An FX graph in columns, each of length `len(op)`, in topological order.

    An argument is a plain value as it is; `[d]` is the result of the node d places before; `["L", ...]` is a sequence;
    `{"d": {...}}` a dict; `{"s": [start, stop, step]}` a slice; `{"r": i}` anything else, by its text in `strings`.
    """

    op: str  # one letter a node: p placeholder, f call_function, m call_module, c call_method, a get_attr, o output
    name: list[Text]  # string
    target: list[Text]  # string
    args: list[Any]  # per node, a list of arguments
    kwargs: dict[int, Any]  # node index -> {name: argument}; only nodes that have some
    value: list[int]  # index into CompilationData.values
    stack: list[Text]  # string: the user's frames as a traceback prints them, innermost last
    module: list[Text]  # string: "path|Class" lines, outermost first
    sequence: list[int]  # autograd sequence number, -1 if it made no autograd node; an op and its backward share it
    backward: str  # "1" where the node was traced in the backward, else "0"
    descriptor: dict[int, Text]  # placeholder's node index -> string
    output_descriptors: list[Text]  # string, one per graph output
    checkpoint: dict[int, list[int]] = {}  # node index -> [tag in graph.CHECKPOINT_TAGS, number of the region or -1]


class InputRecord(Frozen, frozen=True):
    """One flat input as the user passed it (docs/design/system.md A3)."""

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
    under_no_grad: bool  # all writes to it; nothing about reads
    storage_resized: bool
    storage_replaced: bool  # `set_`
    static: bool
    storage: int  # storage group among the inputs: equal numbers share memory
    duplicate_of: str  # name of the earlier input that is the same tensor, or ""
    synthetic_base: str  # name of the base that this input becomes a view of, or ""
    reason: str  # one sentence: why it is treated so; "" where nothing is special
    stride: list[int | str] = []  # elements, as the user passed it; empty for a layout without strides
    offset: int | str = 0  # elements from the beginning of its storage


class OutputRecord(Frozen, frozen=True):
    """One flat output as the user receives it (docs/design/system.md A1, A2)."""

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
    stride: list[int | str] = []  # elements; empty for a layout without strides
    offset: int | str = 0  # elements from the beginning of its storage


class SavedTensorRecord(Frozen, frozen=True):
    """One value kept from forward to backward (docs/design/system.md G5)."""

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
    hook: str = ""  # what a saved-tensor hook did to make it, or ""
    consumers: list[str] = []  # nodes of the backward graph that read it, in their order
    dies_at: int = NONE  # position in the backward graph of the last of them, -1 if unknown
    memory_of: str = ""  # the input in whose memory it lies, so that keeping it costs nothing, or ""
    shares_with: str = ""  # the other saved value in whose memory it lies, and with which it is counted, or ""
    held_bytes: int | None = NONE  # of the storage that is kept for it; 0 where `memory_of` or `shares_with` has it;
    # None where a size is symbolic, -1 if unknown. The sum over all values is what the forward keeps
    held_until: int = NONE  # position in the backward graph of the last that reads any value there, -1 if unknown


class RecomputedRecord(Frozen, frozen=True):
    """One value of the forward that the backward computes again, and that is not kept (docs/design/system.md G5)."""

    name: str  # node name in both graphs
    dtype: str
    shape: list[int | str]
    nbytes: int | None  # None where a size is symbolic; a view takes none, and what is not a tensor
    producer: str  # target of the node
    source: str  # user's source line, or ""
    module: str  # module path, or ""
    consumers: list[str]  # nodes of the backward graph that read it, in their order
    made_at: int  # position in the backward graph
    dies_at: int  # the same, of the last that reads it


class AliasTensor(Frozen, array_like=True, frozen=True):
    """A tensor that the user's code held, as a window on a storage (docs/design/system.md G3)."""

    names: list[str]  # the user's names, e.g. ["x", "output[1]"] for an input that is returned; [] for an intermediate
    role: str  # "input" | "output" | "intermediate" | "base": the synthetic base of several inputs
    shape: list[int | str]  # elements
    stride: list[int | str]  # elements
    offset: int | str  # elements from the beginning of the storage
    itemsize: int  # bytes of an element
    view_of: int  # the tensor of the same storage that it was taken from, -1 if it was not taken from one
    step: str  # how it was taken from that, e.g. "select(0, 1)"
    node: str  # its node in the graph of the stage "metadata", or ""
    source: str  # the user's source line, or ""


class StorageWrite(Frozen, array_like=True, frozen=True):
    """A statement of the user's that changed a tensor in place."""

    order: int  # among all such statements of the call, and the views that it takes
    tensor: int  # of the storage
    kind: str  # "data" | "metadata": where the tensor lies in its storage
    operator: str  # e.g. "mul_"
    node: str  # its node in the graph of the stage "metadata", or ""
    source: str  # the user's source line, or ""
    grad_mode: bool  # whether grad mode was on


class StorageRecord(Frozen, frozen=True):
    """A piece of memory: the tensors that lie in it, and what is written to it, in the user's order."""

    nbytes: int | None  # None where a size is symbolic
    device: str
    tensors: list[AliasTensor]  # of intermediates, those that are written, and those that an output is made from
    writes: list[StorageWrite]
    left_out: int = 0  # tensors and writes, where there are too many to be shown


class RunFact(Frozen, array_like=True, frozen=True):
    """What was made of an event."""

    subject: Text  # the input or output that it is about; "" for a value inside the graph
    fact: Text  # a word of terms.toml, e.g. "data", "alias_of_input"; "" if there is none
    text: Text  # what it means, e.g. "the wrapper writes it after the graph ran"


class RunEvent(Frozen, array_like=True, frozen=True):
    """One thing that the user's function did, as its first run saw it."""

    what: Text  # "argument" | "view" | "detach" | "write" | "metadata" | "set_" | "resize" | "storage resized" |
    # "mark" | "hook" | "random" | "effect" | "result"
    tensor: int  # its number in RunLog.tensors, -1 for a random draw or an effect
    of: int  # the number of the tensor that it was taken from, or was set to; -1 if there is none
    operator: Text  # e.g. "select(0, 1)"
    node: Text  # its node in the graph of the stage "metadata"
    source: Text  # the user's source line
    mode: Text  # "no_grad" | "inference mode"; "" in grad mode, or if unknown
    made: list[RunFact]


class RunLog(Frozen, frozen=True):
    """What the user's function did with its tensors, in its order: first its arguments, last its results."""

    tensors: list[Text]  # by their numbers: the names that `storages` has for them; "" for one that has none
    events: list[RunEvent]


class WrapperNote(Frozen, frozen=True):
    """Lines first..last (1-based, inclusive) of a generated source stand there because of `fact`."""

    first: int
    last: int
    fact: str
    subject: str  # the input or output that it is about, or ""


class WrapperRecord(Frozen, frozen=True):
    """The generated Python that runs on every call (docs/design/system.md G4)."""

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
    kernels: dict[str, dict[str, list[str]]] = {}  # name of a text -> "kernel:number" of a call in it -> nodes computed
    replays: dict[str, int] = {}  # role of a graph that Inductor's cache had -> what compiling it took then, ns
    replayed: bool = False  # it did not run here: its record is from the cache, and its times are of the compilation


class ErrorRecord(Frozen, frozen=True):
    """Why a compilation was not finished."""

    stage: str
    type: str
    message: str
    ran_in_eager: bool = False  # the caller got no error: the graph runs in eager, as Dynamo captured it
    place: str = ""  # "file:line in function" of the user's code, "" if unknown


class CallError(Frozen, frozen=True):
    """An error that stopped a call of a compiled function, or a hook that its programs do not call. Logs lack these."""

    type: str  # of a hook: "forward hook" or another kind
    message: str  # its first lines; of a hook: its name
    guards: list[str]  # of a call that needed a new program: "0/0: x is None" for each; of a hook: [compilation]
    function: str  # the user's, in which it was raised; "" if unknown; of a hook: the path of its module
    source: str  # the user's line: "file:line code"; "" if unknown; of a hook: where it is defined
    during: str = ""  # "program" | its "backward" | "eager" part | "compile" | "export" | "outside" | "hook", or ""
    kernel: str = ""  # of Inductor's, in which it was raised: "cpp_fused_mul_0"; "" if in none; of a hook: the class
    about: list[str] = []  # the inference tensors among the values; of an operator: where its fake kernel is defined


class VisitRecord(Frozen, frozen=True):
    """One node of the autograd graph in a captured backward, in the order in which they run."""

    node: str  # e.g. "MulBackward0"
    subject: str  # of AccumulateGrad: the leaf, by the user's name; "" if unknown, or for others
    steps: list[str]  # nodes of the captured graph, as the stage "dead nodes" leaves it
    hooks: list[str]  # the kinds of the hooks that are called at it, in order
    waits_for: list[int]  # positions of the visits whose results it reads
    frees: list[str]  # inputs of the captured graph that nothing reads after it
    parts: list[int]  # numbers of the compiled parts that compute it; empty if only Python does
    copied: str = ""  # the prefix of the steps that come from a compiled backward, e.g. "aot0"


class Differing(Frozen, array_like=True, frozen=True):
    """The lines of an ingredient of a key that differ from those of the nearest earlier key."""

    name: str  # of the ingredient, e.g. "Inductor's settings"
    before: str  # the first lines that differ, in the earlier key; "" if it has none
    after: str


class CacheAnswer(Frozen, frozen=True):
    """What aotviz's cache said about a compilation, in short. The look-up is in RecordingData.cache_lookups."""

    outcome: str  # "hit" | "guard miss" | "miss" | "bypass"
    words: str  # one sentence: what differs from the nearest key, which guard failed, or why it was bypassed
    place: str = ""  # "file:line in function": the user's line that it is about
    key: str = ""  # hex; "" if there is none
    nearest: str = ""  # after a miss: the most similar earlier key
    differs: list[Differing] = []  # after a miss: what differs from it
    saved_ns: int = 0  # after a hit: how long compiling took when the entry was made
    saved_at_unix_s: float = 0.0  # after a hit: when the entry was made; 0 if unknown


class ReplayRecord(Frozen, frozen=True):
    """A compilation that aotviz's cache had: it was compiled earlier, maybe by another process."""

    key: str  # of the entry, hex; "" if unknown
    saved_ns: int  # how long compiling took then; 0 if unknown
    saved_at_unix_s: float  # when the entry was made; 0 if unknown
    note: str = ""  # why there are no stages from the cache; "" if there are


class CompilationData(Frozen, frozen=True):
    """One function's way through the compiler. Of a log: all attempts at one compile id on one rank."""

    id: str  # unique within the recording: "0", "1", ... of our own; of a log e.g. "0/3", or "rank 1: 0/3"
    name: str  # the function's or module's name
    kind: str  # "training" | "inference" | "compiled autograd"; "" where a log doesn't say, or it failed before
    started_unix_ns: int  # 0 where a log doesn't say
    options: dict[str, str]
    stages: list[StageRecord]
    graphs: list[GraphSnapshot]
    values: list[ValueRecord]
    inputs: list[InputRecord]
    outputs: list[OutputRecord]
    saved_tensors: list[SavedTensorRecord]
    wrapper: WrapperRecord | None
    error: ErrorRecord | None
    compile_id: str = ""  # Dynamo's, e.g. "0/3", or "!1/0/3" in compiled autograd; "" for our own
    attempts: int = 1  # how often Dynamo tried; it starts again after e.g. a graph break
    rank: int = NONE  # of the process that compiled it, -1 where there is one process
    log: int = NONE  # index into RecordingData.logs
    stack: Text = NONE  # the user's frames when it began, the compiled function's own last
    because: list[str] = []  # why each program there was did not do, the newest first; empty for the first
    graph_texts: list[Text] = []  # one per graph: what it was parsed from; empty for our own
    recomputed: list[RecomputedRecord] = []
    storages: list[StorageRecord] = []  # of our own: the memory of inputs, outputs, and what is written in between
    frame: int = NONE  # the function that Dynamo compiled: a number that its compilations share, up to a reset
    visits: list[VisitRecord] = []  # of a captured backward
    reset: int = 0  # calls of torch._dynamo.reset() before, as far as they are known of
    cache: CacheAnswer | None = None  # aotviz's cache was asked for it before its first stage
    replayed: ReplayRecord | None = None  # that cache had it
    run: RunLog | None = None  # of our own
    sizes: dict[str, int] = {}  # by its symbol, each symbolic size in the call that was compiled


class Origin(Frozen, array_like=True, frozen=True):
    """Where in the logs a record stands, and what it is about."""

    log: int  # index into RecordingData.logs
    line: int  # of the log, 1-based
    compilation: int  # index into RecordingData.compilations, -1 if it is about none
    attempt: int  # of that compilation, from 0
    unix_ns: int  # when it was written; 0 if unknown


class BadLine(Frozen, array_like=True, frozen=True):
    """A line of a log that could not be read."""

    line: int  # 1-based
    reason: str
    text: str  # how it begins


class LogRecord(Frozen, frozen=True):
    """One file of a log, or one live watch."""

    name: str  # the path, as the reader was given it or found it
    rank: int  # -1 if it says none
    nbytes: int  # unpacked
    lines: int
    records: dict[str, int]  # record type (an artifact: "artifact/name") -> how many
    unknown: dict[str, int]  # the same, of the types that this aotviz doesn't know; kept as artifacts
    bad: list[BadLine]  # the first of them
    bad_lines: int  # how many there are
    torch: str  # version that wrote it, "" if it doesn't say
    processes: list[int]  # the process or thread ids that wrote it


class GuardRecord(Frozen, frozen=True):
    """One check that Dynamo makes before it reuses a compilation."""

    origin: Origin
    kind: str  # e.g. "TENSOR_MATCH", "EQUALS_MATCH", "SHAPE_ENV"; "" if unknown
    source: Text  # the expression that it is about, e.g. "L['x']"
    text: Text  # the check
    code: Text  # the user's source line that made it
    place: Text  # "file:line in function" of that line
    stack: Text  # the user's frames as a traceback prints them


class FailedGuard(Frozen, array_like=True, frozen=True):
    """A check of an earlier compilation that a call did not pass, found by trying each of its checks."""

    guard: Text  # the check
    now: Text  # what it found instead; -1 if that can't be told in a few words
    source: Text  # the expression that it is about
    code: Text  # the user's source line that made the check
    place: Text  # "file:line in function" of that line
    stack: Text  # the user's frames


class RecompileReason(Frozen, array_like=True, frozen=True):
    """Why one earlier compilation could not be used."""

    earlier: str  # its compile id, e.g. "0/0"; "" where the log doesn't say
    guard: Text  # the check that failed
    code: Text  # the user's source line that made the check
    place: Text  # "file:line in function" of that line
    stack: Text  # the user's frames
    raw: Text  # as logged
    failed: list[FailedGuard] = []  # every check that the call did not pass; empty where not all were tried


class RecompileRecord(Frozen, frozen=True):
    """A frame was compiled again: the compilation of `origin` is the new one."""

    origin: Origin
    reasons: list[RecompileReason]  # one per earlier compilation, the newest first
    left_out: int = 0  # reasons like those, which differ in a value: see guard_texts.telling


class KeyDifference(Frozen, array_like=True, frozen=True):
    """What a key was made of differs from what an earlier one was made of."""

    name: str  # of the ingredient, e.g. "Inductor's settings"
    before: Text  # its text in the earlier key
    after: Text


class CacheLookup(Frozen, frozen=True):
    """One look-up in aotviz's cache, or in one of torch's compile caches."""

    origin: Origin
    cache: str  # "aotviz", or torch's: "aotautograd" | "fx" | "fx bundled" | "dynamo" | "precompile"
    outcome: str  # "hit" | "miss" | "bypass"; of aotviz's cache also "guard miss": the sizes of the call don't fit
    key: str  # "" where there is none
    components: list[Text]  # "name: content": what the key was made of
    component_hashes: list[Text]  # one per component
    reason: Text  # why it was bypassed, or why the guards of the entries failed
    fields: dict[str, Text]  # what else the log says, as JSON
    place: Text = NONE  # "file:line in function": the user's line that the reason is about
    nearest: str = ""  # after a miss of aotviz's cache: the most similar earlier key
    differs: list[KeyDifference] = []  # after such a miss: what differs from the nearest key
    saved_ns: int = 0  # after a hit of aotviz's cache: how long compiling took when the entry was made
    saved_at_unix_s: float = 0.0  # after such a hit: when the entry was made; 0 if unknown


class GraphBreak(Frozen, frozen=True):
    """Dynamo ended a graph before the function's end."""

    origin: Origin
    reason: Text  # the first line of the explanation
    place: Text  # "file:line" of the user's code
    stack: Text  # the user's frames
    text: Text  # all that the log says


class PlainText(Frozen, frozen=True):
    """What a reader sees in place of one of torch's texts."""

    text: Text
    words: str


class MetricsRecord(Frozen, frozen=True):
    """What torch counted and timed for one compilation, or one later part of it."""

    origin: Origin
    kind: str  # "compilation" | "backward" | "runtime"
    start_unix_s: float  # 0 if unknown
    end_unix_s: float  # 0 if unknown
    fail_type: str  # "" where it did not fail
    fail_reason: Text
    fail_place: Text  # "file:line" of the user's code
    numbers: dict[str, int | float]  # all fields that are numbers, by torch's name; its units are in the name
    texts: dict[str, Text]  # all other fields that say something; lists and mappings as JSON


class EventTable(Frozen, frozen=True):
    """The timeline in columns, one row an event, in the order of their beginnings."""

    name: list[Text]
    start_us: list[float]  # unix time
    duration_us: list[float]  # 0 for an instant, -1 for one without an end
    parent: list[int]  # row of the event around it in the same thread, -1 if none
    compilation: list[int]  # index into RecordingData.compilations, -1 if none
    log: list[int]  # index into RecordingData.logs
    line: list[int]  # of the log, where it begins
    thread: list[int]
    args: list[Text]  # JSON, -1 if there are none


class ShapeRecord(Frozen, frozen=True):
    """A step in the life of symbolic shapes: a symbol made or specialised, an expression guarded on."""

    origin: Origin
    kind: str  # the record's type, e.g. "create_symbol", "guard_added", "symbolic_shape_specialization"
    expression: Text  # the symbol or expression
    value: Text
    source: Text  # where the symbol comes from, e.g. "L['x'].size()[0]"
    reason: Text
    stack: Text  # the user's frames
    framework_stack: Text  # all frames
    fields: Text  # what else the log says, as JSON


class StorageDescription(Frozen, array_like=True, frozen=True):
    """A storage that the compiler met among a function's inputs."""

    origin: Origin
    describer: int  # numbers of different describers don't compare
    storage: int
    nbytes: int
    fields: Text  # what else the log says, as JSON


class TensorDescription(Frozen, frozen=True):
    """A tensor that the compiler met among a function's inputs."""

    origin: Origin
    describer: int  # numbers of different describers don't compare
    tensor: int
    storage: int  # -1 without a storage
    base: int  # tensor that it is a view of, -1 if none
    sources: list[Text]  # where it was found, e.g. "L['x']"
    dtype: str
    device: str
    shape: list[int | str]
    stride: list[int | str]
    offset: int | str
    is_leaf: bool
    requires_grad: bool
    fields: Text  # what else the log says, as JSON


class CollectiveSchedule(Frozen, frozen=True):
    """The collectives that one compiled graph runs, in order."""

    origin: Origin
    name: str  # the artifact that said so
    operations: list[Text]


class ArtifactRecord(Frozen, array_like=True, frozen=True):
    """A text of a log, and every record that has no list of its own."""

    origin: Origin
    type: Text  # the record's type, e.g. "artifact", "aot_joint_graph", "inductor_output_code"
    name: Text  # the artifact's name; of another type its file name, if it has one
    encoding: str  # "string" | "json" | ""
    text: Text  # the payload, -1 if there is none
    fields: Text  # the record without its payload, as JSON; -1 if that says no more


class RecordingData(Frozen, frozen=True):
    """A recording. Logs fill the lists after `notes`, our pipeline cache lookups, guards, graph breaks and shapes."""

    format: str
    version: int
    producer: dict[str, str]  # versions of "aotviz", "torch", "python"
    strings: list[str]
    compilations: list[CompilationData]
    dropped: int  # compilations left out because the recording was full
    notes: list[str] = []  # what a user should know of how it was read, e.g. files that were ignored
    logs: list[LogRecord] = []
    guards: list[GuardRecord] = []
    recompiles: list[RecompileRecord] = []
    cache_lookups: list[CacheLookup] = []
    graph_breaks: list[GraphBreak] = []
    metrics: list[MetricsRecord] = []
    events: EventTable = EventTable([], [], [], [], [], [], [], [], [])
    shapes: list[ShapeRecord] = []
    storages: list[StorageDescription] = []
    tensors: list[TensorDescription] = []
    collectives: list[CollectiveSchedule] = []
    artifacts: list[ArtifactRecord] = []
    compared: findings.ComparedInputs | None = None  # what `aotviz.compare_inputs` found
    rank_differences: list[findings.RankDifference] = []  # found when it is shown or saved (explain/ranks.py)
    why: list[findings.WhyCompiled] = []  # one for each recompile, found in the same way (explain/recompiles.py)
    plain: list[PlainText] = []  # of the texts of the rows, found in the same way (explain/plain_texts.py)
    overview: findings.OverviewRecord | None = None  # found in the same way (explain/overview.py)
    peaks: list[findings.PeakRecord] = []  # of small compilations, found in the same way (explain/peaks.py)
    step: findings.StepRecord | None = None  # the memory of a training step, found in the same way (explain/steps.py)
    paintings: list[findings.Painting] = []  # in the order in which they were added
    call_errors: list[CallError] = []  # in the order in which they were raised
