"""What stages hand on: one frozen form for each state that a compilation passes through (SYSTEM.md, rule 1).

    Request     what the user asked for: a function and its arguments
    FlatCall    the same as flat lists, with fake arguments and names
    TracedCall  + the facts about the call, and the open trace they were read off
    GraphCall   + a closed graph: `slots` say what its outputs are, `graph_inputs` what its inputs are
    JointCall   a GraphCall whose graph computes gradients as well
    Split       the forward and the backward graph, and what goes from one to the other
    Exported    a graph and its signature, where no program is wanted
    Executable  the one Python function that runs

Callables are made by a compiler at run time's side of the house: those forms are in runtime/lowered.py.

No field is None until a later stage fills it in, and no stage changes its argument. Every form brings the reasons
for what its stage decided (`evidence`) and the graphs that a person would look at (`graphs`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.descriptors import Descriptor, InputDescriptor, OutputDescriptor, PlainInput, SyntheticBaseInput
from aotviz.ir.signature import GraphSignature
from aotviz.ir.subclass_meta import Wrapping
from aotviz.ir.view_and_mutation import Ref, ViewAndMutationMeta
from aotviz.options import Options

if TYPE_CHECKING:
    from aotviz.ir.dynamo_capture import Capture


@dataclass(frozen=True)
class Reason:
    """Why a stage decided something about `subject`, in one sentence."""

    subject: str
    text: str


class Emitter(Protocol):
    """Where a rewrite writes its lines of the generated wrapper (`runtime/codegen.py`)."""

    def line(self, text: str, fact: str = "", subject: str = "") -> None: ...
    def bind(self, hint: str, value: Any) -> str: ...
    def fresh(self, hint: str) -> str: ...
    def member(self, index: int, variable: str) -> None: ...


class Rewrite(Protocol):
    """Both halves of a change of the calling convention: the traced call's, and the run time's.

    `inputs` writes the lines that turn the caller's variables into the rewritten ones and returns those;
    `after`, which is told of both, writes the lines that must follow once the graph has run and its mutations are
    written back.
    """

    def inputs(self, emit: Emitter, variables: list[str]) -> list[str]: ...
    def after(self, emit: Emitter, variables: list[str], rewritten: list[str]) -> None: ...


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
Surroundings = Callable[[], AbstractContextManager[None]]  # what is to be around whoever traces the function later


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
        """Another form, mostly the next one: what this one says of its fields, and what a stage found. It has the
        reasons in `found`, and no older."""
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
    root: torch.nn.Module | None  # whose paths the nodes carry
    convention: Convention
    name: str
    input_names: tuple[str, ...] | None  # one per flat argument, where the caller knows better than we
    is_graph: bool
    static_inputs: tuple[int, ...] | None  # where the caller knows; else the parameters and buffers
    references: tuple[tuple[str, Any], ...]  # (name, value) of what the function refers to from outside
    captured: Capture | None = field(default=None, kw_only=True)  # how Dynamo came to the graph; None if it did not
    # Where the caller knows: per flat argument, the dimensions whose sizes are symbols; (0,) for a number that is one
    symbols: tuple[tuple[int, ...], ...] | None = field(default=None, kw_only=True)
    as_it_was: Surroundings = field(default=nullcontext, kw_only=True)

    def arguments(self) -> dict[str, Any]:
        """Each argument under the name that the function has for it."""
        fn = getattr(self.fn, "forward", self.fn)  # of a module
        names: list[str] = []
        try:
            for parameter in inspect.signature(fn).parameters.values():
                if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                    names.append(parameter.name)
        except (TypeError, ValueError):
            pass  # a builtin has no signature; its arguments are numbered
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
    fake_mode: Any  # torch's FakeTensorMode
    root: torch.nn.Module | None
    is_graph: bool
    convention: Convention
    static_inputs: tuple[int, ...]
    as_it_was: Surroundings = field(default=nullcontext, kw_only=True)


@dataclass(frozen=True)
class TracedCall(FlatCall):
    """A call whose forward has been run. `graph_inputs` are what the graph takes, after all rewrites."""

    meta: ViewAndMutationMeta
    forward: Any  # tracing.forward.ForwardTrace
    graph_inputs: tuple[InputDescriptor, ...]  # one per graph input
    outputs: tuple[OutputDescriptor, ...]  # one per flat output
    out_spec: Any
    rewrites: tuple[Rewrite, ...]
    user_input_info: ViewAndMutationMeta  # the facts by the user's own inputs, before any rewrite
    source: FlatCall | GradientRequest  # from which the list of stages makes this call once more

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return {"forward": self.forward.graph()}

    def counters(self, position: int) -> set[int]:
        """The version counters of the plain arguments that a graph input is, or is made of."""
        descriptor = self.graph_inputs[position]
        members = descriptor.members if isinstance(descriptor, SyntheticBaseInput) else (descriptor,)
        return {self.counter_of[one.index] for one in members if isinstance(one, PlainInput)}

    def retraced(
        self,
        forward: Any,
        graph_inputs: tuple[InputDescriptor, ...],
        static_inputs: tuple[int, ...],
        rewrite: Rewrite,
        evidence: tuple[Reason, ...],
    ) -> TracedCall:
        """This call with another calling convention, whose run is `forward`."""
        forward.describe(graph_inputs)
        meta = replace(
            self.meta,
            **forward.found(),
            static_input_indices=static_inputs,
        )
        return replace(
            self,
            forward=forward,
            meta=meta,
            graph_inputs=graph_inputs,
            rewrites=(*self.rewrites, rewrite),
            evidence=evidence,
        )

    @property
    def needs_gradients(self) -> bool:
        """Whether anything that leaves the call can be differentiated by anything that enters it."""
        forward = self.forward
        if not forward.with_gradients:
            return False
        mutated = (self.meta.input_info[i] for i in self.meta.mutated_input_indices)
        leaves = any(info.has_tangent for info in self.meta.output_info) or any(
            base.requires_grad for base in self.meta.intermediate_bases
        )
        return leaves or any(info.mutates_data and info.requires_grad_after for info in mutated)


@dataclass(frozen=True)
class Slot:
    """One output of the forward graph. `index` counts inputs, user outputs or bases, by `kind`."""

    kind: str  # "mutation" | "left" | "output" | "base"; "gradient" in an export
    index: int
    descriptor: OutputDescriptor
    differentiable: bool  # it receives a tangent
    hidden: bool  # autograd must not see it: a TensorAlias
    version: int | None  # what its version counter says in eager; None where the graph's own tensor may be shared


@dataclass(frozen=True)
class GraphCall(TracedCall):
    """A call with a closed graph: (graph inputs) -> (slots)."""

    graph_module: fx.GraphModule
    slots: tuple[Slot, ...]  # one per forward output of the graph

    @property
    def wrapping(self) -> Wrapping | None:
        """The rewrite between the tensors that autograd sees and their parts that the graph takes, if there is one."""
        last = self.rewrites[-1] if self.rewrites else None
        return last if isinstance(last, Wrapping) else None

    @property
    def outer(self: Self) -> Self:
        """This call as autograd sees it: in whole tensors, where the graph has their parts."""
        return self if self.wrapping is None else self.wrapping.caller(self)

    def called(self, ref: Ref) -> str:
        """What the user calls a result or an input."""
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
    """The end of an export: a graph without a wrapper, and what its inputs and outputs are."""

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
class Heard:
    """A tensor that the caller holds, and that gradients of some slots pass inside the graph."""

    ref: Ref
    slots: tuple[int, ...]


@dataclass(frozen=True)
class JointCall(GraphCall):
    """A call whose graph is (graph inputs, tangents) -> (slots, one gradient or None per graph input)."""

    tangents: tuple[Tangent, ...]  # one per differentiable slot
    gradients: tuple[Gradient, ...]  # one per graph input; from the subclasses stage on, one per part of each
    heard: tuple[Heard, ...]  # what the caller may hang hooks on, and they would not be told all
    together: tuple[tuple[int, ...], ...]  # tangents that pass one custom autograd.Function of several results
    reshaped: tuple[int, ...]  # graph inputs: leaves that are given another shape before they are used
    kept_and_written: tuple[int, ...]  # graph inputs that the call writes, and saves by what is not told of writes

    @property
    def role(self) -> str:
        return "joint"


@dataclass(frozen=True)
class JointGraph(JointCall):
    """A joint graph that is ready to be partitioned: functional, named, described."""


@dataclass(frozen=True)
class SavedTensor:
    """One value that the forward keeps for the backward (SYSTEM.md G5)."""

    name: str
    is_symbol: bool
    value: Any  # fake tensor or symbolic number
    producer: str
    stack: str
    module: str
    why: str
    is_view: bool
    checked: bool = True  # the backward refuses it if it was written since; see tracing/kept_by_name.py
    donated: bool = False
    why_donated: str = ""
    hook: str = ""  # what a saved-tensor hook did to make it


@dataclass(frozen=True)
class Split(JointGraph):
    """A joint graph cut in two. The forward returns (slots, saved tensors, saved symbols)."""

    forward_module: fx.GraphModule
    backward_module: fx.GraphModule
    saved: tuple[SavedTensor, ...]  # tensors first, then symbols
    kept: tuple[int, ...]  # graph inputs to hold on to, should the gradients be differentiated again
    unpacked: Mapping[
        str, tuple[Any, list[str]]
    ]  # node of the forward -> a hook graph that gives it, and of what saved

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return {"forward": self.forward_module.graph, "backward": self.backward_module.graph}

    @property
    def differentiated(self) -> list[int]:
        """The inputs, as autograd sees them, that receive a gradient."""
        found = graphs.outputs(self.backward_module.graph)
        if self.wrapping is not None:
            counts = [1 if plan is None else plan.count for plan in self.wrapping.meta.gradients]
            found = [found[start] for start in accumulate([0, *counts[:-1]])]
        return [i for i, gradient in enumerate(found) if gradient is not None]

    @property
    def saved_tensor_count(self) -> int:
        return sum(not value.is_symbol for value in self.saved)

    @property
    def donated(self) -> tuple[int, ...]:
        """Backward graph inputs whose memory it may reuse: saved symbols come first there, then saved tensors."""
        symbols = len(self.saved) - self.saved_tensor_count
        return tuple(symbols + i for i, value in enumerate(self.saved) if value.donated)


@dataclass(frozen=True)
class AtHand:
    """What a backward has at hand, should its gradients be differentiated: values, and a way to the call's trace."""

    traced: Callable[[], JointCall]  # the call, with a trace to go on in
    saved: tuple[SavedTensor, ...]
    unpacked: Mapping[str, tuple[Any, list[str]]]  # as in Split
    origins: Mapping[str, str]  # of what is saved or unpacked -> the name of the trace's node
    kept: tuple[int, ...]
    differentiated: tuple[int, ...]
    passed: tuple[Ref, ...]  # results that a second derivative may pass


@dataclass(frozen=True)
class BackwardRequest(Form):
    """A backward graph to be compiled: late work, on first use."""

    backward_module: fx.GraphModule
    values: tuple[Any, ...]
    donated: tuple[int, ...]
    context: Any
    reason: str

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
    """The gradients of a program are to be differentiated themselves: late work, with create_graph=True.

    `tangents` says of each tangent of `call` whether it came in with a history (True), without (False), or not at
    all (None). `given` are results whose whole gradients come in besides, to which nothing is added. `wanted` is the
    result whose gradient is wanted, and None where the gradients of the inputs are. `held` are results that are at hand
    with the history that the call gave them, so that a second derivative can go on from there in autograd's own graph.
    """

    call_name: str
    at_hand: AtHand
    tangents: tuple[bool | None, ...]
    given: tuple[Ref, ...] = ()
    wanted: Ref | None = None
    held: tuple[Ref, ...] = ()

    @property
    def name(self) -> str:
        return f"gradient of {self.call_name}"


@dataclass(frozen=True)
class Note:
    """Lines first..last (1-based) of a source stand there because of `fact`, which is about `subject`."""

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
