"""Symbolic numbers and operators by name, for values that are stored and made again in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree
from torch.utils._sympy import functions
from torch.utils._sympy.numbers import int_oo

from aotviz.torch_private.tensors import is_traceable_wrapper_subclass

Symbol: type = sympy.Symbol

_OF_SYMPY = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
_LOGIC = (sympy.And, sympy.Or, sympy.Not)
_NAMES = (
    "CeilToInt CleanDiv FloatPow FloatTrueDiv FloorDiv FloorToInt Identity IntTrueDiv "
    "IsNonOverlappingAndDenseIndicator LShift Max Min Mod ModularIndexing PowByNatural PythonMod RShift RoundDecimal "
    "RoundToInt ToFloat TruncToFloat TruncToInt Where"
)
FUNCTIONS: dict[str, Any] = {
    **{kind.__name__: kind for kind in (*_OF_SYMPY, *_LOGIC)},
    **{name: getattr(functions, name) for name in _NAMES.split() if hasattr(functions, name)},
}
_ATOMS: dict[str, Any] = {"true": sympy.true, "false": sympy.false, "oo": sympy.oo, "-oo": -sympy.oo}
_ATOMS |= {"int_oo": int_oo, "-int_oo": -int_oo}
# Operators and functions that read or write files: no stored program may have them.
OPENS_FILES = frozenset("from_file import_ir_module import_ir_module_from_buffer".split())
_OPERATORS_ON_FILES = frozenset("aten::from_file aten::save debugprims::load_tensor".split())
_POWERS = frozenset("Pow PowByNatural FloatPow LShift".split())
MOST = 64  # as an exponent: sympy computes powers of numbers at once
TENSOR_BASE = torch.Tensor.__base__  # its methods are those of C++
# Functions that change torch's state around a part of a graph from Dynamo, by module.
STATE_FUNCTIONS = {"torch._C": (torch._C, (torch._C._set_grad_enabled,))}
_METHODS_OF_A_PATH = frozenset(("size", "stride", "storage_offset"))
_KEYS = {  # a path to a number in the result of a node is a tuple of these
    kind.__name__: kind
    for kind in (
        *(_pytree.SequenceKey, _pytree.MappingKey, _pytree.GetAttrKey, symbolic_shapes.ConvertIntKey),
        *(symbolic_shapes.CallMethodKey, symbolic_shapes.InnerTensorKey, symbolic_shapes.DivideByKey),
    )
}


_NOT_NAMESPACES = frozenset(dir(type(torch.ops))) | {"classes", "higher_order"}  # attributes of torch.ops


class NoName(ValueError):
    """Something that has no name or form by which another process finds it."""


def operator_name(target: Any) -> list[str] | None:
    """The name of an operator of torch's dispatcher, for `operator_named`; None for anything else."""
    if isinstance(target, OpOverload):
        name, _, overload = target.name().partition(".")
        return ["op", name, overload]
    if isinstance(target, OpOverloadPacket):
        return ["packet", str(target).replace(".", "::", 1)]
    if isinstance(target, HigherOrderOperator):
        name = target.name()
        # torch copies operators into the metadata of nodes: a copy has the same class
        if type(getattr(torch.ops.higher_order, name, None)) is not type(target):
            raise NoName(f"the higher-order operator {name} is not registered under its name")
        return ["hop", name]
    return None


def operator_named(kind: str, name: str, overload: str = "") -> Any:
    """The operator of this name that is registered in this process, a user's too. Raises NoName if there is none."""
    found = _registered(kind, name, overload)
    given = [kind, name, overload] if kind == "op" else [kind, name]
    if found is None or operator_name(found) != given or name in _OPERATORS_ON_FILES:
        raise NoName(f"there is no operator {name} for stored programs in this process")
    return found


def _registered(kind: str, name: str, overload: str) -> Any:
    if kind == "hop":
        return getattr(torch.ops.higher_order, name, None)
    namespace, _, short = name.partition("::")
    if not (namespace.isidentifier() and short.isidentifier()) or namespace in _NOT_NAMESPACES:
        return None
    packet = getattr(getattr(torch.ops, namespace), short, None)
    if not isinstance(packet, OpOverloadPacket):
        return None
    return packet if kind == "packet" else getattr(packet, overload or "default", None)


def packed_expression(expression: Any, numbers: Mapping[Any, int]) -> Any:
    """A sympy expression as nested lists. `numbers` has a number for each symbol.

    Raises:
        NoName: it contains another symbol, or a function that is not in FUNCTIONS.
    """
    if expression in numbers:
        return ["s", numbers[expression]]
    if expression.is_Integer:
        return int(expression)
    if expression.is_Rational:
        return ["q", int(expression.p), int(expression.q)]
    if expression.is_Float:
        return float(expression)
    name = type(expression).__name__
    if FUNCTIONS.get(name) is type(expression):
        return [name, *(packed_expression(one, numbers) for one in expression.args)]
    atom = next((text for text, one in _ATOMS.items() if one == expression), None)
    if atom is None:
        raise NoName(f"the size {expression} is not computed from the sizes of inputs")
    return ["atom", atom]


def expression_of(packed: Any, symbols: Sequence[Any]) -> Any:
    """The inverse of `packed_expression`; `symbols` by number."""
    if isinstance(packed, (int, float)):
        return sympy.sympify(packed)
    kind, *rest = packed
    if kind == "s":
        return symbols[rest[0]]
    if kind == "q":
        return sympy.Rational(*rest)
    if kind == "atom":
        return _ATOMS[rest[0]]
    parts = [expression_of(one, symbols) for one in rest]
    if kind in _POWERS and any(part.is_number and abs(part) > MOST for part in parts[1:]):
        raise NoName(f"{kind} of {parts[1]} is no size")
    return FUNCTIONS[kind](*parts)


def symbols_in(inputs: Iterable[Any]) -> list[Any]:
    """The symbols of sizes, strides, offsets and numbers of the inputs, in the order in which they appear first."""
    found: dict[Any, None] = {}
    for value in inputs:
        for number in _numbers(value):
            if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                # sorted, since a set of sympy's symbols has another order in each process
                own = sorted(number.node.expr.free_symbols, key=lambda symbol: (len(symbol.name), symbol.name))
                found.update(dict.fromkeys(own))
    return list(found)


def _numbers(value: Any) -> Iterable[Any]:
    if not isinstance(value, torch.Tensor):
        yield value
        return
    yield from (*value.size(), *value.stride())
    if is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            yield from _numbers(getattr(value, name))
    else:
        yield value.storage_offset()
        yield getattr(value, "item_memo", None)  # Dynamo passes a float that changes as a tensor


def ragged_in(inputs: Iterable[Any]) -> dict[Any, torch.SymInt]:
    """The symbol of each ragged dimension of the nested tensors among the inputs, with its number in this call."""
    sizes: Iterator[Any] = (number for value in inputs if isinstance(value, torch.Tensor) for number in value.size())
    ragged = (size.node for size in sizes if isinstance(size, torch.SymInt) and size.node.is_nested_int())
    return {node.expr: node.hint for node in ragged}


def symbolic(kind: str, expression: Any, shape_env: ShapeEnv, ragged: Mapping[Any, torch.SymInt]) -> Any:
    """The symbolic number of an expression. `kind` is "int", "float" or "bool". `ragged` are the symbols whose values
    torch cannot put into an expression."""
    makers: dict[str, Callable[..., Any]] = {
        "int": shape_env.create_symintnode,
        "float": shape_env.create_symfloatnode,
        "bool": lambda expr, hint: shape_env.create_symboolnode(expr),
    }
    make = makers[kind]
    for symbol in ragged.keys() & expression.free_symbols:
        rows = make(symbol, hint=ragged[symbol])
        return rows if expression == symbol else rows * make(expression / symbol, hint=None)
    return make(expression, hint=None)


def numbered(symbols: Sequence[Any], shape_env: ShapeEnv) -> dict[Any, int]:
    """The number of each symbol. One that has been found equal to another gives that its number as well."""
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    for symbol, number in list(numbers.items()):
        same = shape_env.replacements.get(symbol)
        if same is not None and same.is_Symbol:
            numbers.setdefault(same, number)
    return numbers


def guards(shape_env: ShapeEnv, numbers: Mapping[Any, int]) -> list[Any]:
    """The conditions that have been put so far on sizes with these symbols, as sympy expressions."""
    found = []
    for condition in dict.fromkeys(guard.expr for guard in shape_env.guards) if numbers else ():
        others = {symbol: shape_env.replace(symbol) for symbol in condition.free_symbols - numbers.keys()}
        condition = condition.xreplace(others)
        if not condition.free_symbols.isdisjoint(numbers):
            found.append(condition)
    return found


def holds(condition: Any, shape_env: ShapeEnv) -> bool:
    """Whether a condition holds for the sizes of this call. Adds no guard."""
    known = {symbol: number_of(symbol, shape_env) for symbol in condition.free_symbols}
    return bool(condition.xreplace(known) == sympy.true)


def hint_of(symbol: Any, shape_env: ShapeEnv) -> int | float:
    """The value of a symbol in this call."""
    make = shape_env.create_symintnode if symbol.is_integer else shape_env.create_symfloatnode
    number: Any = make(symbol, hint=None)
    hint: int | float = number.node.hint
    return hint


def number_of(symbol: Any, shape_env: ShapeEnv) -> Any:
    """The value of a symbol in this call, as an expression."""
    return sympy.sympify(hint_of(symbol, shape_env))


def facts_of_data(symbol: Any, shape_env: ShapeEnv) -> list[Any]:
    """What is known of a symbol that depends on data: its kind, least and greatest value, whether it is a size, and an
    expression that it is equal to, or None. `new_from_data` and `tell_of_data` take it."""
    between = shape_env.var_to_range[symbol]
    kind = "int" if symbol.is_integer else "float"
    return [kind, between.lower, between.upper, symbol in shape_env.size_like, shape_env.replacements.get(symbol)]


def new_from_data(kinds: Iterable[str], shape_env: ShapeEnv) -> list[Any]:
    """New symbols that depend on data."""
    make: dict[str, Callable[[], Any]] = {
        "int": shape_env.create_unbacked_symint,
        "float": shape_env.create_unbacked_symfloat,
    }
    with shape_env.ignore_fresh_unbacked_symbols():
        return [make[kind]().node.expr for kind in kinds]


def tell_of_data(symbol: Any, shape_env: ShapeEnv, lower: Any, upper: Any, is_size: bool, equal: Any) -> None:
    shape_env.constrain_symbol_range(symbol, lower, upper)
    if is_size:
        shape_env.size_like.add(symbol)
    if equal is not None:
        shape_env._set_replacement(symbol, equal, "an entry of the cache")


def key_of_a_path(value: Any) -> list[Any] | None:
    """The name and fields of a step of such a path, for `key_named`; None for anything else."""
    name = type(value).__name__
    if _KEYS.get(name) is not type(value):
        return None
    return [name, *(getattr(value, field.name) for field in fields(value))]


def key_named(name: str, *held: Any) -> Any:
    """Raises NoName: no Writer stores this. Compilers write the attributes and methods of a path into their code."""
    words = [one for one in held if isinstance(one, str)]
    if name not in _KEYS or not all(word.isidentifier() for word in words):
        raise NoName(f"{name} is no step of a path")
    if name == "CallMethodKey" and not _METHODS_OF_A_PATH.issuperset(words):
        raise NoName(f"{words} is no method of a path")
    return _KEYS[name](*held)


def source_names(shape_env: ShapeEnv, symbols: Iterable[Any]) -> dict[Any, str]:
    """The expression by which the user's program gives a symbol its value, e.g. "L['x'].size()[0]"."""
    sources = shape_env.var_to_sources
    return {symbol: str(sources[symbol][0].name) for symbol in symbols if sources.get(symbol)}
