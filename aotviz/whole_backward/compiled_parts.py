"""Lowers a captured backward: what lies between two calls of Python becomes one graph for the compiler.

A part is a run of steps that only compute. A hook, a backward of a custom autograd.Function or anything else that calls
Python ends it. Gradients that are ready inside a part are accumulated right behind it, since no Python runs before that
could tell.

A part is compiled when it first runs, for the layouts of its inputs, since C++'s key says nothing of strides. Where
only sizes and strides differ from an earlier run, it is compiled once more, with symbols for what varies. With
`dynamic=True`, all sizes are symbols at once, except those of parameters. After `MOST_PROGRAMS`, it runs operator by
operator.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.forms import Reason
from aotviz.recording.guard_texts import ALSO, MOST_TOLD
from aotviz.torch_private.modules import boxed, graph_module
from aotviz.torch_private.runtime import marked_dims
from aotviz.whole_backward import steps
from aotviz.whole_backward.captured import Account, PartedBackward, WholeBackward
from aotviz.whole_backward.dead_nodes import has_effects
from aotviz.whole_backward.reasons import HOOKS

MOST_PROGRAMS = 8
MOST_LAYOUTS = 256  # whose program is looked up, and not searched
Run = Callable[[list[Any], Sequence[torch.Tensor]], Sequence[Any]]  # of inputs, which it may empty, and of leaves
Holds = Callable[[Sequence[Any]], bool]  # whether a program is right for some inputs
Layouts = Mapping[str, Any]  # name of an input -> the layout that a program was compiled for
Symbols = tuple[tuple[int, ...], ...]  # per input, the dimensions whose sizes vary; (0,) for a number that varies


@dataclass(frozen=True)
class Compiled:
    """A program of a part. `holds` tells for which inputs it is right; None if for those of one layout only."""

    run: Callable[[list[Any]], Sequence[Any]]  # takes the inputs in a list, which it may empty
    holds: Holds | None


Compiler = Callable[["Part", fx.GraphModule, Sequence[Any], Symbols | None, tuple[str, ...]], Compiled]
"""(part, its graph, inputs of it, what varies among these, why earlier programs don't do) -> a program."""


GivesUp = Callable[["Part", fx.GraphModule, Sequence[Any], tuple[str, ...]], None]
"""Told once that a part has its last program: (part, its graph, inputs that no program fits, why none does)."""


class CompiledParts:
    """How the parts of captured backwards are compiled. It remembers the layouts of each backward's parts, so that a
    backward that is captured again for other sizes is compiled with symbols at once."""

    def __init__(self, compiler: Compiler, gives_up: GivesUp) -> None:
        self._part = functools.partial(Part, compiler, gives_up)
        self._parts: dict[tuple[str, ...], list[Part]] = {}  # names of autograd's nodes -> those of the last capture

    def run(self, call: WholeBackward) -> PartedBackward:
        """WholeBackward -> PartedBackward."""
        names = tuple(visit.name for visit in call.visits)
        earlier = [part.layouts for part in self._parts.get(names, ())]
        lowered, self._parts[names] = _lowered(self._part, earlier, call)
        return lowered


def _lowered(
    part_of: Callable[..., Part], earlier: Sequence[Layouts], call: WholeBackward
) -> tuple[PartedBackward, list[Part]]:
    graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
    parts: list[Part] = []
    in_place = call.options.keep_inference_input_mutations  # otherwise sums are written back after all are computed

    def is_late(node: fx.Node) -> bool:
        return node.target is steps.accumulate_grad and not (in_place and node.meta["adds"])

    for kind, nodes in _split(call.graph, is_late):
        if kind == "part" and any(node.target not in (steps.add, steps.accumulate_grad) for node in nodes):
            number = len(parts)
            part = part_of(nodes, call, number, earlier[number] if number < len(earlier) else {})
            parts.append(part)
            about = {"visit": nodes[0].meta["visit"]}
            leaves = [made[node] for node in part.leaves]
            given = [made[node] for node in part.inputs]
            for leaf, name in zip(leaves, part.names[len(given) :], strict=True):
                given.append(graph.create_node("call_function", steps.gradient_of, (leaf,), name=name))
                given[-1].meta |= about
            result = graph.call_function(part, (given, leaves) if leaves else (given,))
            result.meta |= about
            for index, node in enumerate(part.outputs):
                made[node] = graph.create_node("call_function", operator.getitem, (result, index), name=_named(node))
                made[node].meta["visit"] = node.meta["visit"]
        else:
            for node in nodes:
                made[node] = graph.node_copy(node, made.__getitem__)
    for node in graph.find_nodes(op="call_function", target=steps.accumulate_grad):
        gradient = node.args[1]
        is_item = isinstance(gradient, fx.Node) and gradient.target is operator.getitem
        if is_item and len(gradient.users) == 1 and isinstance(graphs.argument(gradient).target, Part):
            node.kwargs = {**node.kwargs, "is_own": True}
    reasons = tuple(Reason(part.__name__, f"{len(part.module.graph.nodes)} nodes, one graph") for part in parts)
    numbers = {node: number for number, part in enumerate(parts) for node in part.nodes}
    return call.then(PartedBackward, graph=graph, account=_account(call, numbers), evidence=reasons), parts


def _named(output: fx.Node) -> str:
    """The name of a part's output: a gradient that is accumulated is called after its leaf."""
    for user in output.users:
        leaf = user.args[0] if user.target is steps.accumulate_grad else None
        if isinstance(leaf, fx.Node):
            return f"grad_{leaf.name}"
    return output.name


def _split(graph: fx.Graph, is_late: Callable[[fx.Node], bool]) -> Iterator[tuple[str, list[fx.Node]]]:
    """("part" or "python", nodes), in an order in which they can run. Calls that are late follow a part."""
    yield "python", list(graph.find_nodes(op="get_attr"))
    part: list[fx.Node] = []
    behind: list[fx.Node] = []
    for node in graph.nodes:
        if node.op == "get_attr":
            continue
        if node.op == "call_function" and _takes_from_python(node):
            yield "python", [node]
        elif node.op == "call_function" and is_late(node):
            behind.append(node)
        elif node.op == "call_function" and (node.target is steps.accumulate_grad or not has_effects(node)):
            part.append(node)
        else:
            yield "part", part
            yield "python", [*behind, node]
            part, behind = [], []


def _takes_from_python(node: fx.Node) -> bool:
    """Whether it takes an item out of what Python returned, or of what C++ hands over."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and (source.op == "placeholder" or has_effects(source))


def _account(call: WholeBackward, parts: Mapping[fx.Node, int]) -> tuple[Account, ...]:
    """One account per visit, for the workbench's view "Backward". `parts` gives the number of the compiled part of each
    node that is in one."""
    steps: list[list[fx.Node]] = [[] for _ in call.visits]
    last: dict[fx.Node, int] = {}  # inputs -> the visit that reads them last
    for node in call.graph.nodes:
        visit = node.meta.get("visit", -1)
        if node.op == "call_function" and visit >= 0:
            steps[visit].append(node)
            last |= {one: visit for one in node.all_input_nodes if one.op == "placeholder"}
    frees: list[list[str]] = [[] for _ in call.visits]
    inputs = call.graph.find_nodes(op="placeholder")
    for node, _ in zip(inputs, call.inputs, strict=False):  # without hooks and packed values, which the caller keeps
        if node in last:
            frees[last[node]].append(node.name)
    return tuple(
        Account(
            steps=tuple(node.name for node in some),
            hooks=tuple(HOOKS[node.target] for node in some if node.target in HOOKS),
            waits_for=_waits_for(position, some),
            frees=tuple(frees[position]),
            parts=tuple(dict.fromkeys(parts[node] for node in some if node in parts)),
            copied=next((node.name.split("_")[0] for node in some if node.meta.get("is_copied")), ""),
        )
        for position, some in enumerate(steps)
    )


def _waits_for(position: int, steps: list[fx.Node]) -> tuple[int, ...]:
    read = (one.meta.get("visit", -1) for node in steps for one in node.all_input_nodes if one.op == "call_function")
    return tuple(dict.fromkeys(visit for visit in read if visit not in (position, -1)))


class Part:
    """Steps that only compute, as a function of a list of inputs, which it empties; it returns a list.

    The last inputs are the gradients of `leaves`, to which it adds. What it adds in place is a tensor like those that
    operators make; to a sparse gradient, or if there is none, it is added behind the part.
    """

    def __init__(
        self,
        compiler: Compiler,
        gives_up: GivesUp,
        nodes: Sequence[fx.Node],
        call: WholeBackward,
        number: int,
        earlier: Layouts,
    ) -> None:
        self.__name__, self.title = f"part_{number}", f"{call.name}, part {number}"
        self.backward = call.number
        self._compiler, self._gives_up, self._dynamic = compiler, gives_up, bool(call.options.dynamic)
        self.nodes = tuple(nodes)
        adding = [node for node in nodes if node.target is steps.accumulate_grad]
        inside, computing = set(nodes), [node for node in nodes if node.target is not steps.accumulate_grad]
        read = [one for node in computing for one in node.all_input_nodes]
        read += [node.args[1] for node in adding if isinstance(node.args[1], fx.Node)]
        self.inputs = list(dict.fromkeys(one for one in read if one not in inside))
        self.leaves: list[Any] = [node.args[0] for node in adding]
        self.outputs = [node for node in computing if any(user not in inside for user in node.users)]
        graph = fx.Graph()
        made = {node: graph.placeholder(node.name) for node in self.inputs}
        olds = iter([graph.placeholder(f"{leaf.name}_grad") for leaf in self.leaves])
        self.names = [node.name for node in graph.nodes]
        for node in nodes:
            if node.target is steps.accumulate_grad:
                gradient = fx.map_arg(node.args[1], made.__getitem__)
                graph.call_function(steps.add_to_gradient, (next(olds), gradient)).meta |= node.meta
            else:
                made[node] = graph.node_copy(node, made.__getitem__)
        graph.output(tuple(made[node] for node in self.outputs))
        self.module = graph_module(torch.nn.Module(), graph)
        self._earlier = earlier
        self.layouts: Layouts = earlier
        self._known: dict[Any, Run] = {}  # layouts of all inputs -> the program for them
        self._varying: list[tuple[Any, Holds, Run]] = []  # (kinds of all inputs, for which of them, a program)
        self._seen: dict[Any, list[tuple[Any, ...]]] = {}  # kinds of all inputs -> the layouts that were compiled
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, inputs: list[Any], leaves: Sequence[torch.Tensor] = ()) -> Sequence[Any]:
        layouts = tuple(map(_layout, inputs))
        program = self._known.get(layouts)
        if program is None:
            if not self._lock.acquire(blocking=False):  # it is being compiled: see Note [Locks]
                program = self._plain(inputs)
            else:
                try:
                    program = self._known.get(layouts) or self._found(layouts, inputs)
                finally:
                    self._lock.release()
        return program(inputs, leaves)

    def _plain(self, inputs: Sequence[Any]) -> Run:
        """The part operator by operator."""
        apart = self._apart(inputs)
        module, taken = self._specialized(inputs, None, apart)
        return self._with_sums_apart(boxed(module), taken, apart)

    def _apart(self, inputs: Sequence[Any]) -> list[int]:
        """The positions of the gradients to which the part does not add by itself."""
        return [k for k in range(len(inputs))[len(self.inputs) :] if not steps.is_plain(inputs[k])]

    def _found(self, layouts: tuple[Any, ...], inputs: Sequence[Any]) -> Run:
        kinds = tuple(map(_kind, layouts))
        fit = (run for kind, holds, run in self._varying if kind == kinds and holds(inputs))
        program = next(fit, None) or self._compiled(kinds, layouts, inputs)
        if len(self._known) < MOST_LAYOUTS:
            self._known[layouts] = program
        return program

    def _compiled(self, kinds: Any, layouts: tuple[Any, ...], inputs: Sequence[Any]) -> Run:
        apart = self._apart(inputs)
        seen = self._seen.setdefault(kinds, [])
        reasons = tuple(self._difference(one, layouts) for one in reversed(seen))
        self._count += 1
        if self._count > MOST_PROGRAMS:
            if self._count == MOST_PROGRAMS + 1:
                self._gives_up(self, self.module, inputs, reasons)
            return self._plain(inputs)
        before = self._of_the_earlier_capture(layouts)
        varying = tuple(_varies(*some) for some in zip(*before, *seen, layouts, strict=True))
        sizes = None if self._dynamic else _marked_sizes(inputs)
        varying = tuple(
            some
            if i >= len(self.inputs) or isinstance(inputs[i], torch.nn.Parameter)
            else tuple(sorted({*some, *_may_vary(layouts[i], sizes)}))
            for i, some in enumerate(varying)
        )
        symbols = varying if any(varying) else None  # None also if only strides differ
        seen.append(layouts)
        self.layouts = dict(zip(self.names, layouts, strict=True))
        module, taken = self._specialized(inputs, symbols, apart)
        given = [inputs[i] for i in taken]
        theirs = None if symbols is None else tuple(symbols[i] for i in taken)
        made = self._compiler(self, module, given, theirs, reasons)
        run = self._with_sums_apart(made.run, taken, apart)
        if made.holds is not None:
            holds = made.holds
            self._varying.append((kinds, lambda inputs: holds([inputs[i] for i in taken]), run))
        return run

    def _with_sums_apart(
        self, program: Callable[[list[Any]], Sequence[Any]], taken: list[int], apart: list[int]
    ) -> Run:
        """A program of the inputs at positions `taken`, as one of all inputs and the leaves. Behind its results it has
        what is to be added to the gradients at positions `apart`."""
        first, count = len(self.inputs), len(self.outputs)

        def run(inputs: list[Any], leaves: Sequence[torch.Tensor]) -> Sequence[Any]:
            given = [inputs[i] for i in taken]
            inputs.clear()
            results = program(given)
            for position, gradient in zip(apart, results[count:], strict=True):
                steps.accumulate_grad(leaves[position - first], gradient)
            return results

        return run

    def _of_the_earlier_capture(self, layouts: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The layouts for which this part was compiled in an earlier capture. A number that it did not take varies."""
        if not self._earlier:
            return []
        known = [self._earlier.get(name) for name in self.names]
        otherwise = [_ANOTHER if type(now) is int else now for now in layouts]
        each = zip(known, layouts, otherwise, strict=True)
        return [tuple(was if _kind(was) == _kind(now) else other for was, now, other in each)]

    def _specialized(
        self, inputs: Sequence[Any], symbols: Symbols | None, apart: Collection[int]
    ) -> tuple[fx.GraphModule, list[int]]:
        """The graph for these inputs, and which of them it takes. The others (numbers that don't vary, modules, missing
        gradients) are constants of the graph. It returns what is added to the gradients `apart`, and doesn't add it."""
        graph, made, root = fx.Graph(), dict[fx.Node, Any](), torch.nn.Module()
        taken: list[int] = []
        for i, node in enumerate(self.module.graph.find_nodes(op="placeholder")):
            value = inputs[i]
            if i in apart:
                continue
            if isinstance(value, torch.Tensor) or (symbols is not None and symbols[i]):
                made[node] = graph.placeholder(node.name)
                taken.append(i)
            elif isinstance(value, torch.nn.Module):
                root.add_module(node.name, value)
                made[node] = graph.get_attr(node.name)
            else:
                made[node] = value
        added = []
        for node in self.module.graph.nodes:
            if node.target is steps.add_to_gradient and node.args[0] not in made:
                added.append(fx.map_arg(node.args[1], made.__getitem__))
            elif node.op == "output":
                graph.output((*fx.map_arg(graphs.outputs(self.module.graph), made.__getitem__), *added))
            elif node.op != "placeholder":
                made[node] = graph.node_copy(node, made.__getitem__)
        return graph_module(root, graph), taken

    def _difference(self, before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
        """How the inputs differ from those that a program was compiled for, in words that explain/guard_failures.py
        reads. A change that several have in common is told of one, numbers are told where no tensor changed."""
        sizes: dict[tuple[int, int], str] = {}
        strides: list[str] = []
        numbers: dict[tuple[Any, Any], str] = {}
        for name, was, one in zip(self.names, before, now, strict=True):
            takes = f"the part takes {name}"
            if was == one:
                continue
            if not isinstance(one, tuple):
                numbers.setdefault((was, one), f"{takes}, which was {was} and is {one}")
            elif was[0] == one[0]:
                strides.append(f"{takes}, whose strides were {was[1]} and are {one[1]}")
            else:
                for k, change in enumerate(zip(was[0], one[0], strict=True)):
                    if change[0] != change[1]:
                        sizes.setdefault(change, f"{takes}, whose size {k} was {change[0]} and is {change[1]}")
        return ALSO.join((list(sizes.values()) or strides or list(numbers.values()))[:MOST_TOLD])


_ANOTHER = object()  # a number that differs from all others


def _layout(value: Any) -> Any:
    """What a program is compiled for."""
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout is torch.strided else value.layout
        return value.shape, strides, value.dtype, value.device, type(value)
    return value


def _kind(layout: Any) -> Any:
    """What of a layout stays as it is where only sizes and strides vary."""
    if isinstance(layout, tuple):
        shape, strides, *others = layout
        return len(shape), torch.strided if isinstance(strides, tuple) else strides, *others
    return int if type(layout) is int else layout


def _varies(*layouts: Any) -> tuple[int, ...]:
    """The dimensions in which layouts of one kind differ; (0,) for numbers that differ."""
    if isinstance(layouts[0], tuple):
        shapes = [one[0] for one in layouts]
        return tuple(k for k in range(len(shapes[0])) if len({shape[k] for shape in shapes}) > 1)
    return (0,) if len(set(layouts)) > 1 else ()


def _may_vary(layout: Any, sizes: Collection[int] | None) -> tuple[int, ...]:
    """All that can be a symbol, as `_varies` tells it; only numbers that are in `sizes`, if given."""
    numbers = layout[0] if isinstance(layout, tuple) else (layout,) if type(layout) is int else ()
    return tuple(k for k, number in enumerate(numbers) if sizes is None or number in sizes)


def _marked_sizes(inputs: Sequence[Any]) -> set[int]:
    """The sizes that were symbolic in the forward. What has one of these sizes varies with it: a gradient has the size
    of a result, and has no mark."""
    tensors = (value for value in inputs if isinstance(value, torch.Tensor))
    return {value.shape[dim] for value in tensors for dim in marked_dims(value) if dim < value.dim()}
