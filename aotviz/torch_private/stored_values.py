"""Symbolic numbers and operators by name, for values that are stored and made again in another process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx.experimental.symbolic_shapes import guard_bool
from torch.utils._sympy import functions

from aotviz.torch_private.tensors import is_traceable_wrapper_subclass

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
        if getattr(torch.ops.higher_order, name, None) is not target:
            raise NoName(f"the higher-order operator {name} is not registered under its name")
        return ["hop", name]
    return None


def operator_named(kind: str, name: str, overload: str = "") -> Any:
    """Raises NoName if there is no such operator in this process."""
    try:
        if kind == "hop":
            return getattr(torch.ops.higher_order, name)
        namespace, _, short = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), short)
        return packet if kind == "packet" else getattr(packet, overload or "default")
    except AttributeError as error:
        raise NoName(f"there is no operator {name} in this process") from error


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
        raise NoName(f"the size {expression} depends on the data of a tensor")
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
    return FUNCTIONS[kind](*(expression_of(one, symbols) for one in rest))


def symbols_in(inputs: Iterable[Any]) -> list[Any]:
    """The symbols of sizes, strides and offsets of the inputs, in the order in which they appear first."""
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


def symbolic(kind: str, expression: Any, shape_env: Any) -> Any:
    """The symbolic number of an expression. `kind` is "int", "float" or "bool"."""
    make = {
        "int": shape_env.create_symintnode,
        "float": shape_env.create_symfloatnode,
        "bool": lambda expr, hint: shape_env.create_symboolnode(expr),
    }[kind]
    return make(expression, hint=None)


def guards(shape_env: Any, symbols: Iterable[Any]) -> list[Any]:
    """The conditions that have been put on sizes with these symbols so far, as sympy expressions."""
    known = set(symbols)
    found = [guard.expr for guard in shape_env.guards] if known else []
    return [one for one in dict.fromkeys(found) if not known.isdisjoint(one.free_symbols)]


def holds(condition: Any, shape_env: Any) -> bool:
    """Whether a condition holds for the sizes of this call. Adds no guard."""
    known = {symbol: hint_of(symbol, shape_env) for symbol in condition.free_symbols}
    return bool(condition.xreplace({symbol: sympy.Integer(value) for symbol, value in known.items()}) == sympy.true)


def hint_of(symbol: Any, shape_env: Any) -> int:
    """The value of a symbol in this call."""
    return int(shape_env.create_symintnode(symbol, hint=None).node.hint)


def add_guard(condition: Any, shape_env: Any) -> None:
    """Let the program be valid only for sizes that fulfil a condition, which this call's do."""
    guard_bool(shape_env.create_symboolnode(condition))


def source_names(shape_env: Any, symbols: Iterable[Any]) -> dict[Any, str]:
    """The expression by which the user's program gives a symbol its value, e.g. "L['x'].size()[0]"."""
    sources = getattr(shape_env, "var_to_sources", None) or getattr(shape_env, "symbol_to_source", {})
    return {symbol: str(sources[symbol][0].name) for symbol in symbols if sources.get(symbol)}
