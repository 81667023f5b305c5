"""A user's compiler that says how its results are stored is cached with them; what it stored is treated as code."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._inductor.output_code import OutputCode

import aotviz
from aotviz.__main__ import main
from aotviz.cache.seals import CODE
from aotviz.cache.store import Store

Door = Callable[[Path, type["Result"]], Any]
compiled_graphs: list[int] = []
loaded: list[int] = []


class Result(OutputCode):
    """The class that a user's compiler stores."""

    _boxed_call = True

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__()
        self.graph, self.is_ready = graph, True

    def __call__(self, inputs: Sequence[Any]) -> Any:
        assert self.is_ready
        return self.graph(*inputs)

    def prepare_for_serialization(self) -> None:
        self.is_ready = False

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        self.is_ready = True
        loaded.append(1)


class Unbound(Result):
    """A result that cannot be pickled."""

    def prepare_for_serialization(self) -> None:
        raise RuntimeError("it has a handle")


class Compiler(SerializableAOTDispatchCompiler):
    """It counts, and what it counts is not to be in the key."""

    def uuid(self) -> str:
        return f"version 1 of {self.output_code_ty.__name__}"


def by(kind: type[Result]) -> Compiler:
    def compiler(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Result:
        compiled_graphs.append(len(inputs))
        return kind(graph)

    return Compiler(kind, compiler)


def by_compile(folder: Path, kind: type[Result]) -> Any:
    return aotviz.compile(step, backend=by(kind), cache=folder)


def by_aot_function(folder: Path, kind: type[Result]) -> Any:
    return aotviz.aot_function(step, by(kind), cache=folder)


def step(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).exp()


def trained(
    door: Callable[[Path, type[Result]], Any], folder: Path, kind: type[Result] = Result
) -> tuple[str, int, int]:
    """(answer of the cache, graphs that were compiled, results that were loaded) of one run, which equals eager."""
    torch._dynamo.reset()
    compiled_graphs.clear()
    loaded.clear()
    compiled = door(folder, kind)
    x = torch.ones(3, requires_grad=True)
    y = torch.ones(3, requires_grad=True)
    compiled(x).sum().backward()
    step(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    return compiled.recording.cache_lookups.outcome.iloc[-1], len(compiled_graphs), len(loaded)


@pytest.mark.parametrize("door", [by_compile, by_aot_function])
def test_its_results_come_from_the_cache(door: Any, tmp_path: Path) -> None:
    assert trained(door, tmp_path) == ("miss", 2, 0)
    assert trained(door, tmp_path) == ("hit", 0, 2)


def test_what_cannot_be_pickled_is_compiled_again_without_tracing(tmp_path: Path) -> None:
    assert trained(by_compile, tmp_path, Unbound) == ("miss", 2, 0)
    assert trained(by_compile, tmp_path, Unbound) == ("hit", 2, 0)


def test_an_import_takes_it_only_with_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "all.cache"
    trained(by_compile, tmp_path / "a")
    assert main(["cache", "export", str(file), "--folder", str(tmp_path / "a")]) == 0
    assert main(["cache", "import", str(file), "--folder", str(tmp_path / "data")]) == 0
    assert "left out the compiled code of 2 graphs" in capsys.readouterr().out
    assert trained(by_compile, tmp_path / "data") == ("hit", 2, 0)
    assert main(["cache", "import", str(file), "--trust-code", "--folder", str(tmp_path / "code")]) == 0
    assert trained(by_compile, tmp_path / "code") == ("hit", 0, 2)


def test_a_part_of_another_class_is_not_used(tmp_path: Path) -> None:
    trained(by_compile, tmp_path)
    store = Store(tmp_path)
    kept = store.keys()
    for key in kept:
        for entry in store.entries(key.key):
            for name in [name for name in key.parts if name.startswith(CODE)]:
                store.replace_part(entry, name, pickle.dumps({"no": "result"}))
    store.close()
    assert trained(by_compile, tmp_path) == ("hit", 2, 0)


def test_another_version_of_the_compiler_is_a_miss(tmp_path: Path) -> None:
    assert trained(by_compile, tmp_path)[0] == "miss"
    assert trained(by_compile, tmp_path, Unbound)[0] == "miss"
