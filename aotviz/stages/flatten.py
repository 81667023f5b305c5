"""From a call with any pytrees to a flat list of fakes with names (SYSTEM.md B1, B2).

Parameters and buffers come first, then the leaves of the arguments, in pytree order. Each flat input has the user's
name for it: `wte.weight`, `x`, `batch['ids']`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aotviz.ir.descriptors import BufferInput, ParameterInput, PlainInput
from aotviz.ir.forms import FlatCall, Reason, Request
from aotviz.ir.refusals import Refused
from aotviz.ir.spelling import exact
from aotviz.ir.wrapper_subclasses import closed_class, is_subclass
from aotviz.torch_private import pytree
from aotviz.tracing import containers, fakes, functional, graph_modules, randomness

_LIFTED = {"parameter": ParameterInput, "buffer": BufferInput, "object": PlainInput}


def run(request: Request) -> FlatCall:
    leaves, in_spec = pytree.tree_flatten((request.args, dict(request.kwargs)))
    lifted = len(request.named)
    flat = [*(tensor for _, _, tensor in request.named), *leaves]
    descriptors = _descriptors(request, leaves)
    _refuse_unsupported(flat, descriptors, request.is_graph)
    fake_mode = fakes.fake_mode_for(flat, request.options.dynamic)
    names = [d.name for d in descriptors]
    static = lifted + request.options.static_parameters
    stand_ins = fakes.fakes(flat, fake_mode, request.options.dynamic, static, names, request.symbols)
    duplicate_of = _duplicates(flat)
    evidence = tuple(
        Reason(names[i], f"it is the same tensor as {names[first]}")
        for i, first in enumerate(duplicate_of)
        if first is not None
    )
    return FlatCall(
        options=request.options,
        evidence=evidence,
        name=request.name,
        fn=_flat_function(request, in_spec),
        args=tuple(stand_ins),
        descriptors=descriptors,
        duplicate_of=duplicate_of,
        counter_of=functional.counters(flat),
        fake_mode=fake_mode,
        root=request.root,
        is_graph=request.is_graph,
        convention=request.convention,
        as_it_was=request.as_it_was,
        static_inputs=tuple(range(static)) if request.static_inputs is None else request.static_inputs,
    )


def _flat_function(request: Request, in_spec: Any) -> Any:
    fn, root = request.fn, request.root
    names = [name for _, name, _ in request.named]

    if request.is_graph:
        return graph_modules.interpreter(fn)

    empty = replace(request, args=(), kwargs={}, named=())  # the program outlives the tensors of this call

    def plain(*flat: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(flat), in_spec)
        if any(map(_is_real, flat)):  # debug mode runs the function on copies
            return fn(*args, **kwargs)
        call = replace(empty, args=args, kwargs=kwargs)
        outside = containers.unchanged(call.name, call.arguments().items(), call.references)
        with outside, randomness.followed(call):
            return fn(*args, **kwargs)

    if not names:
        return plain
    own = len(names)

    def functional_call(*flat: Any) -> Any:
        with graph_modules.swapped(root, dict(zip(names, flat[:own], strict=True))):
            return plain(*flat[own:])

    return functional_call


def _is_real(value: Any) -> bool:
    """Whether a value is a real tensor, not a fake or functional one."""
    return isinstance(value, torch.Tensor) and not functional.is_functional(value) and not fakes.is_fake(value)


def _descriptors(request: Request, leaves: list[Any]) -> tuple[PlainInput, ...]:
    made: list[PlainInput] = []
    for kind, name, _ in request.named:
        made.append(_LIFTED[kind](len(made), exact(name)))
    names = request.input_names or _argument_names(request)
    if len(names) != len(leaves):
        raise ValueError(f"{request.name}: {len(names)} input names were given for {len(leaves)} inputs")
    for name in names:
        made.append(PlainInput(len(made), name))
    return tuple(made)


def _argument_names(request: Request) -> tuple[str, ...]:
    """Names of the flat arguments, from the function's signature and each leaf's path."""
    names: list[str] = []
    for name, value in request.arguments().items():
        paths, _ = pytree.tree_flatten_with_path(value)
        names.extend(exact(name) + pytree.keystr(path) for path, _ in paths)
    return tuple(names)


def _duplicates(flat: list[Any]) -> tuple[int | None, ...]:
    first: dict[int, int] = {}
    found: list[int | None] = []
    for index, value in enumerate(flat):
        if not isinstance(value, torch.Tensor):
            found.append(None)
            continue
        earlier = first.setdefault(id(value), index)
        found.append(None if earlier == index else earlier)
    return tuple(found)


def _refuse_unsupported(flat: list[Any], descriptors: tuple[PlainInput, ...], is_graph: bool) -> None:
    """Refuse inputs that no trace can follow. In a graph of Dynamo, the operations of tensor classes are already
    traced."""
    for value, descriptor in zip(flat, descriptors, strict=True):
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided and not is_subclass(value):
            layout = str(value.layout).removeprefix("torch.")
            name = descriptor.name
            raise Refused("layout is not strided", repr(name), layout, f"{name}.to_dense()")
        hides = "" if is_graph else closed_class(value)
        if hides:
            raise Refused("tensor class is not traced", repr(descriptor.name), type(value).__name__, hides)
