"""The table of torch's private names: it has what the seam uses and nothing else, and a name that is gone is told."""

from __future__ import annotations

import ast
import contextlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from aotviz.torch_private import versions

SEAM = Path(versions.__file__).parent
FILES = sorted(path.stem for path in SEAM.glob("*.py") if path.stem not in ("__init__", "versions"))
OURS = {"_aotviz_replayed_ns", "_getframe"}  # a mark of ours; Python's
PREFIXES = {"_raw", "_raw_", "_raw_saved_"}  # of names that torch generates for what a node saved
NAMES = [(file, name) for file in FILES for name in versions.expected(file)]


def private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def uses(file: str) -> tuple[set[str], set[str]]:
    """What a source names: dotted names that come from an import of torch, and attributes of other objects."""
    tree = ast.parse((SEAM / f"{file}.py").read_text(encoding="utf-8"))
    known: dict[str, str] = {}
    dotted: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {one.asname or "torch": one.name if one.asname else "torch" for one in node.names}
            dotted |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "torch":
            known |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
            dotted |= {f"{node.module}.{one.name}" for one in node.names}
    known = {name: path for name, path in known.items() if path.split(".")[0] == "torch"}
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    attributes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            root, _, rest = path.partition(".")
            if root in known and re.fullmatch(r"[\w.]+", path):
                dotted.add(re.sub(r"\.__\w+__$", "", f"{known[root]}.{rest}"))
            elif root not in ("self", "cls") and private(node.attr):
                attributes.add(node.attr)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"_[a-z]\w*", str(node.value)):
            attributes.add(node.value)
    return set(filter(private, dotted)), attributes - own - OURS - PREFIXES


@pytest.mark.parametrize("file", FILES)
def test_the_table_has_the_private_names_that_the_seam_uses_and_no_other(file):
    dotted, attributes = uses(file)
    table = {name for name, _ in versions.names(file)}
    missing = {name for name in dotted if not any(f"{one}.".startswith(f"{name}.") for one in table)}
    missing |= attributes - {part for name in table for part in name.split(".")}
    assert not missing, f"versions.NAMES lacks, for {file}.py: {sorted(missing)}"
    unused = {name for name in table if name not in dotted and name.rpartition(".")[2] not in attributes}
    assert not unused, f"versions.NAMES has, for {file}.py, what that does not use: {sorted(unused)}"


def test_the_table_is_of_files_that_are_there():
    assert set(versions.NAMES) <= set(FILES)


@pytest.mark.parametrize(("file", "name"), NAMES, ids=[f"{file}: {name}" for file, name in NAMES])
def test_a_name_that_is_gone_is_told_in_one_sentence(file, name, monkeypatch):
    versions.probe(file)  # what it needs is loaded
    owner, _, last = name.rpartition(".")
    if name in sys.modules:
        monkeypatch.setitem(sys.modules, name, None)
    held = versions._resolved(owner)
    if last in getattr(held, "__dict__", ()) and (type(held) is ModuleType or isinstance(held, type)):
        with contextlib.suppress(TypeError):  # of a class written in C
            monkeypatch.delattr(held, last)
    if versions._is_there(name):  # it could not be taken away
        part = versions._part
        monkeypatch.setattr(versions, "_part", lambda one, asked: part(one, "gone" if asked == last else asked))
    with pytest.raises(versions.NameIsGone) as raised:
        versions.probe(file)
    told = str(raised.value)
    assert re.search(rf"{re.escape(name)}\b", told)
    assert torch.__version__ in told
    assert "2.11 to 2.15" in told


@pytest.mark.parametrize(
    ("version", "name", "is_expected"),
    [
        ("2.13.0", "torch.fx._symbolic_trace._is_fx_tracing_flag", True),
        ("2.14.1+cpu", "torch.fx._symbolic_trace._is_fx_tracing_flag", False),
        ("2.13.0", "torch.fx._symbolic_trace._is_fx_tracing_context", False),
        ("2.14.1+cpu", "torch.fx._symbolic_trace._is_fx_tracing_context", True),
    ],
)
def test_a_name_of_some_releases_is_expected_in_these(version, name, is_expected):
    assert (name in versions.expected("tracers", version)) == is_expected


def test_a_compilation_under_a_torch_without_a_name_is_refused_before_it_begins():
    program = """
        import torch
        del torch._C._storage_address, torch._C._set_grad_enabled
        import aotviz
        try:
            aotviz.compile(lambda x: x + 1)
        except ImportError as error:
            print(error)
    """
    code = "\n".join(line[8:] for line in program.splitlines())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"This is torch {torch.__version__}, which has no torch._C._set_grad_enabled; aotviz needs" in done.stdout


def test_probing_costs_less_than_five_milliseconds_and_loads_no_inductor():
    program = """
        import sys, time
        import aotviz, torch
        aotviz.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        from aotviz.torch_private import versions
        lazy = {"inductor", "inductor_memory", "oracle"}
        loaded = [name.rpartition(".")[2] for name in sys.modules if name.startswith("aotviz.torch_private.")]
        assert not lazy & set(loaded), loaded
        took = []
        for _ in range(5):  # the first times are for the imports themselves
            began = time.process_time()
            for file in loaded:
                versions.probe(file)
            took.append(time.process_time() - began)
        assert "torch._inductor.compile_fx" not in sys.modules
        print(min(took))
    """
    code = "\n".join(line[8:] for line in program.splitlines())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.005
