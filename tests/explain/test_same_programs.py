"""Functions whose graphs have one key in the FX graph cache, and what torch does with the second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch._inductor.utils import fresh_cache

import aotviz
from aotviz.reading.recording import Recording
from tests.explain.logs import logged


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    with fresh_cache():
        yield


def first(x, y):
    return (x * 2 + y).sin()


def of_other_inputs(a, b):
    return (a * 2 + b).sin()


def of_other_names(a, y):
    doubled = a * 2
    added = doubled + y
    return added.sin()


def of_another_number(x, y):
    return (x * 3 + y).sin()


def equal(x, y):
    return (x * 2 + y).sin()


def told(second: Callable[..., torch.Tensor], folder: Path) -> tuple[list[str], Recording]:
    """The remarks, and the recording."""

    def program() -> None:
        for fn in (first, second):
            torch._dynamo.reset()
            torch.compile(fn)(torch.ones(8), torch.ones(8))

    recording = logged(program, folder)
    return [text for text in recording.explain().sentences if "of the FX graph cache" in text], recording


def keys(recording: Recording, cache: str) -> list[str]:
    table = recording.cache_misses()
    return list(table[table.cache == cache].key)


@pytest.mark.parametrize(("second", "names"), [(of_other_inputs, "inputs"), (of_other_names, "inputs and values")])
def test_two_graphs_that_differ_in_names_are_one_entry(
    second: Callable[..., torch.Tensor], names: str, tmp_path: Path
) -> None:
    (remark,), recording = told(second, tmp_path)
    one, other = recording.compilations
    assert remark == (
        f"The graph of reset 1: `{second.__name__} [0/0]` is that of `first [0/0]` but for the names of its "
        f"{names}: "
        "1 entry of the FX graph cache, so its kernels were not built again. AOTAutograd traced it again, because the "
        "key of its cache has the names."
    )
    assert len(set(keys(recording, "fx"))) == 1
    assert len(set(keys(recording, "aotautograd"))) == 2
    assert list(recording.cache_misses().outcome) == ["miss", "miss", "miss", "hit"]
    assert remark in recording.explain(other.id).sentences
    assert remark not in recording.explain(one.id).sentences


def test_two_functions_with_one_graph_are_told_without_names(tmp_path: Path) -> None:
    (remark,), recording = told(equal, tmp_path)
    assert "Inductor got the same graph of" in remark
    assert "names" not in remark
    assert len(set(keys(recording, "aotautograd"))) == 1


def test_other_graphs_are_not_told(tmp_path: Path) -> None:
    remarks, recording = told(of_another_number, tmp_path)
    assert remarks == []
    assert len(set(keys(recording, "fx"))) == 2


def test_one_function_that_is_found_again_is_not_told(tmp_path: Path) -> None:
    remarks, recording = told(first, tmp_path)
    assert remarks == []
    assert len(keys(recording, "fx")) == 2
    assert len(set(keys(recording, "fx"))) == 1


def test_a_watch_tells_it_too() -> None:
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        for fn in (first, of_other_inputs):
            torch.compile(fn)(torch.ones(8), torch.ones(8))
    assert "but for the names of its inputs" in str(recording.explain()).replace("\n  ", " ")
