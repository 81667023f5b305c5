"""Every example in a docstring is run."""

from __future__ import annotations

import doctest
import functools
import importlib
import pkgutil
from pathlib import Path

import pytest
import torch

import aotviz

torch.set_num_threads(1)
FILES = {
    module.name: Path(module.module_finder.path, module.name.rpartition(".")[2])
    for module in pkgutil.walk_packages(aotviz.__path__, "aotviz.")
    if module.name != "aotviz.__main__"
}
MODULES = sorted(
    name
    for name, path in FILES.items()
    if ">>> " in (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
)


def examples(name):
    """The examples of a module; those of cached properties too, which doctest finds from Python 3.12 on."""
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {test.name: test for test in finder.find(module)}
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == name:
            for key, value in vars(kind).items():
                if isinstance(value, functools.cached_property):
                    path = f"{name}.{kind.__qualname__}.{key}"
                    found |= {test.name: test for test in finder.find(value.func, path, module=module)}
    return [test for test in found.values() if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name, tmp_path, monkeypatch, clean_dynamo):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    tests = examples(name)
    assert tests
    for test in tests:
        assert not runner.run(test).failed


def test_the_front_doors_have_examples():
    shown = {test.name for name in MODULES for test in examples(name)}
    for door in (
        "frontends.compile.compile",
        "frontends.functions.aot_function",
        "frontends.stepping.trace_stages",
        "recorder.sessions.record",
    ):
        assert f"aotviz.{door}" in shown
