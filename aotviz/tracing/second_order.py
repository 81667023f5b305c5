"""Differentiating the gradients of a trace, so that they can be compiled for `create_graph=True`.

The trace of a program holds the autograd graph of its forward. Here its outputs are differentiated again, with
`create_graph=True`, and the gradients become the outputs of a new call. So the backward of a custom `autograd.Function`
behaves as in eager, including its errors.

Note [Traced once more]
Few programs are differentiated twice, and a trace is several times as large as the graphs that run. So a program keeps
its trace only until its backward is compiled. If the trace is needed later, the stages that made it run again, on the
same function and fakes, under the same modes. A Python function may depend on something that has changed since, so the
new trace is compared with the old one's fingerprint.

Note [What the new call takes]
Its values are those that the first backward has: saved tensors, other kept tensors, and the tangents. A node of the
forward that was saved is an input here and not computed again; so random operators keep their results. Gradients go to
other inputs, one for each differentiable input of the first call: these are placeholders with that input's gradient
edge, and their contents are never read.

Note [Wholes and parts]
Autograd sees whole tensors, some of them subclasses; the saved values are parts, as the graph has them. So here a call
is described in wholes (`outer`), except for the saved and kept values. The new call goes through the stage "subclasses"
like any other.

Note [Where a second derivative leaves the gradients]
A gradient reads values of the forward, so its own derivative continues there: in eager, through the `grad_fn` of each
result on the way, where hooks are called, gradients are retained, and `torch.autograd.grad` may ask for them. So the
new call takes such results as arguments, with the `grad_fn` that the first call gave them, and its derivative ends
there. The engine continues from the results to the first call's node, and through that call's own backward.

Note [Tangents of another context]
The first backward converts a subclass of another context than it was compiled for. What a custom backward does with
such a tangent, and whether the result has a `grad_fn`, may depend on the context: that of `DTensor.from_local` is not
differentiable for other placements. So the gradients are traced for the tangent that came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
import torch.fx as fx
from torch.autograd.graph import GradientEdge

from aotviz.ir import graphs, symbolic_sizes
from aotviz.ir.descriptors import InputDescriptor, PlainInput, parts_of
from aotviz.ir.forms import AtHand, FlatCall, GradientRequest, JointCall, JointGraph, SavedTensor, Split
from aotviz.ir.subclass_meta import PlainTensorMeta, Plan, flat_results, laid_out, made_by, plan
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.ir.view_and_mutation import Hook, InputAliasInfo, OutputAliasInfo, OutputType, Ref
from aotviz.torch_private import operators
from aotviz.torch_private.random_numbers import run_with_rng_state
from aotviz.tracing import fakes, functional, views
from aotviz.tracing.backward import Autocasts, trace_gradients
from aotviz.tracing.open_trace import mark_backward
from aotviz.tracing.views import strides_in


class NotDifferentiableAgain(RuntimeError):
    """The gradients of a program cannot be differentiated; the message says why."""


@dataclass(frozen=True)
class Argument:
    """One input of the new call. `nodes` hold the values of its parts; None for an input whose contents are
    never read."""

    name: str
    nodes: tuple[fx.Node | None, ...]
    value: Any  # fake tensor or symbolic number
    plan: Plan = field(default_factory=PlainTensorMeta)  # of its parts
    edge: GradientEdge | None = None  # where its gradient goes
    is_leaf: bool = True


class GradientTrace:
    """Plays the role of a Run for the stages after "differentiate"."""

    with_gradients = True
    part_edges: Sequence[Any] = ()  # the first call refused parts with a grad_fn of their own
    members: Mapping[int, Any] = {}  # this call has no synthetic bases

    def __init__(self, request: GradientRequest) -> None:
        self.request, self.at_hand = request, request.at_hand
        self.call = call = self.at_hand.traced()
        self.outer = call.outer  # see Note [Wholes and parts]
        nodes = {node.name: node for node in call.forward.open.graph.nodes}
        origins = self.at_hand.origins.items()  # of an entry of the cache, some may be wrong: those are recomputed
        self.origins = {name: nodes[origin] for name, origin in origins if origin in nodes}
        for name, index in self.at_hand.inputs.items():
            node, _ = call.forward.graph_input(index)
            if node is not None:
                self.origins[name] = node
        self.open = call.forward.open
        # Results that a second derivative flows through, and those of them where it ends:
        # see Note [Where a second derivative leaves the gradients]
        self.passed: dict[Ref, torch.Tensor] = {}
        self.ends: dict[Ref, torch.Tensor] = {}
        self.positions: tuple[int, ...] = ()  # of the edges that have a gradient
        self.outputs: list[Any] = []  # these gradients
        self._taken = False
        self.reads: frozenset[int] | None = None  # the inputs that the graph closed last reads, by position
        self.open.reopen()
        with fakes.rng_preserved(), self.open.active("is_forward"):
            arguments = list(self._arguments(self._differentiate()))
            self.output_info = self._output_info()
        self._inputs = len(graphs.placeholders(self.open.graph))
        self.descriptors = tuple(PlainInput(index, one.name) for index, one in enumerate(arguments))
        self.plans = tuple(one.plan for one in arguments)
        self.edges = [one.edge for one in arguments]
        self.values_before = [one.value for one in arguments]
        self.args = [fakes.of_history(one.value, one.edge is not None) for one in arguments]
        self.input_info = tuple(
            InputAliasInfo(isinstance(one.value, torch.Tensor), one.is_leaf, one.edge is not None, one.edge is not None)
            for one in arguments
        )
        self.flat: list[tuple[fx.Node | None, Any, InputDescriptor]] = []  # one per graph input; the second is a fake
        for descriptor, one in zip(self.descriptors, arguments, strict=True):
            parts = parts_of(descriptor, one.plan.paths())
            self.flat += zip(one.nodes, laid_out(one.value, one.plan), parts, strict=True)
        self._extraction = Extraction(self, self.open.nodes_of(self.outputs))
        self._shown = self._extraction.graph

    def differentiated(self, outputs: Mapping[int, Any], edges: Sequence[Any], autocast: Autocasts) -> Any:
        """As that of a Run. The backward writes to no input: one that does so is not differentiated twice."""
        with self._differentiating():
            return *trace_gradients(self.open, outputs, edges, autocast), ()

    @contextmanager
    def _differentiating(self) -> Iterator[None]:
        """Stop gradients at results that are arguments here, of the differentiated call, and so on. There is nothing to
        refuse: the forward was checked when it was differentiated first."""
        with ExitStack() as stack:
            forward: Any = self
            while isinstance(forward, GradientTrace):
                for value in forward.ends.values():
                    node, number, *_ = _edge(value)
                    stop = node.register_prehook(
                        lambda gradients, own=number: tuple(None if i == own else g for i, g in enumerate(gradients))
                    )
                    stack.callback(stop.remove)
                forward = forward.call.forward
            stack.enter_context(forward.placing_views())
            yield

    def _differentiate(self) -> list[Argument]:
        """Trace the gradients. Returns what comes in for that."""
        outer, forward, request = self.outer, self.call.forward, self.request
        came: list[Argument] = []
        outputs, incoming, cuts = [], [], []
        for tangent, present, layout in zip_longest(outer.tangents, request.tangents, request.layouts):
            if present is not None:
                slot, fake = outer.slots[tangent.slot], tangent.value
                if layout is not None:  # see Note [Tangents of another context]
                    parts = [self._placeholder("tangents_other", *part) for part in layout.parts]
                    fake = made_by(layout.plan, iter(parts))
                incoming.append(functional.wrapped(fake).requires_grad_(present))
                outputs.append(forward.value(slot.kind, slot.index))
                how, edge = plan(fake), functional.edge(incoming[-1])
                nodes = tuple(map(self.open.node_of, laid_out(fake, how)))
                came.append(Argument(f"tangent of {slot.descriptor}", nodes, fake, how, edge, False))
        for ref in request.given:
            outputs.append(forward.value(ref.kind, ref.index))
            value = functional.inner(outputs[-1])
            size = tuple(value.shape)
            stride = strides_in(range(len(size)), size)
            fake = self._placeholder("tangents_whole", size, stride, value.dtype, value.device)
            incoming.append(whole := functional.wrapped(fake))
            cuts.append(outputs[-1].register_hook(lambda _, whole=whole: whole))  # the whole gradient there
            came.append(Argument(f"gradient of {outer.called(ref)}", (self.open.node_of(fake),), fake))
        mark_backward([output.grad_fn for output in outputs])
        edges = {i: forward.edges[i] for i in self.at_hand.differentiated}
        if request.wanted is not None:
            edges = {0: forward.value(request.wanted.kind, request.wanted.index)}
        again = not request.given and request.wanted is None  # a cut is not differentiated a second time
        with self._differentiating():
            options = {"allow_unused": True, "retain_graph": True, "create_graph": again}
            found = torch.autograd.grad(outputs, list(edges.values()), incoming, **options) if outputs else ()
        for cut in cuts:
            cut.remove()
        self.open.close_effects()
        gradients = {i: gradient for i, gradient in zip(edges, found, strict=False) if gradient is not None}
        self.positions, self.outputs = tuple(gradients), list(gradients.values())
        if again:
            self._find_ends()
        return came

    def _find_ends(self) -> None:
        """Find the results that a second derivative flows through, and those of them where it ends. Raise if it would
        pass by a hook that the function registers on one."""
        forward, meta = self.call.forward, self.outer.meta
        below = set[Any]().union(*map(functional.nodes_below, self.outputs))
        results = {Ref("input", i): value for i, value in enumerate(forward.args)}
        results |= {Ref("output", i): value for i, value in enumerate(forward.outputs)}
        results |= {Ref("member", i): value for i, value in forward.members.items()}
        results |= {Ref("base", i): forward.value("base", i) for i in range(len(meta.intermediate_bases))}
        for ref, value in results.items():
            edge = _edge(value) if isinstance(value, torch.Tensor) else None
            if edge is not None and edge.node in below and edge not in forward.edges:  # no input as it was
                self.passed[ref] = value
        self.ends = {ref: value for ref, value in self.passed.items() if ref in self.request.held}
        views = {info.made: Ref("output", i) for i, info in enumerate(meta.output_info)}
        hooks = (step for step in meta.replay if isinstance(step, Hook))
        hooked = {views.get(ref, ref) for step in hooks for ref in (step.source, *step.others) if ref.kind != "input"}
        unaffected = results.keys() - self.passed.keys()
        if hooked - unaffected - self.ends.keys():
            raise NotDifferentiableAgain(
                "a second derivative flows through a result with a gradient hook, and the hook would not be "
                "called. Register the hook on the gradient that you get, or run this part in eager"
            )

    def _placeholder(self, name: str, *layout: Any) -> torch.Tensor:
        fake = fakes.empty_like_layout(self.open.fake_mode, *layout)
        self.open.placeholder(name, fake)
        return fake

    def _arguments(self, came: Sequence[Argument]) -> Iterator[Argument]:
        """See Note [What the new call takes]; `runtime.double_backward` passes them in the same order."""
        call, outer, forward = self.call, self.outer, self.call.forward
        for saved in self.at_hand.saved:
            node = None if saved.hook else self.origins.get(saved.name)  # a packed value may have any node's name
            yield Argument(f"saved {saved.name}", (node,), _as_traced(saved.value, node))
        for index in self.at_hand.kept:
            node, value = forward.graph_input(index)
            yield Argument(str(call.graph_inputs[index]), (node,), value)
        yield from came
        for index in self.at_hand.differentiated:
            is_leaf = outer.meta.input_info[index].is_leaf and index not in self.request.no_leaves
            value, how = forward.values_before[index], forward.plans[index]
            if not is_leaf:
                value, how = fakes.shell(self.open.fake_mode, value), PlainTensorMeta()
            none = (None,) * how.count
            yield Argument(str(outer.graph_inputs[index]), none, value, how, forward.edges[index], is_leaf)
        for ref, value in self.ends.items():
            yield Argument(outer.called(ref), (None,), functional.inner(value), edge=_edge(value), is_leaf=False)

    def _output_info(self) -> tuple[OutputAliasInfo, ...]:
        first: dict[int, int] = {}
        same = [first.setdefault(id(output), index) for index, output in enumerate(self.outputs)]
        return tuple(
            OutputAliasInfo(
                OutputType.non_alias,
                requires_grad=output.requires_grad,
                has_tangent=output.requires_grad and earlier == index,
                layout=views.layout(functional.inner(output)),
                same_object_as=None if earlier == index else earlier,
            )
            for index, (output, earlier) in enumerate(zip(self.outputs, same, strict=True))
        )

    def graph_input(self, index: int) -> tuple[fx.Node | None, Any]:
        """The trace's node behind a graph input, and its fake."""
        return self.flat[index][:2]

    def closed_from(self) -> Mapping[str, fx.Node]:
        """The trace's nodes, by the names that they have in the graph that was closed last."""
        return self._extraction.origins

    def value(self, kind: str, index: int) -> Any:
        return self.outputs[index]

    def graph(self) -> fx.Graph:
        """The graph of the gradients, without nodes that a later stage traced after it."""
        return self._shown

    def closed(self, results: Sequence[Any]) -> fx.GraphModule:
        """The graph module that computes `results` from the arguments and then the tangents of this call."""
        self._extraction = Extraction(self, results, graphs.placeholders(self.open.graph)[self._inputs :])
        placeholders = graphs.placeholders(self._extraction.graph)
        self.reads = frozenset(position for position, node in enumerate(placeholders) if node.users)
        return self.open.graph_module(self._extraction.graph)

    def take(self) -> GradientTrace:
        """This trace, to be continued. A second caller gets a new one."""
        if self._taken:
            return GradientTrace(self.request).take()
        self._taken = True
        return self


def _edge(result: torch.Tensor) -> GradientEdge:
    return GradientEdge(functional.grad_fn(result), result.output_nr)


class Extraction:
    """Copies from a trace what `results` depend on, up to the arguments and the `tangents`."""

    def __init__(self, of: GradientTrace, results: Sequence[Any], tangents: Sequence[fx.Node] = ()) -> None:
        trace: fx.Graph = of.open.graph
        self.graph = operators.empty_copy(trace)
        self.origins: dict[str, fx.Node] = {}  # name of a node -> the trace's node
        self._copied: dict[fx.Node, fx.Node] = {}
        self._sizes: dict[Any, tuple[fx.Node, int | None]] = {}  # symbolic size -> (input, dimension)
        self._packs = any(saved.hook for saved in of.at_hand.saved)
        for number, (node, value, descriptor) in enumerate(of.flat, 1):
            self._placeholder(f"primals_{number}", value, descriptor, node)
        for number, node in enumerate(tangents, 1):
            self._placeholder(f"tangents_{number}", node.meta["val"], node.meta.get("desc"), node)
        self._unpack(of)
        self._recognise(trace)
        needed = {node for node in flat_results(results) if isinstance(node, fx.Node)}
        for node in reversed(trace.nodes):
            if node in needed and node not in self._copied and self._size_of(node) is None:
                self._refuse_lost(node)
                needed.update(node.all_input_nodes)
        for node in trace.nodes:
            if node in needed and node not in self._copied:
                self._copy(node)
        if not needed <= self._copied.keys():
            raise self._refusal("it contains an operator with side effects")
        output = self.graph.output(fx.map_arg(tuple(results), self._copied.__getitem__))
        output.meta["desc"] = [None] * len(results)

    def _placeholder(self, name: str, value: Any, descriptor: Any, node: fx.Node | None) -> None:
        new = self.graph.placeholder(name)
        new.meta["val"] = value
        new.meta["desc"] = descriptor
        if node is not None:
            self._copied.setdefault(node, new)
            self.origins[new.name] = node
        if isinstance(value, SYMBOLIC):
            self._sizes.setdefault(symbolic_sizes.expression(value), (new, None))
        elif isinstance(value, torch.Tensor):
            for dimension, size in enumerate(value.shape):
                if not symbolic_sizes.is_concrete(size):
                    self._sizes.setdefault(symbolic_sizes.expression(size), (new, dimension))

    def _unpack(self, of: GradientTrace) -> None:
        """Insert what the unpack graphs of saved tensor hooks return for packed values."""
        names = (saved.name for saved in of.at_hand.saved)
        places = dict(zip(names, graphs.placeholders(self.graph), strict=False))
        for packed, (hook, taken) in of.at_hand.unpacked.items():
            node = of.origins.get(packed)
            if node is not None:
                inputs = [places[name] for name in taken]
                (self._copied[node],) = graphs.inlined(hook, of.open.tracer.root, self.graph, inputs, "is_forward")

    def _recognise(self, trace: fx.Graph) -> None:
        """Use saved values also for nodes that compute them again, as happens when a backward is traced twice."""
        saved = {self._work(node): new for node, new in self._copied.items() if node.op == "call_function"}
        for node in trace.nodes if saved else ():
            if node.op == "call_function" and node not in self._copied:
                known = saved.get(self._work(node))
                if known is not None and not operators.is_random(node.target):
                    self._copied[node] = known

    @staticmethod
    def _work(node: fx.Node) -> Any:
        return node.target, str(node.args), str(node.kwargs)

    def _refuse_lost(self, node: fx.Node) -> None:
        """Raise if a node cannot be computed again."""
        if node.op == "placeholder":
            name = node.meta.get("desc") or node.name
            raise self._refusal(f"it depends on the value of {str(name)!r} before the call, which was not saved")
        if operators.is_random(node.target):
            raise self._refusal(f"it depends on the result of {node.target}, which was not saved")

    def _refusal(self, why: str) -> NotDifferentiableAgain:
        if self._packs:
            why += " (saved tensor hooks that are graphs save only what they pack)"
        return NotDifferentiableAgain(f"{why}. Run this part in eager")

    def _size_of(self, node: fx.Node) -> tuple[fx.Node, int | None] | None:
        value = node.meta.get("val")
        return self._sizes.get(symbolic_sizes.expression(value)) if isinstance(value, SYMBOLIC) else None

    def _copy(self, node: fx.Node) -> None:
        given, dimension = self._size_of(node) or (None, None)
        if given is None:
            new = self.graph.node_copy(node, self._copied.__getitem__)
            if node.meta.get("partitioner_tag") != "is_backward":
                new.meta.pop("autograd_backward", None)
        elif dimension is None:
            new = given
        else:
            new = self.graph.call_function(torch.ops.aten.sym_size.int, (given, dimension))
            new.meta = {"val": node.meta["val"], "partitioner_tag": node.meta.get("partitioner_tag", "is_forward")}
        self._copied[node] = new
        self.origins.setdefault(new.name, node)


@dataclass(frozen=True)
class StoredTrace:
    """Stands for the trace of a program from the cache. `origins` as in AtHand."""

    origins: Mapping[str, str]


class Traced:
    """The call of a program with its trace; see Note [Traced once more]."""

    def __init__(self, call: Split, again: Callable[[FlatCall | GradientRequest], JointCall]) -> None:
        is_stored = isinstance(call.forward, StoredTrace)
        self._call: JointCall | None = None if is_stored else call.then(JointCall)
        self._source, self._again = call.source, again
        compares = isinstance(call.source, FlatCall) and not call.is_graph and not is_stored
        self._fingerprint = _fingerprint(call.forward.open.graph) if compares else None

    def forget(self) -> None:
        self._call = None

    def __call__(self) -> JointCall:
        """Raises NotDifferentiableAgain if the function now gives another trace."""
        call = self._call
        if call is not None:
            return call
        call = self._again(self._source)
        if self._fingerprint not in (None, _fingerprint(call.forward.open.graph)):
            raise NotDifferentiableAgain(
                "tracing it once more gave another graph. The function depends on something that has changed since it "
                "was compiled, other than its arguments; compile it again"
            )
        return call


def at_hand(call: Split, saved: Sequence[SavedTensor], traced: Callable[[], JointCall]) -> AtHand:
    """What a program keeps so that its gradients can be differentiated. `saved` are in the layout that the compiled
    forward gives them."""
    drawn = _drawn_again(call)
    names = (*(one.name for one in saved), *call.unpacked)
    placeholders = graphs.placeholders(call.forward_module.graph)[: len(call.graph_inputs)]
    inputs = {node.name: index for index, node in enumerate(placeholders) if node.name in names}
    made = [name for name in names if name not in inputs]
    origins = call.forward.origins if isinstance(call.forward, StoredTrace) else _origins(call, made, drawn)
    unpacked = {**call.unpacked, **drawn}
    return AtHand(traced, tuple(saved), unpacked, inputs, origins, call.kept, tuple(call.differentiated))


def _drawn_again(call: Split) -> dict[str, tuple[fx.GraphModule, list[str]]]:
    """The random values that the backward draws again from a saved state, each with the graph that does so."""
    module, saved = call.backward_module, {one.name for one in call.saved}
    found = {}
    for node in module.graph.nodes:
        if node.target is run_with_rng_state:
            graph = graphs.alone(module.graph, node)
            names = [taken.name for taken in graphs.placeholders(graph)]
            if saved.issuperset(names):
                found[node.name] = fx.GraphModule(module, graph), names
    return found


def _origins(call: Split, names: Sequence[str], drawn: Iterable[str]) -> dict[str, str]:
    """Map nodes of the forward, and random values, to the trace's nodes that have the same value, if that is
    certain."""
    traced = {node.name for node in call.graph_module.graph.nodes}
    forward = {node.name: node for node in call.forward_module.graph.nodes}
    closed_from = call.forward.closed_from()
    found = {name: closed_from[name].name for name in drawn if name in closed_from}
    for name in names:
        node = forward.get(name)
        if node is None:  # a pack hook that ignores its argument
            continue
        if name not in traced and node.target is torch.ops.aten.clone.default:
            node = graphs.argument(node)  # the old value of an input that the call overwrites
        origin = closed_from.get(node.name) if node.name in traced else None
        if origin is not None and (node.op != "call_function" or _alike(origin, node)):  # or a pass has replaced it
            found[name] = origin.name
    return found


def _fingerprint(graph: fx.Graph) -> int:
    """A hash that is equal for equal traces."""
    return hash("\n".join(f"{node.name} {node.target} {node.args} {node.kwargs}" for node in graph.nodes))


def _as_traced(value: Any, node: fx.Node | None) -> Any:
    """A saved value in the layout of the compiled forward; if the trace has other symbols for its sizes, the trace's
    value."""
    now = None if node is None else node.meta.get("val")
    alike = isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor) and str(now.shape) == str(value.shape)
    return value if now is None or alike else now


def _alike(one: fx.Node, other: fx.Node) -> bool:
    first, second = one.meta.get("val"), other.meta.get("val")
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        same = symbolic_sizes.statically_equal(first.shape, second.shape) and first.dtype == second.dtype
        return same and one.target is other.target
    return type(first) is type(second) and one.target is other.target


def besides(call: JointGraph, forward: fx.GraphModule, taken: set[str], saved: set[str]) -> list[fx.Node]:
    """Nodes of the forward that a second differentiation would read and cannot compute from what is available.

    Available are saved values, and inputs that are not written. A value computed from an input that the call overwrites
    is lost unless it is saved too, as eager does. `saved` are the names of saved values, `taken` those of the
    backward's own nodes. Values that a partitioner chose to recompute are not saved here: it was told to save memory.
    """
    joint = call.graph_module.graph
    made = {node.name: node for node in forward.graph.nodes}
    inputs = graphs.placeholders(joint)[: len(call.graph_inputs)]
    gone = {n for n, info in zip(inputs, call.meta.input_info, strict=True) if info.is_tensor and info.mutated}
    known: dict[fx.Node, bool] = {}
    for node in joint.nodes:
        known[node] = node.name in saved or (node not in gone and all(known[n] for n in node.all_input_nodes))
    return [
        made[node.name]
        for node in _read_by_backward(joint)
        if not known[node]
        and node.op == "call_function"
        and "recompute" not in node.meta
        and isinstance(node.meta.get("val"), torch.Tensor)
        and node.name not in taken
        and node.name in made
        and made[node.name].target is node.target
    ]


def kept_inputs(call: JointGraph, saved: set[str]) -> tuple[int, ...]:
    """Inputs that are not saved, and that a second differentiation may read directly or indirectly.

    Autograd keeps the forward values that a backward reads for all orders of differentiation. A partitioner may have
    saved other values, which suffice for the first backward only.
    """
    joint = call.graph_module.graph
    read = set(_read_by_backward(joint))
    for node in reversed(joint.nodes):
        if node in read and node.name not in saved:
            read.update(node.all_input_nodes)
    inputs = zip(graphs.placeholders(joint), call.meta.input_info, strict=False)
    wanted = (node in read and node.name not in saved and not one.mutated and one.is_tensor for node, one in inputs)
    return tuple(i for i, is_wanted in enumerate(wanted) if is_wanted)


def _read_by_backward(joint: fx.Graph) -> list[fx.Node]:
    """The nodes of the forward whose values the backward's nodes read."""
    backward = dict.fromkeys(node for node in joint.nodes if node.meta.get("partitioner_tag") == "is_backward")
    return list(dict.fromkeys(n for node in backward for n in node.all_input_nodes if n not in backward))
