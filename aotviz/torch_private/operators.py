"""Properties of operators, and of the tensors and graphs that they work on, as torch knows them."""

from __future__ import annotations

import functools
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, TypeAlias, TypeGuard

import torch
import torch.fx as fx
from torch._higher_order_ops import effects
from torch._ops import HigherOrderOperator
from torch._ops import OpOverload as OpOverload

from aotviz.torch_private import registered_operators, versions
from aotviz.torch_private.random_numbers import run_and_save_rng_state
from aotviz.torch_private.tensors import write_count

Operator: TypeAlias = OpOverload[..., Any]

# By these, torch keeps side effects in order; see `ir/effects.py`.
WITH_EFFECTS = torch.ops.higher_order.with_effects
MAKE_TOKEN = torch.ops.prims._make_token.default
SINK_TOKENS = torch.ops.prims._sink_tokens.default
if not versions.has("a failing linear algebra is an effect"):
    fx.node.has_side_effect(torch.ops.aten._linalg_check_errors.default)  # its only effect is to raise


# `tensor.untyped_storage().resize_(size)` as an operator: Dynamo puts it into its graphs.
RESIZE_STORAGE = torch.ops.inductor.resize_storage_bytes_.default
FILLS = "fsdp::copy_"  # it writes the memory that FSDP has made room for
STAY_IN_GRAPH = (FILLS, "inductor::resize_storage_bytes_")  # operators whose writes are not functionalized


_OWN_CODE = os.path.dirname(effects.__file__)


def of_an_operator(code: CodeType) -> bool:
    """Whether a function belongs to the code of an operator that takes graphs, not to the user."""
    return code.co_filename.startswith(_OWN_CODE)


def is_operator(target: Any) -> TypeGuard[OpOverload[..., Any]]:
    """Whether a node's target is an operator of the dispatcher."""
    return isinstance(target, OpOverload)


def is_higher_order(target: Any) -> TypeGuard[HigherOrderOperator]:
    """Whether a node's target is an operator that takes graphs as arguments."""
    return isinstance(target, HigherOrderOperator)


def check_decompositions(table: Any) -> None:
    """Raise TypeError if `table` is not a table of decompositions, or has keys that a trace would never look up."""
    if table is None:
        return
    if not isinstance(table, Mapping):
        raise TypeError(f"decompositions is {table!r}; it must be a dict from operators to functions")
    for key in table:
        if not isinstance(key, torch._ops.OperatorBase):
            some = f"{key}.{key.overloads()[0]}" if isinstance(key, torch._ops.OpOverloadPacket) else "aten.sin.default"
            raise TypeError(f"decompositions: {key!r} is not an operator with its overload, such as torch.ops.{some}")


def writes(target: Any) -> bool:
    """Whether an operator changes one of its arguments."""
    return is_operator(target) and bool(target._schema.is_mutable)


def name(target: Any) -> str:
    """An operator's name without its overload, as in "aten::add"."""
    return str(target._schema.name)


def written(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments of a call that the operator writes, including the items of list arguments."""
    for position, argument in enumerate(target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        yield from value if isinstance(value, (list, tuple)) else (value,)


def names_of_outs(target: Any) -> list[str]:
    """The operator's names of its `out=` arguments."""
    return [argument.name for argument in target._schema.arguments if argument.is_out]


def of_torch(text: str) -> Callable[..., Any] | None:
    """The operator of torch's own that a text such as "aten.sin.default" names. None for any other text, and for those
    that open files, as `aten.from_file` and `aten.save` do."""
    parts = re.fullmatch(r"(aten|prims)\.(\w+)\.(\w+)", text)
    packet = None if parts is None else getattr(getattr(torch.ops, parts[1]), parts[2], None)
    found = None if parts is None else getattr(packet, parts[3], None)
    opens = is_operator(found) and any(argument.name == "filename" for argument in found._schema.arguments)
    return found if is_operator(found) and not opens else None


def without_write(target: Operator) -> Operator | None:
    """The operator that computes what an in-place one, such as `tril_`, writes to its first argument. None if torch has
    none of that name, or if it draws random numbers, or changes only shape or strides, as `t_` does."""
    word = name(target).removeprefix("aten::")
    if not word.endswith("_") or is_random(target) or torch.Tag.inplace_view in target.tags:
        return None
    return getattr(getattr(torch.ops.aten, word[:-1], None), target._schema.overload_name or "default", None)


def counts_writes(target: Any) -> bool:
    """Whether eager bumps the version for what the operator changes in place. Batch norm updates the statistics without
    that, `detach_` changes neither data nor layout, and no collective does it."""
    uncounted = target in (torch.ops.aten._native_batch_norm_legit.default, torch.ops.aten.detach_.default)
    return not uncounted and getattr(target, "namespace", "") != "c10d"


def counts_unseen(target: Any) -> bool:
    """Whether eager bumps versions that a trace does not: by the operators that its kernel consists of.

    There are two kinds: operators that write each tensor of a list by a separate operator, and those that a user
    defined by `torch.library.Library` with a kernel in Python. (`torch.library.custom_op` counts by the schema.)
    """
    lists = any(a.alias_info is not None and "List" in str(a.type) for a in target._schema.arguments)
    if lists and target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeExplicitAutograd):
        return True
    if registered_operators.is_torchs(target):
        return False
    by_schema = target.has_kernel_for_dispatch_key(torch._C.DispatchKey.ADInplaceOrView)
    return not by_schema and registered_operators.has_kernel_in_python(target)


def sets_storage(target: Any) -> bool:
    """Whether an operator gives a tensor the storage of another."""
    return is_operator(target) and target.overloadpacket is torch.ops.aten.set_


def is_view(target: Any) -> bool:
    return is_operator(target) and bool(target.is_view)


@functools.cache
def aliasing(target: Any) -> str:
    """What a call does to aliases: "view", "write", "move" (changes shape or strides in place) or "plain" (nothing).

    An operator that decomposes is plain: under inference mode, those that it decomposes to arrive too.
    """
    if not is_operator(target):
        return "plain"
    if torch.Tag.inplace_view in target.tags:
        return "move"
    kind = "write" if writes(target) else "view" if is_view(target) else "plain"
    return "plain" if kind != "plain" and is_composite(target) else kind


def may_alias(target: Any) -> bool:
    """Whether a compiler may give an operator's result the memory of its first argument."""
    return is_view(target) or target is torch.ops.aten._unsafe_view.default


def is_random(target: Any) -> bool:
    return is_operator(target) and torch.Tag.nondeterministic_seeded in target.tags


def only_has_effects(target: Any) -> bool:
    """Whether an operator returns nothing and writes nothing. Checks of aten's may be made twice, and are left out."""
    if not is_operator(target) or target._schema.returns or target._schema.is_mutable:
        return False
    return target.namespace != "aten"


def is_random_state(node: fx.Node) -> bool:
    """Whether a node is the random state that `run_and_save_rng_state` returns."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and source.target is run_and_save_rng_state and node.args[1:] == (0,)


def is_composite(operator: Any) -> bool:
    """Whether an operator is implemented by calling others."""
    return bool(operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def makes_views(operator: Any) -> bool:
    """Whether autograd itself makes a view of an operator's result."""
    return bool(operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.ADInplaceOrView))


def version(tensor: torch.Tensor) -> int:
    """The version of a tensor; 0 for an inference tensor, which has none."""
    return 0 if tensor.is_inference() else write_count(tensor)


def empty_copy(graph: fx.Graph) -> fx.Graph:
    """A graph of the same kind, without nodes."""
    return fx.Graph(tracer_cls=getattr(graph, "_tracer_cls", None))


def named_slots(root: torch.nn.Module, names: Sequence[str]) -> list[tuple[dict[str, Any], str]]:
    """For each parameter, buffer or attribute by its dotted name, the dict that holds it and its key there."""
    places: list[tuple[dict[str, Any], str]] = []
    for name in names:
        path, _, leaf = name.rpartition(".")
        owner = root.get_submodule(path)
        homes = (owner._parameters, owner._buffers, vars(owner))
        places.append((next(home for home in homes if leaf in home), leaf))
    return places


def is_static_input(value: Any) -> bool:
    """Whether an input has the same memory in every call: a parameter, or an input that Dynamo marked."""
    return isinstance(value, torch.nn.Parameter) or bool(getattr(value, "_dynamo_static_input_type", None))


def kind_of(call: fx.Node) -> Any:
    """The kind of the side effect that a call of `WITH_EFFECTS` has."""
    called: Any = call.args[1]
    return effects._get_effect(called)


def assignments_of_data(graph: fx.Graph) -> list[fx.Node]:
    """The nodes by which a graph of Dynamo's assigns `x.data`; before torch 2.14 these are several ordinary nodes."""
    target = getattr(torch.ops.aten, "shallow_copy_data_", None)
    return [] if target is None else list(graph.find_nodes(op="call_function", target=target))
