"""The walls of the house that import-linter and ruff can't see.

import-linter knows of torch only that it is imported, and ruff's banned-api sees names that are spelt out. So this
reads the sources: outside `aotviz/torch_private/` nothing may name a private module or attribute of torch, be it in
an import, in a chain such as `torch.fx._x`, by `getattr`, or on an object that torch made (`tensor._base`). And no
source of ours, the seam included, may import torch's own AOTAutograd: that is what aotviz replaces.
"""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import CheckpointFunction

from aotviz.reading.recording import Recording
from tests.ui import fixture

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "aotviz"
ORACLE = ("torch._functorch._aot_autograd", "torch._functorch.aot_autograd")
PUBLIC_ELSEWHERE = {  # underscored names that other libraries, or Python, declare for others to use
    "_esm",  # anywidget
    "_repr_mimebundle_",  # IPython
    "_repr_html_",  # IPython
    "_getframe",  # Python: sys
    "_check",  # torch: a name that its documentation has
    "_ih",  # IPython: the cells of a notebook, in the order in which they ran
    "_fields",  # namedtuple
    "_asdict",  # namedtuple
    "_boxed_call",  # the mark by which torch's compilers and ours say that they take a list of arguments
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__")) and name != "_"


@pytest.fixture(scope="module")
def sources() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that a source imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def own_names(tree: ast.Module) -> set[str]:
    """Private names that a source defines: functions, classes, variables, fields, attributes of self."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
    return {name for name in names if is_private(name)}


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def names_of_torch() -> set[str]:
    """Private names of objects that torch makes and a pipeline meets."""
    kinds = [torch.Tensor, torch.UntypedStorage, torch.Generator, torch.nn.Module(), torch.nn.LSTM(1, 1)]
    kinds += [fx.Graph(), fx.Node, fx.GraphModule, fx.Interpreter, ShapeEnv, torch.autograd.Function]
    kinds += [torch.autograd.graph.Node, CheckpointFunction._backward_cls, torch.ops.aten.add.Tensor]
    kinds += [FakeTensorMode, FunctionalTensor, FunctionalTensorMode()]
    return {name for kind in kinds for name in dir(kind) if is_private(name)} - {"_forward"}


TORCHS = names_of_torch()


def private_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of each private name that is not this source's own.

    A source's own names are private to it, so an object of which it reads one is its own too; unless torch has an
    attribute of that name: then it is only on `self` that the name is ours.
    """
    own = own_names(tree)
    for line, name in imported(tree):
        if name.split(".")[0] != "aotviz" and any(is_private(part) for part in name.split(".")):
            yield line, f"import of {name}"
    for node in ast.walk(tree):
        name, on_self = "", False
        if isinstance(node, ast.Attribute):
            name, on_self = node.attr, is_self(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            argument = node.args[1]
            if node.func.id in ("getattr", "hasattr", "setattr", "delattr") and isinstance(argument, ast.Constant):
                name = str(argument.value)
        elif isinstance(node, ast.JoinedStr):  # a line of generated code
            text = "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
            name = next((found for found in re.findall(r"\w\.(_\w+)", text) if found in TORCHS), "")
        if is_private(name) and name not in PUBLIC_ELSEWHERE and not (name in own and (on_self or name not in TORCHS)):
            yield node.lineno, f"attribute {name}"


def test_nothing_private_of_torch_is_named_outside_the_seam(sources: dict[Path, ast.Module]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path, tree in sources.items()
        if "torch_private" not in path.parts
        for line, what in private_uses(tree)
    ]
    assert not found, "reach these through aotviz/torch_private/:\n" + "\n".join(found)


# `aotviz.verify` compares with torch's own AOTAutograd, so one file of the seam may import it, when it is called.
MAY_COMPARE = PACKAGE / "torch_private" / "oracle.py"


def test_no_source_imports_the_implementation_that_aotviz_replaces(sources: dict[Path, ast.Module]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in sources.items()
        for line, name in imported(tree)
        if name.startswith(ORACLE) and path != MAY_COMPARE
    ]
    assert not found, "\n".join(found)


def test_the_oracle_is_imported_only_when_a_comparison_is_asked_for(sources: dict[Path, ast.Module]) -> None:
    tree = sources[MAY_COMPARE]
    at_import = [name for statement in tree.body for _, name in imported(ast.Module([statement], []))]
    inside = [name for node in tree.body if isinstance(node, ast.FunctionDef) for _, name in imported(node)]
    assert any(name.startswith(ORACLE) for name in inside)
    assert not [name for name in at_import if name.startswith(ORACLE) and name not in inside]
    importers = {
        str(path.relative_to(PACKAGE))
        for path, tree in sources.items()
        for _, name in imported(tree)
        if name.startswith("aotviz.torch_private.oracle")
    }
    assert importers == {"comparing/caught_graphs.py"}


@pytest.mark.parametrize(
    "text",
    [
        "import torch._dynamo",
        "from torch import _C",
        "from torch.utils._pytree import tree_map",
        "import torch\ntorch._C._foo()",
        "import torch as t\nt.fx._x",
        "def f(x):\n    return x._base",
        "def f(x):\n    return getattr(x, '_version')",
        "def f(x):\n    return f'{x}._version'",
        "def _base(x):\n    return x._base",  # a name of ours is no excuse for torch's of the same name
        "class A:\n    def __init__(self):\n        self._base = 1\n    def f(self, x):\n        return x._base",
        "def _rename(node, name):\n    return node._rename(name)",
    ],
)
def test_the_search_finds_a_private_name(text: str) -> None:
    assert list(private_uses(ast.parse(text)))


def test_the_search_leaves_public_and_own_names_alone() -> None:
    text = (
        "import torch\nfrom aotviz._x import y\nclass A:\n    def f(self):\n        self._n = torch.ones(2).__len__()\n"
    )
    text += "    def g(self, other):\n        return self._base(other._n)\n    def _base(self, n):\n        return n\n"
    assert not list(private_uses(ast.parse(text)))


def without_torch(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter in which torch can't be imported."""
    block = """
        import sys

        class Barred:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("torch", "transformers"):
                    raise ModuleNotFoundError(f"{name} is barred in this test", name=name.split(".")[0])

        sys.meta_path.insert(0, Barred())
    """
    program = textwrap.dedent(block) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_recording_opens_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "a.aotviz"
    Recording(fixture.recording().data).save(path)
    done = without_torch(f"""
        import aotviz
        recording = aotviz.load({str(path)!r})
        for compilation in recording:
            for table in ("stages", "inputs", "outputs", "saved_tensors", "evidence"):
                assert len(getattr(compilation, table).columns)
        print(recording)
        recording.to_html({str(tmp_path / "a.html")!r})
        assert not any(name.split(".")[0] == "torch" for name in sys.modules)
    """)
    assert done.returncode == 0, done.stderr
    assert "compilation" in done.stdout
    assert (tmp_path / "a.html").stat().st_size > 10_000


def test_what_needs_torch_says_how_to_install_it() -> None:
    done = without_torch("""
        import contextlib, io
        import aotviz
        from aotviz.__main__ import main

        for name in ("compile", "record", "verify", "watch", "aot_function"):
            try:
                getattr(aotviz, name)
            except ImportError as error:
                print(error)
        for command in (["verify", "program.py:f"], ["demo"]):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
                print(main(command))
            print(said.getvalue().strip())
    """)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    needs = "needs torch, which is not installed: pip install 'aotviz[torch]'"
    assert told[:5] == [f"aotviz.{name} {needs}" for name in ("compile", "record", "verify", "watch", "aot_function")]
    assert told[6].endswith(f"verify {needs}")
    assert told[8].endswith("pip install 'aotviz[demo]'")
    assert told[5] == told[7] == "2"


def test_no_file_is_over_600_lines_and_no_function_over_100() -> None:
    generated = {"wire.ts"}
    folders = [
        ROOT / name for name in ("aotviz", "benchmarks", "tests", "extensions/core/src", "extensions/jupyterlab/src")
    ]
    paths = [path for folder in folders for end in ("*.py", "*.ts") for path in folder.rglob(end)]
    long = [f"{path}: {count} lines" for path in paths if path.name not in generated and (count := lines(path)) > 600]
    for path in (path for path in paths if path.suffix == ".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno
                if (count := node.end_lineno - node.lineno + 1) > 100:
                    long.append(f"{path}:{node.lineno}: {node.name} has {count} lines")
    assert len(paths) > 200
    assert not long, "\n".join(long)


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


# A function is compiled for a file by a backend, and read from a file into one: few programs load the file's half.
# A call holds the run that traced it, and forms.py imports the run's type only: pyproject.toml names that arrow, too.
CIRCLES = (
    ("aotviz.frontends.backend", "aotviz.frontends.saved_functions"),
    ("aotviz.ir.forms", "aotviz.tracing.forward"),
)


def test_no_modules_import_each_other_not_even_inside_a_function_or_for_types(sources: dict[Path, ast.Module]) -> None:
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources}
    known = {name.removesuffix(".__init__") for name in names.values()} - {"aotviz"}
    needs = {
        name: {
            max((one for one in known if f"{dotted}.".startswith(f"{one}.")), key=len, default="")
            for _, dotted in found
        }
        - {name.removesuffix(".__init__"), ""}
        for path, name in names.items()
        if (found := list(imported(sources[path])))
    }
    for one, other in CIRCLES:
        assert other in needs[one]
        needs[one].remove(other)
    assert len(list(graphlib.TopologicalSorter(needs).static_order())) > 300  # raises CycleError, which names them
