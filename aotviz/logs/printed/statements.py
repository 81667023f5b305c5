"""Parse one line of a printed graph with `ast`: what it calls, with which arguments, and the name of the result.

A line is parsed in the same way in every graph, and a joint graph shares most lines with its forward and backward, so
results are cached. `printed_graphs.py` decides what depends on the graph, e.g. whether the `x` in `x.mean(0)` is a node
or a package. In this module a name is a `Name`.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aotviz.recording.strings import clean

TRAILER = re.compile(r";  \w+(?: = \w+)* = None\s*$")  # the `x = None` that torch appends to free values
HEAD = re.compile(r"(?P<name>[^\W\d]\w*+)\s*+(?::\s*+(?P<note>\"[^\"]*+\"|[^=\"]++))?+\s*+=(?!=)\s*(?P<rest>.*)", re.S)
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
    """The statements of a text, with clean literals. Raises the errors in UNREADABLE.

    Warnings about invalid escapes are suppressed.
    """
    if "\\" not in text:
        return ast.parse(text).body
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ast.parse(text)
    for node in ast.walk(found):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = clean(node.value)
    return found.body


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
        *before, assignment = parse(text)  # `x += y;  iadd = x`
        name, annotation, value = _assigned(assignment)
        return Statement(name, annotation, *(_in_place(before) if before else _called(value)))
    except UNREADABLE:
        return _guess(text)


def expression(text: str) -> Any:
    """Parse an argument. Raises Unreadable.

    >>> expression("[x, 1.5, torch.float32]")
    [Name(text='x'), 1.5, Text(text='torch.float32')]
    """
    try:
        return argument(parse_expression(text.strip()))
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
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=note, value=ast.expr() as value):
            return name, annotation_text(note), value
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, "", value
    raise Unreadable("not an assignment")


def annotation_text(note: ast.expr | None) -> str:
    if note is None:
        return ""
    return note.value if isinstance(note, ast.Constant) and isinstance(note.value, str) else ast.unparse(note)


# The kind, callee, args and kwargs of a Statement.
_Called = tuple[str, tuple[str, ...], tuple[Any, ...], dict[str, Any]]


def _in_place(statements: list[ast.stmt]) -> _Called:
    """An operator that is a statement in Python (`+=`, `x[i] = y`), so that another statement names its result."""
    match statements:
        case [ast.AugAssign(target=target, op=op, value=value)]:
            return _operator(f"i{OPERATORS[type(op)].rstrip('_')}", target, value)
        case [ast.Assign(targets=[ast.Subscript(value=target, slice=index), *_], value=value)]:
            return _operator("setitem", target, index, value)
    raise Unreadable("two statements")


def _operator(name: str, *args: ast.expr) -> _Called:
    return "operator", (name,), tuple(map(argument, args)), {}


def _called(value: ast.expr) -> _Called:
    match value:
        case ast.Call(func=ast.Name(id="getattr")) if (parts := _dotted(value)) is not None:
            return "attribute", parts, (), {}
        case ast.Call(func=func, args=args, keywords=words) if (parts := _dotted(func)) is not None:
            return "call", parts, tuple(map(argument, args)), {w.arg or "**": argument(w.value) for w in words}
        case ast.Subscript(value=inside, slice=index):
            return _operator("getitem", inside, index)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            if type(op) in OPERATORS:
                return _operator(OPERATORS[type(op)], left, right)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return _operator(OPERATORS[type(op)], operand)
        case ast.Name(id=other):
            return "rename", (other,), (Name(other),), {}
        case ast.Attribute() if (parts := _dotted(value)) is not None:
            return "attribute", parts, (), {}
    raise Unreadable("an expression of another kind")


def _dotted(node: ast.expr) -> tuple[str, ...] | None:
    """The parts of a dotted name, e.g. ("torch", "sin"); None for another expression.

    Torch writes an attribute whose name is not an identifier as `getattr(self, "0")`.
    """
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=inside, attr=name):
            before = _dotted(inside)
        case ast.Call(func=ast.Name(id="getattr"), args=[inside, ast.Constant(value=name)]):
            before = _dotted(inside)
        case _:
            return None
    return None if before is None else (*before, str(name))


def argument(node: ast.expr) -> Any:
    """An argument as Statement has it."""
    match node:
        case ast.Constant(value=value) if value is None or type(value) in (bool, int, float, str):
            return value
        case ast.Constant(value=value):
            return Text(repr(value))
        case ast.Name(id=name):
            return NUMBERS[name] if name in NUMBERS else Name(name)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return list(map(argument, parts))
        case ast.Attribute() if (names := _dotted(node)) is not None:
            return Text(plain_target(names))
        case ast.UnaryOp(op=ast.USub(), operand=operand) if type(inside := argument(operand)) in (int, float):
            return -inside
        case ast.Dict(keys=keys, values=values) if None not in keys:
            found = [argument(key) for key in keys if key is not None]
            texts = [key if type(key) is str else str(getattr(key, "text", key)) for key in found]
            return dict(zip(texts, map(argument, values), strict=True))
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(None if part is None else argument(part) for part in (lower, upper, step)))
        case ast.Call(func=ast.Name(id="slice"), args=args) if 1 <= len(args) <= 3:
            return slice(*map(argument, args))
        case ast.Call(func=func) if (names := _dotted(func)) is not None and names[-1] == "device":
            return Text(_device(node) or ast.unparse(node))
        case ast.BinOp():
            return Text(_complex(node) or ast.unparse(node))
    return Text(ast.unparse(node))


def _device(call: ast.Call) -> str:
    """E.g. "cuda:0" for `device(type='cuda', index=0)`; "" for a call that does not name a device."""
    given: dict[str | None, ast.expr] = dict(zip(("type", "index"), call.args, strict=False))
    given.update((word.arg, word.value) for word in call.keywords)
    match given.get("type"), given.get("index"):
        case ast.Constant(value=str(kind)), ast.Constant(value=index):
            return f"{kind}:{index!r}"
        case ast.Constant(value=str(kind)), _:
            return kind
    return ""


def _complex(node: ast.expr) -> str:
    """A complex constant such as `(1+2j)`, which is the only sum among arguments; "" for another sum."""
    try:
        return str(ast.literal_eval(node))
    except (ValueError, TypeError):
        return ""


def _guess(text: str) -> Statement:
    """A statement for a line that Python cannot parse: the name, the words before the bracket, and all other words."""
    found = HEAD.match(text)
    if found is None:
        raise Unreadable("not an assignment")
    callee, _, rest = found["rest"].partition("(")
    parts = tuple(WORD.findall(callee.strip()[:200])) or ("?",)
    words = dict.fromkeys(WORD.findall(rest))
    return Statement(found["name"], (found["note"] or "").strip().strip('"'), "guess", parts, tuple(map(Name, words)))
