"""The private names of torch that the seam uses: they are found in its sources, and a name that is gone is told."""

from __future__ import annotations

import os
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
NAMES = [(file, name) for file in FILES for name in versions.expected(file)]
OLDEST = ".".join(map(str, min(versions.SUPPORTED)))
FOUND_IN_OLDEST = Path(__file__).with_name(f"names_in_torch_{OLDEST}.txt")


@pytest.mark.parametrize("file", FILES)
def test_each_private_attribute_that_the_seam_uses_has_an_owner(file):
    unknown = [name for name in versions.names(file) if name.startswith("?")]
    assert not unknown, f"versions.OWNERS does not say whose these are, in {file}.py: {unknown}"


def test_the_tables_have_no_name_that_the_seam_does_not_use():
    used = {name for file in FILES for name in versions.names(file)}
    table = {f"{owner}.{name}" for owner, names in versions.OWNERS.items() for name in names.split()}
    assert table <= used
    assert set(versions.RELEASES) <= used


def test_each_name_was_found_in_the_oldest_release():
    """CI has a newer one. Where torch is the oldest, AOTVIZ_UPDATE_GOLDENS=1 writes the file of what was found."""
    wanted = {name for file in FILES for name in versions.expected(file, OLDEST)}
    if versions.release(torch.__version__) == versions.release(OLDEST) and os.environ.get("AOTVIZ_UPDATE_GOLDENS"):
        FOUND_IN_OLDEST.write_text("".join(f"{name}\n" for name in sorted(wanted) if versions._is_there(name)))
    unknown = sorted(wanted - set(FOUND_IN_OLDEST.read_text().splitlines()))
    assert not unknown, f"look these up in torch {OLDEST} (docs/developing.md, Releases of torch): {unknown}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch\ntorch._C._f", {"torch._C._f"}),
        ("import torch.fx as fx\nfx.graph._PyTreeInfo(1)", {"torch.fx.graph._PyTreeInfo"}),
        ("from torch._guards import tracing as t", {"torch._guards.tracing"}),
        ("def f(tensor): return tensor._version", {"torch.Tensor._version"}),
        ("from operator import attrgetter\nattrgetter('_base')", {"torch.Tensor._base"}),
        ("def f(x): return dict(_base=x)", {"torch.Tensor._base"}),
        ("def f(x): return getattr(x, '_base')", {"torch.Tensor._base"}),
        ("def f(x): return getattr(x, '_base', None), hasattr(x, '_version'), {}.get('_type')", set()),
        ("class A:\n def _f(self): return self._version, A._f", set()),
        ("import sys, torch\nsys._getframe(1), torch.ones(2)", set()),
        ("def f(x): return x._of_nobody", {"?._of_nobody"}),
    ],
)
def test_names_are_found_in_sources(source, found, tmp_path, monkeypatch):
    (tmp_path / "some.py").write_text(source)
    monkeypatch.setattr(versions, "__file__", str(tmp_path / "versions.py"))
    assert versions.names("some") == found


@pytest.mark.parametrize(("file", "name"), NAMES, ids=[f"{file}: {name}" for file, name in NAMES])
def test_a_name_that_is_gone_is_told_in_one_sentence(file, name, monkeypatch):
    versions.probe(file)  # what it needs is loaded
    owner, _, last = name.rpartition(".")
    if name in sys.modules:
        monkeypatch.setitem(sys.modules, name, None)
    held = versions._resolved(owner)
    if last in getattr(held, "__dict__", ()) and (type(held) is ModuleType or is_changeable(held)):
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


def is_changeable(value: object) -> bool:
    """Whether it is a class whose attributes can be taken away; those of one written in C often can't."""
    immutable = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
    return isinstance(value, type) and not value.__flags__ & immutable


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
    assert f"This is torch {torch.__version__}, which has no torch._C._storage_address; aotviz needs" in done.stdout


@pytest.mark.slow
def test_probing_loads_no_inductor():
    program = """
        import sys
        import aotviz, torch
        aotviz.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        from aotviz.torch_private import versions
        lazy = {"inductor", "oracle"}
        loaded = [name.rpartition(".")[2] for name in sys.modules if name.startswith("aotviz.torch_private.")]
        assert not lazy & set(loaded), loaded
        for file in loaded:
            versions.probe(file)
        assert "torch._inductor.compile_fx" not in sys.modules
    """
    code = "\n".join(line[8:] for line in program.splitlines())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
