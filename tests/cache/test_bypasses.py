"""The reasons for which a program is not cached: one list, one table in the docs, and torch's own beside it."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch._functorch import aot_autograd
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import codecache

import aotviz
from aotviz.cache import bypasses
from aotviz.cache.bypasses import Bypass, Uncacheable
from aotviz.cache.content import Content
from aotviz.cache.meshes import Meshes
from aotviz.cache.values import Writer
from aotviz.tracing.open_trace import OpenTrace

REASONS = {name: held for name, held in vars(bypasses).items() if isinstance(held, Bypass)}
HOME = Path(aotviz.__file__).parent
DOCS = HOME.parent / "docs" / "cache.md"
SAME = "the same"


def raised() -> tuple[set[str], list[str]]:
    """The reasons that the package raises, and the places that raise Uncacheable without one."""
    names, others = set(), []
    for file in sorted(HOME.rglob("*.py")):
        if file.name == "bypasses.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Attribute(ast.Name("bypasses"), name):
                    names.add(name)
                case ast.Call(ast.Name("Uncacheable")):
                    others.append(f"{file.name}:{node.lineno}")
    return names & REASONS.keys(), others


def test_each_reason_is_raised_and_nothing_is_raised_without_one() -> None:
    names, others = raised()
    assert names == REASONS.keys()
    assert others == []


def test_the_table_in_the_docs_is_the_list_in_the_code() -> None:
    lines = DOCS.read_text().partition("| program | why |")[2].splitlines()[2:]
    table = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines[: lines.index("")]]
    assert table == [(one.program, one.why, one.cure, one.beyond or SAME) for one in REASONS.values()]


@pytest.mark.parametrize("name", REASONS)
def test_torch_has_the_bypass_or_the_table_says_why_we_have_it(name: str) -> None:
    one = REASONS[name]
    assert one.torchs or one.beyond
    if one.torchs and torch.__version__.startswith("2.13"):  # its words
        assert any(one.torchs in inspect.getsource(module) for module in (autograd_cache, codecache, aot_autograd))


def test_every_reason_that_names_a_class_has_it_from_one_place() -> None:
    """`bypasses.kind_of`, which names no class of aotviz."""
    named = [
        f"{file.name}:{node.lineno}"
        for file in sorted(HOME.joinpath("cache").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Raise) and file.name != "bypasses.py"
        for text in [ast.unparse(node)]
        if "bypasses." in text and re.search(r"\{type\([^}]*qualname|\{kind\.__qualname", text)
        if "a module of class" not in text and "class {kind.__qualname__} has" not in text  # of the user's
    ]
    assert named == []


@pytest.mark.parametrize(
    "describe", [lambda one: Writer({}, 0, Meshes([])).pack(one), lambda one: Content().value(one)]
)
def test_no_reason_names_a_class_of_ours(describe) -> None:
    ours = {
        node.name
        for file in HOME.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and len(node.name) > 4
    }
    x = torch.ones(2, 3, requires_grad=True)
    form = aotviz.trace_stages(lambda x: (x.sin() * 2).view(-1), x, until="partition").form
    held = [getattr(form, one.name) for one in fields(form)] + [*vars(form.forward).values()]
    reasons = set()
    for one in [*held, form.forward.ledger.events[0], OpenTrace, aotviz.aot_function]:
        try:
            describe(one)
        except Uncacheable as error:
            reasons.add(error.told)
    assert reasons
    assert {reason for reason in reasons if ours.intersection(re.findall(r"\w+", reason))} == set()


def test_a_reason_is_told_with_what_to_do() -> None:
    error = bypasses.CONSTANT("a constant of the graph is a Thing", "a.py:3 in f")
    assert error.told == f"a constant of the graph is a Thing; {bypasses.CONSTANT.cure}"
    assert error.about("more", "b.py:1 in g").where == "a.py:3 in f"
    assert error.about("more").bypass is bypasses.CONSTANT


def test_a_large_constant_is_stored(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor(list(range(14_000))).sum()  # 112 kB

    for expected in ("miss", "hit"):
        torch._dynamo.reset()
        with aotviz.record() as recording:
            result = aotviz.compile(f, backend="eager", cache=str(tmp_path))(torch.ones(2))
        assert list(recording.cache_lookups["outcome"]) == [expected]
        assert torch.equal(result, f(torch.ones(2)))
