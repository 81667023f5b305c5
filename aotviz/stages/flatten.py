"""From a call with any pytrees to a flat list of fakes with names (docs/design/system.md B1, B2).

Parameters and buffers come first, then the leaves of the arguments, in pytree order. Each flat input has the user's
name for it: `wte.weight`, `x`, `batch['ids']`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.descriptors import BufferInput, ParameterInput, PlainInput
from aotviz.ir.forms import FlatCall, Reason, Request
from aotviz.ir.refusals import Refused
from aotviz.ir.spelling import exact
from aotviz.ir.wrapper_subclasses import closed_class, is_subclass
from aotviz.python_state import randomness, user_objects
from aotviz.torch_private import pytree
from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.modules import flat_weights_kept, tensors_of
from aotviz.torch_private.operators import named_slots
from aotviz.torch_private.tensors import belongs_to_a_transform
from aotviz.tracing import fakes, functional

_LIFTED = {"parameter": ParameterInput, "buffer": BufferInput, "object": PlainInput}


def run(request: Request) -> FlatCall:
    leaves, in_spec = pytree.tree_flatten((request.args, dict(request.kwargs)))
    flat = [*(tensor for _, _, tensor in request.named), *leaves]
    descriptors = _descriptors(request, leaves)
    _refuse_unsupported(flat, descriptors, request.is_graph)
    fake_mode = fakes.fake_mode_for(flat, request.options.dynamic)
    names = [d.name for d in descriptors]
    static = len(request.named) + request.options.static_parameters
    stand_ins = fakes.fakes(flat, fake_mode, request.options.dynamic, static, names, request.symbols)
    duplicate_of = _duplicates(flat)
    same = [(names[i], names[first]) for i, first in enumerate(duplicate_of) if first is not None]
    return request.then(
        FlatCall,
        evidence=tuple(Reason(name, f"it is the same tensor as {first}") for name, first in same),
        fn=_flat_function(request, in_spec),
        args=tuple(stand_ins),
        descriptors=descriptors,
        duplicate_of=duplicate_of,
        counter_of=functional.counters(flat),
        fake_mode=fake_mode,
        given_fakes=any(map(fakes.is_fake, flat)),
        static_inputs=tuple(range(static)) if request.static_inputs is None else request.static_inputs,
    )


def _flat_function(request: Request, in_spec: Any) -> Any:
    fn, root = request.fn, request.root_module
    if request.is_graph and isinstance(fn, fx.GraphModule):
        # node by node, so that each traced node inherits the metadata of the node that caused it
        return lambda *args: fx.Interpreter(fn).run(*args)
    names = [name for _, name, _ in request.named]
    empty = replace(request, args=(), kwargs={}, named=())  # the program outlives the tensors of this call

    def call(*flat: Any) -> Any:
        lifted, leaves = flat[: len(names)], flat[len(names) :]
        with contextlib.ExitStack() as around:
            if root is not None and names:
                around.enter_context(_swapped(root, dict(zip(names, lifted, strict=True))))
            args, kwargs = pytree.tree_unflatten(list(leaves), in_spec)
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            if all(functional.is_functional(t) or fakes.is_fake(t) for t in tensors):  # debug mode passes copies
                asked = replace(empty, args=args, kwargs=kwargs)
                outside = user_objects.unchanged(asked.name, asked.arguments().items(), asked.references)
                around.enter_context(outside)
                around.enter_context(randomness.followed(asked))
            return fn(*args, **kwargs)

    return call


@contextlib.contextmanager
def _swapped(module: torch.nn.Module, values: Mapping[str, Any]) -> Iterator[None]:
    """Let `module` use `values` instead of its parameters, buffers and script objects. Tied names get one tensor."""
    places = named_slots(module, list(values))
    wanted = {id(place[leaf]): value for (place, leaf), value in zip(places, values.values(), strict=True)}
    homes = {id(place): place for place, _ in places}
    for one in module.modules():  # each module once, even if it has several names
        homes.update((id(held), held) for held in tensors_of(one))
    put = [(home, leaf, was) for home in homes.values() for leaf, was in home.items() if id(was) in wanted]
    with flat_weights_kept(module):
        try:
            for home, leaf, was in put:
                home[leaf] = wanted[id(was)]
            yield
            for (place, leaf), (name, value) in zip(places, values.items(), strict=True):
                if place.get(leaf) is not value:
                    raise CannotTrace("parameter is replaced", repr(name), instead=f"self.{name}.copy_(...)")
        finally:
            for home, leaf, was in put:
                home[leaf] = was


def _descriptors(request: Request, leaves: list[Any]) -> tuple[PlainInput, ...]:
    made = [_LIFTED[kind](index, exact(name)) for index, (kind, name, _) in enumerate(request.named)]
    names = request.input_names or _argument_names(request)
    if len(names) != len(leaves):
        raise ValueError(f"{request.name}: {len(names)} input names were given for {len(leaves)} inputs")
    return (*made, *(PlainInput(index, name) for index, name in enumerate(names, len(made))))


def _argument_names(request: Request) -> tuple[str, ...]:
    """Names of the flat arguments, from the function's signature and each leaf's path."""
    names: list[str] = []
    for name, value in request.arguments().items():
        paths, _ = pytree.tree_flatten_with_path(value)
        names.extend(exact(name) + pytree.keystr(path) for path, _ in paths)
    return tuple(names)


def _duplicates(flat: list[Any]) -> tuple[int | None, ...]:
    """For each value, the position of the earlier one that is the same tensor."""
    first: dict[int, int] = {}
    found = [first.setdefault(id(v), i) if isinstance(v, torch.Tensor) else i for i, v in enumerate(flat)]
    return tuple(None if place == index else place for index, place in enumerate(found))


def _refuse_unsupported(flat: list[Any], descriptors: tuple[PlainInput, ...], is_graph: bool) -> None:
    """Refuse inputs that no trace can follow. In a graph of Dynamo, the operations of tensor classes are already
    traced."""
    for value, descriptor in zip(flat, descriptors, strict=True):
        if isinstance(value, torch.Tensor) and belongs_to_a_transform(value):
            raise Refused("tensor of a transform", repr(descriptor.name))
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided and not is_subclass(value):
            layout = str(value.layout).removeprefix("torch.")
            name = descriptor.name
            raise Refused("layout is not strided", repr(name), layout, f"{name}.to_dense()")
        hides = "" if is_graph else closed_class(value)
        if hides:
            raise Refused("tensor class is not traced", repr(descriptor.name), type(value).__name__, hides)
