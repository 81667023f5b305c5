"""Does a test notice if a file is wrong? Change one thing of it at a time, and run its tests.

    python -m tests.mutants aotviz/ir/verify.py tests/test_verify.py
    python -m tests.mutants aotviz/tracing/rules.py tests/test_refusals.py --jobs 2

Each comparison, `and`, `or`, `not`, number, sum and `raise` is changed, and each entry of a table left out. A change
that no test notices is printed with its line. Each runs in a process of its own, forked after torch was imported.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

SECONDS = 300  # after which a changed file is taken for noticed: it does not end
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    one: other
    for pair in (
        (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn),
        (ast.And, ast.Or), (ast.Add, ast.Sub),
    )
    for one, other in (pair, pair[::-1])
}  # fmt: skip
Edit = tuple[ast.AST, str, Callable[[], None]]  # where, what is changed in words, and the change


def edits(tree: ast.AST) -> Iterator[Edit]:
    """Each change that can be made to a module. Making one changes the tree.

    >>> [said for _, said, _ in edits(ast.parse("if a < 1 and not b: raise E"))]
    ['raise left out', 'and to or', 'not left out', 'Lt to LtE', '1 to 2']
    """
    for parent in ast.walk(tree):
        for name, field in ast.iter_fields(parent):
            many = isinstance(field, list)
            for i, child in enumerate(field if many else [field]):
                put = _putter(parent, name, i if many else None)
                if isinstance(parent, (ast.Compare, ast.BinOp, ast.BoolOp)) and type(child) in OTHER:
                    other = OTHER[type(child)]()
                    said = f"{type(child).__name__} to {type(other).__name__}"
                    yield (
                        parent,
                        said.lower() if isinstance(parent, ast.BoolOp) else said,
                        functools.partial(put, other),
                    )
                elif isinstance(child, ast.Constant) and isinstance(child.value, int):
                    value = not child.value if isinstance(child.value, bool) else child.value + 1
                    yield child, f"{child.value} to {value}", functools.partial(put, ast.Constant(value))
                elif isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not):
                    yield child, "not left out", functools.partial(put, child.operand)
                elif isinstance(child, ast.Raise):
                    yield child, "raise left out", functools.partial(put, ast.Pass())
                elif isinstance(parent, ast.Tuple) and isinstance(child, (ast.Tuple, ast.Starred)):
                    yield (
                        child,
                        "entry left out",
                        functools.partial(put, ast.Starred(ast.Tuple([], ast.Load()), ast.Load())),
                    )


def _putter(parent: ast.AST, name: str, place: int | None) -> Callable[[ast.AST], None]:
    def put(child: ast.AST) -> None:
        if place is None:
            setattr(parent, name, child)
        else:
            getattr(parent, name)[place] = child

    return put


def run(file: Path, number: int, tests: list[str]) -> bool:
    """Run the tests on the file with one change. Returns whether one fails. It runs in a process of its own."""
    tree = ast.parse(file.read_text())
    [*edits(tree)][number][2]()
    module = importlib.import_module(".".join(file.with_suffix("").parts))
    with contextlib.suppress(Exception):
        exec(compile(ast.fix_missing_locations(tree), str(file), "exec"), module.__dict__)
        return pytest.main([*tests, "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore"]) != 0
    return True


def survivors(file: Path, tests: list[str], jobs: int) -> tuple[list[str], int]:
    """The changes that no test notices, and how many there are."""
    source = file.read_text()
    made = [(getattr(node, "lineno", 0), said) for node, said, _ in edits(ast.parse(source))]
    importlib.import_module("aotviz.frontends.functions")  # what all tests import is imported once
    waiting, running, kept = [*range(len(made))], dict[int, int](), list[str]()
    while waiting or running:
        if waiting and len(running) < jobs:
            number = waiting.pop(0)
            process = os.fork()
            if process == 0:
                _in_child(file, number, tests)
            running[process] = number
            continue
        process, status = os.wait()
        line, said = made[running.pop(process)]
        if status == 0:
            kept.append(f"{file}:{line}: {said}: {source.splitlines()[line - 1].strip()}")
            print(kept[-1], flush=True)
    return kept, len(made)


def _in_child(file: Path, number: int, tests: list[str]) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    signal.alarm(SECONDS)
    os._exit(int(run(file, number, tests)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    kept, count = survivors(given.file, given.tests, given.jobs)
    print(f"{count - len(kept)} of {count} changes were noticed")
    sys.exit(bool(kept))


if __name__ == "__main__":
    main()
