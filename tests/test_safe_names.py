"""Names of the user's program are data: none becomes code, whatever it holds, and no line of ours pastes one.

The names here hold what ends a string, a comment, a line or an f-string, and what no source may hold at all. Each
place that has a name is given each of them. The generated source is then read back: all that is the user's stands in
literals, in comments, or in identifiers that `Source.fresh` made.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.comparing import repro
from aotviz.frontends.export import aot_export_joint_simple
from aotviz.ir.spelling import literal
from aotviz.lowerings import run_graph
from tests.tiers import slow

PACKAGE = Path(__file__).resolve().parents[1] / "aotviz"
RAN: list[str] = []  # what a name would run

HOSTILE = {
    "brace": "{__import__('tests.test_safe_names').test_safe_names.RAN.append('brace')}",
    "quote": "'); __import__('tests.test_safe_names').test_safe_names.RAN.append('quote') #",
    "double": '"""); RAN.append(1)',
    "line": "x\n    RAN.append('line')\n#",
    "return": "x\r__import__('tests.test_safe_names').test_safe_names.RAN.append('return')\r#",
    "separator": "x\u2028RAN.append(1)\x85y\x0cz\x1cw",
    "nul": "x\0y",
    "surrogate": "x\ud800y",
    "bidi": "x\u202e)1(dneppa.NAR\u2066",
    "backslash": "\\",
    "keyword": "lambda",
    "ours": "args",
    "variable": "node",
    "builtin": "len",
    "homoglyph": "ｌａｍｂｄａ",
    "ligature": "ﬁ",
    "empty": "",
    "dunder": "__class__",
    "percent": "%s %(x)s {0} {} {{}}",
}


class Lying(str):
    """A name that shows something else when its `repr` is asked for."""

    def __repr__(self) -> str:
        return "__import__('tests.test_safe_names').test_safe_names.RAN.append('repr')"

    def __format__(self, spec: str) -> str:
        return repr(self)


HOSTILE["lying"] = Lying("x")


@pytest.fixture(params=[slow(one) if number % 2 else one for number, one in enumerate(HOSTILE)])
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    RAN.clear()
    yield HOSTILE[request.param]
    assert not RAN, "a name was run"


def tokens(source: str) -> set[str]:
    """The identifiers of a source, each checked to be one that we would make."""
    ast.parse(source)
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    names = {token.string for token in found if token.type == tokenize.NAME}
    assert all(one.isidentifier() for one in names)
    assert "RAN" not in names
    assert "__import__" not in names
    return names


def with_name(fn: Any, name: str) -> Any:
    fn.__name__ = name
    fn.__qualname__ = name
    return fn


def test_the_name_of_a_function(name):
    def f(x, y):
        x.mul_(2)
        return (x * y).sum(), {"a": x}

    x = torch.ones(2)
    given = [x, torch.ones(2, requires_grad=True)]
    f = with_name(f, name)
    compiled = aotviz.compile(f, backend="eager", debug=True)
    out, _ = compiled(*given)
    out.backward()
    tokens(compiled.source)
    assert out.item() == 4.0
    nested = aotviz.aot_function(with_name(lambda a: a["x"] * 2, name), run_graph)
    assert torch.equal(nested({"x": torch.ones(2)}), torch.full((2,), 2.0))
    tokens(nested.source)
    assert torch.equal(nested({"x": torch.ones(2), "y": torch.ones(2)}), torch.full((2,), 2.0))
    assert len(nested.recording) == 2  # one for each set of keys
    aot_export_joint_simple(with_name(lambda x: (x * 2,), name), (torch.ones(2),), trace_joint=False)
    aotviz.trace_stages(f, torch.ones(2), torch.ones(2)).resume()(torch.ones(2), torch.ones(2))


def test_the_names_of_arguments_and_keys(name):
    def f(**given):
        (value,) = (v for v in given.values() if isinstance(v, torch.Tensor))
        (nested,) = (v for v in given.values() if isinstance(v, dict))
        value.add_(1)
        return {**given, "sum": value + nested[name], "view": value[:1]}

    given = {name: torch.ones(2), "nested key": {name: torch.ones(2)}}
    compiled = aotviz.aot_function(f, run_graph, debug=True)
    out = compiled(**given)
    tokens(compiled.source)
    assert torch.equal(out["sum"], torch.full((2,), 3.0))
    assert list(out[name]) == [2.0, 2.0]


def test_the_names_of_parameters_modules_and_classes(name):
    layer = nn.Linear(2, 2)
    key = name.replace(".", "_").replace("__class__", "x") or "x"  # torch looks for submodules as attributes
    layer._parameters[key] = nn.Parameter(torch.ones(2))
    layer._buffers[key + "b"] = torch.zeros(2)

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._modules[key] = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            layer._buffers[key + "b"].add_(1)
            return layer(x) * layer._parameters[key]

    Root.__name__ = name.replace("\0", "").replace("\ud800", "")
    root = Root()
    compiled = aotviz.aot_module(root, run_graph)
    x = torch.ones(1, 2)
    assert torch.equal(compiled(x), root(x))
    compiled(x).sum().backward()
    tokens(compiled.source)
    compiled = aotviz.compile(root, backend="eager", debug=True)
    compiled(x).sum().backward()
    tokens(compiled.source)


def test_the_names_of_duplicates_views_and_hooks(name):
    def f(**given):
        one, other = given.values()
        one.mul_(2)
        out = one * other
        if out.requires_grad:
            out.register_hook(with_name(lambda g: g * 2, name))
        return out, other[:1]

    base = torch.ones(4)
    for values in ((base, base), (base[:3], base[1:])):
        given = dict(zip((name, "b"), values, strict=True))
        compiled = aotviz.aot_function(f, run_graph)
        try:
            compiled(**given)
        except NotImplementedError:
            continue
        tokens(compiled.source)
    w = torch.ones(4, requires_grad=True)
    compiled = aotviz.aot_function(f, run_graph)
    out, _ = compiled(**{name: torch.ones(4), "b": w})
    out.sum().backward()
    assert torch.equal(w.grad, torch.full((4,), 4.0))
    tokens(compiled.source)


class Parts(torch.Tensor):
    """A tensor made of tensors that lie in attributes of any name."""

    inner = "x"

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, elem.shape, dtype=elem.dtype, requires_grad=elem.requires_grad)
        made.__dict__[cls.inner] = elem
        return made

    def __tensor_flatten__(self) -> Any:
        return [self.inner], None

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return Parts(parts[cls.inner])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def plain(value: Any) -> Any:
            return value.__dict__[cls.inner] if isinstance(value, Parts) else value

        out = func(*map(plain, args), **(kwargs or {}))
        return Parts(out) if isinstance(out, torch.Tensor) else out


def test_the_names_of_parts(name, monkeypatch):
    name = name.replace(".", "_").replace("__class__", "x")  # torch looks for parts as attributes
    monkeypatch.setattr(Parts, "inner", name)
    compiled = aotviz.aot_function(lambda x: x * 2, run_graph)
    x = Parts(torch.ones(2))
    assert torch.equal(compiled(x).__dict__[name], torch.full((2,), 2.0))
    tokens(compiled.source)


def test_what_torch_compile_names(name):
    torch._dynamo.reset()
    table = {name: torch.ones(2, requires_grad=True)}

    def f(x):
        return x * table[name]

    out = torch.compile(f, backend="aotviz_eager")(torch.ones(2))
    assert torch.equal(out, torch.ones(2))
    out.sum().backward()


def test_a_literal_of_a_subclass_is_that_of_its_type():
    assert literal(Lying("a'b")) == '"a\'b"'
    assert ast.literal_eval(literal(tuple(HOSTILE.values()))) == tuple(HOSTILE.values())
    with pytest.raises(TypeError):
        literal(object())


# --- the wall -------------------------------------------------------------------------------------------------------

# What yields an identifier or a literal, whatever it is given.
SAFE = {"fresh", "bind", "signature", "literal", "attribute", "keywords", "len", "int", "_numbers"}
NAMES = {"name", "names", "__name__", "__qualname__", "path", "descriptor", "subject", "fact", "message", "label"}


def pastes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, expression) of each name that is pasted into the first argument of a call of `line`, by itself or by a
    local variable."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        assigned: dict[str, list[ast.expr]] = {}
        node: Any
        for node in ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(node.value)
        for node in ast.walk(function):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "line"
            if called and node.args:
                yield from _pasted(node.args[0], assigned, set())


def _pasted(node: ast.expr, assigned: dict[str, list[ast.expr]], seen: set[str]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in SAFE:
            return
        if name == "str" and not isinstance(node.args[0], ast.Constant):
            yield node.lineno, ast.unparse(node)
    if isinstance(node, ast.FormattedValue) and node.conversion == ord("r"):
        return
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield node.lineno, ast.unparse(node)
        return
    if isinstance(node, ast.Name) and node.id in assigned and node.id not in seen:
        for value in assigned[node.id]:
            yield from _pasted(value, assigned, seen | {node.id})
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _pasted(child, assigned, seen)
        elif isinstance(child, ast.comprehension):
            yield from _pasted(child.iter, assigned, seen)


def test_no_line_of_source_pastes_a_name() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in pastes(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "spell these by ir/spelling.py or Source.fresh:\n" + "\n".join(found)


def test_source_is_compiled_in_one_place() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval")
    }
    theirs = {
        "live/failed_guards.py",  # the text of Dynamo's guards, which torch evaluates as well
        "teaching/playing.py",  # the questions of a course, which its notebook wrote
    }
    assert found == {"runtime/codegen.py", *theirs}


@pytest.mark.parametrize(
    "text",
    [
        "source.line(f'{call.name}()')",
        "source.line(f'{x} = {str(descriptor)}')",
        "text = f'{fn.__name__}()'\n    source.line(text)",
        "text = call.name\n    more = f'({text})'\n    emit.line(f'{more}', 'why')",
        "source.line('x.' + part.path)",
    ],
)
def test_the_wall_sees_a_pasted_name(text):
    assert list(pastes(ast.parse(f"def f():\n    {text}")))


@pytest.mark.parametrize(
    "text",
    [
        "source.line(f'{source.bind(call.name, call)}()')",
        "source.line(f'{x}({call.name!r})')",
        "source.line(f'{x}({literal(call.name)})', call.name)",
    ],
)
def test_the_wall_lets_identifiers_and_literals_pass(text):
    assert not list(pastes(ast.parse(f"def f():\n    {text}")))


def test_a_script_that_bisect_writes(name, tmp_path):
    def f(x):
        return x * 2

    f.__name__ = f.__qualname__ = name
    options = {"joint_pass": f, name: {name: name}, "other": Lying(name)}
    path = repro.write(tmp_path / "repro.py", f, (torch.ones(2),), {name: torch.ones(2)}, options, f"told of {name}")
    tokens(path.read_text(encoding="utf-8"))
