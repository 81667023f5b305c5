"""`torch.compile(f, backend="aotviz", fullgraph=True).aot_compile(inputs)` is saved, and loaded in another process.

Each process compares every result, gradient and written argument with eager.
"""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from aotviz.cache.values import Broken
from aotviz.frontends.saved_functions import CannotBeSaved, SavedFunction
from aotviz.ir.refusals import RanInEager
from tests.cache import kept_by_dynamo, saved_by_torch
from tests.processes import run_script, start, wait

pytestmark = pytest.mark.skipif(
    not hasattr(torch.compile(lambda x: x, backend="eager"), "aot_compile"), reason="this torch saves no function"
)
CASES = list(saved_by_torch.CASES)
Found = dict[str, dict[str, Any]]


def ran(folder: Path, target: Any, backend: str, cases: list[str]) -> Found:
    answer = folder / f"{target.__name__}.json"
    process = start(target, str(folder), str(answer), backend, cases)
    assert wait(process) == 0
    found: Found = json.loads(answer.read_text())
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Found]:
    folder = tmp_path_factory.mktemp("saved")
    first = ran(folder, saved_by_torch.save, "aotviz_eager", CASES)
    return first, ran(folder, saved_by_torch.load, "aotviz_eager", CASES)


@pytest.mark.parametrize("case", CASES)
def test_saved_function_is_right_elsewhere_and_is_not_traced_there(found: tuple[Found, Found], case: str) -> None:
    first, second = (one[case] for one in found)
    assert first["outcomes"][0] == "miss"
    assert second["outcomes"][0] == "hit"
    assert second["run"][0] == [] or case == "second derivative"


def test_call_whose_arguments_share_memory_is_compiled_again(
    found: tuple[Found, Found],
) -> None:
    """torch's own backends run the program that they compiled for arguments apart, and are silently wrong."""
    for one in found:
        told = one["memory"]["explained"]
        assert "`x` and `y` were in separate storages and overlap in one storage now" in " ".join(told.split())


def test_what_was_compiled_after_saving_is_not_in_the_file(found: tuple[Found, Found]) -> None:
    first, second = (one["memory"]["outcomes"] for one in found)
    assert first == ["miss"] * 4
    assert second == ["hit", *["miss"] * 3]


@pytest.mark.slow
def test_saved_function_of_inductor_brings_its_code(tmp_path: Path) -> None:
    for target in (saved_by_torch.save, saved_by_torch.load):
        found = ran(tmp_path, target, "aotviz", ["training", "sizes"])
    assert [one["outcomes"] for one in found.values()] == [["hit"], ["hit"]]
    assert "compiled by inductor" in found["training"]["text"]
    ours, theirs = ({path.name for path in folder.rglob("*.so")} for folder in sorted(tmp_path.glob("*.inductor")))
    assert ours
    assert ours <= theirs, "the second process compiled code"


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def compiled(fn: Any, **options: Any) -> Any:
    wrapped: Any = torch.compile(fn, backend="aotviz_eager", fullgraph=True, options=options)
    return wrapped.aot_compile(((torch.ones(3),), {}))


def loaded_from(path: Path) -> Any:
    with path.open("rb") as file:
        return torch.compiler.load_compiled_function(file)


def test_what_cannot_be_saved_runs_and_says_why_when_it_is_saved(tmp_path: Path) -> None:
    function = compiled(kept_by_dynamo.calls_users)
    assert torch.equal(function(torch.ones(3)), kept_by_dynamo.calls_users(torch.ones(3)))
    with pytest.raises(CannotBeSaved, match=r"`calls_users` cannot be saved: .*users"):
        function.save_compiled_function(str(tmp_path / "f"))
    function = compiled(scaled, partition_fn=lambda *args, **named: None)
    with pytest.raises(CannotBeSaved, match="an option of its backend is no data"):
        function.save_compiled_function(str(tmp_path / "f"))


def test_file_without_a_program_says_so_and_is_compiled_where_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with pytest.warns(UserWarning, match="the file of `scaled` has its graph, but no compiled program"):
        compiled(scaled, debug=True).save_compiled_function(str(path))
    assert torch.equal(loaded_from(path)(torch.ones(3)), torch.full((3,), 2.0))


def refused(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    view = y[0]
    y.t_()
    view.mul_(2)
    return y + 1


def test_function_that_aotviz_refuses_is_saved_and_runs_in_eager(tmp_path: Path) -> None:
    path, x = tmp_path / "f", torch.ones(3, 4, requires_grad=True)
    function: Any = torch.compile(refused, backend="aotviz_eager", fullgraph=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        function.aot_compile(((x,), {})).save_compiled_function(str(path))
        result = loaded_from(path)(x)
    assert [one.category for one in told] == [RanInEager, UserWarning, RanInEager]
    assert torch.equal(result, refused(x))


def test_what_is_in_the_file_is_data_and_is_checked() -> None:
    data = SavedFunction.serialize_compile_artifacts(compiled(scaled)._artifacts.compiled_fn)
    version, backend, options, mode, graph, programs = msgspec.msgpack.decode(data)

    def read(*fields: Any) -> Any:
        return SavedFunction.deserialize_compile_artifacts(msgspec.msgpack.encode(fields))

    (result,) = read(version, backend, options, mode, graph, programs)(torch.ones(3))
    assert torch.equal(result, torch.full((3,), 2.0))
    tree = msgspec.msgpack.decode(graph)
    ((path, (stacks, places)),) = tree[-1]
    without_stack = [*tree[:-1], [[path, [stacks, [len(stacks) for _ in places]]]]]
    of_no_part = [*tree[:-1], [["no_part", [stacks, places]]]]
    for wrong in (
        (version, backend, options, mode, msgspec.msgpack.encode(without_stack), programs),
        (version, backend, options, mode, msgspec.msgpack.encode(of_no_part), programs),
        ("0", backend, options, mode, graph, programs),
        (version, "builtins.exec", options, mode, graph, programs),
        (version, backend, {"no such option": 1}, mode, graph, programs),
        (version, backend, options, mode, graph[:-9], programs),
        (version, backend, options, mode, graph, [["key"]]),
        (version,),
        (),
    ):
        with pytest.raises(Broken):
            read(*wrong)
    for place in range(0, len(data), 7):
        with contextlib.suppress(Broken):
            SavedFunction.deserialize_compile_artifacts(data[:place] + bytes([data[place] ^ 8]) + data[place + 1 :])


def test_example_of_the_page_loads_what_it_saved(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/cache.md").read_text(encoding="utf-8")
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "aot_compile" in block]
    script = tmp_path / "example.py"
    script.write_text(example)
    done = run_script(script, cwd=tmp_path)
    assert "cache hit: the program was not compiled" in done.stdout, done.stderr
