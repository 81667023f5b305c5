"""Each regular expression that sees a stranger's text takes a time that grows with the text's length, and no faster.

A log may hold a line of any length, made for a pattern that tries each end of it at each start. The patterns are found
in the source, with the method that is called on each. For each repetition in a pattern, this file makes texts that
repeat what it matches, behind what the pattern wants before it, and end so that no match is possible.
"""

from __future__ import annotations

import ast
import importlib
import re
import re._constants as codes
import re._parser as parser
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aotviz.explain import guard_failures

PACKAGE = Path(__file__).resolve().parents[1] / "aotviz"
FOREIGN = ("recording", "logs", "explain", "widgets", "reading")  # folders that read what others wrote
OWN_TEXT = ("explain/terms.py", "widgets/notebooks.py")  # whose patterns see texts of this package
MOST_CHARACTERS = {"FORMS": guard_failures.MOST_READ}  # of what patterns of a table are given
METHODS = ("search", "match", "fullmatch", "sub", "findall", "finditer", "split")
CHARACTERS = 20_000  # a pattern that takes their square takes a second or more
MOST_S = 0.3
LETTERS = "a0 ,(\"'._:|=[]{}\\#/-+"  # of which some match most classes of characters
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
TABLE_METHODS = {"FORMS": "fullmatch", "FUNCTIONS": "search"}  # of tables of compiled patterns
TABLES = (  # (module, name) of tables of patterns that are text, and are all searched for
    ("aotviz.explain.cache_misses", "BYPASSES"),
    ("aotviz.explain.graph_breaks", "KINDS"),
)


def patterns() -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """(where, pattern, method) of each use of a pattern on foreign text."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    nodes_of = {path: list(ast.walk(ast.parse(source))) for path, source in sources.items()}
    uses_of = {path: set(_uses(nodes)) for path, nodes in nodes_of.items()}
    everywhere = set().union(*uses_of.values())
    for path, nodes in nodes_of.items():
        where = path.relative_to(PACKAGE)
        if where.parts[0] not in FOREIGN or str(where) in OWN_TEXT:
            continue
        names = {
            node.targets[0].id: node.value.args
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_re(node.value, "compile")
        }
        module = importlib.import_module(f"aotviz.{'.'.join(where.with_suffix('').parts)}")
        for name in names:
            compiled = getattr(module, name)
            here = {method for of, method in uses_of[path] if of == name}
            for method in METHODS:
                if method in here or (not here and (name, method) in everywhere):
                    yield f"{where}: {name}", compiled, method
        for node in nodes:
            for method in METHODS:
                if _is_re(node, method) and isinstance(node.args[0], ast.Constant):
                    flags = re.S if "DOTALL" in ast.dump(node) or "'S'" in ast.dump(node) else 0
                    flags |= re.M if "attr='M'" in ast.dump(node) else 0
                    yield f"{where}:{node.lineno}", re.compile(node.args[0].value, flags), method
        for name, value in vars(module).items():  # tables of patterns
            if isinstance(value, tuple):
                for row in value:
                    for found in row if isinstance(row, tuple) else ():
                        if isinstance(found, re.Pattern):
                            yield f"{where}: {name}", found, TABLE_METHODS.get(name, "search")
    for home, name in TABLES:
        for row in getattr(importlib.import_module(home), name):
            yield f"{home}: {name}", re.compile(row[0]), "search"


def _is_re(node: ast.AST, method: str) -> Any:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
    )


def _uses(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            of = node.value
            yield (of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""), node.attr


def attacks(pattern: re.Pattern[Any]) -> set[tuple[str, str]]:
    """(beginning, what is repeated behind it) for each repetition of the pattern."""
    found: set[tuple[str, str]] = set()
    _attack(parser.parse(pattern.pattern, pattern.flags & ~re.U), "", found)
    return found


def _attack(sequence: Any, before: str, found: set[tuple[str, str]]) -> None:
    begun = before
    for op, value in sequence:
        if op in REPEATS:
            inside = value[2]
            if value[1] > 50:
                found.add((begun, _example(inside) or "a"))
                found.update((begun, one) for one in LETTERS if re.fullmatch(_only(inside), one))
                found |= {("", begun), (begun, begun)} if begun else set()
            _attack(inside, begun, found)
            begun += _example(inside) * max(value[0], 1)
        elif op in (codes.SUBPATTERN, codes.ATOMIC_GROUP):
            inside = value[3] if op is codes.SUBPATTERN else value
            _attack(inside, begun, found)
            begun += _example(inside)
        elif op is codes.BRANCH:
            for branch in value[1]:
                _attack(branch, begun, found)
            begun += _example(value[1][0])
        else:
            begun += _example([(op, value)])
    if begun != before:
        found.add(("", begun))


def _only(sequence: Any) -> Any:
    """A pattern for one character that the sequence takes, if it is a single one; else for nothing."""
    if len(sequence) != 1 or sequence[0][0] not in (codes.ANY, codes.IN, codes.NOT_LITERAL):
        return re.compile("(?!)")
    state = parser.State()
    return re._compiler.compile(parser.SubPattern(state, list(sequence)))  # type: ignore[attr-defined]


def _example(sequence: Any) -> str:
    """A short text that a part of a pattern matches."""
    return "".join(_of(op, value) for op, value in sequence)


def _of(op: Any, value: Any) -> str:
    if op is codes.LITERAL:
        return chr(value)
    if op in (codes.ANY, codes.NOT_LITERAL, codes.IN):
        return next((one for one in LETTERS if _only([(op, value)]).fullmatch(one)), "a")
    if op in REPEATS:
        return _example(value[2]) * min(value[0], 50)
    if op is codes.SUBPATTERN:
        return _example(value[3])
    if op is codes.ATOMIC_GROUP:
        return _example(value)
    return _example(value[1][0]) if op is codes.BRANCH else ""


def seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    given: Any = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    call = getattr(pattern, method)
    began = time.thread_time()  # other processes run beside it
    found = call("", given) if method == "sub" else call(given)
    if method == "finditer":
        list(found)
    return time.thread_time() - began


def slow_text(pattern: re.Pattern[Any], method: str, most: int = CHARACTERS) -> str:
    """A text for which the pattern takes too long; "" if none is found. Short ones are tried first."""
    for beginning, repeated in sorted(attacks(pattern)):
        for end in ("\x01", "\n", ""):
            for length in (300, min(3000, most), most):
                text = beginning + repeated * (length // len(repeated)) + end
                limit = MOST_S * max(length / most, 0.1)
                if seconds(pattern, method, text) > limit and min(seconds(pattern, method, text) for _ in "12") > limit:
                    return f"{beginning!r}, then {repeated!r} to {length} characters, then {end!r}"
    return ""


@pytest.mark.slow  # a minute or two
def test_no_pattern_takes_longer_than_its_text_is_long() -> None:
    found = list(patterns())
    assert len(found) > 100
    slow = []
    for where, pattern, method in found:
        text = slow_text(pattern, method, MOST_CHARACTERS.get(where.rpartition(" ")[2], CHARACTERS))
        if text:
            slow.append(f"{where}: {pattern.pattern!r}.{method}: {text}")
    assert not slow, "\n".join(slow)


@pytest.mark.parametrize(
    ("pattern", "method"),
    [(r"(\w+)x", "search"), (r"(a+)+b", "match"), (r"\[(.*?)\]\(", "findall")],
)
def test_a_pattern_that_tries_each_end_at_each_start_is_found(pattern: str, method: str) -> None:
    with_short_texts = re.compile(pattern)
    if pattern.startswith("(a+)+"):  # exponential: 500 characters would take for ever
        assert ("", "a") in attacks(with_short_texts)
    else:
        assert slow_text(with_short_texts, method)
