"""A run is data: no field is born after `__init__`, and no stage writes into a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import aotviz

ROOMS = ("ir", "stages", "tracing", "runtime")
SOURCES = {path: path.read_text() for room in ROOMS for path in (Path(aotviz.__file__).parent / room).rglob("*.py")}


def assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(owner, attribute) of each attribute that is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node.value), node.attr


def late(source: str) -> set[str]:
    """The attributes of classes that are assigned in a method, and in no `__init__` or class body."""
    found = set()
    for kind in ast.walk(ast.parse(source)):
        if not isinstance(kind, ast.ClassDef):
            continue
        methods = [part for part in kind.body if isinstance(part, ast.FunctionDef)]
        born = {node.id for part in kind.body if part not in methods for node in ast.walk(part)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
        of_self = [(m.name, attribute) for m in methods for owner, attribute in assigned(m) if owner == "self"]
        born |= {attribute for name, attribute in of_self if name in ("__init__", "__post_init__")}
        found |= {f"{kind.name}.{attribute}" for _, attribute in of_self if attribute not in born}
    return found


def test_a_late_field_is_found() -> None:
    assert late("class Run:\n a: int\n def __init__(self): self.b = 1\n def f(self): self.b = self.c = 2") == {"Run.c"}


def test_no_field_is_born_after_init() -> None:
    assert not {path.name: found for path, source in SOURCES.items() if (found := late(source))}


def test_no_stage_writes_into_a_run() -> None:
    owners = {"forward", "ledger", "forward.ledger", "forward.open", "call.forward"}
    wrote = [(p.name, o, a) for p, s in SOURCES.items() if p.parent.name == "stages" for o, a in assigned(ast.parse(s))]
    assert wrote
    assert not [one for one in wrote if one[1] in owners]
