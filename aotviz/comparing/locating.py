"""Find the first node whose value differs between two runs. Graphs run node by node, and every value is recorded.

Two values differ if their dtype, shape or device differs, if only one has a NaN, or if they differ by more than
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.comparing.errors import RECEIVED, error
from aotviz.comparing.observed import SEED, Setup, same
from aotviz.frontends.functions import make_boxed_func
from aotviz.ir import graphs
from aotviz.lowerings import run_graph
from aotviz.options import Options, compilers
from aotviz.stages.lower import boxed
from aotviz.torch_private import operators
from aotviz.torch_private.dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Culprit:
    node: str
    operator: str
    stack: str
    what: str
    values: Mapping[str, float | str] = field(default_factory=dict)  # by node name, with RECEIVED: how wrong it is


@dataclass(frozen=True)
class Value:
    """A node with its arguments and its result in one run."""

    node: fx.Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any


@dataclass
class Compilation:
    """A graph that was passed to a compiler, and the inputs and outputs of the compiled function's last call."""

    role: str
    graph: fx.GraphModule
    example_inputs: Sequence[Any]
    compiler: Callable[..., Any]
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


class Watch:
    """Records what graphs compute: every node of an uncompiled graph, and the inputs and outputs of a compiled one."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}  # by node name; a saved value in the backward has the suffix RECEIVED
        self.compilations: dict[str, Compilation] = {}

    def watching(self, options: Options) -> Options:
        """The same options, with compilers that record into this watch."""
        forward = self._watched("forward", options.fw_compiler)
        backward = self._watched("backward", options.bw_compiler)
        return replace(options, **compilers(forward, backward, self._watched("inference", options.inference_compiler)))

    def _watched(self, role: str, compiler: Callable[..., Any]) -> Callable[..., Any]:
        def compile(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            if compiler is run_graph:
                return _Written(graph, self).boxed
            made = Compilation(role, graphs.copy(graph), inputs, compiler)
            self.compilations[role] = made
            compiled = boxed(compiler(graph, inputs))

            def call(args: list[Any]) -> Any:
                made.inputs = [_kept(a) for a in args]
                result = compiled(args)
                made.outputs = [_kept(r) for r in result]
                return result

            call._boxed_call = True  # type: ignore[attr-defined]
            return call

        return compile


class _Written(fx.Interpreter):
    """Runs a graph and records every value."""

    def __init__(self, graph: fx.GraphModule, watch: Watch) -> None:
        super().__init__(graph)
        self.watch, self.boxed = watch, make_boxed_func(self.run)

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            result = super().run_node(n)
            if n.op != "output":
                known = self.watch.values.get(n.name)
                saved = known is not None and known.node.op != n.op  # a placeholder for a saved value
                self.watch.values[n.name + RECEIVED * saved] = Value(n, (), {}, _kept(result))
            return result
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        before = tuple(_kept(a) for a in args), {k: _kept(v) for k, v in kwargs.items()}
        result = super().run_node(n)
        self.watch.values[n.name] = Value(n, *before, _kept(result))
        return result


def _kept(value: Any) -> Any:
    """A copy that later writes do not change, with the same strides if the tensor is dense."""
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_kept, value)) if not hasattr(value, "_fields") else value
    return value


def parted(expected: Any, found: Any) -> str:
    """How two values differ, in words; "" if they do not."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return f"{len(expected)} results, now {len(found)}"
        texts = (parted(one, other) for one, other in zip(expected, found, strict=True))
        return next((f"result {index}: {text}" for index, text in enumerate(texts) if text), "")
    if not (isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor)):
        return "" if same(expected, found) else f"expected {expected!r}, found {found!r}"
    differs = _differs(expected, found)
    if differs:
        return "{} {} expected, {} found".format(*differs)
    if same(expected, found):
        return ""
    nans = int(found.isnan().sum()) - int(expected.isnan().sum()) if found.is_floating_point() else 0
    if nans > 0:
        return f"{nans} NaN where there were none"
    if not found.is_floating_point() and not found.is_complex():
        return f"{int((expected != found).sum())} of {found.numel()} elements differ"
    apart = (expected - found).abs().nan_to_num()
    return f"values differ by up to {apart.max().item():.3g} (expected {_first(expected)}, found {_first(found)})"


def _differs(one: torch.Tensor, other: torch.Tensor, shapes: bool = True) -> tuple[str, str, str] | None:
    """The first of dtype, shape and device in which two tensors differ, and both of its values."""
    for what in ("dtype", "shape", "device") if shapes else ("dtype", "device"):
        values = getattr(one, what), getattr(other, what)
        if values[0] != values[1]:
            return what, _short(values[0]), _short(values[1])
    return None


def _short(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value).removeprefix("torch.")


def _first(value: torch.Tensor) -> str:
    numbers = [f"{x:.4g}" if isinstance(x, float) else str(x) for x in value.flatten()[:4].tolist()]
    return f"[{', '.join(numbers)}{', …' if value.numel() > 4 else ''}]"


def _blame(value: fx.Node, what: str, values: Mapping[str, float | str] | None = None) -> Culprit:
    return Culprit(value.name, str(value.target), str(value.meta.get("stack_trace") or ""), what, values or {})


def fake_and_real(watch: Watch) -> Culprit | None:
    """The first node whose operator's result differs in dtype, shape or device from its fake implementation's."""
    for value in watch.values.values():
        said = value.node.meta.get("val")
        if value.node.op != "call_function" or said is None:
            continue
        what = _misdescribed(said, value.result)
        if what:
            lie = f"the fake implementation of {value.node.target} returns {what}"
            return _blame(value.node, lie, {value.node.name: "its fake implementation differs"})
    return None


def _misdescribed(said: Any, real: Any) -> str:
    if isinstance(said, (list, tuple)) and isinstance(real, (list, tuple)):
        return next((text for one, other in zip(said, real, strict=False) if (text := _misdescribed(one, other))), "")
    if not (isinstance(said, torch.Tensor) and isinstance(real, torch.Tensor)):
        return ""
    differs = _differs(said, real, shapes=all(isinstance(size, int) for size in said.shape))
    return "{} {}, but the operator returns {}".format(*differs) if differs else ""


def against_eager(setup: Setup, watch: Watch) -> Culprit | None:
    """The first node whose value eager never computes, although eager computes all inputs of the node."""
    torch.manual_seed(SEED)
    with _Operators() as eager, setup.context():
        setup.fn(*setup.args, **setup.kwargs)
    known = [value for result in eager.computed for value in _tensors(result)]
    good: set[str] = set()
    said: dict[str, float | str] = {}
    first: fx.Node | None = None
    for name, value in watch.values.items():
        if value.node.meta.get("partitioner_tag") == "is_backward":
            continue
        reached = all(source.name in good for source in value.node.all_input_nodes)
        results = _tensors(value.result)
        computes = value.node.op == "call_function" and operators.is_operator(value.node.target) and bool(results)
        if not computes or all(any(same(result, other) for other in known) for result in results):
            good.add(name)
        elif reached and first is None:
            first = value.node
        said[name] = "eager has this value" if name in good else "eager never has this value"
    return None if first is None else _blame(first, "no operator that eager runs returns this value", said)


class _Operators(TorchDispatchMode):
    """Collects a copy of every operator's result."""

    def __init__(self) -> None:
        super().__init__()
        self.computed: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.computed.append(_kept(result))
        return result


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in _tensors(item)] if isinstance(value, (list, tuple)) else []


def wrong_decomposition(watch: Watch, decompositions: Mapping[Any, Any]) -> Culprit | None:
    """The first operator whose decomposition gives another result, for the operator's inputs in this call."""
    values: dict[str, float | str] = {}
    first: Culprit | None = None
    for name, value in watch.values.items():
        decomposition = decompositions.get(value.node.target)
        if value.node.op != "call_function" or decomposition is None or operators.is_random(value.node.target):
            continue
        try:
            with torch.no_grad():
                found = decomposition(*_kept(list(value.args)), **{k: _kept(v) for k, v in value.kwargs.items()})
        except Exception as failure:
            what = f"its decomposition raised {type(failure).__name__}: {failure}"
            values[name] = math.inf
        else:
            if found is NotImplemented:
                continue
            what = parted(value.result, found)
            if what:
                whose = f"the decomposition {getattr(decomposition, '__name__', decomposition)} of {value.node.target}"
                what = f"{whose} computes something else: {what}"
            values[name] = error(value.result, found)
        if what and first is None:
            first = _blame(value.node, what)
    return first and replace(first, values=values)


def by_name(below: Watch, watch: Watch) -> Culprit | None:
    """The first node whose value differs from that of the node with the same name in the right run below."""
    values: dict[str, float | str] = {}
    first: Culprit | None = None
    for name, value in watch.values.items():
        known = below.values.get(name.removesuffix(RECEIVED))
        if known is None or value.node.op == "output":
            continue
        values[name] = error(known.result, value.result)
        what = parted(known.result, value.result) if first is None else ""
        if what:
            changed = "" if known.node.target == value.node.target else f" (it was {known.node.target})"
            if value.node.op == "placeholder":
                what = f"the backward receives another value under this name than the forward computed: {what}"
            first = _blame(value.node, what + changed)
    if first is not None:
        return replace(first, values=values)
    strangers = [value for value in watch.values.values() if value.node.name not in below.values]
    for value in strangers:
        if all(source.name in below.values for source in value.node.all_input_nodes):
            what = "the first node that was not there before; the results differ after it"
            return replace(_blame(value.node, what), values={**values, value.node.name: math.inf})
    return None


def wrong_compilation(watch: Watch) -> Culprit | None:
    """The first node that a compiler gets wrong. The node's graph is compiled again, and then returns every value."""
    for role in ("inference", "forward", "backward"):
        made = watch.compilations.get(role)
        if made is None or not made.inputs:
            continue
        truth = Watch()
        expected = _Written(made.graph, truth).boxed([_kept(a) for a in made.inputs])
        ends = [i for i, (e, f) in enumerate(zip(expected, made.outputs, strict=False)) if parted(e, f)]
        if not ends:
            continue
        culprit = _inside(made, truth)
        if culprit is not None:
            return replace(culprit, what=f"{role} graph: {culprit.what}")
        end = graphs.outputs(made.graph.graph)[ends[0]]
        what = f"output {ends[0]} is wrong, although each node by itself is compiled correctly"
        what = f"{role} graph: {what}: {parted(expected[ends[0]], made.outputs[ends[0]])}"
        ends_of = zip(graphs.outputs(made.graph.graph), expected, made.outputs, strict=False)
        values = {node.name: error(one, other) for node, one, other in ends_of if isinstance(node, fx.Node)}
        return replace(_blame(end, what), values=values)
    return None


def _inside(made: Compilation, truth: Watch) -> Culprit | None:
    module = graphs.copy(made.graph)
    nodes = [n for n in module.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), torch.Tensor)]
    names = [n.name for n in nodes]  # the compiler may change the graph in place
    output = graphs.output_node(module.graph)
    output.args = (tuple(nodes),)
    output.meta["desc"] = [None] * len(nodes)
    module.recompile()
    try:
        compiled = boxed(made.compiler(module, made.example_inputs))
        found = compiled([_kept(a) for a in made.inputs])
    except Exception:  # the compiler may fail on a graph with other outputs; the caller then blames the output
        return None
    pairs = [(truth.values[name], result) for name, result in zip(names, found, strict=False)]
    for value, result in pairs:
        what = parted(value.result, result)
        if what:
            errors = {value.node.name: error(value.result, result) for value, result in pairs}
            return replace(_blame(value.node, what), values=errors)
    return None


def code_of(stack: str) -> str:
    """The source text of a stack's innermost line."""
    lines = [line.strip() for line in stack.splitlines() if line.strip()]
    return lines[-1] if lines and not lines[-1].startswith("File ") else ""
