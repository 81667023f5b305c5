"""Changes of values and of source code, one at a time."""

from __future__ import annotations

import ast
from typing import Any


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, (list, tuple)):
        return type(value)([*value, "x"])
    if isinstance(value, (set, frozenset)):
        return value | {"x"}
    if isinstance(value, dict):
        return {**value, "x": 1}
    if value is None:
        return "x"
    return None  # of a function or an object


SWAPPED = {"sin": "cos", "cos": "sin", "exp": "log", "sum": "mean"}
OPERATORS = {ast.Mult: ast.Sub, ast.Add: ast.Sub, ast.Sub: ast.Add}


def mutated_sources(source: str) -> list[tuple[str, str]]:
    """(what, source) with one thing changed: each constant, operator and method."""
    found = []
    count = len(list(ast.walk(ast.parse(source))))
    for position in range(count):
        tree = ast.parse(source)
        node = list(ast.walk(tree))[position]
        match node:
            case ast.Constant(value=float(value)):
                node.value = value + 1
            case ast.BinOp():
                node.op = OPERATORS[type(node.op)]()
            case ast.Attribute(attr=name) if name in SWAPPED:
                node.attr = SWAPPED[name]
            case _:
                continue
        found.append((f"line {node.lineno} {type(node).__name__} {position}", ast.unparse(tree)))
    return found
