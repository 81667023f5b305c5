"""What an exported program leaves out: the attributes of modules that `forward` sets, and that are no buffers.

torch runs `forward` to trace it, and restores the attributes afterwards. They are compared before that.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import torch

from aotviz.recording import left_out
from aotviz.torch_private import exporting

STANDARD = frozenset(vars(torch.nn.Module()))
PLAIN = bool | int | float | str | None
CONTAINERS = (list, dict, set)
CHANGING = frozenset("append extend insert pop clear update add remove setdefault".split())
Value = TypeVar("Value")


@contextlib.contextmanager
def noted(module: torch.nn.Module) -> Iterator[None]:
    """Write to torch's trace which attributes of the module and its submodules are set inside this context."""
    before = {path: _attributes(one) for path, one in module.named_modules()}
    yield
    found = [
        left_out.SetAttribute(_name(path, attribute), _said(old), _said(now), *_assigned_at(type(one), attribute))
        for path, one in module.named_modules()
        for attribute, now in _attributes(one).items()
        if _differs(old := before.get(path, {}).get(attribute), now)
    ]
    if found:
        exporting.write(left_out.RECORD, msgspec.json.encode(found).decode())


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    """A module's own attributes; of those that can change in place, copies."""
    own = {name: value for name, value in vars(module).items() if name not in STANDARD}
    return {name: copy.copy(value) if type(value) in CONTAINERS else value for name, value in own.items()}


def _differs(old: Value, now: Value) -> bool:
    if type(old) is not type(now):
        return True
    if isinstance(old, dict) and isinstance(now, dict):
        return list(old) != list(now) or any(map(_differs, old.values(), now.values()))
    if isinstance(old, list | set) and isinstance(now, list | set):
        return len(old) != len(now) or any(map(_differs, old, now))
    return bool(old != now) if isinstance(now, PLAIN) else old is not now


def _said(value: Value) -> str:
    if isinstance(value, PLAIN):
        return repr(value)
    many = f" of length {len(value)}" if isinstance(value, dict | list | set) else ""
    return f"a {'tensor' if isinstance(value, torch.Tensor) else type(value).__name__}{many}"


def _name(path: str, attribute: str) -> str:
    """
    >>> _name("blocks.0", "count"), _name("", "count")
    ('self.blocks[0].count', 'self.count')
    """
    return re.sub(r"\.(\d+)\b", r"[\1]", ".".join(["self", *filter(None, [path]), attribute]))


def _assigned_at(kind: type[torch.nn.Module], attribute: str) -> tuple[str, str]:
    """Where a method of the class, other than `__init__`, first changes the attribute: "file:line", and its code."""
    try:
        lines, first = inspect.getsourcelines(kind)
        tree, file = ast.parse(inspect.cleandoc("\n" + "".join(lines))), inspect.getsourcefile(kind)
    except (OSError, TypeError, SyntaxError):
        return "", ""
    methods = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name != "__init__"]
    found = [
        node.lineno
        for one in methods
        for node in ast.walk(one)
        if isinstance(node, ast.expr) and _changes(node, attribute)
    ]
    return (f"{file}:{first + min(found) - 1}", lines[min(found) - 1].strip()) if found else ("", "")


def _changes(node: ast.expr, attribute: str) -> bool:
    """Whether it is `self.a = …`, `self.a[…] = …`, or `self.a.append(…)`, for this attribute."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        return _is(node.func.value, attribute)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _is(node.value, attribute)
    return _is(node, attribute) and isinstance(getattr(node, "ctx", None), ast.Store)


def _is(node: ast.expr, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute
