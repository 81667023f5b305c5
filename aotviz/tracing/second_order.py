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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.fx as fx
from torch.autograd.graph import GradientEdge

from aotviz.ir import graphs, symbolic_sizes
from aotviz.ir.descriptors import InputDescriptor, PlainInput, parts_of
from aotviz.ir.forms import AtHand, FlatCall, GradientRequest, JointCall, JointGraph, SavedTensor, Split
from aotviz.ir.subclass_meta import PlainTensorMeta, Plan, SubclassLayout, flat_results, laid_out, made_by, plan
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.ir.view_and_mutation import Hook, InputAliasInfo, OutputAliasInfo, OutputType, Ref
from aotviz.torch_private import operators
from aotviz.torch_private.random_numbers import run_with_rng_state
from aotviz.tracing import fakes, functional, saved_values, views
from aotviz.tracing.backward import Autocasts, trace_gradients
from aotviz.tracing.open_trace import mark_backward
from aotviz.tracing.views import strides_in


class NotDifferentiableAgain(RuntimeError):
    """The gradients of a program cannot be differentiated; the message says why."""


@dataclass(frozen=True)
class Argument:
    """One input of the new call. `nodes` hold the values of its parts; None for an input whose contents are
    never read."""

    descriptor: PlainInput
    nodes: tuple[fx.Node | None, ...]
    value: Any  # fake tensor or symbolic number
    plan: Plan  # of its parts
    edge: GradientEdge | None  # where its gradient goes
    is_leaf: bool

    def flat(self) -> Iterator[tuple[fx.Node | None, Any, InputDescriptor]]:
        """(node, fake, descriptor) of each flat value."""
        parts = parts_of(self.descriptor, self.plan.paths())
        return zip(self.nodes, laid_out(self.value, self.plan), parts, strict=True)


@dataclass(frozen=True, eq=False)
class _Gradients:
    """What differentiating a call gives, and what it was given."""

    tangents: tuple[Any, ...]  # one per tangent of the call; None for a missing gradient
    wholes: tuple[Any, ...]  # one per given gradient of a result
    gradients: tuple[Any, ...]  # one per input, or for the one wanted result; None where there is none
    passed: tuple[Ref, ...] = ()  # results that a second derivative flows through
    ends: tuple[Ref, ...] = ()  # those of them where it ends


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
        self.incoming: tuple[Any, ...] = ()  # one per tangent of the outer call: its fake
        self.ends: tuple[Ref, ...] = ()  # see Note [Where a second derivative leaves the gradients]
        self._taken = False
        self.reads: frozenset[int] | None = None  # the inputs that the graph closed last reads, by position
        self.open.reopen()
        with fakes.rng_preserved(), self.open.active("is_forward"):
            made = self._differentiate()
            self.positions = tuple(i for i, gradient in enumerate(made.gradients) if gradient is not None)
            self.outputs = [gradient for gradient in made.gradients if gradient is not None]
            self.passed, self.ends = made.passed, made.ends
            self.arguments = self._arguments(made)
            self.output_info = self._output_info()
        self._before = frozenset(graphs.placeholders(self.open.graph))
        self._extraction = Extraction(self, ())
        self._shown = self._extraction.graph(self.open.nodes_of(self.outputs))
        self.plans = tuple(argument.plan for argument in self.arguments)
        self.edges = [argument.edge for argument in self.arguments]
        self.values_before = [argument.value for argument in self.arguments]
        self.args = [fakes.of_history(argument.value, argument.edge is not None) for argument in self.arguments]
        self.input_info = tuple(
            InputAliasInfo(isinstance(one.value, torch.Tensor), one.is_leaf, one.edge is not None, one.edge is not None)
            for one in self.arguments
        )

    def differentiated(self, outputs: Sequence[Any], edges: Sequence[Any], autocast: Autocasts) -> Any:
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
                for ref in forward.ends:
                    node, number, *_ = forward._place(ref)
                    stop = node.register_prehook(
                        lambda gradients, own=number: tuple(None if i == own else g for i, g in enumerate(gradients))
                    )
                    stack.callback(stop.remove)
                forward = forward.call.forward
            stack.enter_context(forward.placing_views())
            yield

    def _differentiate(self) -> _Gradients:
        call, forward = self.outer, self.call.forward
        request, outputs, incoming, cuts = self.request, [], [], []
        tangents: list[Any] = []
        layouts = request.layouts or (None,) * len(call.tangents)
        pairs = zip(call.tangents, layouts, strict=True)
        self.incoming = tuple(tangent.value if layout is None else self._other(layout) for tangent, layout in pairs)
        for tangent, fake, present in zip(call.tangents, self.incoming, request.tangents, strict=True):
            if present is None:
                tangents.append(None)
                continue
            value = self.open.functional(fake)
            value.requires_grad_(present)
            tangents.append(value)
            slot = call.slots[tangent.slot]
            outputs.append(forward.value(slot.kind, slot.index))
            incoming.append(value)
        wholes = tuple(self._whole(ref) for ref in request.given)
        for ref, value in zip(request.given, wholes, strict=True):
            outputs.append(forward.value(ref.kind, ref.index))
            incoming.append(value)
            cuts.append(outputs[-1].register_hook(lambda _, value=value: value))  # `value` is the whole gradient there
        mark_backward([output.grad_fn for output in outputs])
        reached = set(self.at_hand.differentiated)
        wanted = [edge if i in reached else None for i, edge in enumerate(forward.edges)]
        if request.wanted is not None:
            wanted = [forward.value(request.wanted.kind, request.wanted.index)]
        edges = [edge for edge in wanted if edge is not None]
        with self._differentiating():
            again = not request.given and request.wanted is None  # a cut is not differentiated a second time
            how = {"allow_unused": True, "retain_graph": True, "create_graph": again}
            found = iter(torch.autograd.grad(outputs, edges, incoming, **how) if outputs else ())
        for cut in cuts:
            cut.remove()
        self.open.close_effects()
        gradients = tuple(next(found, None) if edge is not None else None for edge in wanted)
        if not again:
            return _Gradients(tuple(tangents), wholes, gradients)
        nodes = set().union(*(functional.nodes_below(one) for one in gradients if one is not None))
        places = {ref: self._place(ref) for ref in self.at_hand.passed}  # the edge may still be that of an input
        passed = tuple(r for r, place in places.items() if place.node in nodes and place not in forward.edges)
        ends = tuple(ref for ref in passed if ref in request.held)
        self._refuse_hooks_on_results(nodes, ends)
        return _Gradients(tuple(tangents), wholes, gradients, passed, ends)

    def _value(self, ref: Ref) -> Any:
        forward = self.call.forward
        known: dict[str, Any] = {"input": forward.args, "output": forward.outputs, "member": forward.members}
        return known[ref.kind][ref.index]

    def _place(self, ref: Ref) -> GradientEdge:
        """The gradient edge of a result of the forward."""
        value = self._value(ref)
        return GradientEdge(functional.grad_fn(value), value.output_nr)

    def _refuse_hooks_on_results(self, passed: set[Any], ends: Sequence[Ref]) -> None:
        """Raise if a second derivative would flow through a result on which the function registers a hook."""
        forward = self.call.forward
        hooks = [step for step in self.outer.meta.replay if isinstance(step, Hook)]
        hooked = {ref for step in hooks for ref in (step.source, *step.others) if ref.kind != "input"}
        hooked.difference_update(ends)
        if any(functional.grad_fn(forward.value(ref.kind, ref.index)) in passed for ref in hooked):
            raise NotDifferentiableAgain(
                "a second derivative flows through a result with a gradient hook, and the hook would not be "
                "called. Register the hook on the gradient that you get, or run this part in eager"
            )

    def _other(self, layout: SubclassLayout) -> Any:
        """A placeholder for a tangent with another context than the first backward was compiled for. That backward
        converts such a tangent. What a custom backward does with it, and whether the result has a `grad_fn`, may depend
        on the context: that of `DTensor.from_local` is not differentiable for other placements."""
        parts = [fakes.empty_like_layout(self.open.fake_mode, *part) for part in layout.parts]
        for part in parts:
            self.open.placeholder("tangents_other", part)
        return made_by(layout.plan, iter(parts))

    def _whole(self, ref: Ref) -> Any:
        """A placeholder for the whole gradient of a result, contiguous."""
        value = functional.inner(self.call.forward.value(ref.kind, ref.index))
        size = tuple(value.shape)
        stride = strides_in(range(len(size)), size)
        fake = fakes.empty_like_layout(self.open.fake_mode, size, stride, value.dtype, value.device)
        self.open.placeholder("tangents_whole", fake)
        return self.open.functional(fake)

    def _arguments(self, found: _Gradients) -> list[Argument]:
        """See Note [What the new call takes]; `runtime.double_backward` passes them in the same order."""
        call, outer, forward = self.call, self.outer, self.call.forward
        made: list[Argument] = []
        one = PlainTensorMeta()

        def add(
            name: str, nodes: tuple[fx.Node | None, ...], value: Any, edge: GradientEdge | None, is_leaf: bool = True,
            how: Plan = one,
        ) -> None:  # fmt: skip
            made.append(Argument(PlainInput(len(made), name), nodes, value, how, edge, is_leaf))

        for saved in self.at_hand.saved:
            node = None if saved.hook else self.origins.get(saved.name)  # a packed value may have any node's name
            add(f"saved {saved.name}", (node,), _as_traced(saved.value, node), None)
        for index in self.at_hand.kept:
            node, value = forward.graph_input(index)
            add(str(call.graph_inputs[index]), (node,), value, None)
        for tangent, fake, value in zip(outer.tangents, self.incoming, found.tangents, strict=True):
            if value is not None:
                how = plan(fake)
                name = f"tangent of {outer.slots[tangent.slot].descriptor}"
                nodes = tuple(map(self.open.node_of, laid_out(fake, how)))
                add(name, nodes, fake, functional.edge(value), False, how)
        for ref, value in zip(self.request.given, found.wholes, strict=True):
            fake = functional.inner(value)
            add(f"gradient of {outer.called(ref)}", (self.open.node_of(fake),), fake, None)
        for index in self.at_hand.differentiated:
            is_leaf = outer.meta.input_info[index].is_leaf
            value, how = forward.values_before[index], forward.plans[index]
            if not is_leaf:
                value, how = fakes.shell(self.open.fake_mode, value), one
            add(str(outer.graph_inputs[index]), (None,) * how.count, value, forward.edges[index], is_leaf, how)
        for ref in self.ends:
            add(outer.called(ref), (None,), functional.inner(self._value(ref)), self._place(ref), False)
        return made

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
        node, value, _ = [part for argument in self.arguments for part in argument.flat()][index]
        return node, value

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
        tangents = [node for node in graphs.placeholders(self.open.graph) if node not in self._before]
        self._extraction = Extraction(self, tangents)
        graph = self._extraction.graph(results)
        self.reads = frozenset(position for position, node in enumerate(graphs.placeholders(graph)) if node.users)
        return self.open.graph_module(graph)

    def take(self) -> GradientTrace:
        """This trace, to be continued. A second caller gets a new one."""
        if self._taken:
            return GradientTrace(self.request).take()
        self._taken = True
        return self


class Extraction:
    """Copies from a trace what `results` depend on, up to the arguments."""

    def __init__(self, of: GradientTrace, tangents: Sequence[fx.Node]) -> None:
        self.open, self.arguments, self.tangents = of.open, of.arguments, tangents
        self.at_hand, self.known = of.at_hand, of.origins
        self.origins: dict[str, fx.Node] = {}
        self._copied: dict[fx.Node, fx.Node] = {}
        self._sizes: dict[Any, tuple[fx.Node, int | None]] = {}  # symbolic size -> (input, dimension)

    def graph(self, results: Sequence[Any]) -> fx.Graph:
        trace: fx.Graph = self.open.graph
        made = operators.empty_copy(trace)
        parts = (part for argument in self.arguments for part in argument.flat())
        for number, (node, value, part) in enumerate(parts, 1):
            self._placeholder(made, f"primals_{number}", value, part, node)
        for number, node in enumerate(self.tangents, 1):
            self._placeholder(made, f"tangents_{number}", node.meta["val"], node.meta.get("desc"), node)
        self._unpack(made)
        self._recognise(trace)
        needed = self._needed([node for node in flat_results(results) if isinstance(node, fx.Node)])
        for node in trace.nodes:
            if node in needed:
                self._copy(made, node)
        if len(needed.difference(self._copied)):
            raise self._refusal("it contains an operator with side effects")
        output = made.output(fx.map_arg(tuple(results), self._copied.__getitem__))
        output.meta["desc"] = [None] * len(results)
        return made

    def _placeholder(self, made: fx.Graph, name: str, value: Any, descriptor: Any, node: fx.Node | None) -> None:
        new = made.placeholder(name)
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

    def _unpack(self, made: fx.Graph) -> None:
        """Insert what the unpack graphs of saved tensor hooks return for packed values."""
        places = dict(zip((saved.name for saved in self.at_hand.saved), graphs.placeholders(made), strict=False))
        for packed, (hook, names) in self.at_hand.unpacked.items():
            node = self.known.get(packed)
            if node is not None:
                root, inputs = self.open.tracer.root, [places[name] for name in names]
                (self._copied[node],) = graphs.inlined(hook, root, made, inputs, "is_forward")

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

    def _needed(self, roots: list[fx.Node]) -> set[fx.Node]:
        """The nodes to copy: those that `roots` depend on, up to the arguments."""
        needed: set[fx.Node] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in needed or node in self._copied:
                continue
            needed.add(node)
            if self._size_of(node) is not None:
                continue
            if node.op == "placeholder":
                name = node.meta.get("desc") or node.name
                raise self._refusal(f"it depends on the value of {str(name)!r} before the call, which was not saved")
            if operators.is_random(node.target):
                raise self._refusal(f"it depends on the result of {node.target}, which was not saved")
            stack.extend(node.all_input_nodes)
        return needed

    def _refusal(self, why: str) -> NotDifferentiableAgain:
        if any(saved.hook for saved in self.at_hand.saved):
            why += " (saved tensor hooks that are graphs save only what they pack)"
        return NotDifferentiableAgain(f"{why}. Run this part in eager")

    def _size_of(self, node: fx.Node) -> tuple[fx.Node, int | None] | None:
        value = node.meta.get("val")
        return self._sizes.get(symbolic_sizes.expression(value)) if isinstance(value, SYMBOLIC) else None

    def _copy(self, made: fx.Graph, node: fx.Node) -> None:
        known = self._size_of(node)
        if known is None:
            new = made.node_copy(node, self._copied.__getitem__)
            if node.meta.get("partitioner_tag") != "is_backward":
                new.meta.pop("autograd_backward", None)
        elif known[1] is None:
            self._copied[node] = known[0]
            return
        else:
            new = made.call_function(torch.ops.aten.sym_size.int, known)
            new.meta = {"val": node.meta["val"], "partitioner_tag": node.meta.get("partitioner_tag", "is_forward")}
        self._copied[node] = new
        self.origins[new.name] = node


@dataclass(frozen=True)
class StoredTrace:
    """Stands for the trace of a program from the cache. `origins` as in AtHand."""

    origins: Mapping[str, str]


class TracesAgain(Protocol):
    def traced_again(self, source: FlatCall | GradientRequest) -> JointCall: ...


class Traced:
    """The call of a program with its trace; see Note [Traced once more]."""

    def __init__(self, call: Split, late: TracesAgain) -> None:
        is_stored = isinstance(call.forward, StoredTrace)
        self._call: JointCall | None = None if is_stored else call.then(JointCall)
        self._source, self._late = call.source, late
        compares = isinstance(call.source, FlatCall) and not call.is_graph and not is_stored
        self._fingerprint = _fingerprint(call.forward.open.graph) if compares else None

    def forget(self) -> None:
        self._call = None

    def __call__(self) -> JointCall:
        """Raises NotDifferentiableAgain if the function now gives another trace."""
        call = self._call
        if call is not None:
            return call
        call = self._late.traced_again(self._source)
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
    if isinstance(call.forward, StoredTrace):
        origins = call.forward.origins
    else:
        origins = _origins(call, [name for name in names if name not in inputs])
        closed_from = call.forward.closed_from()
        origins.update((name, closed_from[name].name) for name in drawn if name in closed_from)
    differentiated, passed = tuple(call.differentiated), tuple(saved_values.passed(call))
    unpacked = {**call.unpacked, **drawn}
    return AtHand(traced, tuple(saved), unpacked, inputs, origins, call.kept, differentiated, passed)


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


def _origins(call: Split, names: Sequence[str]) -> dict[str, str]:
    """Map nodes of the forward to the trace's nodes that have the same value, if that is certain."""
    traced = {node.name for node in call.graph_module.graph.nodes}
    forward = {node.name: node for node in call.forward_module.graph.nodes}
    closed_from = call.forward.closed_from()
    found = {}
    for name in names:
        node = forward.get(name)
        if node is None:  # a pack hook that ignores its argument
            continue
        if name not in traced and node.target is torch.ops.aten.clone.default:
            node = graphs.argument(node)  # the old value of an input that the call overwrites
        origin = closed_from.get(node.name) if node.name in traced else None
        if origin is None:
            continue
        if node.op != "call_function":
            found[name] = origin.name
        elif origin.target is node.target and _alike(origin.meta.get("val"), node.meta.get("val")):
            found[name] = origin.name  # otherwise a pass has replaced the node
    return found


def _fingerprint(graph: fx.Graph) -> int:
    """A hash that is equal for equal traces."""
    return hash("\n".join(f"{node.name} {node.target} {node.args} {node.kwargs}" for node in graph.nodes))


def _as_traced(value: Any, node: fx.Node | None) -> Any:
    """A saved value; if the trace has other symbols for its sizes, the trace's value."""
    now = None if node is None else node.meta.get("val")
    if isinstance(value, SYMBOLIC):
        return value if now is None or str(now) == str(value) else now
    differ = isinstance(now, torch.Tensor) and str(tuple(now.shape)) != str(tuple(value.shape))
    return now if differ else value


def _alike(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return symbolic_sizes.statically_equal(first.shape, second.shape) and first.dtype == second.dtype
    return type(first) is type(second)


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
    backward = [node for node in joint.nodes if node.meta.get("partitioner_tag") == "is_backward"]
    read = dict.fromkeys(n for node in backward for n in node.all_input_nodes)
    return [
        made[node.name]
        for node in read
        if not known[node]
        and node.meta.get("partitioner_tag") != "is_backward"
        and node.op == "call_function"
        and "recompute" not in node.meta
        and isinstance(node.meta.get("val"), torch.Tensor)
        and node.name in made
        and node.name not in taken
        and made[node.name].target is node.target
    ]


def kept_inputs(call: JointGraph, saved: set[str]) -> tuple[int, ...]:
    """Inputs that are not saved, and that a second differentiation may read directly or indirectly.

    Autograd keeps the forward values that a backward reads for all orders of differentiation. A partitioner may have
    saved other values, which suffice for the first backward only.
    """
    joint = call.graph_module.graph
    backward = {node for node in joint.nodes if node.meta.get("partitioner_tag") == "is_backward"}
    stack = [n for node in backward for n in node.all_input_nodes if n not in backward]
    seen: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if node in seen or node.name in saved:
            continue
        seen.add(node)
        stack.extend(node.all_input_nodes)
    inputs = graphs.placeholders(joint)[: len(call.graph_inputs)]
    infos = call.meta.input_info
    pairs = enumerate(zip(inputs, infos, strict=True))
    return tuple(i for i, (node, info) in pairs if node in seen and not info.mutated and info.is_tensor)
