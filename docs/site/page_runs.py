"""Runs a page of docs/: its Python blocks one after the other, as the page's notebook will, and keeps what they record.

A block becomes a cell of the notebook if it runs. Many blocks of the pages are pieces that speak of `model` or
`train()`: what stand_ins.py has for such a name is put into a cell of its own before the block. A block that uses
another name, that is a script of its own, or that raises an error (it reads logs which are not here) stays a text. So
no list says what runs, and a page gets its notebook when it is written. A block for which the page says what it prints
must run: it is an error if it does not.

Of the recordings that the page makes, the last one that it assigns to a name is shown; one of a stand-in's only if
there is no other.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import re
import symtable
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import page_examples

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """A recording that a page makes."""

    expression: str  # by which the page's own Python has it: `compiled.recording`
    heading: str  # above the block that assigned it


@dataclass(frozen=True)
class Run:
    """What of a page runs."""

    cells: dict[int, str]  # numbers of the blocks that run, each with the stand-ins that it needs first, or ""
    failed: dict[int, str]  # numbers of the blocks that were tried and failed, with the kind of their error
    shown: Shown | None  # None: nothing was recorded


def stand_ins() -> dict[str, str]:
    """The statement for each name of stand_ins.py."""
    source = Path(__file__).with_name("stand_ins.py").read_text(encoding="utf-8")
    statements = [ast.get_source_segment(source, node) or "" for node in ast.parse(source).body[1:]]
    return {name: statement for statement in statements for name in bound(statement)}


def bound(code: str) -> set[str]:
    """Names that a block defines for those after it.

    >>> sorted(bound("import torch.nn\\nwith f() as found:\\n    x = 1\\ndef g():\\n    y = 2"))
    ['found', 'g', 'torch', 'x']
    >>> sorted(bound("y = [x for x in range(3)]"))
    ['y']
    """
    symbols = symtable.symtable(code, page_examples.FILE, "exec").get_symbols()
    found = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported() or one.is_namespace()}
    return found - _of_comprehensions(code)


def _of_comprehensions(code: str) -> set[str]:
    """Names that only comprehensions have: from Python 3.12 on, a symbol table has them as the block's."""
    tree = ast.parse(code)
    found, inside = set[str](), set[ast.AST]()
    for one in ast.walk(tree):
        if isinstance(one, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            own = {name.id for loop in one.generators for name in _names(loop.target)}
            found |= own
            inside |= {name for name in _names(one) if name.id in own}
    return found - {name.id for name in _names(tree) if name not in inside}


def _names(tree: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(tree) if isinstance(one, ast.Name)]


def used(code: str) -> set[str]:
    """Names that a block takes from those above it.

    >>> sorted(used("y = model(x)\\nprint([z for z in y], [x for x in y], lambda a: a + w)"))
    ['model', 'w', 'x']
    """
    top = symtable.symtable(code, page_examples.FILE, "exec")
    read = {one.get_name() for one in top.get_symbols() if one.is_referenced()}
    tables = top.get_children()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {one.get_name() for one in table.get_symbols() if one.is_referenced() and one.is_global()}
    return {name for name in read - bound(code) - _of_comprehensions(code) if not hasattr(builtins, name)}


def needed(code: str, known: set[str], statements: dict[str, str]) -> list[str] | None:
    """The stand-ins that a block needs, each after those that it needs itself; None if a name has no stand-in."""
    found: list[str] = []
    for name in sorted(used(code) - known):
        if name not in statements:
            return None
        statement = statements[name]
        found += [one for one in needed(statement, known, statements) or () if one not in found]
        found += [statement] if statement not in found else []
    return found


def can_run(language: str, code: str) -> bool:
    """Whether it may be tried: Python in itself, and no script, which starts processes of its own."""
    if language != "python" or "__main__" in code:
        return False
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def run_blocks(page: str, names: dict[str, Any]) -> tuple[dict[int, str], dict[int, str]]:
    """`Run.cells` and `Run.failed` of a page, whose names are then in `names`.

    Raises what a block raises for which the page says what it prints.
    """
    statements, must_run = stand_ins(), page_examples.printing(page)
    cells: dict[int, str] = {}
    failed: dict[int, str] = {}
    for at, (language, code) in enumerate(page_examples.blocks(page)):
        first = needed(code, {*names}, statements) if can_run(language, code) else None
        if first is None:
            continue
        before = dict(names)
        try:
            for source in filter(None, ["\n\n".join(first), code]):
                _run(source, names)
            cells[at] = "\n\n".join(first)
        except Exception as error:
            if at in must_run:
                raise
            failed[at] = type(error).__name__
            names.clear()
            names.update(before)
    return cells, failed


def _run(code: str, names: dict[str, Any]) -> None:
    """Execute a block whose lines a recording can quote."""
    linecache.cache[page_examples.FILE] = (len(code), None, code.splitlines(keepends=True), page_examples.FILE)
    page_examples.run(code, names)


def shown(page: str, cells: dict[int, str], names: dict[str, Any]) -> Shown | None:
    """The last recording that a block assigned to a name, itself or as what has it, if anything was compiled."""
    codes = page_examples.blocks(page)
    own = [(at, codes[at][1]) for at in cells]
    for at, code in [*reversed(own), *reversed(cells.items())]:
        for name in reversed([*_assigned(code)]):
            for expression in (name, f"{name}.recording"):
                if _is_recording(names, expression):
                    return Shown(expression, _heading(page, at))
    return None


def _assigned(code: str) -> Iterator[str]:
    """Names in the order in which the statements of a block assign them."""
    for statement in ast.parse(code).body:
        stored = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        for node in sorted(stored, key=lambda node: (node.lineno, node.col_offset)):
            if isinstance(node.ctx, ast.Store) and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield node.id


def _is_recording(names: dict[str, Any], expression: str) -> bool:
    from aotviz.reading.recording import Recording

    name, _, attribute = expression.partition(".")
    found = names.get(name)
    found = getattr(found, attribute, None) if attribute else found
    return isinstance(found, Recording) and len(found) > 0


def _heading(page: str, at: int) -> str:
    """Of the part of the page in which a block is."""
    begins = [found.start() for found in page_examples.FENCED.finditer(page)][at]
    outside = page_examples.FENCED.sub(lambda block: "\n" * len(block[0]), page[:begins])
    return HEADING.findall(outside)[-1]


def run_page(page: str, target: Path) -> Run:
    """Run a page, and write what is shown of it to `target`, as an HTML page. For a process of its own.

    Raises what a block raises for which the page says what it prints.
    """
    import torch

    from aotviz.widgets.html import write_html
    from tests.ui.gallery import without_machine

    torch.manual_seed(0)
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # compilers and profilers write there too, past Python
        os.dup2(quiet, stream)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ |= {"AOTVIZ_CACHE_DIR": "off", "AOTVIZ_PROGRESS": "0", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch"}
        os.chdir(folder)
        names = page_examples.fresh()
        cells, failed = run_blocks(page, names)
        found = shown(page, cells, names)
        if found is not None:
            recording = eval(found.expression, names)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_html(without_machine(recording, f"{folder}/"), target)
    return Run(cells, failed, found)
