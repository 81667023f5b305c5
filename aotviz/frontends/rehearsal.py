"""A program from an entry is called with fakes of its arguments before it is called with the user's.

An entry may come from a stranger. Its names lead nowhere (cache/names.py) and its fields have their types
(cache/declared.py), but its graphs, its facts and its wrapper may still not fit together, and what does not fit would
raise in the user's call, in the middle of what the program writes. So the whole program is linked once more, with
graphs that run as they are, and is called with fakes: the wrapper, both graphs, and the backward. Whatever is wrong
there makes the entry a miss. So does a node that gives another tensor than its own fake says: compilers believe that
fake, and some operators compare sizes on real data only. What passes is a program that fits this call. Whether it is
the right one is a matter of trust: docs/security.md says whose entries are believed.

Fakes have the sizes of this call and no data. So what fails for some data only, such as an index out of range, is not
found. A program whose sizes depend on data is called as far as these sizes matter to nothing; then each operator is
called with the values that the entry gives for its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz import pipeline
from aotviz.cache import meshes
from aotviz.cache.values import Broken, Reader, Writer
from aotviz.ir import absent, graphs, symbolic_sizes
from aotviz.ir.forms import Convention, FlatCall, GraphCall, Split, Tangent
from aotviz.options import compilers
from aotviz.pipeline import Observer
from aotviz.torch_private import fake_tensors, operators, runtime, stored_values, tensors
from aotviz.torch_private.context import without_compiled_autograd
from aotviz.torch_private.dispatch import without_modes
from aotviz.torch_private.fake_tensors import FakeTensor
from aotviz.torch_private.pytree import tree_unflatten

MOST_BYTES = 1 << 40  # of one gradient
MOST_WRITES = 1 << 16  # to one input


def check(form: GraphCall, call: FlatCall, original: Any) -> None:
    """Call the program of `form` with fakes. `original` is what was looked up: a graph from Dynamo, or a function.

    Raises:
        Broken: the program does not fit the call, or itself.
    """
    options = replace(form.options, **compilers(_rehearsed), compile_backward_now=False)
    made = replace(form, options=options, stored=None, convention=Convention("boxed"))
    mode = fake_tensors.mode_apart()
    try:
        args = _copies(call, mode)
    except Exception:  # such as nested tensors: whether an entry is sound is not the question here
        return
    try:
        if isinstance(form, Split):
            _check_memory(form.tangents)
            _check_sizes(form)
            _check_saved(form)
        _check_grad_mode(form, original)
        if max((one.version_bumps for one in form.meta.input_info), default=0) > MOST_WRITES:
            raise Broken("it says that the call writes an input more often than any does")
        program = pipeline.run(pipeline.finish(), made, Observer())
        known = len(form.user_input_info.input_info)
        if known != len(call.args):
            raise Broken(f"it has facts about {known} inputs, and the call has {len(call.args)}")
        try:
            with mode:
                _fits(_called(program.function, args, form.meta.grad_enabled), form, original)
        except fake_tensors.DEPENDS_ON_DATA:
            _check_nodes(form)
    except Broken:
        raise
    except fake_tensors.DEPENDS_ON_DATA:
        return
    except Exception as error:
        raise Broken(f"the program does not fit the call ({type(error).__name__}: {error})") from error


def _check_grad_mode(form: GraphCall, original: Any) -> None:
    """The grad mode that a program leaves behind is the one that its graph sets last. Raises Broken."""
    before, after, last = form.meta.grad_enabled, form.meta.grad_enabled_after, None
    if isinstance(original, fx.GraphModule):
        for node in original.graph.nodes:
            last = node.args[0] if node.target is runtime.set_grad_enabled else last
        if after != (None if last in (None, before) else last):
            raise Broken("it says that the call leaves another grad mode behind than its graph does")


def _check_nodes(form: GraphCall) -> None:
    """What an operator makes of the values that the entry gives for its arguments is the value that it gives for the
    result, as far as both are numbers. This is for programs that cannot be called without data. Raises Broken."""
    mode = form.fake_mode
    for graph in form.graphs.values():
        for node in graph.nodes:
            operator: Any = node.target
            if node.op != "call_function" or not operators.is_operator(operator):
                continue
            args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda one: one.meta.get("val"))
            try:
                with mode, fake_tensors.shape_env(mode).ignore_fresh_unbacked_symbols(), without_compiled_autograd():
                    found = operator(*args, **kwargs)
            except fake_tensors.DEPENDS_ON_DATA:
                continue
            except Exception as error:
                raise Broken(f"{node} does not fit its arguments ({type(error).__name__}: {error})") from error
            _compare(node, found)


def _rehearsed(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    def run(args: list[Any]) -> Any:
        interpreter = _AsRecorded(graph_module)
        interpreter.extra_traceback = False
        return interpreter.boxed_run(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _AsRecorded(fx.Interpreter):
    """Runs a graph, and compares each tensor with the fake of its node: others are given to no compiled graph. Raises
    Broken."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        fake_tensors.compare_sizes(target, args)
        return super().call_function(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        _compare(n, found)
        # The layouts of what a graph makes are its compiler's to choose.
        if n.op == "placeholder" and isinstance(found, torch.Tensor) and found.layout is torch.strided:
            known = n.meta["val"]
            if not _agree(found.stride(), known.stride()):
                raise Broken(f"{n} has the strides {tuple(found.stride())}, and the entry says {tuple(known.stride())}")
        return found


def _compare(node: fx.Node, found: Any) -> None:
    """Whether a node gives what the entry says of it. Raises Broken."""
    known: Any = node.meta.get("val")
    if isinstance(found, torch.Tensor) != isinstance(known, torch.Tensor):
        raise Broken(f"{node} is a {type(found).__name__}, and the entry says {type(known).__name__}")
    if isinstance(found, torch.Tensor) and (found.dtype is not known.dtype or not _agree(found.size(), known.size())):
        raise Broken(f"{node} is {_told(found)}, and the entry says {_told(known)}")


def _agree(found: Sequence[Any], known: Sequence[Any]) -> bool:
    """Whether these may be equal, as far as both are numbers."""
    pairs = zip(found, known, strict=False)
    return len(found) == len(known) and all(
        one == other for one, other in pairs if type(one) is int and type(other) is int
    )


def _told(one: torch.Tensor) -> str:
    return f"{one.dtype} {tuple(one.size())}"


def _copies(call: FlatCall, mode: Any) -> list[Any]:
    """Fakes with the layouts of the arguments, in memory that they share as these do, and with numbers for symbols."""
    env, symbols = fake_tensors.shape_env(call.fake_mode), stored_values.symbols_in(call.args)
    held = meshes.Meshes(meshes.of_call(call.args))
    writer = Writer({symbol: number for number, symbol in enumerate(symbols)}, len(symbols), held)
    bases = [tensors.base_of(one) if type(one) is FakeTensor else None for one in call.args]
    with without_modes():
        packed = writer.pack([list(map(_layout, call.args)), list(map(_layout, bases))])
    numbers = [stored_values.number_of(symbol, env) for symbol in symbols]
    copies, copied = Reader(writer.fakes, writer.storages, numbers, mode, held).read(packed)
    made: dict[int, Any] = {}  # id of a base or an argument -> its copy
    with mode:
        for base, copy in zip(bases, copied, strict=True):
            if base is not None and id(base) not in made:
                made[id(base)] = _like(base, copy)
        for one, copy, base, first in zip(call.args, copies, bases, call.counter_of, strict=True):
            if id(one) not in made:
                counts_with = None if call.args[first] is one else made.get(id(call.args[first]))
                made[id(one)] = _like(one, copy, made.get(id(base)), counts_with)
    return [made[id(one)] for one in call.args]


def _layout(value: Any) -> Any:
    return value.detach() if type(value) is FakeTensor else value


def _like(one: Any, copy: Any, base: Any = None, counts_with: Any = None) -> Any:
    """`copy`, as a view of `base` or with the counter of `counts_with`, and with a `grad_fn` if `one` has one."""
    if type(one) is not FakeTensor:
        return copy
    where = copy.size(), copy.stride(), copy.storage_offset()
    if _alike(base, copy):
        with torch.set_grad_enabled(not one.is_leaf):
            copy = base.as_strided(*where)
    elif _alike(counts_with, copy):
        copy = counts_with.detach().as_strided(*where).detach()
    if one.requires_grad and not copy.requires_grad:
        return copy.requires_grad_() if one.is_leaf else _Computed.apply(torch.empty((), requires_grad=True), copy)
    return copy


def _alike(one: Any, other: torch.Tensor) -> bool:
    return type(one) is FakeTensor and one.dtype is other.dtype and one.is_conj() == other.is_conj()


class _Computed(torch.autograd.Function):
    """Gives a tensor a `grad_fn`, without making it a view."""

    @staticmethod
    def forward(ctx: Any, source: Any, given: Any) -> Any:
        ctx.mark_dirty(given)
        return given

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None


@without_compiled_autograd()
def _called(function: Any, args: list[Any], grad_enabled: bool) -> list[Any]:
    with torch.set_grad_enabled(grad_enabled):
        results: list[Any] = function([*args])
        differentiable = [one for one in results if isinstance(one, torch.Tensor) and one.grad_fn is not None]
        if differentiable:
            torch.autograd.backward(differentiable, list(map(_gradient, differentiable)))
    return results


def _gradient(result: torch.Tensor) -> torch.Tensor:
    """With other strides than the backward was compiled for, as `sum()` passes it: then it is given those."""
    if type(result) is not FakeTensor:
        return torch.empty_like(result, requires_grad=False)
    return result.new_empty(()).expand(result.size())


def _check_memory(tangents: Sequence[Tangent]) -> None:
    """Fakes take any strides, but a gradient is copied to memory with those of its tangent. Raises Broken."""
    for one in tangents:
        _check_memory(one.parts)
        if one.order and sorted(one.order) != list(range(len(one.size))):
            raise Broken(f"a gradient of size {one.size} has no such order of dimensions as {one.order}")
        if not one.parts and all(type(number) is int for number in (*one.size, *one.stride)):
            # In Python's numbers: torch's overflow.
            extent = 1 + sum((size - 1) * stride for size, stride in zip(one.size, one.stride, strict=True))
            fits = min((*one.size, *one.stride, 0)) == 0 and extent * one.dtype.itemsize <= MOST_BYTES
            if not fits or tensors.overlaps_itself(torch.empty_strided(one.size, one.stride, device="meta")):
                raise Broken(f"a gradient of size {one.size} cannot have the strides {one.stride}")


def _check_sizes(form: Split) -> None:
    """A gradient has the size of its result and the layout that the backward takes, also where sizes depend on data.
    Raises Broken."""
    results = graphs.values(graphs.outputs(form.forward_module.graph))
    for tangent in form.tangents:
        if tangent.parts and form.wrapping is None:
            raise Broken(f"the gradient of result {tangent.slot} has parts, and no result is a tensor subclass")
        result, size = results[tangent.slot], tangent.size
        whole = not tangent.parts and isinstance(result, torch.Tensor)  # of subclasses, the graph returns the parts
        if whole and not symbolic_sizes.statically_equal(size, result.size()):
            raise Broken(f"result {tangent.slot} has the size {tuple(result.size())}, and its gradient {tuple(size)}")
    expected = [part for tangent in form.tangents for part in tangent.parts or (tangent,)]
    for node in filter(absent.is_tangent, graphs.placeholders(form.backward_module.graph)):
        tangent, taken = expected[absent.tangent_number(node)], node.meta["val"]
        pairs = ("size", tangent.size, taken.size()), ("strides", tangent.stride, taken.stride())
        for what, one, other in pairs:
            if not symbolic_sizes.statically_equal(one, other):
                raise Broken(f"a gradient has the {what} {tuple(one)}, and the backward takes {tuple(other)}")


def _check_saved(form: Split) -> None:
    """What the forward saves is what the backward takes under its name, also where it is a number that depends on
    data. Raises Broken."""
    taken = {node.name: node.meta.get("val") for node in graphs.placeholders(form.backward_module.graph)}
    for one, node in zip(form.saved, graphs.outputs(form.forward_module.graph)[len(form.slots) :], strict=True):
        given, wanted = node.meta.get("val"), taken.get(one.name)
        if wanted is None:
            continue
        if isinstance(given, torch.Tensor) and isinstance(wanted, torch.Tensor):
            same = _agree(given.size(), wanted.size()) and given.dtype is wanted.dtype
        else:
            same = str(given) == str(wanted)
        if not same:
            raise Broken(f"the backward takes {one.name}, and the forward gives another value for it")


def _fits(results: list[Any], form: GraphCall, original: Any) -> None:
    """Whether a caller can take these results. Raises Broken."""
    if form.out_spec is not None:
        tree_unflatten(results, form.out_spec)
    if not isinstance(original, fx.GraphModule):
        return
    wanted = graphs.outputs(original.graph)
    if len(results) != len(wanted):
        raise Broken(f"it returns {len(results)} results, and the graph that was looked up returns {len(wanted)}")
    for place, (found, node) in enumerate(zip(results, wanted, strict=True)):
        known = node.meta.get("example_value") if isinstance(node, fx.Node) else None
        if isinstance(known, torch.Tensor) and not isinstance(found, torch.Tensor):
            raise Broken(f"result {place} is a {type(found).__name__}; the graph that was looked up returns a tensor")
