"""The forms: one frozen dataclass for each state of a compilation, passed from stage to stage.

    Request     what the user asked for: a function and its arguments
    FlatCall    the same as flat lists, with fake arguments and names
    TracedCall  + the facts about the call, and the open trace that they come from
    GraphCall   + a closed graph: `slots` describe its outputs, `graph_inputs` its inputs
    JointCall   a GraphCall whose graph computes gradients as well
    Split       the forward and the backward graph, and what goes from one to the other
    Exported    a graph and its signature, where no program is wanted
    Executable  the one Python function that runs

The forms that hold compiled functions are in runtime/lowered.py.

No field is None until a later stage fills it in, and no stage changes its argument (docs/design/architecture.md,
"Rules"). Every form has the reasons for the decisions of its stage (`evidence`) and the graphs to show (`graphs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import torch
import torch.fx as fx

from aotviz.ir import graphs, symbolic_sizes
from aotviz.ir.descriptors import Descriptor, InputDescriptor, OutputDescriptor, PlainInput, SyntheticBaseInput
from aotviz.ir.signature import GraphSignature
from aotviz.ir.spelling import positional
from aotviz.ir.subclass_meta import SubclassLayout, Wrapping, spans
from aotviz.ir.view_and_mutation import Ref, ViewAndMutationMeta
from aotviz.options import Options
from aotviz.torch_private.fake_tensors import FakeTensorMode
from aotviz.torch_private.torchs_log import next_number
from aotviz.torch_private.what_follows import NOTHING, Follows

if TYPE_CHECKING:  # the one type of a higher layer; pyproject.toml names it
    from aotviz.tracing.forward import Run
else:
    Run = Any  # for those who resolve the annotations: the cache

if TYPE_CHECKING:
    from aotviz.ir.dynamo_capture import Capture


@dataclass(frozen=True)
class Reason:
    """The reason for a decision about `subject`, in one sentence."""

    subject: str
    text: str


class Emitter(Protocol):
    """The generated wrapper, to which a rewrite adds lines (`runtime/codegen.py`)."""

    def line(self, text: str, fact: str = "", subject: str = "") -> None: ...
    def bind(self, hint: str, value: Any) -> str: ...
    def fresh(self, hint: str) -> str: ...
    def member(self, index: int, variable: str) -> None: ...


class Rewrite(Protocol):
    """A change of the calling convention: for the traced call, and for run time.

    `inputs` writes the lines that turn the caller's variables into the rewritten ones, and returns these. `after` gets
    both and writes the lines that follow the graph and the writes to its inputs, if there are any.
    """

    def inputs(self, emit: Emitter, variables: list[str]) -> list[str]: ...
    def after(self, emit: Emitter, variables: list[str], rewritten: list[str]) -> None:
        return None


@dataclass(frozen=True)
class Convention:
    """How the finished program is called.

    "python": with the user's own arguments, whose structure was `in_spec`. "boxed": with one flat list, which it
    empties; it returns a flat list.
    """

    kind: str
    in_spec: Any = None
    parameters: Callable[[], Sequence[Any]] | None = None  # reads lifted parameters and buffers at each call


Next = TypeVar("Next", bound="Form")
Compiled = Callable[[list[Any]], Any]  # takes the graph's inputs in a list, which it may empty
Surroundings = Callable[[], AbstractContextManager[None]]  # restores the state in which a function is traced again


class StoredGraphs(Protocol):
    """The graphs of a program that its compiler has compiled before. Each method returns None if it has not."""

    def forward(self, module: Any, inputs: Sequence[Any], is_inference: bool) -> Compiled | None: ...
    def backward(self, part: str, module: Any, inputs: Sequence[Any]) -> Compiled | None: ...


@dataclass(frozen=True)
class Form:
    """Base of all forms."""

    options: Options
    evidence: tuple[Reason, ...] = field(kw_only=True, default=())

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        """Role ("joint", "forward", ...) -> fx.Graph."""
        return {}

    @property
    def texts(self) -> Mapping[str, str]:
        """Other texts worth showing, by name."""
        return {}

    def then(self, kind: type[Next], **found: Any) -> Next:
        """Make another form, usually the next one, from the fields of this one and what a stage `found`. Its evidence
        is only what `found` has."""
        mine = {one.name for one in fields(self)} - {"evidence"}
        known = {one.name: getattr(self, one.name) for one in fields(kind) if one.name in mine}
        return kind(**{**known, **found})


@dataclass(frozen=True)
class Request(Form):
    """A function of any pytrees, and one call of it. `named` are the tensors lifted in front of the arguments."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    named: tuple[tuple[str, str, Any], ...]  # (kind, name, value); kind "parameter", "buffer" or "object"
    root_module: torch.nn.Module | None  # whose paths the nodes carry
    convention: Convention
    name: str
    input_names: tuple[str, ...] | None = None  # one per flat argument, if the caller knows them
    is_graph: bool = False
    static_inputs: tuple[int, ...] | None = None  # if the caller knows them; else the parameters and buffers
    references: tuple[tuple[str, Any], ...] = ()  # (name, value) of closure and global variables that the function uses
    captured: Capture | None = field(default=None, kw_only=True)  # how Dynamo captured the graph, if it did
    follows: Follows = field(default=NOTHING, kw_only=True)  # for a graph from Dynamo
    # If the caller knows: per flat argument, the dimensions whose sizes are symbols; (0,) for a symbolic number
    symbols: tuple[tuple[int, ...], ...] | None = field(default=None, kw_only=True)
    surroundings: Surroundings = field(default=nullcontext, kw_only=True)

    def arguments(self) -> dict[str, Any]:
        """Each argument by the function's name for it."""
        names = positional(self.fn)  # the others are numbered
        names += [f"args[{position}]" for position in range(len(names), len(self.args))]
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs}


@dataclass(frozen=True)
class FlatCall(Form):
    """`fn(*args)` takes flat fakes and returns the user's pytree."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]  # one per flat input
    descriptors: tuple[PlainInput, ...]  # one per flat input
    duplicate_of: tuple[int | None, ...]  # one per flat input: the earlier input that is the same tensor
    counter_of: tuple[int, ...]  # one per flat input: the first over its memory that has the same version counter
    fake_mode: FakeTensorMode
    root_module: torch.nn.Module | None
    is_graph: bool
    convention: Convention
    static_inputs: tuple[int, ...]
    given_fakes: bool = field(default=False, kw_only=True)  # whether the caller passed fake tensors
    surroundings: Surroundings = field(default=nullcontext, kw_only=True)
    number: int = field(default_factory=next_number, kw_only=True)  # torch's, of the program
    follows: Follows = field(default=NOTHING, kw_only=True)  # as in Request


@dataclass(frozen=True)
class TracedCall(FlatCall):
    """A call whose forward has run. `graph_inputs` are the graph's inputs after all rewrites."""

    meta: ViewAndMutationMeta
    forward: Run  # or what plays its role: GradientTrace of tracing/second_order.py
    graph_inputs: tuple[InputDescriptor, ...]  # one per graph input
    outputs: tuple[OutputDescriptor, ...]  # one per flat output
    out_spec: Any
    rewrites: tuple[Rewrite, ...]
    user_input_info: ViewAndMutationMeta  # the facts about the user's own inputs, before any rewrite
    source: FlatCall | GradientRequest  # from which the stages can make this call again

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return {"forward": self.forward.graph()}

    def members(self, position: int) -> set[int]:
        """The plain arguments that a graph input consists of."""
        descriptor = self.graph_inputs[position]
        members = descriptor.members if isinstance(descriptor, SyntheticBaseInput) else (descriptor,)
        return {one.index for one in members if isinstance(one, PlainInput)}

    def counters(self, position: int) -> set[int]:
        """The version counters of these arguments."""
        return {self.counter_of[one] for one in self.members(position)}

    def retraced(self, forward: Run, rewrite: Rewrite, static_inputs: tuple[int, ...], **changes: Any) -> TracedCall:
        """This call with another calling convention, traced as `forward`. `changes` has its new graph inputs."""
        forward.describe(changes["graph_inputs"])
        meta = replace(self.meta, **forward.found(), static_input_indices=static_inputs)
        return replace(self, forward=forward, meta=meta, rewrites=(*self.rewrites, rewrite), **changes)

    @property
    def needs_gradients(self) -> bool:
        """Whether a result of the call can be differentiated with respect to an input."""
        if not self.forward.with_gradients:
            return False
        mutated = (self.meta.input_info[i] for i in self.meta.mutated_input_indices)
        return (
            any(info.has_tangent for info in self.meta.output_info)
            or any(base.requires_grad for base in self.meta.intermediate_bases)
            or any(info.mutates_data and info.requires_grad_after and not info.unseen for info in mutated)
        )


@dataclass(frozen=True)
class Slot:
    """One output of the forward graph. `index` counts inputs, user outputs or bases, by `kind`."""

    kind: str  # "mutation" | "left" | "output" | "base"; "gradient" in an export
    index: int
    descriptor: OutputDescriptor
    differentiable: bool = False  # it receives a tangent
    hidden: bool = False  # autograd must not see it: a TensorAlias
    version: int | None = None  # its version in eager; None if the graph's own tensor may be shared
    inference: bool = False  # an inference tensor, though the call does not run in inference mode


@dataclass(frozen=True)
class GraphCall(TracedCall):
    """A call with a closed graph: (graph inputs) -> (slots)."""

    graph_module: fx.GraphModule
    slots: tuple[Slot, ...]  # one per forward output of the graph
    stored: StoredGraphs | None = field(default=None, kw_only=True)  # of a program from the cache

    @property
    def wrapping(self) -> Wrapping | None:
        """The rewrite between tensor subclasses and their parts, if there is one."""
        last = self.rewrites[-1] if self.rewrites else None
        return last if isinstance(last, Wrapping) else None

    @property
    def outer(self: Self) -> Self:
        """This call as autograd sees it: in terms of whole tensors instead of parts."""
        return self if self.wrapping is None else self.wrapping.caller(self)

    @property
    def input_parts(self) -> list[range]:
        """The positions of each input, as autograd sees it, among the inputs of the forward graph."""
        plain = (None,) * len(self.graph_inputs)
        return spans(plain if self.wrapping is None else self.wrapping.meta.inputs)

    def called(self, ref: Ref) -> str:
        """The user's name of a result or input."""
        known: Mapping[str, Sequence[Any]] = {"output": self.outputs, "input": self.graph_inputs}
        return str(known[ref.kind][ref.index]) if ref.kind in known else "an input that shares memory with another"

    @property
    def role(self) -> str:
        return "inference"

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return {self.role: self.graph_module.graph}


@dataclass(frozen=True)
class ExportCall(GraphCall):
    """A call to be exported: its graph returns mutated inputs, every user output, and the gradients of a loss."""

    @property
    def role(self) -> str:
        return "joint" if self.options.export.joint else "inference"


@dataclass(frozen=True)
class Exported(ExportCall):
    """The end of an export: a graph without a wrapper, and the signature that describes it."""

    signature: GraphSignature


@dataclass(frozen=True)
class Tangent:
    """What the backward expects for one differentiable slot: its layout, in elements."""

    slot: int
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    order: tuple[int, ...] = ()  # where strides are symbolic: dimensions from the outermost in memory to the innermost
    parts: tuple[Tangent, ...] = ()  # of a subclass: its plain tensors
    value: Any = None  # the fake that it was traced with


@dataclass(frozen=True)
class Gradient:
    """One gradient that the graph returns; both are or None."""

    descriptor: OutputDescriptor | None
    value: Any  # a fake tensor


@dataclass(frozen=True)
class HookedResult:
    """A tensor that the caller holds, and through which gradients of some slots flow inside the graph."""

    ref: Ref
    slots: tuple[int, ...]


@dataclass(frozen=True)
class JointCall(GraphCall):
    """A call whose graph is (graph inputs, tangents) -> (slots, one gradient or None per graph input)."""

    tangents: tuple[Tangent, ...]  # one per differentiable slot
    gradients: tuple[Gradient, ...]  # one per graph input; from the subclasses stage on, one per part of each
    hooked_results: tuple[HookedResult, ...]  # tensors on which a hook of the caller would miss gradients
    together: tuple[tuple[int, ...], ...]  # tangents that share a custom autograd.Function with several results
    reshaped: tuple[int, ...]  # graph inputs: leaves that are reshaped in place before they are used
    kept_and_written: tuple[int, ...]  # graph inputs saved without a valid version check; most are written by the call
    late_writes: tuple[tuple[int, int], ...]  # (graph input that the backward writes, how often)

    @property
    def role(self) -> str:
        return "joint"


@dataclass(frozen=True)
class JointGraph(JointCall):
    """A joint graph that is ready to be partitioned: functional, named, described."""


@dataclass(frozen=True)
class SavedTensor:
    """One value that the forward keeps for the backward (docs/design/system.md G5)."""

    name: str
    is_symbol: bool
    value: Any  # fake tensor or symbolic number
    producer: str
    stack: str
    module: str
    why: str
    is_view: bool
    checked: bool = True  # the backward refuses it if it was written since; see tracing/kept_by_name.py
    inference: bool = False  # an inference tensor, which autograd does not save
    donated: bool = False
    why_donated: str = ""
    hook: str = ""  # how a saved tensor hook made it

    @property
    def varying_dims(self) -> tuple[int, ...]:
        """The dimensions whose size is symbolic."""
        if not isinstance(self.value, torch.Tensor):
            return ()
        return tuple(dim for dim, size in enumerate(self.value.shape) if symbolic_sizes.is_symbolic(size))


@dataclass(frozen=True)
class Split(JointGraph):
    """A partitioned joint graph. The forward returns (slots, saved tensors, saved symbols)."""

    forward_module: fx.GraphModule
    backward_module: fx.GraphModule
    saved: tuple[SavedTensor, ...]  # tensors first, then symbols
    kept: tuple[int, ...]  # graph inputs that are kept in case the gradients are differentiated again
    # Node of the forward -> the hook graph that recovers it, and the saved values that this takes.
    unpacked: Mapping[str, tuple[fx.GraphModule, list[str]]]

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return {"forward": self.forward_module.graph, "backward": self.backward_module.graph}

    @property
    def differentiated(self) -> list[int]:
        """The inputs, as autograd sees them, that receive a gradient."""
        found = graphs.outputs(self.backward_module.graph)
        return [i for i, parts in enumerate(self.gradient_parts) if found[parts[0]] is not None]

    @property
    def gradient_parts(self) -> list[range]:
        """The positions of each input's gradient among the results of the backward graph: several for a subclass."""
        plain = (None,) * len(graphs.outputs(self.backward_module.graph))
        return spans(plain if self.wrapping is None else self.wrapping.meta.gradients)

    @property
    def saved_tensor_count(self) -> int:
        return sum(not value.is_symbol for value in self.saved)

    @property
    def donated(self) -> tuple[int, ...]:
        """Backward graph inputs whose memory it may reuse. Saved symbols come first there, then saved tensors."""
        symbols = len(self.saved) - self.saved_tensor_count
        return tuple(symbols + i for i, value in enumerate(self.saved) if value.donated)


@dataclass(frozen=True)
class AtHand:
    """What a backward has available if its gradients are differentiated: values, and access to the call's trace."""

    traced: Callable[[], JointCall]  # the call, with a trace that can be continued
    saved: tuple[SavedTensor, ...]
    unpacked: Mapping[str, tuple[fx.GraphModule, list[str]]]  # as in Split
    inputs: Mapping[str, int]  # name of a saved or unpacked graph input -> its position
    origins: Mapping[str, str]  # name of another saved or unpacked value -> name of the trace's node
    kept: tuple[int, ...]
    differentiated: tuple[int, ...]


@dataclass(frozen=True)
class BackwardRequest(Form):
    """A backward graph to be compiled: late work, on first use."""

    backward_module: fx.GraphModule
    values: tuple[Any, ...]
    donated: tuple[int, ...]
    context: Any
    reason: str
    part: str  # which of the program's backwards it is, in the same words in each process
    stored: StoredGraphs | None

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return {"backward": self.backward_module.graph}


@dataclass(frozen=True)
class LoweredBackward(Form):
    """A backward graph, compiled."""

    request: BackwardRequest
    compiled: Compiled

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return self.request.graphs


@dataclass(frozen=True)
class GradientRequest(Form):
    """A request to differentiate the gradients of a program: late work, with create_graph=True.

    `tangents` says for each tangent of the call whether it requires grad (True), does not (False), or is missing
    (None). `given` are results whose final gradients are given as well. `wanted` is the result whose gradient is
    wanted; None for the gradients of the inputs. `held` are results that are available with their `grad_fn`, so that a
    second derivative can continue from there in the autograd graph. `layouts` are those of tangents that are
    subclasses of another context than the call's, else None; () if there are none. `no_leaves` are inputs that are
    leaves in the trace of the call, and in this call have a `grad_fn`.
    """

    call_name: str
    at_hand: AtHand
    tangents: tuple[bool | None, ...]
    given: tuple[Ref, ...] = ()
    wanted: Ref | None = None
    held: tuple[Ref, ...] = ()
    layouts: tuple[SubclassLayout | None, ...] = ()
    no_leaves: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"gradient of {self.call_name}"


@dataclass(frozen=True)
class Note:
    """Lines first..last (1-based) of a source are there because of `fact`, which is about `subject`."""

    first: int
    last: int
    fact: str
    subject: str


@dataclass(frozen=True)
class Executable(Form):
    """What runs: `function` is generated from `source`, and nothing else runs."""

    name: str
    function: Callable[..., Any]
    filename: str
    source: str
    notes: tuple[Note, ...]

    @property
    def texts(self) -> Mapping[str, str]:
        return {"wrapper": self.source}


def described(descriptors: Sequence[Descriptor | None]) -> list[str]:
    """Descriptors as text; an absent one is empty."""
    return ["" if d is None else str(d) for d in descriptors]
