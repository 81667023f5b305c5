"""Parse one line of a printed graph with `ast`: what it calls, with which arguments, and the name of the result.

A line is parsed in the same way in every graph, and a joint graph shares most lines with its forward and backward, so
results are cached. `printed_graphs.py` decides what depends on the graph, e.g. whether the `x` in `x.mean(0)` is a node
or a package. In this module a name is a `Name`.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

TRAILER = re.compile(r";  \w+(?: = \w+)* = None\s*$")  # the `x = None` that torch appends to free values
HEAD = re.compile(r"(?P<name>[^\W\d]\w*)\s*(?::\s*(?P<note>\"[^\"]*\"|[^=\"]+?))?\s*=(?!=)\s*(?P<rest>.*)", re.DOTALL)
WORD = re.compile(r"[^\W\d]\w*")
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what `ast.parse` raises on bad text

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Div: "truediv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.Gt: "gt",
    ast.LtE: "le",
    ast.GtE: "ge",
    ast.UAdd: "pos",
    ast.USub: "neg",
    ast.Invert: "invert",
}
NUMBERS = {"inf": float("inf"), "nan": float("nan")}


class Unreadable(ValueError):
    """A line that torch's printers do not write."""


@dataclass(frozen=True)
class Name:
    """A word that refers to a node, if the graph has a node of that name."""

    text: str


@dataclass(frozen=True)
class Text:
    """An argument that is kept only as text: a dtype, a device, an object's repr."""

    text: str


@dataclass(frozen=True)
class Statement:
    """`name: annotation = callee(*args, **kwargs)`.

    `kind` is "call" (`callee` are the parts of a dotted name), "operator" (`callee` has one part), "attribute"
    (a dotted name, not called), "rename" (`args` has the other name), or "guess" (the line could not be parsed, and
    `args` are the words in it).

    An argument is a plain constant, a Name, a Text, a list of arguments, a dict, or a slice of arguments.
    """

    name: str
    annotation: str
    kind: str
    callee: tuple[str, ...]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def parse(text: str) -> list[ast.stmt]:
    """The statements of a text. Raises the errors in UNREADABLE. Warnings about invalid escapes are suppressed."""
    if "\\" not in text:
        return ast.parse(text).body
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text).body


def parse_expression(text: str) -> ast.expr:
    """The one expression in a text. Raises the errors in UNREADABLE."""
    (found,) = parse(text)
    if not isinstance(found, ast.Expr):
        raise Unreadable("not an expression")
    return found.value


@lru_cache(8192)
def statement(line: str) -> Statement:
    """Parse a line. Raises Unreadable if the line does not assign a value.

    >>> found = statement('add: "f32[4][1]cpu" = torch.ops.aten.add.Tensor(x, 1);  x = None')
    >>> found.name, found.annotation, found.callee, found.args
    ('add', 'f32[4][1]cpu', ('torch', 'ops', 'aten', 'add', 'Tensor'), (Name(text='x'), 1))
    """
    text = TRAILER.sub("", line)
    try:
        body = parse(text)
        if len(body) == 2:  # `x += y;  iadd = x`
            return _in_place(body[0], body[1])
        (assignment,) = body
        name, annotation, value = _assigned(assignment)
        return _value(name, annotation, value)
    except UNREADABLE:
        return _guess(text)


def expression(text: str) -> Any:
    """Parse an argument. Raises Unreadable.

    >>> expression("[x, 1.5, torch.float32]")
    [Name(text='x'), 1.5, Text(text='torch.float32')]
    """
    try:
        return _argument(parse_expression(text.strip()))
    except UNREADABLE as error:
        raise Unreadable(str(error)) from None


def plain_target(parts: tuple[str, ...]) -> str:
    """A function's name as the user would write it.

    >>> plain_target(("torch", "ops", "aten", "add", "Tensor")), plain_target(("getattr",))
    ('aten.add.Tensor', 'builtins.getattr')
    """
    if parts[:2] == ("torch", "ops") and len(parts) > 2:
        return ".".join(parts[2:])
    return f"builtins.{parts[0]}" if len(parts) == 1 and parts[0] in ("getattr", "setattr", "len") else ".".join(parts)


def _assigned(node: ast.stmt) -> tuple[str, str, ast.expr]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        note = node.annotation
        text = note.value if isinstance(note, ast.Constant) and isinstance(note.value, str) else ast.unparse(note)
        return node.target.id, text, node.value
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, "", node.value
    raise Unreadable("not an assignment")


def _in_place(first: ast.stmt, second: ast.stmt) -> Statement:
    """Parse an operator that is a statement in Python (`+=`, `x[i] = y`), and the assignment that names its result."""
    name, annotation, _ = _assigned(second)
    if isinstance(first, ast.AugAssign):
        operator = OPERATORS[type(first.op)].rstrip("_")
        args = (_argument(first.target), _argument(first.value))
        return Statement(name, annotation, "operator", (f"i{operator}",), args)
    if isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Subscript):
        target = first.targets[0]
        written = (_argument(target.value), _argument(target.slice), _argument(first.value))
        return Statement(name, annotation, "operator", ("setitem",), written)
    raise Unreadable("two statements")


def _value(name: str, annotation: str, value: ast.expr) -> Statement:
    if isinstance(value, ast.Call):
        parts = _dotted(value.func)
        if parts is not None:
            args = tuple(map(_argument, value.args))
            kwargs = {word.arg or "**": _argument(word.value) for word in value.keywords}
            if _is_getattr(value):
                return Statement(name, annotation, "attribute", _dotted(value) or parts)
            return Statement(name, annotation, "call", parts, args, kwargs)
    elif isinstance(value, ast.Subscript):
        return Statement(name, annotation, "operator", ("getitem",), (_argument(value.value), _argument(value.slice)))
    elif isinstance(value, ast.BinOp):
        operator = OPERATORS[type(value.op)]
        return Statement(name, annotation, "operator", (operator,), (_argument(value.left), _argument(value.right)))
    elif isinstance(value, ast.UnaryOp) and type(value.op) in OPERATORS:
        return Statement(name, annotation, "operator", (OPERATORS[type(value.op)],), (_argument(value.operand),))
    elif isinstance(value, ast.Compare) and len(value.ops) == 1 and type(value.ops[0]) in OPERATORS:
        args = (_argument(value.left), _argument(value.comparators[0]))
        return Statement(name, annotation, "operator", (OPERATORS[type(value.ops[0])],), args)
    elif isinstance(value, ast.Name):
        return Statement(name, annotation, "rename", (value.id,), (Name(value.id),))
    elif isinstance(value, ast.Attribute):
        parts = _dotted(value)
        if parts is not None:
            return Statement(name, annotation, "attribute", parts)
    raise Unreadable("an expression of another kind")


def _is_getattr(call: ast.Call) -> bool:
    """Whether a call is how torch writes an attribute whose name is not an identifier: `getattr(self, "0")`."""
    return isinstance(call.func, ast.Name) and call.func.id == "getattr" and _dotted(call) is not None


def _dotted(node: ast.expr) -> tuple[str, ...] | None:
    """The parts of a dotted name, e.g. ("torch", "sin"); None for another expression."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Name):
            parts.append(node.id)
            return tuple(reversed(parts))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and len(node.args) == 2
            and isinstance(node.args[1], ast.Constant)
        ):
            parts.append(str(node.args[1].value))
            node = node.args[0]
        else:
            return None


def _argument(node: ast.expr) -> Any:
    read = ARGUMENTS.get(type(node))
    return Text(ast.unparse(node)) if read is None else read(node)


def _constant(node: Any) -> Any:
    value = node.value
    return value if value is None or type(value) in (bool, int, float, str) else Text(repr(value))


def _name(node: Any) -> Any:
    return NUMBERS[node.id] if node.id in NUMBERS else Name(node.id)


def _attribute(node: Any) -> Any:
    parts = _dotted(node)
    return Text(ast.unparse(node) if parts is None else plain_target(parts))


def _negative(node: Any) -> Any:
    inside = _argument(node.operand)
    plain = isinstance(node.op, ast.USub) and type(inside) in (int, float)
    return -inside if plain else Text(ast.unparse(node))


def _call(node: Any) -> Any:
    parts, words = _dotted(node.func), {word.arg: word.value for word in node.keywords}
    if parts == ("slice",) and 1 <= len(node.args) <= 3:
        found = [_argument(arg) for arg in node.args]
        return slice(*found)
    if parts is not None and parts[-1] == "device":
        kind = words.get("type", node.args[0] if node.args else None)
        index = words.get("index", node.args[1] if len(node.args) > 1 else None)
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            return Text(f"{kind.value}:{index.value!r}" if isinstance(index, ast.Constant) else kind.value)
    return Text(ast.unparse(node))


def _complex(node: Any) -> Any:
    try:
        return Text(str(ast.literal_eval(node)))  # `(1+2j)`: a complex constant is the only sum among arguments
    except (ValueError, TypeError):
        return Text(ast.unparse(node))


def _dict(node: Any) -> Any:
    if any(key is None for key in node.keys):
        return Text(ast.unparse(node))
    keys = [_argument(key) for key in node.keys]
    texts = [key if type(key) is str else str(getattr(key, "text", key)) for key in keys]
    return dict(zip(texts, map(_argument, node.values), strict=True))


def _sequence(node: Any) -> Any:
    return [_argument(part) for part in node.elts]


def _slice(node: Any) -> Any:
    return slice(*(None if part is None else _argument(part) for part in (node.lower, node.upper, node.step)))


ARGUMENTS: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.UnaryOp: _negative,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Dict: _dict,
    ast.Slice: _slice,
    ast.Call: _call,
    ast.BinOp: _complex,
}


def _guess(text: str) -> Statement:
    """A statement for a line that Python cannot parse: the name, the words before the bracket, and all other words."""
    found = HEAD.match(text)
    if found is None:
        raise Unreadable("not an assignment")
    callee, _, rest = found["rest"].partition("(")
    parts = tuple(WORD.findall(callee.strip()[:200])) or ("?",)
    words = dict.fromkeys(WORD.findall(rest))
    return Statement(found["name"], (found["note"] or "").strip('"'), "guess", parts, tuple(map(Name, words)))
